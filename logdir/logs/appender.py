"""The growing end of a partition's log: checking batches, giving them offsets, staging them.

Appending has two steps, so that a round of requests costs one system call per partition:

    info = log.append(buf, ...)   checks, assigns offsets in place in `buf`, stages the buffer; `next_offset` moves
    log.write()                   writes what is staged with one pwritev; `log_end_offset` moves, the buffers are free

Writing, and what a failure of the disk leaves behind, is in writer.py; the next segment in roller.py.

Measured on CPython 3.11 at 2.5 GHz: 1.5 us for a batch of 1 KB, 3.5 us of 16 KB (the CRC), 1.2 us more for the
producer's sequence, and what `validate_records` costs (kproto.records_scan); then 4 us and the copying for the write.
Nothing is copied before. That is why `append` reads the fields of the other parts and calls none of them unless
there is more to do than to compare.

Offsets count records, sizes are bytes, `now_ms` is the wall clock in milliseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, Protocol

from barnabas.kproto.allowance import Allowance
from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.kproto.records import BATCH_OVERHEAD, BatchHeader, CorruptRecords, stamp_log_append_time
from barnabas.kproto.records_plain import PlainBatch
from barnabas.kproto.records_scan import RecordsRefused
from barnabas.logdir.files.config import LogConfig
from barnabas.logdir.files.errors import UnexpectedOffset
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.logs.append_rules import rules_of
from barnabas.logdir.logs.roll_limits import RollLimits
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.familiar import glance
from barnabas.logdir.segments.incoming import (
    AppendInfo,
    AppendOrigin,
    refuse_header,
    refuse_shape,
    rewrite,
    split,
    too_large,
    validate,
)
from barnabas.logdir.segments.producers import NO_SEQUENCE, InTransaction, OwnProducer, Written
from barnabas.logdir.segments.replay import note_batch

_unpack_header = struct.Struct(">qiibIhiqqqhii").unpack_from
_pack_assigned = struct.Struct(">qii").pack_into
_new_tuple = tuple.__new__

LONE_FROM: Final = 32
"""So many records of the broker's own are a batch by themselves: to share one would save them nothing."""


class OwnRecords(Protocol):
    """Records of the broker's own, which know their bytes."""

    def __len__(self) -> int: ...

    def encoded(self, first_delta: int) -> bytes:
        """As `barnabas.kproto.records_plain.plain_records`."""


