"""Log directories: one (`log_dir`; its parts stand in `dir_state`), all of a broker (`log_dirs`), and what one holds
before it is opened (`survey`).

May import every other room but `offline`.

Not obvious:

- A directory can be set aside and put back while the process runs (`snapshot`), for test suites; large segments
  are shared by hard links, so nothing of ours may write to them but at their end.
- What recovery changes is synced once, for the whole directory, when all logs are open (`loading`); so nothing may be
  appended before.
- A move's mark (`moved`) goes last, when the original's end is synced: by it the next start knows which of two copies
  to keep.
- A directory of a topic id that the metadata do not have becomes `-stray`. Deletions are synced, once per directory,
  before StopReplica is answered.
"""
