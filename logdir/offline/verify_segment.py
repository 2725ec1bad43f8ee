"""Checks every byte of one segment: its batches and records. The indexes beside it are fed along (verify_index.py).

What a batch must be: whole, with a right checksum, offsets above those before it and inside of the segment, as many
records as its header says, which decompress and fill it exactly, rising offsets within the batch's, and a header that
names their largest timestamp (unless the broker's time is all they have). Gaps are no problem: compaction leaves
them, and batches without records.

Positions and sizes are bytes, timestamps milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from barnabas.kproto.errors import KafkaError
from barnabas.kproto.records import CorruptRecords, Record, parse_control_record
from barnabas.kproto.records_scan import validate_records
from barnabas.logdir.files import layout
from barnabas.logdir.offline.batch import LOG_APPEND_TIME, Batch
from barnabas.logdir.offline.errors import SegmentGone
from barnabas.logdir.offline.problems import Problem
from barnabas.logdir.offline.segment import SegmentReader
from barnabas.logdir.offline.verify_index import CHECKS, IndexCheck, LogState, has_grown
from barnabas.logdir.offline.walk import Damaged

MAX_RELATIVE: Final = 0x7FFFFFFF
MAX_CODEC: Final = 4

Progress = Callable[[int], None]


class SegmentCheck:
    """`clean`: the broker stopped cleanly, so nothing at the end of the last segment is excused."""

    def __init__(self, segment: SegmentReader, state: LogState, *, clean: bool, progress: Progress) -> None:
        self.segment: Final = segment
        self._state = state
        self._clean = clean
        self._progress = progress
        self._is_last = segment.next_base_offset is None
        self._indexed = segment.path.endswith(layout.LOG)

    def run(self) -> Iterator[Problem]:
        """Every problem, in the order of the file."""
        segment = self.segment
        checks: list[IndexCheck] = []
        if self._indexed:
            checks = [kind(segment, self._state, clean=self._clean) for kind in CHECKS]
            for check in checks:
                yield from check.open()
        try:
            for batch in segment.walk(whole=True):
                self._progress(batch.size)
                yield from self._check_batch(batch)
                for check in checks:
                    yield from check.batch(batch)
                self._take(batch)
        except Damaged as damage:
            torn = damage.torn and self._is_last
            lost = segment.size - damage.position
            # What a broker is just writing is no problem.
            if not (torn and has_grown(segment)):
                kind = "torn-tail" if torn else "frame"
                message = f"{damage.reason}; {lost} bytes cannot be read"
                excused = torn and not self._clean
                yield Problem(kind, segment.path, message, damage.position, warning=excused)
            self._progress(lost)
            for check in checks:
                yield from check.close(complete=torn)
            return
        except SegmentGone as error:
            yield Problem("gone", segment.path, str(error), warning=True)
            return
        except OSError as error:
            yield Problem("unreadable", segment.path, error.strerror or str(error))
            return
        for check in checks:
            yield from check.close(complete=True)

    # ---- batches

    def _check_batch(self, batch: Batch) -> Iterator[Problem]:
        segment, state = self.segment, self._state

        def problem(kind: str, message: str) -> Problem:
            return Problem(kind, segment.path, message, batch.position, batch.base_offset)

        header = batch.header
        sound = batch.computed_crc() == header.crc
        if not sound:
            yield problem("crc", f"checksum of offsets {batch.base_offset} to {batch.last_offset} is wrong")
        if header.last_offset_delta < 0:
            yield problem("offsets", f"batch from offset {batch.base_offset} on ends before, at {batch.last_offset}")
        if batch.base_offset <= state.last_offset:
            yield problem("offsets", f"offset {batch.base_offset} follows {state.last_offset}")
        if batch.base_offset < segment.base_offset and self._indexed:
            yield problem("offsets", f"offset {batch.base_offset} in a segment that starts at {segment.base_offset}")
        after = segment.next_base_offset
        if after is not None and batch.last_offset >= after:
            yield problem("offsets", f"offset {batch.last_offset}, but the next segment starts at {after}")
        if batch.last_offset - segment.base_offset > MAX_RELATIVE and self._indexed:
            yield problem("offsets", f"offset {batch.last_offset} is too far from the segment's start for an index")
        if batch.codec > MAX_CODEC:
            yield problem("records", f"unknown codec {batch.codec}")
            sound = False
        wrong = self._wrong_epoch(batch)
        if wrong is not None:
            yield problem("leader-epoch", f"leader epoch {batch.leader_epoch}, {wrong}")
        if sound:
            yield from (problem(kind, message) for kind, message in _check_records(batch))

    def _wrong_epoch(self, batch: Batch) -> str | None:
        """What is wrong with the batch's leader epoch. The checkpoint is saved by a flush: it may be behind."""
        epoch, epochs = batch.leader_epoch, self._state.epochs
        if epoch < self._state.leader_epoch and batch.magic == 2:
            return f"after {self._state.leader_epoch}"
        if epochs is None or not epochs.entries or epoch < 0:
            return None
        if epoch > epochs.latest:
            return f"the checkpoint ends with {epochs.latest}" if self._clean else None
        expected = epochs.epoch_for(batch.base_offset)
        return f"the checkpoint says {expected} for this offset" if 0 <= expected != epoch else None

    def _take(self, batch: Batch) -> None:
        state = self._state
        state.last_offset = max(state.last_offset, batch.last_offset)
        state.leader_epoch = max(state.leader_epoch, batch.leader_epoch)
        if batch.is_transactional:
            if batch.is_control:
                state.open_txns.pop(batch.producer_id, None)
            else:
                state.open_txns.setdefault(batch.producer_id, batch.base_offset)


def _check_records(batch: Batch) -> Iterator[tuple[str, str]]:
    """(kind, message) of what is wrong inside of a batch with a right checksum."""
    header = batch.header
    if batch.magic == 2:
        if header.record_count < 0 or header.record_count > header.last_offset_delta + 1:
            yield "record-count", f"{header.record_count} records in {header.last_offset_delta + 1} offsets"
            return
        if header.record_count == 0:
            return
        if not batch.is_control:
            try:
                scan = validate_records(batch.data())
            except KafkaError:
                pass  # the slow look says what it is, or that only producers may not do it
            else:
                if scan.consecutive:
                    yield from _check_max_timestamp(batch, scan.max_timestamp)
                    return
    last, newest = header.base_offset - 1 if batch.magic == 2 else -1, -1
    try:
        for record in batch.records():
            if not last < record.offset <= batch.last_offset:
                yield "offsets", f"record with offset {record.offset} after {last} in a batch up to {batch.last_offset}"
                return
            last, newest = record.offset, max(newest, record.timestamp)
            if batch.is_control:
                kind, _ = parse_control_record(Record(key=record.key, value=record.value))
                if kind < 0:
                    yield "control", f"control record of type {kind}"
    except CorruptRecords as error:
        text = (error.message or "").removeprefix(f"{batch.path}, position {batch.position}: ")
        yield ("control" if batch.is_control else "records"), text
        return
    except KafkaError as error:
        yield "records", error.message or str(error)
        return
    if batch.magic == 2:
        yield from _check_max_timestamp(batch, newest)


def _check_max_timestamp(batch: Batch, newest: int) -> Iterator[tuple[str, str]]:
    if batch.timestamp_type != LOG_APPEND_TIME and newest != batch.max_timestamp:
        yield "max-timestamp", f"largest timestamp is {newest}, the header says {batch.max_timestamp}"
