"""The operating system's files and what stands in them: disk calls, names, checkpoints, indexes, formats.

Imports no other room. `disk` is the one seam to the operating system, and `memory_disk` takes its place in tests.

Not obvious:

- Indexes are kept in memory and saved, not mapped: a mapped sparse file on a full disk would end the process. The files
  have Apache Kafka's format and their exact size.
- The cleaner's checkpoint keeps logs that are no longer compacted: recovery knows by it which gaps are no loss.
"""
