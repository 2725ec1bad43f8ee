"""Random operations on a log, against a plain list of batches.

Batches of all codecs come from clients (idempotent and transactional ones), from the broker itself (end markers, and
records that share a batch), and from a leader, in all formats. A crash may take what was not flushed, and only from the
end: what is found again is a beginning of what was there. Segments that retention gave up may come back until the next
flush. What a log keeps beside its batches is compared with them (`audit`).

`BARNABAS_MODEL_SEEDS=5000 pytest -m slow logdir/tests/logs/test_model.py` runs that many seeds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from functools import lru_cache
from typing import NamedTuple

import pytest

from barnabas.kproto.records import BatchHeader, Record, build_batch, build_control_batch, read_header
from barnabas.kproto.records_legacy import build_message_set, iter_legacy
from barnabas.kproto.records_plain import PlainRecords
from barnabas.logdir import AppendOrigin, FileSlice, LogConfig, LogDir, OwnProducer, PartitionLog, StorageError
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.audit import State, audit
from barnabas.logdir.tests.kit import TOPIC_ID, Clock, batch, open_dir


class Facts(NamedTuple):
    """Of one batch, or one message of formats 0 and 1. `header` is None for those."""

    base_offset: int
    last_offset: int
    max_timestamp: int
    header: BatchHeader | None


@lru_cache(20_000)
def facts(data: bytes) -> Facts:
    if data[16] == 2:
        header = read_header(data)
        return Facts(header.base_offset, header.last_offset, header.max_timestamp, header)
    records = list(iter_legacy(data))
    return Facts(records[0].offset, records[-1].offset, max(record.timestamp for record in records), None)


def pieces(data: bytes) -> list[bytes]:
    """The whole batches and messages at the beginning of `data`."""
    found = []
    position = 0
    while position + 17 <= len(data):
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big")
        if position + size > len(data):
            break
        found.append(data[position : position + size])
        position += size
    return found


def read_all(log: PartitionLog, max_bytes: int = 1 << 20) -> list[bytes]:
    """All batches from the log's start on, read as a consumer reads: slice after slice."""
    offset = log.log_start_offset
    found: list[bytes] = []
    while offset < log.log_end_offset:
        part: FileSlice | None = log.read(offset, max_bytes, upper_offset=log.log_end_offset, min_one_batch=True)
        if part is None:
            break
        fresh = [piece for piece in pieces(part.read()) if facts(piece).last_offset >= offset]
        assert fresh, f"a slice at {offset} without a whole batch"
        found += fresh
        offset = facts(found[-1]).last_offset + 1
    return found


