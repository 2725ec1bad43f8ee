"""How far a group is behind in a partition: in records, and in seconds.

In records: the high watermark less the committed offset, as kafka-consumer-groups.sh counts; 0 for an offset beyond it.
In seconds: the age of the first record that the group has not read; 0 when there is none. Of the batch that holds the
record only the header is read, so the time is that of the batch's first record; a producer fills a batch in
milliseconds.

What costs a read is kept, as the same offset has the same time. A scrape makes `LOOK_UPS_MAX` look-ups at most: for
partitions beyond that the time of the offset before counts, which is older, or there is none.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from barnabas.kproto import KafkaError
from barnabas.kproto.records import BATCH_OVERHEAD
from barnabas.logdir import FileSlice
from barnabas.server.partitions.partition import Partition

LOOK_UPS_MAX: Final = 2000

Key = tuple[str, str, int]
"""Group, topic, partition."""

_MAGIC_AT: Final = 16
_FORMAT_1: Final = Struct(">17xq")
"""Position of the timestamp in a message of format 1: behind magic and attributes."""
_FORMAT_2: Final = Struct(">21xh4xqq")
_APPEND_TIME: Final = 0x08
_DELETE_HORIZON: Final = 0x40


class Lag(NamedTuple):
    """seconds None: not known."""

    records: int
    seconds: float | None


class LagTimes:
    """The times of first unread records, from one scrape to the next. `begin` a scrape, then ask for each partition."""

    def __init__(self) -> None:
        self._before: dict[Key, tuple[int, int | None]] = {}
        self._known: dict[Key, tuple[int, int | None]] = {}
        self._left = 0

    def begin(self) -> None:
        """Another scrape: what the last one did not ask for is forgotten."""
        self._before, self._known = self._known, {}
        self._left = LOOK_UPS_MAX

    def lag(self, group: str, partition: Partition, committed: int, now_ms: int) -> tuple[Lag, bool]:
        """The lag, and whether it has cost a read."""
        records = partition.high_watermark - committed
        if records <= 0:
            return Lag(0, 0.0), False
        key = group, partition.topic, partition.index
        found = self._before.get(key)
        has_read = False
        if (found is None or found[0] != committed) and self._left:
            self._left -= 1
            has_read = True
            found = committed, first_time_ms(partition, committed)
        if found is None:
            return Lag(records, None), has_read
        self._known[key] = found
        time_ms = found[1]
        seconds = None if time_ms is None else max(now_ms - time_ms, 0) / 1000
        return Lag(records, seconds), has_read


def first_time_ms(partition: Partition, offset: int) -> int | None:
    """The time of the batch with the first committed record from `offset` on; None: it cannot be read, or has none."""
    log = partition.log
    offset = max(offset, log.state.log_start_offset)
    try:
        found = log.reader.read(offset, BATCH_OVERHEAD, upper_offset=partition.high_watermark, min_one_batch=True)
        if found is None:
            return None
        head = FileSlice(found.file, found.position, min(found.length, BATCH_OVERHEAD)).read()
    except (KafkaError, OSError, EOFError):
        return None  # whoever fetches is told, and the disk is looked after
    magic = head[_MAGIC_AT]
    if magic >= 2 and len(head) >= BATCH_OVERHEAD:
        attributes, first_ms, newest_ms = _FORMAT_2.unpack_from(head)
        time_ms = newest_ms if attributes & (_APPEND_TIME | _DELETE_HORIZON) else first_ms
    elif magic == 1:
        (time_ms,) = _FORMAT_1.unpack_from(head, 1)
    else:
        return None
    return int(time_ms) if time_ms >= 0 else None
