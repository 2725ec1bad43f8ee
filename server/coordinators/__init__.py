"""Groups and transactions: what drives the machines of `coordinator` over partitions of the internal topics.

`driver` appends what a machine decided, replays it, waits for its commit and gives the answers; `groups` and
`transactions` are the two that there are. Markers of transactions: `marker_sender` has them written by the partitions'
leaders, `marker_writer` writes those of partitions led here. May import `partitions`, `cluster` and below, not
`storage`.

Not obvious:

- A transaction marker is never abandoned because the image does not show the partition: the store decides.
- What a coordinator wrote and could not commit in time is answered with an error, and still counts when it is
  committed.
"""
