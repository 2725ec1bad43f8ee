"""Consumer groups: the classic protocol, the next generation (KIP-848), how groups go over from one to the other, and
committed offsets. The face is `coordinator`; `shard.GroupShard` is the whole machine of one partition.
"""
