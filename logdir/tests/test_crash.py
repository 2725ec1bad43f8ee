"""The power goes, or the disk fails, at every single call of everything that a log does.

`Life` does a bit of all of it, always the same, and writes down what must survive. Then the machine stops before call
number n, for every n, chance takes what was not synced, and the directory is opened again: what was flushed is there,
nothing is there that was never appended, in its place and whole, and everything beside the batches agrees with them
(`audit`).
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable

import pytest

from barnabas.kproto.errors import KafkaError
from barnabas.kproto.records import Record, build_control_batch, iter_headers
from barnabas.kproto.records_legacy import build_message_set
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, PartitionLog, StorageError
from barnabas.logdir.files.layout import file_name
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.audit import audit, entries
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, Clock, batch, open_dir

CHANGES = ("pwritev", "truncate", "sync", "sync_dir", "sync_all", "rename", "remove", "make_dir", "remove_dir", "open")
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_bytes=1500, file_delete_delay_ms=0)


class PowerCut(BaseException):
    """A BaseException, which no layer in between may handle."""


class Life:
    """What is done to one log.

    `given`: all that was ever handed over for writing and not truncated, as it stands in the file; `written`: below
    this offset a log that is killed has everything; `safe`: what also a loss of power leaves; `start_max`: how far the
    log's start may have moved. `patient`: what a full disk refuses is tried again.
    """

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.clock = Clock()
        self.given: list[memoryview] = []
        self.patient = False
        self.written = 0
        self.safe = 0
        self.start_max = 0
        self.sequence = 0
        self.epoch = 0
        self.log_dir: LogDir
        self.log: PartitionLog

    def run(self) -> None:
        self.log_dir = open_dir(self.disk, config=CONFIG, clock=self.clock)
        self.log = self.log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
        self.some(2)
        self.replicate_old()
        self.some(1)
        self.transaction(commit=False)
        self.flush()
        self.some(5)
        self.transaction(commit=True)
        self.epoch = 3
        self.some(2)
        self.checkpoints()
        self.begin(8)
        self.delete_records()
        self.flush()
        self.checkpoints()
        self.some(6)
        self.retain()
        self.end(8, commit=False)
        self.some(1)
        self.flush()
        self.truncate()
        self.some(3)
        self.flush()
        self.log_dir.removals.remove(self.log_dir.removals.take(self.clock.now_ms))
        self.some(2)
        self.checkpoints()
        self.flush()
        self.begin(9)
        self.end(9, commit=False)
        self.close()

    # ---- what is done

    def put(self, buf: bytearray | bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        self.clock.now_ms += 1
        try:
            self.put_once(buf, origin)
        except StorageError as error:
            if not (self.patient and error.is_full and self.log.failure is None):
                raise
            end = self.log.log_end_offset
            assert end == self.log.next_offset
            self.given = [view for view in self.given if last_of(view) < end]
            self.put_once(buf, origin)

    def put_once(self, buf: bytearray | bytes, origin: AppendOrigin) -> None:
        view = memoryview(bytearray(buf))
        self.log.append(view, leader_epoch=self.epoch, now_ms=self.clock.now_ms, origin=origin)
        self.given.append(view)
        self.log.write()
        self.written = self.log.log_end_offset

    def some(self, count: int) -> None:
        for _ in range(count):
            size = self.sequence * 37 % 150
            self.put(batch("v" * size, "w", producer=(5, 0, self.sequence), timestamp=NOW + self.sequence * 7 % 50))
            self.sequence += 2

    def replicate_old(self) -> None:
        """From before Kafka 0.11: two messages, and two more in one."""
        for codec in (0, 1):
            at = self.log.next_offset
            old = build_message_set(
                [Record(at + number, NOW + number, b"k", b"v" * 30) for number in range(2)], magic=1, codec=codec
            )
            for _, _, _, _, _, piece in entries(old):
                self.put(piece, AppendOrigin.REPLICATION)

    def begin(self, producer: int) -> None:
        self.put(batch("t" * 40, producer=(producer, 0, 0), transactional=True))

    def end(self, producer: int, commit: bool) -> None:
        marker = build_control_batch(
            producer_id=producer, producer_epoch=0, commit=commit, coordinator_epoch=1, timestamp=self.clock.now_ms
        )
        self.put(marker, AppendOrigin.COORDINATOR)

    def transaction(self, commit: bool) -> None:
        producer = 6 + commit
        self.begin(producer)
        self.some(1)
        self.end(producer, commit)

    def flush(self) -> None:
        end = self.log.log_end_offset
        self.log.flush()
        self.safe = end

    def checkpoints(self) -> None:
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.recovery_points())
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.log_starts())

    def delete_records(self) -> None:
        self.start_max = max(self.start_max, 3)
        self.log.delete_records(3, self.log.log_end_offset)

    def retain(self) -> None:
        self.start_max = self.log.log_end_offset
        self.log.retain(self.clock.now_ms)
        self.start_max = self.log.log_start_offset

    def truncate(self) -> None:
        offset = self.log.log_end_offset - 4
        # A batch goes whole.
        self.safe = min(self.safe, max(last_of(view) + 1 for view in self.given if last_of(view) < offset))
        self.written = 0
        self.log.truncate_to(offset, self.clock.now_ms)
        self.given = [view for view in self.given if last_of(view) < self.log.log_end_offset]
        self.safe = min(self.safe, self.log.log_end_offset)
        self.sequence = self.log.producers.entries[5].last_sequence + 1

    def close(self) -> None:
        end = self.log.log_end_offset
        self.log_dir.close()
        self.safe = end

    # ---- what must be left

    def files(self, log: PartitionLog) -> list[bytes]:
        """The contents of the log files: none of a log that has not been written to."""
        if not log.is_made:
            return []
        return [bytes(self.disk.node(f"{PATH}/t-0/{file_name(base, '.log')}").data) for base in log.segment_bases]

    def check(self, log: PartitionLog) -> None:
        found = [piece for data in self.files(log) for *_, piece in entries(data)]
        start, end = log.first_base_offset, log.log_end_offset
        assert end >= self.safe, f"the log ends at {end}, but up to {self.safe} it was flushed"
        assert start <= self.start_max or not self.safe, f"the log starts at {start}, not at {self.start_max} at most"
        expected = [bytes(view) for view in self.given if start <= last_of(view) < end]
        assert found == expected
        audit(log, self.disk)


def last_of(view: memoryview) -> int:
    if view[16] < 2:
        return int.from_bytes(view[:8], "big")
    ((_, header),) = iter_headers(bytes(view))
    return header.last_offset


def at_call(disk: MemoryDisk, number: int, act: Callable[[str, str], None]) -> list[int]:
    """`act` at every changing call from number `number` on; the list holds the count of calls so far."""
    calls = [0]

    def on_call(name: str, path: str) -> None:
        if name not in CHANGES:
            return
        if name == "open":
            try:
                disk.node(path)
                return  # it is there already
            except FileNotFoundError:
                pass
        calls[0] += 1
        if calls[0] >= number:
            act(name, path)

    disk.on_call = on_call
    return calls


def calls_of_a_life() -> int:
    disk = MemoryDisk()
    calls = at_call(disk, 1 << 30, lambda name, path: None)
    life = Life(disk)
    life.run()
    return calls[0]


CALLS = calls_of_a_life()


def go_on(life: Life) -> None:
    """Open what is left, look at it, use it, and look again after a kill, and after a clean stop."""
    disk = life.disk
    log_dir = open_dir(disk, config=CONFIG, clock=life.clock)
    life.log_dir, life.log = log_dir, log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    life.check(life.log)
    end = life.log.log_end_offset
    life.given = [view for view in life.given if last_of(view) < end]
    known = life.log.producers.entries.get(5)
    life.sequence = known.last_sequence + 1 if known else 0
    life.some(2)
    life.flush()
    for stop in (disk_is_killed, Life.close):
        stop(life)
        life.log_dir = open_dir(disk, config=CONFIG, clock=life.clock)
        life.log = life.log_dir.logs["t", 0]
        assert life.log.log_end_offset == life.safe
        life.check(life.log)


def disk_is_killed(life: Life) -> None:
    life.disk.open_files, life.disk.locked = {}, set()


def power_cut(number: int, seeds: range) -> None:
    for seed in seeds:
        disk = MemoryDisk()

        def cut(name: str, path: str) -> None:
            raise PowerCut

        at_call(disk, number, cut)
        life = Life(disk)
        try:
            life.run()
            assert number > CALLS, "the life is shorter than it was"
        except PowerCut:
            assert number <= CALLS
        disk.on_call = None
        try:
            if seed:
                disk.crash(random.Random(seed * 1000 + number))
            else:
                disk_is_killed(life)
            go_on(life)
        except Exception as error:
            error.add_note(f"power cut before call {number}, seed {seed}")
            raise


class LifeAlone(Life):
    """On a broker alone: nothing is truncated, and the log goes on behind what a loss of power took out of it."""

    def truncate(self) -> None:
        pass

    def check(self, log: PartitionLog) -> None:
        found = [piece for data in self.files(log) for *_, piece in entries(data)]
        start, end = log.first_base_offset, log.log_end_offset
        assert end >= self.safe, f"the log ends at {end}, but up to {self.safe} it was flushed"
        known = iter([bytes(view) for view in self.given])
        assert all(piece in known for piece in found), "what is there was given, in this order"
        safe = [bytes(view) for view in self.given if start <= last_of(view) < self.safe]
        assert found[: len(safe)] == safe
        audit(log, self.disk)
        self.given = [view for view in self.given if bytes(view) in found]


def power_cut_alone(number: int, seed: int) -> None:
    disk = MemoryDisk()

    def cut(name: str, path: str) -> None:
        raise PowerCut

    at_call(disk, number, cut)
    life = LifeAlone(disk)
    try:
        life.run()
    except PowerCut:
        pass
    disk.on_call = None
    disk.crash(random.Random(seed))
    try:
        for value in ("next", "last"):
            log = open_dir(disk, config=CONFIG, clock=life.clock, only_copies=True).open_or_create(
                "t", 0, TOPIC_ID, CONFIG
            )
            life.check(log)
            view = memoryview(batch(value, producer=(99, 0, 0 if value == "next" else 1)))
            log.append(view, leader_epoch=9, now_ms=life.clock.now_ms)
            life.given.append(view)
            log.write()
            log.flush()
            life.safe = log.log_end_offset
            disk_is_killed(life)
    except Exception as error:
        error.add_note(f"power cut before call {number}, seed {seed}")
        raise


@pytest.mark.parametrize("part", range(4))
def test_power_cut_on_a_broker_alone(part: int) -> None:
    for number in range(1 + part, CALLS, 16):
        power_cut_alone(number, number)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(int(os.environ.get("BARNABAS_CRASH_SEEDS", "3"))))
def test_power_cut_on_a_broker_alone_before_every_call(seed: int) -> None:
    for number in range(1, CALLS):
        power_cut_alone(number, seed * 1000 + number)


def test_the_life_that_is_cut_is_rich() -> None:
    """What the others rely on happens in it."""
    disk = MemoryDisk()
    life = Life(disk)
    life.run()
    log_dir = open_dir(disk, config=CONFIG, clock=life.clock)
    assert log_dir.was_clean
    log = log_dir.logs["t", 0]
    life.check(log)
    assert log.first_base_offset > 3
    assert log.segment_count > 2
    assert len(log.aborted_transactions(log.log_start_offset, log.log_end_offset)) == 1
    assert CALLS > 100


def test_power_cut_after_a_clean_stop() -> None:
    power_cut(CALLS + 1, range(10))


@pytest.mark.parametrize("part", range(4))
def test_power_cut_before_some_calls(part: int) -> None:
    for number in range(1 + part, CALLS + 1, 16):
        power_cut(number, range(number % 2, number % 2 + 1))


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(4))
def test_power_cut_before_every_call(part: int) -> None:
    for number in range(1 + part, CALLS + 1, 4):
        power_cut(number, range(int(os.environ.get("BARNABAS_CRASH_SEEDS", "3"))))


def failure_at(number: int, code: int, *, lasting: bool) -> None:
    disk = MemoryDisk()
    if number % 3 == 0:
        disk.short_writes = random.Random(number)
    failed = [0]

    def fail(name: str, path: str) -> None:
        if lasting or not failed[0]:
            failed[0] += 1
            raise OSError(code, os.strerror(code), path)

    at_call(disk, number, fail)
    life = Life(disk)
    life.patient = True
    try:
        life.run()
    except (KafkaError, OSError):
        pass
    assert failed[0]
    disk.on_call = None
    # Whatever became of it: what was acknowledged is there when the process ends now.
    life.safe = max(life.safe, life.written)
    disk_is_killed(life)
    try:
        go_on(life)
    except Exception as error:
        error.add_note(f"{errno.errorcode[code]} at call {number}, {'and after' if lasting else 'once'}")
        raise


FAILURES = [(errno.ENOSPC, False), (errno.EIO, False), (errno.EIO, True), (errno.EROFS, True)]


@pytest.mark.parametrize(("code", "lasting"), FAILURES)
def test_failure_of_some_calls(code: int, lasting: bool) -> None:
    for number in range(1 + code % 3, CALLS + 1, 23):
        failure_at(number, code, lasting=lasting)


@pytest.mark.campaign
@pytest.mark.parametrize(("code", "lasting"), FAILURES)
def test_failure_of_every_call(code: int, lasting: bool) -> None:
    for number in range(1, CALLS + 1):
        failure_at(number, code, lasting=lasting)


CALLS_OF_MAKING = 8  # more than there are


@pytest.mark.parametrize("number", range(1, CALLS_OF_MAKING + 1))
@pytest.mark.parametrize("seed", range(4))
def test_power_cut_while_the_files_of_a_new_log_are_made(number: int, seed: int) -> None:
    """What is there is completed, and written to."""
    life = Life(MemoryDisk())
    life.log_dir = open_dir(life.disk, config=CONFIG, clock=life.clock)
    life.log = life.log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)

    def cut(name: str, path: str) -> None:
        raise PowerCut

    calls = at_call(life.disk, number, cut)
    try:
        life.log.make_files()
        assert number > calls[0], "making takes more calls than are tried"
    except PowerCut:
        pass
    life.disk.on_call = None
    if seed:
        life.disk.crash(random.Random(seed * 1000 + number))
    else:
        disk_is_killed(life)
    go_on(life)
    assert life.log.topic_id == TOPIC_ID


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("number", range(1, CALLS_OF_MAKING + 1))
@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
def test_failure_while_the_files_of_a_new_log_are_made(code: int, number: int, is_written: bool) -> None:
    """A lack of something is made up for by the next attempt or the first write; a broken disk is the next start's."""
    life = Life(MemoryDisk())
    life.log_dir = open_dir(life.disk, config=CONFIG, clock=life.clock)
    life.log = life.log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    failed = [0]

    def fail(name: str, path: str) -> None:
        if not failed[0]:
            failed[0] += 1
            raise OSError(code, os.strerror(code), path)

    calls = at_call(life.disk, number, fail)
    waiting = [life.log]
    assert life.log_dir.new_logs.take(9) == waiting
    if not failed[0] and code == errno.EIO:
        try:
            assert life.log_dir.new_logs.make(waiting) == []
            assert number > calls[0], "making takes more calls than are tried"
        except StorageError:
            assert life.log_dir.failure is not None
            disk_is_killed(life)
    else:
        assert [each for each, _ in life.log_dir.new_logs.make(waiting)] == waiting[: failed[0]]
        assert life.log_dir.failure is None
        if is_written:
            life.some(1)
        else:
            assert life.log_dir.new_logs.make(waiting) == []
        assert life.log.is_made
        life.close()
    life.disk.on_call = None
    go_on(life)


