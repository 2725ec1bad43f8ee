"""One partition's log: appending, reading, truncating, compacting, and opening it after a clean stop or none.

May import `files`, `segments` and `compaction`. `log` is the interface for all others; `state` lists the parts of a log
and which uses which.

Not obvious:

- A new log has no directory and no files until its first write, or until a thread has made them (`making`): creating
  thousands of partitions touches no disk.
- A truncation is in memory first, whole, then on the disk in steps that can be done again (`tail_repair`; `cutting` in
  `segments`): what lacks a descriptor half way continues before the next write.
- A cleaned segment takes its place in five steps, alternating between thread and loop (`compacted`). Once the `.swap`
  names are synced, a truncation ends the swap first, as otherwise recovery would bring back what was cut.
- Recovery unlinks no records. A broker alone keeps segments behind a gap, a replica renames them (`.aside`,
  `recovery`).
"""
