"""Consumer groups: the classic protocol and committed offsets. The face is `coordinator`; `shard.GroupShard` is the
whole machine of one partition.
"""