def damaged(step: int, damage: str) -> None:
    """One segment with everything in it, damaged at every `step`th byte."""
    config = LogConfig(index_interval_bytes=100)
    disk = MemoryDisk()
    life = Life(disk)
    life.log_dir = open_dir(disk, config=config, clock=life.clock)
    life.log = life.log_dir.open_or_create("t", 0, TOPIC_ID, config)
    life.some(2)
    life.replicate_old()
    life.transaction(commit=False)
    life.put(batch("z" * 300, codec=4))
    life.begin(8)
    life.some(1)
    path = f"{PATH}/t-0/{file_name(0, '.log')}"
    data = bytes(disk.node(path).data)
    ends = [position + len(piece) for position, *_, piece in entries(data)]
    given = life.given
    for at in range(0, len(data), step):
        whole = sum(end <= at for end in ends)
        start = ends[whole - 1] if whole else 0
        if damage == "cut":
            content = data[:at]
        elif damage == "zeros":
            content = data[:at] + bytes(len(data) - at)
        else:
            content = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
            magic = data[start + 16]
            if at - start < 8 or (magic == 2 and 12 <= at - start < 16):
                continue  # offsets and leader epochs are outside of the checksums
        if content == data:
            continue
        disk.node(path).data = bytearray(content)
        disk_is_killed(life)
        life.log = open_dir(disk, config=config, clock=life.clock).logs["t", 0]
        # A hole of zeros in what is zero anyway damages nothing.
        while whole < len(ends) and content[: ends[whole]] == data[: ends[whole]]:
            whole += 1
        life.given = given[:whole]
        life.safe = last_of(given[whole - 1]) + 1 if whole else 0
        try:
            assert life.log.log_end_offset == life.safe
            life.check(life.log)
        except Exception as error:
            error.add_note(f"{damage} at byte {at}")
            raise
        disk.node(path).data = bytearray(data)


@pytest.mark.parametrize("damage", ["cut", "zeros", "flip"])
def test_damage_at_some_bytes(damage: str) -> None:
    damaged(7, damage)


@pytest.mark.campaign
@pytest.mark.parametrize("damage", ["cut", "zeros", "flip"])
def test_damage_at_every_byte(damage: str) -> None:
    damaged(1, damage)
