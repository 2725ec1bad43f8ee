"""Log directories without a broker: read-only, ours and Apache Kafka's, in use or a copy.

    from barnabas.logdir.offline import open_log, open_log_dir

    for log in open_log_dir("/data/kafka").partitions:
        print(log.topic, log.partition, log.start_offset, log.end_offset())
    for record in open_log("/data/kafka/orders-0").records(start_offset=1000, isolation="read_committed"):
        print(record.offset, record.key, record.value, record.batch.producer_id)
    tables = open_log("/data/kafka/orders-0").to_arrow()        # extra `arrow`

`LogReader` and `SegmentReader` share `batches`, `records` and `to_arrow` (source.py says what the bounds mean). What
cannot be read raises `CorruptRecords` with file and position; `verify` (verify.py) continues and names every problem.
This module costs no more than `logdir` itself: no event loop, no broker; Arrow is imported by `to_arrow` only.

Not obvious:

- Offline readers have a walker of their own (`walk`), because they must say where and why they stop, and continue
  behind a bad batch. They open files only through `ReadOnlyDisk`.
"""

from __future__ import annotations

from os import PathLike, fspath

from barnabas.logdir.offline.batch import Batch, LogRecord
from barnabas.logdir.offline.directory import LogDirReader, is_log_dir
from barnabas.logdir.offline.errors import NotALog, SegmentGone
from barnabas.logdir.offline.log import LogReader
from barnabas.logdir.offline.segment import IndexEntry, SegmentReader
from barnabas.logdir.offline.walk import Damaged

__all__ = [
    "Batch",
    "Damaged",
    "IndexEntry",
    "LogDirReader",
    "LogReader",
    "LogRecord",
    "NotALog",
    "SegmentGone",
    "SegmentReader",
    "is_log_dir",
    "open_log",
    "open_log_dir",
]


def open_log(path: str | PathLike[str], *, topic: str | None = None, partition: int | None = None) -> LogReader:
    """A partition's directory, or one file of it. `topic`, `partition`: instead of what its name says. Raises
    `NotALog`, OSError.
    """
    return LogReader(fspath(path), topic=topic, partition=partition)


def open_log_dir(path: str | PathLike[str]) -> LogDirReader:
    """A broker's log directory. Raises `NotALog`, OSError."""
    return LogDirReader(fspath(path))
