"""Whether the three indexes of a segment agree with its batches: each is fed with them in their order.

The offset index names a batch's start and last offset. (Before 4.0 Apache Kafka made one entry for all batches that
came with one write, a follower's or the cleaner's: the position of the first, the last offset of the last.) The time
index names the batch that first has the largest timestamp so far; that of a finished segment ends with the segment's
largest. (Apache Kafka counts the batches that compaction left without records, we do not; both will do.) The
transaction index has an entry for every abort marker whose transaction has records here or before, and none without a
marker. Trailing zeros are the unused space of an index in use.

Formats: `barnabas.logdir.files.index`, `barnabas.logdir.files.txn_index`. Positions are bytes, timestamps milliseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from barnabas.kproto.errors import KafkaError
from barnabas.kproto.records import ABORT, Record, parse_control_record
from barnabas.logdir.files import layout, txn_index
from barnabas.logdir.files.disk import ReadOnlyDisk, read_file
from barnabas.logdir.files.epochs import LeaderEpochs
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.logdir.offline.batch import Batch
from barnabas.logdir.offline.errors import SegmentGone
from barnabas.logdir.offline.problems import Problem
from barnabas.logdir.offline.segment import SegmentReader

_OFFSET = struct.Struct(">iI")
_TIME = struct.Struct(">qi")


class LogState:
    """What is known of a log from its earlier segments."""

    def __init__(self, epochs: LeaderEpochs | None = None) -> None:
        self.last_offset = -1
        self.leader_epoch = -1
        self.open_txns: dict[int, int] = {}
        self.epochs = epochs


def has_grown(segment: SegmentReader) -> bool:
    """Whether a broker is at work on it."""
    try:
        return segment.has_grown()
    except (SegmentGone, OSError):
        return True


class IndexCheck:
    """One index file, fed with the segment's batches in their order."""

    suffix = ""
    kind = ""
    entry_size = 0

    def __init__(self, segment: SegmentReader, state: LogState, *, clean: bool) -> None:
        self.segment: Final = segment
        self.state: Final = state
        self.clean: Final = clean
        self.is_last: Final = segment.next_base_offset is None
        self.path: Final = segment.path[: -len(layout.LOG)] + self.suffix

    def problem(self, message: str, *, offset: int | None = None, slot: int | None = None) -> Problem:
        position = None if slot is None else slot * self.entry_size
        return Problem(self.kind, self.path, message, position, offset)

    def ahead(self, slot: int, message: str) -> Iterator[Problem]:
        """An entry for what is not there: a crash can leave that at the end of a log. If a broker has written more
        since we looked at the log, it is no problem at all.
        """
        position = slot * self.entry_size
        if not self.is_last:
            yield Problem(self.kind, self.path, message, position)
        elif not has_grown(self.segment):
            yield Problem("index-ahead", self.path, message, position, warning=not self.clean)

    def data(self) -> bytes | None:
        """None if there is no such file. Raises OSError."""
        try:
            return read_file(ReadOnlyDisk(), self.path)
        except FileNotFoundError:
            return None

    def open(self) -> Iterator[Problem]:
        raise NotImplementedError

    def batch(self, batch: Batch) -> Iterator[Problem]:
        raise NotImplementedError

    def close(self, *, complete: bool) -> Iterator[Problem]:
        """`complete`: all of the segment was read, but for a torn end."""
        raise NotImplementedError


