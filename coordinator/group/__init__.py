"""Groups of four kinds, and committed offsets. The face is `coordinator`; `shard.GroupShard` is the whole machine of
one partition of `__consumer_offsets`.

    classic/   members agree among themselves, and one of them assigns
    consumer/  the coordinator assigns partitions (KIP-848); from a classic group to one of these, and back
    share/     several members have one partition, and the coordinator gives out records (KIP-932); see also `..share`
    streams/   the coordinator assigns tasks of a topology (KIP-1071)
    epochs/    what the last three have in common

Here is what all kinds share: `store` (a group's records, and which kind it is), `offsets` with `offset_operations`,
`membership` (the classic protocol's requests), `views`, `removals`, `topics` and `subscriptions`, `deadlines`.

Not obvious:

- Groups with epochs, of whatever kind, have their members, targets, records' frame and timers from `epochs`.
- A group changes its kind in `GroupStore.replay`: the batch's tombstones end the one, its records begin the other,
  `Offsets` go along. What a downgraded group's members wait for lives in `GroupContext.next_classic` until the record
  is replayed.
- An offset of a transaction is real from its marker's offset, but of two commits the later *commit* wins.
"""
