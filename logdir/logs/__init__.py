"""One partition's log: appending, reading, cutting, compacting, and opening it after a clean stop or none.

May import `files`, `segments` and `compaction`. `log` is what everybody else uses; which parts a log is made of, and
which uses which, stands in `state`.
"""
