"""Partitions on this broker: their logs, their roles, who waits for them, and how they are replicated.

`registry` has them all and their changes of role, `partition` is one of them; `followers` fetches what is led
elsewhere, `in_sync` tells the controller who keeps up with what is led here. May import `network` and
below, not `cluster`.

Not obvious:

- Staged is not written. Between `append` and `write` offsets are assigned and nobody can read them. A failed write
  takes them back, and may be noticed early: by a later `append` of the round that starts a segment, or because a read
  took the directory offline. Whoever staged asks `Partition.outcome_of` at the write's end; until then the partition
  takes nothing more, lest a lost offset be given to somebody else. Outside a round call `append` and `write` together.
- What the process lacks is not a broken disk. Without descriptors or memory, or interrupted (`StorageError.is_ours`),
  the request gets KAFKA_STORAGE_ERROR and the next attempt is made as usual. Coordinators have replayed what was
  staged, so they load their partition again (`CoordinatorRuntime.write_failed`). Everything else, a full disk too,
  ends the log directory.
- A failed log directory is offline, not the broker. Its partitions vanish from `svc.partitions` (look-ups raise
  KAFKA_STORAGE_ERROR), its logs are `abandoned`, it gets no mark of a clean stop; the controller elects others. Only
  with the last one the broker ends.
- Keep no `partition.log` over an await: a move between directories puts another object there.
- A stop answers whoever waits (`Partitions.end`): fetches with what there is, members with NOT_COORDINATOR, acks=all
  with NOT_LEADER_OR_FOLLOWER.
"""
