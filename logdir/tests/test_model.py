"""Random operations on a log, against a plain list of batches.

A crash may take what was not flushed, and only from the end: what is found again is a beginning of what was there.
Segments that retention gave up may come back until the next flush.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from kproto.records import read_header
from logdir import AppendOrigin, LogConfig, LogDir, PartitionLog, StorageError
from logdir.memory_disk import MemoryDisk
from logdir.tests.kit import TOPIC_ID, Clock, batch, open_dir, stored


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
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    floor = 0

    def sequences(self, start: int) -> dict[int, tuple[int, int]]:
        """Producer id to (epoch, last sequence) of batches that end at `start` or later."""
        found = {}
        for data in self.batches:
            header = read_header(data)
            if header.producer_id >= 0 and header.last_offset >= start:
                found[header.producer_id] = header.producer_epoch, header.last_sequence
        return found

    # ---- operations

    def append(self) -> None:
        rng = self.rng
        self.clock.now_ms += rng.randint(0, 20)
        values = [bytes([65 + rng.randint(0, 25)]) * rng.randint(0, 120) for _ in range(rng.randint(1, 4))]
        timestamp = self.clock.now_ms - rng.choice((0, 0, 5, 60, 4000))
        producer = None
        if rng.random() < 0.6:
            producer_id = rng.randint(1, 3)
            entry = self.log.producers.entries.get(producer_id)
            sequence = entry.last_sequence + 1 & 0x7FFFFFFF if entry else rng.randint(0, 9)
            producer = (producer_id, entry.epoch if entry else 0, sequence)
            if entry and rng.random() < 0.1:
                producer = (producer_id, entry.epoch + 1, 0)
        buf = batch(*values, timestamp=timestamp, producer=producer, codec=rng.choice((0, 0, 0, 1, 4)))
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
            )
        view = memoryview(buf)
        self.log.append(view, leader_epoch=self.epoch, now_ms=self.clock.now_ms, origin=origin)
        position = 0
        while position < len(view):
            size = read_header(view, position).size
            self.staged.append(view[position : position + size])
            position += size
        self.collect()

    def collect(self) -> None:
        """Take over what is written (a roll writes what was staged)."""
        while self.staged and read_header(self.staged[0]).base_offset < self.log.log_end_offset:
            self.batches.append(bytes(self.staged.pop(0)))

    def write(self) -> None:
        self.log.write()
        self.collect()
        assert not self.staged, self.name
        assert self.end() == self.log.log_end_offset, self.name

    def write_to_a_full_disk(self) -> None:
        for _ in range(3):
            self.append()
        self.disk.space = self.rng.randint(0, 300)
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
            header = read_header(data)
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
        self.batches = [data for data in self.batches if read_header(data).next_offset <= offset]
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
        self.log_dir.write_checkpoint(self.log_dir.log_starts())

    def retain(self) -> None:
        self.write()
        self.clock.now_ms += self.rng.choice((0, 100, 600))
        self.log.retain(self.clock.now_ms, self.rng.choice((None, self.rng.randint(0, self.end()))))
        self.log_dir.remove(self.log_dir.take_removals(self.clock.now_ms))

    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.log.log_end_offset, self.name
        self.flushed = self.last_end()

    def checkpoint(self) -> None:
        self.log_dir.write_checkpoint(self.log_dir.recovery_points())
        self.log_dir.write_checkpoint(self.log_dir.log_starts())

    def use_neighbours(self) -> None:
        """The pool takes our descriptors away."""
        for log in self.neighbours:
            log.append(batch("x"), leader_epoch=0, now_ms=self.clock.now_ms)
            log.write()

    def expire(self) -> None:
        self.log.expire_producers(self.clock.now_ms, 3000)

    def reopen(self) -> None:
        self.write()
        before = stored(self.log)
        self.log_dir.close()
        if self.rng.random() < 0.5:
            self.disk.crash(self.rng)
        self.open()
        assert self.log_dir.was_clean, self.name
        assert stored(self.log) == before, self.name
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
        found = [data for _, data in stored(self.log)]
        end = self.log.log_end_offset
        assert end >= self.flushed, f"{self.name}: {end} < {self.flushed}"
        self.batches = [data for data in self.batches if read_header(data).next_offset <= end]
        assert found == [data for data in self.batches if read_header(data).last_offset >= self.log.log_start_offset], (
            self.name
        )
        assert self.log.log_start_offset <= max(start, end), self.name
        assert self.log.log_start_offset <= end, self.name
        self.floor = end
        assert self.end() == end, self.name
        self.flushed = min(self.flushed, end)

    def open(self) -> None:
        self.log_dir = open_dir(self.disk, config=self.config, clock=self.clock, max_open_files=3)
        self.log = self.log_dir.open_or_create("t", 0, TOPIC_ID, self.config)
        self.neighbours = [self.log_dir.open_or_create("u", n, TOPIC_ID, self.config) for n in range(3)]

    # ---- looking

    def check(self) -> None:
        """Every way to read gives what the list says."""
        self.write()
        log, rng, name = self.log, self.rng, self.name
        start, end = log.log_start_offset, log.log_end_offset
        expected = [data for data in self.batches if read_header(data).last_offset >= start]
        found = [data for _, data in stored(log, max_bytes=rng.choice((1, 200, 1 << 20)))]
        assert found == expected, name
        if not expected:
            return
        for _ in range(3):
            offset = rng.randint(start, end)
            upper = rng.choice((end, rng.randint(start, end)))
            max_bytes = rng.choice((1, 100, 1000, 1 << 20))
            found_slice = log.read(offset, max_bytes, upper_offset=upper, min_one_batch=True)
            first = next((data for data in expected if read_header(data).last_offset >= offset), None)
            if first is None or offset >= upper or read_header(first).last_offset >= upper:
                # Below the first whole batch above `upper` there may be nothing to give.
                if found_slice is not None:
                    assert all(header.last_offset < upper for header in _whole(found_slice.read())), name
                continue
            assert found_slice is not None, name
            data = found_slice.read()
            assert data.startswith(first), name
            assert len(data) <= max(max_bytes, len(first)), name
            assert all(header.last_offset < upper for header in _whole(data)), name
        target = rng.choice(expected)
        wanted = read_header(target).max_timestamp - rng.randint(0, 1)
        by_time = log.offset_for_timestamp(wanted)
        exact = next(((h.max_timestamp, h) for h in map(read_header, expected) if h.max_timestamp >= wanted), None)
        assert (by_time is None) == (exact is None), name
        if by_time is not None and exact is not None and exact[1].base_offset >= start:
            # All records of a batch have one time here.
            assert by_time[:2] == (exact[0], exact[1].base_offset), name
        known = log.producers.entries
        for producer_id, state in self.sequences(log.first_base_offset).items():
            if producer_id in known:
                assert (known[producer_id].epoch, known[producer_id].last_sequence) == state, name
        epochs = [read_header(data).partition_leader_epoch for data in expected]
        assert epochs == sorted(epochs), name
        assert log.recovery_point <= end, name


def _whole(data: bytes) -> list:  # type: ignore[type-arg]
    from kproto.records import iter_headers

    return [header for _, header in iter_headers(data)]


OPERATIONS = (
    (Model.append, 30),
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
    (Model.write_to_a_full_disk, 2),
    (Model.expire, 1),
    (Model.reopen, 1),
    (Model.crash, 2),
)


def run(seed: int, steps: int) -> None:
    model = Model(seed)
    operations = [operation for operation, weight in OPERATIONS for _ in range(weight)]
    trace = []
    try:
        for _ in range(steps):
            operation = model.rng.choice(operations)
            trace.append(operation.__name__)
            operation(model)
            if operation is not Model.append:
                model.check()
    except Exception as error:
        error.add_note(f"seed {seed}, after {' '.join(trace[-12:])}")
        raise


@pytest.mark.parametrize("seed", range(60))
def test_log_against_a_list(seed: int) -> None:
    run(seed, 120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_log_against_a_list_for_longer(seed: int) -> None:
    run(seed, 400)