class Appender:
    """See the module."""

    __slots__ = ("_glance", "_limits", "_roller", "_rules", "_state", "_writer")

    def __init__(self, state: LogState, limits: RollLimits, writer: Writer, roller: Roller) -> None:
        self._state = state
        self._limits = limits
        self._writer = writer
        self._roller = roller
        self._rules = rules_of(state.config)
        self._glance = glance(state.config)

    def configure(self, config: LogConfig) -> None:
        """Replace the configuration; it counts from the next append on."""
        self._state.config = config
        self._rules = rules_of(config)
        self._glance.reset(config)
        self._limits.reset(self._writer.position)

    def append(
        self,
        buf: memoryview | bytearray,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        in_txn: InTransaction | None = None,
        allowance: Allowance | None = None,
    ) -> AppendInfo:
        """Check `buf`, put offsets and `leader_epoch` into it in place, and stage it: it must stay unchanged until
        `write`.

        From a client exactly one batch; otherwise one or more; from a leader perhaps none that is whole, which appends
        nothing and gives a last offset below the base offset. in_txn: what to check a transactional batch, or a marker,
        for, beyond its header. allowance: how much work a client's batch may be; beyond it raises `TooMuchWork`, and
        the batch has to come back, with a new allowance or prepared by `barnabas.logdir.prepare`. Nothing is staged of
        a buffer that is rejected.

        Raises KafkaError CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_TIMESTAMP,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED,
        UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD (`RecordsRefused`, with the bad records), `UnexpectedOffset`
        (replication), `StorageError` (writer.py).
        """
        state = self._state
        if state.failure is not None:
            raise state.failure
        rules = self._rules
        writer = self._writer
        limits = self._limits
        view = buf if type(buf) is memoryview else memoryview(buf)
        if origin is not AppendOrigin.CLIENT:
            return self._append_many(view, leader_epoch, now_ms, origin, in_txn)
        size = len(view)
        try:
            header = _unpack_header(view, 0)
        except struct.error:
            refuse_shape(view)
            raise
        (
            base,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            first_time,
            max_timestamp,
            producer_id,
            epoch,
            sequence,
            count,
        ) = header
        if length + 12 != size or magic != 2 or base:
            refuse_shape(view)
        if size > rules.max_message_bytes:
            raise too_large(size, rules.max_message_bytes)
        if crc32c(view[21:]) != crc:
            raise CorruptRecords(f"the batch's checksum is not {crc:#010x}")
        if count <= 0 or delta != count - 1 or attributes & 0x28 or attributes & 7 > 4 or (producer_id >= 0 > sequence):
            refuse_header(BatchHeader(*header))
        append_time = -1
        late = max_timestamp - now_ms > rules.after_max_ms
        if late or (
            rules.validate and (attributes & 7 or not self._glance.knows(view, count, first_time, max_timestamp))
        ):
            view, max_timestamp, _ = validate(view, state.config, now_ms, max_timestamp, allowance)
            size = len(view)
            if not attributes & 7:
                self._glance.learn(view, count)
        if rules.rewrite:
            view, max_timestamp, append_time = rewrite(view, state.config, now_ms, allowance)
            size = len(view)
        if size > rules.segment_bytes:
            raise _longer_than_a_segment(size, rules.segment_bytes)
        if writer.growing is not None:
            writer.seal()
        base = state.next_offset
        last = base + delta
        if (
            writer.position + size > limits.size
            or max_timestamp > limits.timestamp
            or now_ms > limits.clock
            or last > limits.offset
        ):
            self._roller.roll_if_due(size, max_timestamp, last, now_ms)
        if producer_id >= 0:
            earlier = state.producers.append(
                producer_id,
                epoch,
                sequence,
                delta,
                base,
                max_timestamp,
                attributes & 0x10 != 0,
                from_client=True,
                in_txn=in_txn,
            )
            if earlier is not None:
                return AppendInfo(
                    earlier.first_offset, earlier.last_offset, earlier.timestamp, state.log_start_offset, True
                )
        if leader_epoch != state.leader_epoch:
            self._assign_epoch(leader_epoch, base)
        if append_time >= 0:
            stamp_log_append_time(view, 0, append_time)
        _pack_assigned(view, 0, base, size - 12, leader_epoch)
        if writer.position == 0:
            limits.count_age_from(max_timestamp)
        writer.staged.append(view)
        writer.batches.append((last, size, max_timestamp))
        writer.position += size
        state.next_offset = last + 1
        info: AppendInfo = _new_tuple(AppendInfo, (base, last, append_time, state.log_start_offset, False))
        return info

    def append_run(self, batches: Iterable[memoryview], *, leader_epoch: int, now_ms: int) -> list[int]:
        """Stage as many of `batches`, of a busy producer one behind the other, as are plain, with the same checks as
        `append`. Returns their last offsets; nothing happened to the first one that is not among them, which `append`
        refuses or appends. Every one has a whole header.

        Plain are those of clients in format 2, without codec, transaction and control records, good at a glance
        (`barnabas.logdir.segments.familiar`), the next of their producer, behind no roll of the segment. Raises
        nothing: a log that refuses, or rewrites, takes none.
        """
        state = self._state
        rules = self._rules
        writer = self._writer
        limits = self._limits
        position = writer.position
        if (
            state.failure is not None
            or rules.rewrite
            or leader_epoch != state.leader_epoch
            or not position
            or now_ms > limits.clock
        ):
            return []
        if writer.growing is not None:
            writer.seal()
        offset = first = state.next_offset
        size_max = min(rules.max_message_bytes, rules.segment_bytes)
        timestamp_max = min(now_ms + rules.after_max_ms, limits.timestamp)
        knows = self._glance.knows if rules.validate else None
        run_id = run_epoch = next_sequence = NO_SEQUENCE
        lasts: list[int] = []
        written: list[Written] = []
        for view in batches:
            (
                base,
                length,
                _,
                magic,
                crc,
                attributes,
                delta,
                first_time,
                timestamp,
                producer_id,
                epoch,
                sequence,
                count,
            ) = _unpack_header(view, 0)
            if not lasts:
                run_id, run_epoch = producer_id, epoch
                if producer_id >= 0:
                    next_sequence = state.producers.next_sequence(producer_id, epoch)
                    if next_sequence == NO_SEQUENCE:
                        break
            size = len(view)
            last = offset + delta
            if (
                length + 12 != size
                or magic != 2
                or attributes
                or base
                or count <= 0
                or delta != count - 1
                or size > size_max
                or timestamp > timestamp_max
                or position + size > limits.size
                or last > limits.offset
                or producer_id != run_id
                or epoch != run_epoch
                or (run_id >= 0 and sequence != next_sequence)
                or crc32c(view[21:]) != crc
                or (knows is not None and not knows(view, count, first_time, timestamp))
            ):
                break
            if run_id >= 0:
                last_sequence = sequence + delta & 0x7FFFFFFF
                next_sequence = last_sequence + 1 & 0x7FFFFFFF
                written.append(_new_tuple(Written, (sequence, last_sequence, last, delta, timestamp)))
            _pack_assigned(view, 0, offset, size - 12, leader_epoch)
            writer.staged.append(view)
            writer.batches.append((last, size, timestamp))
            lasts.append(last)
            position += size
            offset = last + 1
        if written:
            state.producers.go_on(run_id, written, first)
        writer.position = position
        state.next_offset = offset
        return lasts

    def append_own(
        self, records: OwnRecords, leader_epoch: int, now_ms: int, producer: OwnProducer | None = None
    ) -> tuple[int, int]:
        """Stage records that the broker itself has made, one or more, which get the time `now_ms`. Nothing of them is
        checked but that the log has room for them. Returns the offset of the first, and how many bytes there are more
        to be written.

        Outside of transactions they join those that were staged just before, so that all that is decided in a round
        becomes one batch, of at most `JOINED_BYTES_MAX`. A batch of a transaction stands alone, and so do records that
        are `LONE_FROM` or more.

        Raises KafkaError MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, `StorageError`; of a producer INVALID_TXN_STATE,
        INVALID_PRODUCER_EPOCH. Nothing of `records` is staged then.
        """
        state = self._state
        if state.failure is not None:
            raise state.failure
        rules = self._rules
        writer = self._writer
        limits = self._limits
        base = state.next_offset
        count = len(records)
        last = base + count - 1
        batch = writer.growing
        if batch is not None:
            if (
                producer is None
                and count < LONE_FROM
                and batch.leader_epoch == leader_epoch
                and last <= limits.offset
                and batch.size < rules.joined_bytes_max
            ):
                data = records.encoded(batch.count)
                size = len(data)
                if batch.size + size <= rules.joined_bytes_max and writer.position + size <= limits.size:
                    batch.add(data, count)
                    writer.position += size
                    state.next_offset = last + 1
                    return base, size
            writer.seal()
        data = records.encoded(0)
        size = BATCH_OVERHEAD + len(data)
        if size > rules.max_message_bytes:
            raise too_large(size, rules.max_message_bytes)
        if size > rules.segment_bytes:
            raise _longer_than_a_segment(size, rules.segment_bytes)
        if (
            writer.position + size > limits.size
            or now_ms > limits.timestamp
            or now_ms > limits.clock
            or last > limits.offset
        ):
            self._roller.roll_if_due(size, now_ms, last, now_ms)
        if producer is not None:
            producer_id, epoch, in_txn = producer
            state.producers.append(
                producer_id,
                epoch,
                NO_SEQUENCE,
                last - base,
                base,
                now_ms,
                transactional=True,
                from_client=False,
                in_txn=in_txn,
            )
        if leader_epoch != state.leader_epoch:
            self._assign_epoch(leader_epoch, base)
        if writer.position == 0:
            limits.count_age_from(now_ms)
        writer.growing = batch = PlainBatch(
            base,
            leader_epoch,
            now_ms,
            producer=None if producer is None else producer[:2],
            log_append_time=rules.log_append_time,
        )
        batch.add(data, count)
        writer.position += size
        state.next_offset = last + 1
        if producer is not None or count >= LONE_FROM:
            writer.seal()
        return base, size

    def _append_many(
        self, view: memoryview, leader_epoch: int, now_ms: int, origin: AppendOrigin, in_txn: InTransaction | None
    ) -> AppendInfo:
        """Batches of the broker itself, or of a leader."""
        state = self._state
        rules = self._rules
        writer = self._writer
        replicated = origin is AppendOrigin.REPLICATION
        batches = split(view, cut_off=replicated)
        if writer.growing is not None:
            writer.seal()
        if not batches:
            return AppendInfo(state.next_offset, state.next_offset - 1, -1, state.log_start_offset)
        placed: list[tuple[int, BatchHeader, int]] = []
        offset = first = batches[0][1].base_offset if replicated else state.next_offset
        if replicated and first < state.next_offset:
            raise UnexpectedOffset(
                f"replicated batch at {first}, but the log ends at {state.next_offset}",
                first,
                batches[-1][1].last_offset,
            )
        for position, header in batches:
            if replicated:
                if header.base_offset < offset:
                    raise UnexpectedOffset(
                        f"batch at {header.base_offset} after {offset - 1}", first, header.last_offset
                    )
                offset = header.base_offset
            elif header.size > rules.max_message_bytes:
                raise too_large(header.size, rules.max_message_bytes)
            elif header.size > rules.segment_bytes:
                raise _longer_than_a_segment(header.size, rules.segment_bytes)
            elif header.record_count != header.last_offset_delta + 1:
                raise RecordsRefused(ErrorCode.INVALID_RECORD, "The record count is not what the offsets span.")
            placed.append((position, header, offset))
            offset += header.last_offset_delta + 1
        aborted = self._note_producers(view, placed, replicated, in_txn)
        log_append_time = state.config.log_append_time and not replicated
        for (position, header, base), entry in zip(placed, aborted, strict=True):
            data = view[position : position + header.size]
            last = base + header.last_offset_delta
            max_timestamp = header.max_timestamp if header.record_count else -1  # a shell that compaction left
            if log_append_time:
                stamp_log_append_time(data, 0, now_ms)
                max_timestamp = now_ms
            self._roller.roll_if_due(header.size, max_timestamp, last, now_ms, base)
            epoch = header.partition_leader_epoch if replicated else leader_epoch
            if epoch != state.leader_epoch and epoch >= 0:
                self._assign_epoch(epoch, base)
            if not replicated:
                _pack_assigned(data, 0, base, header.batch_length, epoch)
            if writer.position == 0:
                self._limits.count_age_from(max_timestamp)
            writer.staged.append(data)
            writer.batches.append((last, header.size, max_timestamp))
            writer.position += header.size
            state.next_offset = last + 1
            if entry is not None:
                writer.aborted += (entry,)
        return AppendInfo(first, offset - 1, now_ms if log_append_time else -1, state.log_start_offset)

    def _note_producers(
        self,
        view: memoryview,
        placed: list[tuple[int, BatchHeader, int]],
        replicated: bool,
        in_txn: InTransaction | None,
    ) -> list[AbortedTxn | None]:
        """Take all batches into the producer state, or none. What each adds to the transaction index."""
        producers = self._state.producers
        first = placed[0][2]
        aborted = []
        try:
            for position, header, base in placed:
                data = view[position : position + header.size]
                aborted.append(note_batch(producers, data, header, base, replicated, in_txn))
        except KafkaError:
            producers.rollback(first)
            raise
        return aborted

    def _assign_epoch(self, leader_epoch: int, base_offset: int) -> None:
        state = self._state
        if leader_epoch >= 0:
            state.epochs.assign(leader_epoch, base_offset)
        state.leader_epoch = leader_epoch

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """This broker leads from the log's end on with a new epoch."""
        self._assign_epoch(leader_epoch, self._state.next_offset)


def _longer_than_a_segment(size: int, segment_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"The batch has {size} bytes, segment.bytes is {segment_bytes}.")
