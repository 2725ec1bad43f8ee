"""Random operations on a compacted log, against a plain list of all that was ever written to it.

Whatever happens, of every key the last decided record is there, and nothing older comes back; what was not cleaned yet
is there as it was. `BARNABAS_COMPACTION_SEEDS` says how many seeds the long test tries.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace

import pytest

from barnabas.kproto.records import Record, read_header
from barnabas.logdir import AppendOrigin
from barnabas.logdir.compaction.plan import CompactionAborted, CompactionLimits
from barnabas.logdir.compaction.run import CompactionRun
from barnabas.logdir.tests.compaction.compaction_kit import COMPACT, Compacted, committed
from barnabas.logdir.tests.kit import stored

IDEMPOTENT = (1, 2, 3)
TRANSACTIONAL = (11, 12)


@dataclass
class Row:
    """One record. `producer`: whose transaction it is of, -1 if none."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int
    producer: int


class Model(Compacted):
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.name = f"seed {seed}"
        self.rows: list[Row] = []
        self.markers: list[tuple[int, int, bool]] = []  # offset, producer, commit
        self.sequences: list[tuple[int, int, int]] = []  # last offset, producer, last sequence
        self.cleaned_to = 0  # nothing at or above it was ever touched
        self.end_of_round = 0  # below it every key is there once
        self.cleaned_ms = 0  # when the last round was
        self.flushed = 0
        self.high_watermark = 0
        super().__init__(
            replace(
                COMPACT,
                cleanup_policy=frozenset(rng.choice((["compact"], ["compact", "delete"]))),
                retention_ms=rng.choice((-1, 4000)),
                segment_bytes=rng.choice((400, 900, 3000)),
                segment_index_bytes=rng.choice((60, 1000)),
                index_interval_bytes=rng.choice((0, 100)),
                delete_retention_ms=rng.choice((0, 300, 1500)),
                file_delete_delay_ms=100,
                message_timestamp_type=rng.choice(("CreateTime", "CreateTime", "LogAppendTime")),
            )
        )
        if rng.random() < 0.3:
            self.disk.short_writes = random.Random(seed)

    # ---- what the list says

    def decided(self, row: Row) -> bool | None:
        """Whether it counts; None if that is open."""
        if row.producer < 0:
            return True
        return next((commit for at, who, commit in self.markers if who == row.producer and at > row.offset), None)

    def is_open(self, producer: int) -> bool:
        return any(row.producer == producer and self.decided(row) is None for row in self.rows)

    # ---- operations

    def append(self) -> None:
        rng = self.rng
        self.clock.now_ms += rng.randint(0, 20)
        producer = rng.choice((-1, -1, -1, *IDEMPOTENT, *TRANSACTIONAL))
        options = {}
        if producer >= 0:
            entry = self.log.producers.entries.get(producer)
            sequence = entry.last_sequence + 1 if entry else 0
            options = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": producer in TRANSACTIONAL,
            }
        records = [
            (
                b"k%d" % rng.randint(0, 7) if rng.random() < 0.9 else rng.randbytes(3),
                None if rng.random() < 0.25 else rng.randbytes(rng.choice((0, 5, 60))),
            )
            for _ in range(rng.randint(1, 4))
        ]
        base = self.put(*records, codec=rng.choice((0, 0, 1, 2, 3, 4)), **options)
        for number, (key, value) in enumerate(records):
            whose = producer if producer in TRANSACTIONAL else -1
            self.rows.append(Row(base + number, key, value, self.clock.now_ms, whose))
        if producer >= 0:
            last = self.log.producers.entries[producer].last_sequence
            self.sequences.append((base + len(records) - 1, producer, last))

    def decide(self) -> None:
        producer = self.rng.choice(TRANSACTIONAL)
        if self.is_open(producer):
            commit = self.rng.random() < 0.5
            self.markers.append((self.end_transaction(producer, commit=commit), producer, commit))

    def age(self) -> None:
        self.clock.now_ms += self.rng.choice((100, 700, 2000))

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.log_end_offset
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.recovery_points())

    def roll(self) -> None:
        self.log.roll(self.clock.now_ms)
        self.flush()

    def clean_some(self) -> None:
        rng = self.rng
        if rng.random() < 0.7 or (self.markers and self.markers[-1][0] >= self.log.recovery_point):
            self.flush()  # what decided about transactions was committed, so it is not lost
        self.high_watermark = self.log.log_end_offset
        state = self.state()
        if state.checkpoint_invalid:
            self.checkpoint = state.first_dirty_offset
        limits = CompactionLimits(rng.choice((24 * 16, 24 * 80, 1 << 20)), 0.9, rng.choice((1, 1000, 1 << 16)))
        stop_after = rng.choice((99, 99, 99, 0, 1))
        self.cleaned_to = max(self.cleaned_to, state.first_uncleanable_offset)
        self.cleaned_ms = self.clock.now_ms
        plan = self.log.begin_compaction(state, self.clock.now_ms)
        run = CompactionRun(self.disk, plan, limits, lambda size: None)
        for number, cleaned in enumerate(run):
            if number == stop_after:
                self.stop_in(plan, cleaned)
                return
            self.log.swap_in(plan, cleaned, self.clock.now_ms)
            if rng.random() < 0.3:
                self.append()
        self.log.end_compaction(plan)
        self.checkpoint = self.end_of_round = run.end_offset

    def stop_in(self, plan: object, cleaned: object) -> None:
        """A round that is stopped somewhere in a swap."""
        log = self.log
        swap = log.begin_swap(plan, cleaned, self.clock.now_ms)  # type: ignore[arg-type]
        steps = [swap.prepare, lambda: log.replace_segments(swap), swap.complete, lambda: log.end_swap(swap)]
        for step in steps[: self.rng.randint(0, 4)]:
            step()
            if self.rng.random() < 0.3:
                self.append()
        how = self.rng.choice((log.stop_compaction, self.reopen, self.kill, self.crash))
        how()
        if self.log is log:
            log.end_compaction(plan)  # type: ignore[arg-type]
        if how in (log.stop_compaction, self.reopen):
            with pytest.raises(CompactionAborted):
                log.begin_swap(plan, cleaned, 0)  # type: ignore[arg-type]

    def truncate(self) -> None:
        lowest = max(self.high_watermark, self.log.log_start_offset)
        if lowest < self.log.log_end_offset:
            self.log.truncate_to(self.rng.randint(lowest, self.log.log_end_offset), self.clock.now_ms)
            self.forget()

    def forget(self) -> None:
        """What is not there any more never was."""
        end = self.log.log_end_offset
        assert end >= self.cleaned_to, self.name
        self.rows = [row for row in self.rows if row.offset < end]
        self.markers = [marker for marker in self.markers if marker[0] < end]
        self.sequences = [entry for entry in self.sequences if entry[0] < end]
        self.flushed = min(self.flushed, end)

    def delete_records(self) -> None:
        offset = self.rng.randint(self.log.log_start_offset, self.log.log_end_offset)
        if self.rng.random() < 0.3:
            self.log.delete_records(offset, self.log.log_end_offset)
            self.log_dir.checkpoints.write(self.log_dir.checkpoints.log_starts())

    def retain(self) -> None:
        self.log.retain(self.clock.now_ms)
        self.log_dir.removals.remove(self.log_dir.removals.take(self.clock.now_ms))

    def reopen(self) -> None:
        self.log_dir.close()
        self.open()
        assert self.log_dir.was_clean
        self.flushed = self.log.log_end_offset
        self.check_producers()

    def kill(self) -> None:
        end = self.log.log_end_offset
        super().kill()
        assert self.log.log_end_offset == end, self.name
        self.check_producers()

    def crash(self) -> None:
        self.disk.crash(self.rng)
        self.open()
        assert self.log.log_end_offset >= self.flushed, self.name
        # What was not flushed may be lost, in a compacted log also from the middle, as in Apache Kafka: a gap looks
        # like what compaction leaves.
        there = {offset for offset, *_ in self.pairs()}
        ends = {header.last_offset for header, _ in stored(self.log)}
        safe = max(self.flushed, self.log.log_start_offset)
        self.rows = [row for row in self.rows if row.offset < safe or row.offset in there]
        self.markers = [marker for marker in self.markers if marker[0] < safe or marker[0] in ends]
        self.sequences = [entry for entry in self.sequences if entry[0] < safe or entry[0] in ends]
        self.forget()
        self.check_producers()

    def replicate(self) -> None:
        """A follower takes the log over as it is, with its gaps."""
        other = Compacted(self.config)
        batches = stored(self.log)
        other.log.truncate_fully(batches[0][0].base_offset if batches else self.log.log_start_offset, 0)
        for _, data in batches:
            other.log.append(memoryview(bytearray(data)), leader_epoch=0, now_ms=0, origin=AppendOrigin.REPLICATION)
            other.log.write()
        assert other.pairs() == self.pairs(), self.name
        assert committed(other.log) == committed(self.log), self.name
        end = other.log.log_end_offset
        other.kill()
        assert other.log.log_end_offset == end, self.name
        assert other.pairs() == self.pairs(), self.name

    # ---- looking

    def check_producers(self) -> None:
        known = {producer: (offset, last) for offset, producer, last in self.sequences}
        for producer, (offset, last) in known.items():
            if offset >= self.log.log_start_offset:
                assert self.log.producers.entries[producer].last_sequence == last, self.name
        names = [name for name in self.names() if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert not names, self.name

    def check(self) -> None:
        log, name = self.log, self.name
        start, end = log.log_start_offset, log.log_end_offset
        found = {record.offset: record for record in self.records() if record.offset >= start}
        assert list(found) == sorted(found), name
        rows = {row.offset: row for row in self.rows if row.offset >= start}
        for offset, record in found.items():
            row = rows[offset]
            assert record == Record(offset, row.timestamp, row.key, row.value), name

        last: dict[bytes, Row] = {}
        for row in rows.values():
            if row.offset >= self.cleaned_to:
                assert row.offset in found, f"{name}: {row} was never to be cleaned"
            if self.decided(row):
                last[row.key] = row
        expired = self.cleaned_ms - self.config.delete_retention_ms
        for row in last.values():
            if row.value is not None or row.timestamp > expired:
                assert row.offset in found, f"{name}: {row} is the last of its key"

        stable = log.last_stable_offset(end)
        seen: dict[bytes | None, bytes | None] = {}
        once: set[bytes | None] = set()
        for offset, key, value in committed(log):
            if not start <= offset < stable:
                continue
            assert self.decided(rows[offset]), f"{name}: {rows[offset]} was aborted"
            seen[key] = value
            if offset < self.end_of_round:
                assert key not in once, f"{name}: {key!r} is there twice, at last at {offset}"
                once.add(key)
        for row in rows.values():
            if row.offset < self.end_of_round and self.decided(row) is False:
                assert row.offset not in found, f"{name}: {row} was aborted and cleaned"
        known: dict[bytes, bytes | None] = {}
        for row in rows.values():
            if row.offset < stable and self.decided(row):
                known[row.key] = row.value
        assert {key for key, value in seen.items() if value is not None} == {
            key for key, value in known.items() if value is not None
        }, name
        assert all(known[key] == value for key, value in seen.items() if key is not None), name

        for _ in range(3):
            offset = self.rng.randint(start, end)
            slice_ = log.read(offset, 1 << 20, upper_offset=end, min_one_batch=True)
            if any(at >= offset for at in found):
                assert slice_ is not None, name
                assert read_header(slice_.read()).last_offset >= offset, name


OPERATIONS = (
    (Model.append, 40),
    (Model.decide, 10),
    (Model.roll, 4),
    (Model.flush, 3),
    (Model.age, 4),
    (Model.clean_some, 8),
    (Model.truncate, 2),
    (Model.delete_records, 1),
    (Model.retain, 2),
    (Model.reopen, 1),
    (Model.kill, 1),
    (Model.crash, 2),
    (Model.replicate, 1),
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
            if operation not in (Model.append, Model.decide, Model.age):
                model.check()
    except Exception as error:
        error.add_note(f"seed {seed}, after {' '.join(trace[-12:])}")
        raise


@pytest.mark.parametrize("seed", range(6))
def test_a_compacted_log_against_a_list(seed: int) -> None:
    run(seed, 120)


@pytest.mark.campaign
def test_a_compacted_log_against_a_list_for_longer() -> None:
    for seed in range(1000, 1000 + int(os.environ.get("BARNABAS_COMPACTION_SEEDS", "40"))):
        run(seed, 300)
