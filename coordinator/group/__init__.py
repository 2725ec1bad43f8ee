"""Consumer groups: the classic protocol, the next generation (KIP-848), how groups go over from one to the other, and
committed offsets. The face is `coordinator`; `shard.GroupShard` is the whole machine of one partition.

Not obvious:

- Groups with epochs, of whatever kind, have their members, targets, records' frame and timers from `epochs`.
- A group changes its kind in `GroupStore.replay`: the batch's tombstones end the one, its records begin the other,
  `Offsets` go along. What a downgraded group's members wait for lives in `GroupContext.next_classic` until the record
  is replayed.
- An offset of a transaction is real from its marker's offset, but of two commits the later *commit* wins.
"""