class Model:
    """`batches`: everything that was ever appended and not truncated, also what retention took, in order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.name = f"seed {seed}"
        self.disk = MemoryDisk()
        if self.rng.random() < 0.3:
            self.disk.short_writes = random.Random(seed)
        self.clock = Clock()
        rng = self.rng
        self.config = LogConfig(
            segment_bytes=rng.choice((600, 1500, 5000)),
            index_interval_bytes=rng.choice((0, 100, 1000)),
            segment_index_bytes=rng.choice((60, 1000)),
            segment_ms=rng.choice((50, 10**9)),
            retention_bytes=rng.choice((-1, 2000)),
            retention_ms=rng.choice((-1, 500)),
            file_delete_delay_ms=100,
            message_timestamp_type=rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            validate_records=rng.random() < 0.5,
        )
        self.batches: list[bytes] = []
        self.staged: list[memoryview] = []
        self.own: list[Record] = []  # of the last batch of own records, which may grow
        self.expired = False
        self.flushed = 0  # offset below which nothing may get lost
        self.epoch = 0
        self.log_dir: LogDir = open_dir(self.disk, config=self.config, clock=self.clock, max_open_files=3)
        self.log: PartitionLog = self.log_dir.open_or_create("t", 0, TOPIC_ID, self.config)
        self.neighbours = [self.log_dir.open_or_create("u", n, TOPIC_ID, self.config) for n in range(3)]

    # ---- what the list says

    def end(self) -> int:
        """The log end: behind the last batch, or where a truncation into a gap left it."""
        return max(self.floor, self.last_end())

    def last_end(self) -> int:
        return facts(self.batches[-1]).last_offset + 1 if self.batches else 0

    floor = 0

    def transactions(self) -> tuple[list[tuple[int, int, int, int]], list[int]]:
        """(the aborted ones as in a transaction index, first offsets of the open ones)."""
        state = State()
        aborted = []
        for data in self.batches:
            header = facts(data).header
            entry = state.take(header, data) if header is not None else None
            if entry is not None:
                aborted.append(entry)
        return aborted, sorted(state.open.values())

    # ---- operations

    def append(self) -> None:
        rng = self.rng
        self.clock.now_ms += rng.randint(0, 20)
        values = [bytes([65 + rng.randint(0, 25)]) * rng.randint(0, 120) for _ in range(rng.randint(1, 4))]
        timestamp = self.clock.now_ms - rng.choice((0, 0, 5, 60, 4000))
        if rng.random() < 0.1:
            self.append_old(values, timestamp)
            return
        producer = None
        transactional = False
        if rng.random() < 0.6:
            producer_id = rng.randint(1, 5)
            transactional = producer_id > 3
            entry = self.log.producers.entries.get(producer_id)
            sequence = entry.last_sequence + 1 & 0x7FFFFFFF if entry else rng.randint(0, 9)
            producer = (producer_id, entry.epoch if entry else 0, sequence)
            if entry and rng.random() < 0.1:
                producer = (producer_id, entry.epoch + 1, 0)
        codec = rng.choice((0, 0, 0, 1, 2, 3, 4))
        buf = batch(*values, timestamp=timestamp, producer=producer, codec=codec, transactional=transactional)
        origin = AppendOrigin.CLIENT
        kind = rng.random()
        if kind < 0.15:
            origin = AppendOrigin.COORDINATOR
            buf += batch("more", timestamp=timestamp)
        elif kind < 0.3:
            origin = AppendOrigin.REPLICATION
            gap = rng.choice((0, 0, 3))
            buf = batch(
                *values,
                timestamp=timestamp,
                producer=producer,
                base_offset=self.log.next_offset + gap,
                leader_epoch=self.epoch,
                codec=codec,
                transactional=transactional,
            )
        self.hand_over(buf, origin)

    def append_own(self) -> None:
        """As coordinators do; those of a transaction have producers that no client is."""
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            self.clock.now_ms += rng.randint(0, 5)
            values = [bytes([97 + rng.randint(0, 25)]) * rng.randint(0, 60) for _ in range(rng.randint(1, 3))]
            records = [Record(key=value, value=rng.choice((None, value))) for value in values]
            producer = None
            if rng.random() < 0.2:
                producer_id = rng.randint(6, 7)
                entry = self.log.producers.entries.get(producer_id)
                producer = OwnProducer(producer_id, entry.epoch if entry else 0)
            before, now_ms = self.log.writer.growing, self.clock.now_ms
            base, _ = self.log.appender.append_own(PlainRecords(records), self.epoch, now_ms, producer)
            if before is not None and self.log.writer.growing is before:
                self.staged.pop()
                base, now_ms = before.base_offset, before.timestamp_ms
            else:
                self.own = []
            self.own += [each._replace(timestamp=now_ms) for each in records]
            expected = build_batch(
                self.own,
                base_offset=base,
                leader_epoch=self.epoch,
                producer_id=-1 if producer is None else producer.producer_id,
                producer_epoch=-1 if producer is None else producer.producer_epoch,
                transactional=producer is not None,
                log_append_time_ms=now_ms if self.config.log_append_time else None,
            )
            self.staged.append(memoryview(expected))
            self.collect()

    def append_old(self, values: list[bytes], timestamp: int) -> None:
        """What a leader still has from before Kafka 0.11."""
        rng = self.rng
        start = self.log.next_offset
        records = [Record(start + number, timestamp, None, value) for number, value in enumerate(values)]
        old = build_message_set(records, magic=rng.randint(0, 1), codec=rng.randint(0, 3))
        self.hand_over(bytearray(old), AppendOrigin.REPLICATION)

    def end_own_transaction(self) -> None:
        self.end_transaction((6, 7))

    def end_transaction(self, producer_ids: tuple[int, int] = (4, 5)) -> None:
        """Of a producer with or without an open one."""
        rng = self.rng
        producer_id = rng.randint(*producer_ids)
        entry = self.log.producers.entries.get(producer_id)
        epoch = entry.epoch if entry else 0
        origin = rng.choice((AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION))
        marker = build_control_batch(
            producer_id=producer_id,
            producer_epoch=epoch + (rng.random() < 0.1),
            commit=rng.random() < 0.4,
            coordinator_epoch=1,
            timestamp=self.clock.now_ms,
            base_offset=self.log.next_offset if origin is AppendOrigin.REPLICATION else 0,
            leader_epoch=self.epoch,
        )
        self.hand_over(marker, origin)

    def hand_over(self, buf: bytearray, origin: AppendOrigin) -> None:
        view = memoryview(buf)
        self.log.append(view, leader_epoch=self.epoch, now_ms=self.clock.now_ms, origin=origin)
        position = 0
        for piece in pieces(bytes(buf)):
            self.staged.append(view[position : position + len(piece)])
            position += len(piece)
        assert position == len(view)
        self.collect()

    def collect(self) -> None:
        """Take over what is written (a roll writes what was staged)."""
        while self.staged and int.from_bytes(self.staged[0][:8], "big") < self.log.log_end_offset:
            self.batches.append(bytes(self.staged.pop(0)))

    def write(self) -> None:
        self.log.write()
        self.collect()
        assert not self.staged, self.name
        assert self.end() == self.log.log_end_offset, self.name

    def write_that_is_interrupted(self) -> None:
        for _ in range(3):
            self.append()
        self.disk.space, self.disk.full = self.rng.randint(0, 300), errno.EINTR
        with contextlib.suppress(StorageError):
            self.log.write()
        self.disk.space = None
        self.collect()
        self.staged = []
        assert self.end() == self.log.log_end_offset == self.log.next_offset, self.name

    def repeat(self) -> None:
        """A producer that did not get the answer."""
        self.write()
        for data in reversed(self.batches[-4:]):
            header = facts(data).header
            if header is None or header.is_control or header.base_sequence < 0:
                continue
            entry = self.log.producers.entries.get(header.producer_id)
            if entry is None or entry.epoch != header.producer_epoch:
                continue
            known = [kept for kept in entry.batches if kept.first_sequence == header.base_sequence]
            if known and known[0].last_offset == header.last_offset and header.codec == 0:
                again = bytearray(data)
                again[0:8] = bytes(8)
                if header.is_log_append_time:
                    continue  # a producer does not have those bytes
                info = self.log.append(again, leader_epoch=self.epoch, now_ms=self.clock.now_ms)
                assert (info.duplicate, info.base_offset) == (True, header.base_offset), self.name
                return

    def roll(self) -> None:
        self.log.roll(self.clock.now_ms)
        self.collect()

    def new_epoch(self) -> None:
        self.write()
        self.epoch += 1
        self.log.assign_leader_epoch(self.epoch)

    def truncate(self) -> None:
        self.write()
        if self.log.log_start_offset >= self.end():
            return
        offset = self.rng.randint(self.log.log_start_offset, self.end())
        self.log.truncate_to(offset, self.clock.now_ms)
        self.batches = [data for data in self.batches if facts(data).last_offset < offset]
        end = self.log.log_end_offset
        assert end <= offset, self.name
        self.floor = end
        self.flushed = min(self.flushed, self.last_end())
        assert end == self.end(), self.name

    def delete_records(self) -> None:
        self.write()
        start = self.log.log_start_offset
        offset = self.rng.randint(start, self.end())
        assert self.log.delete_records(offset, self.end()) == offset
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.log_starts())

    def retain(self) -> None:
        self.write()
        self.clock.now_ms += self.rng.choice((0, 100, 600))
        self.log.retain(self.clock.now_ms, self.rng.choice((None, self.rng.randint(0, self.end()))))
        self.log_dir.removals.remove(self.log_dir.removals.take(self.clock.now_ms))

    def flush(self) -> None:
        self.write()
        self.log.flush()
        assert self.log.recovery_point == self.log.log_end_offset, self.name
        self.flushed = self.last_end()

    def checkpoint(self) -> None:
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.recovery_points())
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.log_starts())

    def use_neighbours(self) -> None:
        """The pool takes our descriptors away."""
        for log in self.neighbours:
            log.append(batch("x"), leader_epoch=0, now_ms=self.clock.now_ms)
            log.write()

    def expire(self) -> None:
        self.expired |= self.log.expire_producers(self.clock.now_ms, 3000) > 0

    def reopen(self) -> None:
        self.write()
        before = read_all(self.log)
        self.log_dir.close()
        if self.rng.random() < 0.5:
            self.disk.crash(self.rng)
        self.open()
        assert self.log_dir.was_clean, self.name
        assert read_all(self.log) == before, self.name
        end = self.log.log_end_offset
        assert self.last_end() <= end <= self.end(), self.name
        self.floor = end
        self.flushed = self.last_end()

    def crash(self) -> None:
        self.staged = []
        start = self.log.log_start_offset
        self.disk.crash(self.rng)
        self.open()
        assert not self.log_dir.was_clean
        found = read_all(self.log)
        end = self.log.log_end_offset
        assert end >= self.flushed, f"{self.name}: {end} < {self.flushed}"
        self.batches = [data for data in self.batches if facts(data).last_offset < end]
        assert found == [data for data in self.batches if facts(data).last_offset >= self.log.log_start_offset], (
            self.name
        )
        if self.log.first_base_offset == end and not self.log.producer_count:
            self.batches = []  # begun anew, nothing is known of what was before
        assert self.log.log_start_offset <= max(start, end), self.name
        assert self.log.log_start_offset <= end, self.name
        self.floor = end
        assert self.end() == end, self.name
        self.flushed = min(self.flushed, end)

    def open(self) -> None:
        self.log_dir = open_dir(self.disk, config=self.config, clock=self.clock, max_open_files=3)
        self.log = self.log_dir.open_or_create("t", 0, TOPIC_ID, self.config)
        self.neighbours = [self.log_dir.open_or_create("u", n, TOPIC_ID, self.config) for n in range(3)]

    def make_files(self) -> None:
        """As a thread does for a new log; nothing happens to others."""
        for log in (self.log, *self.neighbours):
            log.make_files()
            assert log.is_made, self.name

    # ---- looking

    def check(self) -> None:
        """Every way to read gives what the list says."""
        self.write()
        log, rng, name = self.log, self.rng, self.name
        start, end = log.log_start_offset, log.log_end_offset
        expected = [data for data in self.batches if facts(data).last_offset >= start]
        assert read_all(log, rng.choice((1, 200, 1 << 20))) == expected, name
        if rng.random() < 0.3:
            audit(log, self.disk, expired=self.expired)
        self.check_transactions()
        if not expected:
            return
        for _ in range(3):
            offset = rng.randint(start, end)
            upper = rng.choice((end, rng.randint(start, end)))
            max_bytes = rng.choice((1, 100, 1000, 1 << 20))
            found_slice = log.read(offset, max_bytes, upper_offset=upper, min_one_batch=True)
            first = next((data for data in expected if facts(data).last_offset >= offset), None)
            if first is None or offset >= upper or facts(first).last_offset >= upper:
                # Below the first whole batch above `upper` there may be nothing to give.
                if found_slice is not None:
                    assert all(facts(piece).last_offset < upper for piece in pieces(found_slice.read())), name
                continue
            assert found_slice is not None, name
            data = found_slice.read()
            assert data.startswith(first), name
            assert len(data) <= max(max_bytes, len(first)), name
            assert all(facts(piece).last_offset < upper for piece in pieces(data)), name
            self.check_aborted(offset, upper, found_slice, data)
        target = rng.choice(expected)
        wanted = max(facts(target).max_timestamp - rng.randint(0, 1), 0)
        by_time = log.offset_for_timestamp(wanted)
        exact = next((known for known in map(facts, expected) if known.max_timestamp >= wanted), None)
        assert (by_time is None) == (exact is None), name
        if by_time is not None and exact is not None and exact.base_offset >= start:
            # All records of a batch have one time here.
            assert by_time[:2] == (exact.max_timestamp, exact.base_offset), name
        headers = [facts(data).header for data in expected]
        epochs = [header.partition_leader_epoch for header in headers if header is not None]
        assert epochs == sorted(epochs), name
        assert log.recovery_point <= end, name

    def check_transactions(self) -> None:
        """The last stable offset with everything committed, and all aborted transactions."""
        log = self.log
        aborted, opened = self.transactions()
        first = log.first_base_offset
        end = log.log_end_offset
        stable = log.last_stable_offset(end)
        # Who began below the first segment may be forgotten with it after a crash.
        if not opened or opened[0] >= first:
            assert stable == max(min([end, *opened]), log.log_start_offset), self.name
        found = [tuple(each)[:3] for each in log.aborted_transactions(log.log_start_offset, end)]
        older = {each[2] for each in aborted if each[1] < first}
        assert [each for each in found if each[1] >= first and each[2] not in older] == [
            each[:3] for each in aborted if each[1] >= first and each[2] >= log.log_start_offset
        ], self.name

    def check_aborted(self, offset: int, upper: int, found: FileSlice, data: bytes) -> None:
        """A reader of `data` gets all aborted transactions in it."""
        told = {tuple(each)[:2] for each in self.log.aborted_in(found, offset, upper)}
        whole = pieces(data)
        if not whole:
            return
        last = facts(whole[-1]).last_offset
        for producer_id, first, marker, _ in self.transactions()[0]:
            if first <= last and marker >= offset and first >= self.log.first_base_offset:
                assert (producer_id, first) in told, self.name


OPERATIONS = (
    (Model.append, 30),
    (Model.end_transaction, 5),
    (Model.write, 12),
    (Model.check, 6),
    (Model.roll, 2),
    (Model.flush, 4),
    (Model.checkpoint, 3),
    (Model.repeat, 3),
    (Model.use_neighbours, 3),
    (Model.retain, 2),
    (Model.new_epoch, 2),
    (Model.delete_records, 1),
    (Model.truncate, 2),
    (Model.write_that_is_interrupted, 2),
    (Model.expire, 1),
    (Model.reopen, 1),
    (Model.make_files, 1),
    (Model.crash, 2),
)
OF_COORDINATORS = ((Model.append_own, 12), (Model.end_own_transaction, 3))
APPENDS = (Model.append, Model.append_own, Model.end_transaction, Model.end_own_transaction)


def run(seed: int, steps: int, *, coordinators: bool = True) -> None:
    model = Model(seed)
    weighted = OPERATIONS + OF_COORDINATORS if coordinators else OPERATIONS
    operations = [operation for operation, weight in weighted for _ in range(weight)]
    trace = []
    try:
        for _ in range(steps):
            operation = model.rng.choice(operations)
            trace.append(operation.__name__)
            operation(model)
            if operation not in APPENDS:
                model.check()
    except Exception as error:
        error.add_note(f"seed {seed}, after {' '.join(trace[-12:])}")
        raise


@pytest.mark.parametrize("seed", range(40))
def test_log_against_a_list(seed: int) -> None:
    run(seed, 100)


def test_what_longer_runs_have_found() -> None:
    run(
        1064, 200, coordinators=False
    )  # a cut segment's indexes are as safe as its end, as soon as the next segment begins


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(8))
def test_log_against_a_list_for_longer(part: int) -> None:
    for seed in range(1000 + part, 1000 + int(os.environ.get("BARNABAS_MODEL_SEEDS", "300")), 8):
        run(seed, 200)
