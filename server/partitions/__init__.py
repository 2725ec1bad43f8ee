"""Partitions on this broker: their logs, their roles, their waiters, and their replication.

`registry` has all of them and changes their roles, `partition` is one of them; `followers` fetches from leaders on
other brokers, `in_sync` proposes ISRs of partitions led here to the controller. May import `network` and below, not
`cluster`.

Not obvious:

- Staged is not written. Between `append` and `write` offsets are assigned but not readable. A failed write revokes
  them, and may be noticed early: by a later `append` of the round that starts a segment, or because a read took the
  directory offline. The caller of `append` gets its result from `Partition.outcome_of` after the write; until then the
  partition rejects appends, so that no lost offset is assigned twice. Outside a round call `append` and `write`
  together.
- A lack of resources is not a broken disk. Without descriptors or memory, or interrupted (`StorageError.is_ours`), the
  request gets KAFKA_STORAGE_ERROR and the next attempt is made as usual. Coordinators have replayed what was staged,
  so they reload their partition (`CoordinatorRuntime.write_failed`). Any other error, a full disk too, takes the log
  directory offline.
- A new partition leads at once, its files come later (`barnabas.logdir.logs.making`). If its directory fails before
  anything was appended, it goes on in another one (`Partitions.dir_failed`).
- A failed log directory is offline, not the broker. Its partitions are removed from `svc.partitions` (look-ups
  raise KAFKA_STORAGE_ERROR), its logs are `abandoned`, it gets no clean-shutdown mark; the controller elects other
  leaders. The broker stops only with the last directory.
- Keep no `partition.log` over an await: a move between directories replaces it.
- A stop answers all waiting requests (`Partitions.end`): fetches with the records there are, members with
  NOT_COORDINATOR, acks=all with NOT_LEADER_OR_FOLLOWER.
"""
