"""Reading a log: no bytes are read here, a `FileSlice` says where they are.

Offsets count records, sizes are bytes. `read` is called for each partition of each Fetch, so it reads fields and calls
little.
"""

from __future__ import annotations

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.open_files import FileSlice
from barnabas.logdir.files.txn_index import AbortedTxn, overlapping
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.segment import Segment
from barnabas.logdir.segments.timed_batch import LongBatch


class Reader:
    """See the module."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def segment_times(self) -> list[int]:
        """For each of `segment_bases` its largest timestamp, or when it was last written if no record in it has one;
        milliseconds. Raises `StorageError`.
        """
        state = self._state
        try:
            return [segment.retention_timestamp() for segment in state.segments]
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool) -> FileSlice | None:
        """Bytes from the batch that holds `offset` on, none at or above `upper_offset`, of one segment; None if there
        are none.

        At most `max_bytes`, which may end inside a batch, as in Apache Kafka; with `min_one_batch` at least the first
        batch, without it nothing if the first one does not fit. Raises KafkaError OFFSET_OUT_OF_RANGE outside of
        [log start, log end], CORRUPT_MESSAGE, `StorageError`.
        """
        state = self._state
        end_offset = state.log_end_offset
        if not state.log_start_offset <= offset <= end_offset:
            message = f"Offset {offset} is not in [{state.log_start_offset}, {end_offset}]."
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        if upper_offset > end_offset:
            upper_offset = end_offset
        if offset >= upper_offset:
            return None
        try:
            segment = state.active
            if offset >= segment.base_offset:
                found = segment.find(offset)
                is_last = True
            else:
                number = max(state.segment_at(offset), 0)
                segment = state.segments[number]
                found = segment.find(offset)
                while found is None and number + 1 < len(state.segments):
                    # Compaction and lost files leave gaps.
                    number += 1
                    segment = state.segments[number]
                    found = segment.find(offset)
                is_last = segment is state.active or state.segments[number + 1].base_offset > upper_offset
            if found is None:
                return None
            position, first_size = found
            end = segment.size
            if is_last and upper_offset < end_offset:
                bound = segment.find(upper_offset)
                if bound is not None:
                    end = bound[0]
            length = end - position
            if length > max_bytes:
                if max_bytes >= first_size:
                    length = max_bytes
                elif min_one_batch:
                    length = min(first_size, length)
                else:
                    return None
            if length <= 0:
                return None
            return FileSlice(segment.file(), position, length)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error

    def offset_for_timestamp(
        self, timestamp_ms: int, start_offset: int = 0, *, leave_long: bool = False
    ) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp_ms`, and from `start_offset` on;
        None if there is none.

        It may lie above the high watermark. Decodes one batch, mostly. Raises KafkaError CORRUPT_MESSAGE,
        `StorageError`; with `leave_long` `LongBatch` instead of decoding one that takes long.
        """
        state = self._state
        start_offset = max(start_offset, state.log_start_offset)
        try:
            for segment in list(state.segments):
                if segment.size and segment.retention_timestamp() >= timestamp_ms:
                    found = _first_in(segment, timestamp_ms, start_offset, leave_long)
                    if found is not None:
                        return found
            return None
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error

    def offset_of_max_timestamp(self, *, leave_long: bool = False) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the largest timestamp (ListOffsets
        MAX_TIMESTAMP). Raises as `offset_for_timestamp`.
        """
        state = self._state
        try:
            newest = max(state.segments, key=lambda segment: segment.max_timestamp)
            if newest.max_timestamp < 0:
                return None
            return _first_in(newest, newest.max_timestamp, newest.base_offset, leave_long)
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [offset, upper_offset), in the order of their ends. Raises
        KafkaError CORRUPT_MESSAGE, `StorageError`.
        """
        state = self._state
        found: list[AbortedTxn] = []
        try:
            for segment in state.segments[max(state.segment_at(offset), 0) :]:
                entries = state.aborted_of(segment)
                if entries:
                    some, complete = overlapping(entries, offset, upper_offset)
                    found += some
                    if complete:
                        break
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error
        return found

    def aborted_in(self, found: FileSlice, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that the receiver of `found`, which `read` has returned for `offset` and
        `upper_offset`, must know. There may be more than have records in it, as the offset index is coarse. Raises
        KafkaError CORRUPT_MESSAGE, `StorageError`.
        """
        state = self._state
        number = max(state.segment_at(offset), 0)
        segments = state.segments
        while number + 1 < len(segments) and segments[number].path() != found.file.path:
            number += 1
        try:
            bound = segments[number].upper_bound(found.position + found.length)
        except OSError as error:
            raise StorageError(f"reading {state.directory}", error) from error
        if bound is None:
            bound = segments[number + 1].base_offset if number + 1 < len(segments) else state.log_end_offset
        return self.aborted_transactions(offset, min(bound, upper_offset))


def _first_in(segment: Segment, target_ms: int, start_offset: int, leave_long: bool) -> tuple[int, int, int] | None:
    """As `Reader.offset_for_timestamp`, in one segment."""
    while (batch := segment.timed_batch(target_ms, start_offset)) is not None:
        if batch.is_long and leave_long:
            raise LongBatch(batch, target_ms, start_offset)
        found = batch.first_at(target_ms, start_offset)
        if found is not None:
            return found
        start_offset = batch.last_offset + 1
    return None
