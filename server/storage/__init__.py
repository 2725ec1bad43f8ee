"""The upkeep of log directories: what time asks for, compaction, moves from one to another, adoption.

May import `partitions`, `cluster` and below, not `coordinators`. What files look like is known by `logdir` alone.

Not obvious:

- The cleaner chooses and puts in place here; a process of its own (`cleaner_worker`) reads and writes, and ends with
  the broker.
- A broker under test syncs nothing (`unsynced_disk`) and compacts in a thread, so that what it does can be waited for;
  its snapshots lie beside its first log directory (`snapshots`).
- A new embedded store adopts the topics on disk (`adoption`); a used one never does.
"""
