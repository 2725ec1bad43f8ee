"""franz-go (Go): a small program (`src`) whose clients do as they are asked, built once by `go` with its modules as
go.sum has them. Its members of share groups are in `subjects/share_groups`, beside others.
"""