class _Sparse(IndexCheck):
    """An index of entries of one size that rise, with zeros behind them while it is in use."""

    entry_size = 0
    _data = b""
    _next: tuple[int, int, int] | None = None

    def open(self) -> Iterator[Problem]:
        try:
            data = self.data()
        except OSError as error:
            yield Problem("unreadable", self.path, error.strerror or str(error))
            return
        if data is None:
            yield Problem("index-missing", self.path, "the segment has no such index", warning=True)
            return
        if len(data) % self.entry_size:
            yield self.problem(f"{len(data)} bytes are no multiple of {self.entry_size}")
            data = data[: len(data) // self.entry_size * self.entry_size]
        used = -(-len(data.rstrip(b"\0")) // self.entry_size) * self.entry_size
        self._data = data[:used]
        self._rest = self._rising()
        yield from self._advance()

    def _rising(self) -> Iterator[Problem | tuple[int, int, int]]:
        """(slot, its two fields, with the log offset) of the entries that rise; a problem for each that does not."""
        raise NotImplementedError

    def _advance(self) -> Iterator[Problem]:
        """Put the next good entry into `_next`, None behind the last one."""
        self._next = None
        for found in self._rest:
            if isinstance(found, Problem):
                yield found
            else:
                self._next = found
                return


class _Offsets(_Sparse):
    suffix = layout.OFFSET_INDEX
    kind = "index"
    entry_size = OFFSET_ENTRY

    _open: tuple[int, int] | None = None
    """(slot, last offset) of an entry whose last batch is to come."""

    def _rising(self) -> Iterator[Problem | tuple[int, int, int]]:
        """(slot, offset, position) of the entries that rise; a problem for each that does not."""
        base = self.segment.base_offset
        before, place = -1, -1
        for slot, (relative, position) in enumerate(_OFFSET.iter_unpack(self._data)):
            if relative <= before or position <= place:
                yield self.problem(
                    f"entry {slot} (offset {base + relative}, position {position}) does not rise", slot=slot
                )
                continue
            before, place = relative, position
            yield slot, base + relative, position

    def batch(self, batch: Batch) -> Iterator[Problem]:
        while self._next is not None and self._next[2] <= batch.position:
            slot, offset, position = self._next
            if position < batch.position:
                yield self.problem(f"entry {slot} points at position {position}, where no batch starts", slot=slot)
            elif offset < batch.last_offset:
                yield self._wrong(slot, offset, batch)
            elif offset > batch.last_offset:
                if self._open is not None:
                    yield self._unknown(*self._open)
                self._open = (slot, offset)
            yield from self._advance()
        if self._open is not None and batch.last_offset >= self._open[1]:
            if batch.last_offset > self._open[1]:
                yield self._unknown(*self._open)
            self._open = None

    def _wrong(self, slot: int, offset: int, batch: Batch) -> Problem:
        return self.problem(
            f"entry {slot} says offset {offset} for position {batch.position}, the batch there ends at "
            f"{batch.last_offset}",
            slot=slot,
        )

    def _unknown(self, slot: int, offset: int) -> Problem:
        return self.problem(f"entry {slot} says offset {offset}, with which no batch ends", slot=slot)

    def close(self, *, complete: bool) -> Iterator[Problem]:
        if not complete:
            return
        if self._open is not None:
            yield self._unknown(*self._open)
        while self._next is not None:
            slot, offset, position = self._next
            yield from self.ahead(
                slot, f"entry {slot} (offset {offset}, position {position}) is behind the end of the log"
            )
            yield from self._advance()


class _Times(_Sparse):
    suffix = layout.TIME_INDEX
    kind = "timeindex"
    entry_size = TIME_ENTRY

    _newest = -1
    _newest_of_records = -1
    _last = -1

    def _rising(self) -> Iterator[Problem | tuple[int, int, int]]:
        """(slot, timestamp, offset) of the entries that rise; a problem for each that does not."""
        base = self.segment.base_offset
        before, place = -1, -1
        for slot, (timestamp, relative) in enumerate(_TIME.iter_unpack(self._data)):
            if timestamp <= before or relative < place:
                yield self.problem(
                    f"entry {slot} (timestamp {timestamp}, offset {base + relative}) does not rise", slot=slot
                )
                continue
            before, place = timestamp, relative
            yield slot, timestamp, base + relative

    def batch(self, batch: Batch) -> Iterator[Problem]:
        self._newest = max(self._newest, batch.max_timestamp)
        if batch.record_count:
            self._newest_of_records = max(self._newest_of_records, batch.max_timestamp)
        while self._next is not None and self._next[2] <= batch.last_offset:
            slot, timestamp, offset = self._next
            if batch.max_timestamp != timestamp or timestamp not in (self._newest, self._newest_of_records):
                yield self.problem(
                    f"entry {slot} says timestamp {timestamp} for offset {offset}, the largest up to there is "
                    f"{self._newest}, that of its batch {batch.max_timestamp}",
                    slot=slot,
                )
            self._last = timestamp
            yield from self._advance()

    def close(self, *, complete: bool) -> Iterator[Problem]:
        if not complete:
            return
        while self._next is not None:
            slot, timestamp, offset = self._next
            yield from self.ahead(
                slot, f"entry {slot} (timestamp {timestamp}, offset {offset}) is behind the end of the log"
            )
            yield from self._advance()
        if self._data and not self.is_last and self._last < self._newest_of_records:
            yield self.problem(f"ends with timestamp {self._last}, the segment's largest is {self._newest_of_records}")


class _Txns(IndexCheck):
    suffix = layout.TXN_INDEX
    kind = "txnindex"

    def open(self) -> Iterator[Problem]:
        self._left: dict[tuple[int, int], int] = {}
        try:
            entries = self.segment.aborted()
            size = len(self.data() or b"")
        except (CorruptFile, OSError) as error:
            yield self.problem(str(error))
            return
        self._believed = True
        if size != len(entries) * txn_index.ENTRY:
            yield self.problem(f"{size} bytes are no multiple of {txn_index.ENTRY}")
        last = -1
        for entry in entries:
            what = f"the entry of producer {entry.producer_id}, offsets {entry.first_offset} to {entry.last_offset}"
            if entry.last_offset < last:
                yield self.problem(f"{what}, does not rise", offset=entry.last_offset)
            if not entry.first_offset <= entry.last_offset or entry.last_stable_offset > entry.last_offset + 1:
                yield self.problem(
                    f"{what}, cannot be right (last stable offset {entry.last_stable_offset})", offset=entry.last_offset
                )
            last = max(last, entry.last_offset)
            self._left[entry.producer_id, entry.last_offset] = entry.first_offset

    _believed = False

    def batch(self, batch: Batch) -> Iterator[Problem]:
        if not (batch.is_control and batch.is_transactional and self._believed) or batch.record_count < 1:
            return
        try:
            record = next(batch.records())
            kind, _ = parse_control_record(Record(key=record.key, value=record.value))
        except (KafkaError, StopIteration):
            return  # said of the batch
        known = self._left.pop((batch.producer_id, batch.base_offset), None)
        start = self.state.open_txns.get(batch.producer_id)
        what = f"the marker of producer {batch.producer_id} at offset {batch.base_offset}"
        if kind != ABORT:
            if known is not None:
                yield self.problem(f"{what} is none of an abort, but has an entry", offset=batch.base_offset)
        elif known is None:
            if start is not None:
                yield self.problem(f"{what} aborts a transaction and has no entry", offset=batch.base_offset)
        elif start is not None and known > start:
            yield self.problem(
                f"{what} aborts what started at {start}, its entry says {known}", offset=batch.base_offset
            )

    def close(self, *, complete: bool) -> Iterator[Problem]:
        if complete:
            for producer_id, last_offset in self._left:
                message = f"an entry for an abort of producer {producer_id} at offset {last_offset}, which is not there"
                if last_offset > self.state.last_offset:
                    yield from self.ahead(0, message)
                else:
                    yield self.problem(message, offset=last_offset)


CHECKS: Final[tuple[type[IndexCheck], ...]] = (_Offsets, _Times, _Txns)
