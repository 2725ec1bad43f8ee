"""Share partitions on their leader: real logs, a store here or on another broker, a virtual clock."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.share import (
    Acknowledgement,
    AcknowledgeType,
    AcquireMode,
    LogBatch,
    ShareKey,
    SharePartition,
    Wanted,
)
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.records import iter_headers
from barnabas.logdir import FileSlice
from barnabas.replication import PartitionImage
from barnabas.server.cluster.log_ends import LogEnds
from barnabas.server.coordinators.share import partitions
from barnabas.server.coordinators.share.log_reading import ShareRead, read_for_share
from barnabas.server.coordinators.share.partitions import Got, LedShare, SharePartitions
from barnabas.server.coordinators.share.state_wire import Initialize, Summarize
from barnabas.server.partitions.partition import Partition
from barnabas.server.tests.apis.data_world import NOW
from barnabas.server.tests.coordinators.share.persister_kit import PersisterRig, persister_rig, settle
from barnabas.server.tests.coordinators.txn_rig import Token

E = ErrorCode
ACCEPT, RELEASE, GAP = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.GAP


class Waiter:
    """Waits for records of a share partition."""

    def __init__(self, led: LedShare) -> None:
        self.woken = self.stopped = 0
        led.waiting[self] = None

    def wake(self, led: LedShare) -> None:
        self.woken += 1

    def answer_now(self) -> None:
        self.stopped += 1


class PartitionsRig:
    """`shares` of broker 0 of `at`, over the first partition of topic t."""

    def __init__(self, at: PersisterRig) -> None:
        self.at = at
        self.shares = self.new()

    def new(self) -> SharePartitions:
        at = self.at
        ground = at.ground(at.world)
        ends = LogEnds(at.connect, ground.current_config, ground.current_image, "share-lag")
        return SharePartitions(ground, at.persister, at.states.runtime.results.after_write, ends)

    @property
    def partition(self) -> Partition:
        return self.at.world.partitions.get("t", 0)

    def configure(self, **own: str) -> None:
        """Settings of group g."""
        configs: Mapping[str, Mapping[str, str]] = {
            "g": {f"share.{key.replace('_', '.')}": value for key, value in own.items()}
        }
        self.at.world.image = dataclasses.replace(self.at.world.image, group_configs=configs)

    def produce(self, *sizes: int, **options: Any) -> None:
        """Batches with so many records each."""
        for size in sizes:
            self.at.world.append(self.partition, *([NOW] * size), **options)

    async def led(self, start_offset: int = 0) -> LedShare:
        """The share partition, initialized and loaded."""
        await self.at.told(Initialize(1, start_offset))
        led = self.shares.of(self.at.key())
        await settle()
        return led

    async def start_offset(self) -> tuple[int, int]:
        """What is stored: start offset and delivery complete count."""
        told = await self.at.told(Summarize())
        return told.start_offset, told.delivery_complete_count


@asynccontextmanager
async def partitions_rig(directory: Path, leader: int = 0, **settings: str) -> AsyncIterator[PartitionsRig]:
    async with persister_rig(directory, **settings) as at:
        at.topic(leader)
        yield PartitionsRig(at)


def wanted(member: str = "a", max_records: int = 500, mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED) -> Wanted:
    return Wanted(member, mode, max_records, max_records)


def ranges(got: Got | None) -> list[tuple[int, int, int]]:
    return [] if got is None else [tuple(each) for each in got.acquired]  # type: ignore[misc]


def in_answer(got: Got | None) -> list[tuple[int, int]]:
    """The batches in the answer."""
    if got is None:
        return []
    headers = [header for _, header in iter_headers(got.records.read())]
    return [(header.base_offset, header.last_offset) for header in headers]


async def acknowledged(led: LedShare, *batches: tuple[int, int, int], member: str = "a") -> ErrorCode:
    token = Token()
    led.acknowledge(member, [Acknowledgement(first, last, [what]) for first, last, what in batches], False, token)
    await settle()
    code: ErrorCode = token.answer
    return code


@pytest.mark.parametrize("leader", [0, 1], ids=["store here", "store on another broker"])
async def test_records_are_acquired_acknowledged_and_settled(leader: int, tmp_path: Path) -> None:
    async with partitions_rig(tmp_path, leader) as r:
        r.produce(3, 4, 5)
        led = await r.led()
        got = led.acquire(wanted(max_records=4), 1 << 20)
        assert ranges(got) == [(0, 6, 1)]
        assert in_answer(got) == [(0, 2), (3, 6)]
        assert ranges(led.acquire(wanted("b"), 1 << 20)) == [(7, 11, 1)]
        assert led.acquire(wanted(), 1 << 20) is None
        assert await acknowledged(led, (0, 4, ACCEPT), (5, 6, RELEASE)) == E.NONE
        assert await acknowledged(led, (5, 5, ACCEPT)) == E.INVALID_RECORD_STATE
        assert await r.start_offset() == (0, 5)
        got = led.acquire(wanted(), 1 << 20)
        assert ranges(got) == [(5, 6, 2)]
        assert in_answer(got) == [(3, 6)]
        assert await acknowledged(led, (5, 6, ACCEPT)) == E.NONE
        assert await acknowledged(led, (7, 11, ACCEPT), member="b") == E.NONE
        r.shares.forget_group("g")
        assert len(r.shares) == 0
        led = r.shares.of(r.at.key())
        await settle()
        assert led.acquire(wanted(), 1 << 20) is None, "all is settled"
        r.produce(1)
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(12, 12, 1)]


async def test_what_is_not_initialized(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        led = r.shares.of(r.at.key())
        waiter = Waiter(led)
        await settle()
        assert (led.error, waiter.woken) == (E.COORDINATOR_NOT_AVAILABLE, 1)
        with pytest.raises(KafkaError) as raised:
            led.acquire(wanted(), 1 << 20)
        assert raised.value.code == E.COORDINATOR_NOT_AVAILABLE
        assert len(r.shares) == 0
        assert (await r.led()).error == E.NONE


async def test_which_partitions_there_are(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        for key, code in (
            (ShareKey("g", b"x" * 16, 0), E.UNKNOWN_TOPIC_ID),
            (r.at.key(partition=3), E.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            with pytest.raises(KafkaError) as raised:
                r.shares.of(key)
            assert raised.value.code == code
        led = await r.led()
        assert r.shares.of(r.at.key()) is r.shares.find(r.at.key()) is led
        assert [each.key for each in r.shares] == [r.at.key()]


async def test_leadership_is_lost(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        r.produce(3)
        led = await r.led()
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(0, 2, 1)]
        waiter = Waiter(led)
        r.partition.follow(PartitionImage(0, 1, 1, 1, (0, 1), (0, 1)))
        await settle()
        assert (led.error, waiter.woken, len(r.shares)) == (E.NOT_LEADER_OR_FOLLOWER, 1, 0)
        assert await acknowledged(led, (0, 2, ACCEPT)) == E.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(KafkaError) as raised:
            r.shares.of(r.at.key())
        assert raised.value.code == E.NOT_LEADER_OR_FOLLOWER
        r.at.world.new_epoch(r.partition, 2)
        again = r.shares.of(r.at.key())
        await settle()
        assert again is not led
        assert ranges(again.acquire(wanted("b"), 1 << 20)) == [(0, 2, 1)], "nothing was said about them"


async def test_another_epoch_is_another_share_partition(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        led = await r.led()
        r.at.world.new_epoch(r.partition, 4)
        again = r.shares.of(r.at.key())
        await settle()
        assert (led.error, again.error, again.machine.leader_epoch) == (E.NOT_LEADER_OR_FOLLOWER, E.NONE, 4)


async def test_locks_expire(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with partitions_rig(tmp_path) as r:
        r.produce(3)
        led = await r.led()
        waiter = Waiter(led)
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(0, 2, 1)]
        await trio.sleep(29)
        assert (waiter.woken, led.acquire(wanted("b"), 1 << 20)) == (0, None)
        await trio.sleep(1.5)
        assert waiter.woken
        assert ranges(led.acquire(wanted("b"), 1 << 20)) == [(0, 2, 2)]
        assert await acknowledged(led, (0, 2, ACCEPT)) == E.INVALID_RECORD_STATE
        assert await acknowledged(led, (0, 2, ACCEPT), member="b") == E.NONE


async def test_who_waits_is_woken(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        led = await r.led()
        waiter = Waiter(led)
        r.produce(2)
        r.partition.announce(1)
        await settle()
        assert waiter.woken == 1
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(0, 1, 1)]
        led.release("a")
        await settle()
        assert waiter.woken == 2
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(0, 1, 2)]
        r.at.world.partitions.end()
        assert waiter.stopped == 1


async def test_a_session_that_ends_gives_back(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        r.produce(4)
        led = await r.led()
        led.acquire(wanted(), 1 << 20)
        assert await acknowledged(led, (1, 1, ACCEPT)) == E.NONE
        token = Token()
        led.release("a", token)
        await settle()
        assert token.answer == E.NONE
        assert ranges(led.acquire(wanted("b"), 1 << 20)) == [(0, 0, 2), (2, 3, 2)]


async def test_the_end_of_a_group_is_about_its_own_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others there are: a connection may end thousands of groups here."""
    async with partitions_rig(tmp_path) as r:
        led = await r.led()
        others = [r.shares.of(r.at.key("h", partition=index)) for index in range(3)]
        looked: list[LedShare] = []
        end = LedShare.end

        def noted(each: LedShare, error: ErrorCode) -> None:
            looked.append(each)
            end(each, error)

        monkeypatch.setattr(LedShare, "end", noted)
        r.shares.forget_group("none")
        r.shares.forget_group("g")
        assert looked == [led]
        assert list(r.shares) == others
        r.shares.forget_all()
        assert len(r.shares) == 0
        assert not r.shares._of_group


@pytest.mark.parametrize(
    ("reset", "start"),
    [("latest", 6), ("earliest", 1), ("by_duration:PT2H", 4), ("by_duration:PT10H", 1), ("by_duration:PT1M", 6)],
)
async def test_where_a_group_begins(reset: str, start: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    async with partitions_rig(tmp_path) as r:
        for hours in (5, 4, 3, 3, 1, 1):
            r.at.world.append(r.partition, NOW - hours * 3_600_000)
        r.partition.log.delete_records(1, r.partition.high_watermark)
        r.configure(auto_offset_reset=reset)
        led = await r.led(-1)
        assert led.machine.start_offset == start
        assert (await r.start_offset())[0] == -1, "it is stored when something is settled"


async def test_the_log_begins_later_now(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        r.produce(3, 3, 3)
        led = await r.led()
        assert ranges(led.acquire(wanted(max_records=1), 1 << 20)) == [(0, 2, 1)]
        r.partition.log.delete_records(6, r.partition.high_watermark)
        assert ranges(led.acquire(wanted("b"), 1 << 20)) == [(6, 8, 1)]
        assert await acknowledged(led, (0, 2, ACCEPT)) == E.NONE, "it is ignored"


async def test_aborted_transactions(tmp_path: Path) -> None:
    """Members of a group that reads committed data get none of their records, however many there are."""
    async with partitions_rig(tmp_path) as r:
        options = {"producer_id": 7, "producer_epoch": 0, "transactional": True}
        for number in range(3):
            r.produce(2, base_sequence=2 * number, **options)
            r.at.world.end_transaction(r.partition, 7, 0, commit=False)
        r.produce(2, base_sequence=6, **options)
        led = await r.led()
        r.configure(isolation_level="read_committed")
        # 0, 1 aborted, 2 its marker, ...; 9 and 10 are open.
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(2, 2, 1), (5, 5, 1), (8, 8, 1)]
        assert led.acquire(wanted(), 1 << 20) is None
        waiter = Waiter(led)
        r.at.world.end_transaction(r.partition, 7, 0, commit=True)
        r.partition.announce(1)
        await settle()
        assert waiter.woken
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(9, 11, 1)]
        assert await acknowledged(led, (2, 2, GAP), (5, 5, GAP), (8, 8, GAP), (9, 10, ACCEPT), (11, 11, GAP)) == E.NONE
        assert led.machine.start_offset == 12


async def test_all_that_is_readable_is_aborted(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        r.configure(isolation_level="read_committed")
        led = await r.led()
        for number in range(3):
            r.produce(1, base_sequence=number, producer_id=7, producer_epoch=0, transactional=True)
        r.at.world.end_transaction(r.partition, 7, 0, commit=False)
        one_batch = 70
        assert ranges(led.acquire(wanted(max_records=1), one_batch)) == [(3, 3, 1)]


async def test_no_more_is_looked_at_than_may_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many records a member asks for: headers are read one by one, on the loop."""
    looked_at: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        read = read_for_share(*args, **options)
        looked_at.append(0 if read is None else len(read.batches))
        return read

    monkeypatch.setattr(partitions, "read_for_share", counted)
    async with partitions_rig(tmp_path) as r:
        r.configure(partition_max_record_locks="100")
        r.produce(*[1] * 250)
        led = await r.led()
        assert ranges(led.acquire(wanted(max_records=2**31 - 1), 1 << 20)) == [(0, 99, 1)]
        assert await acknowledged(led, (0, 49, ACCEPT)) == E.NONE
        assert ranges(led.acquire(wanted(max_records=2**31 - 1), 1 << 20)) == [(100, 149, 1)]
        assert looked_at == [100, 50]


def test_a_hole_is_told_with_the_batch_behind_it() -> None:
    """What was acquired of a read may have no batch of its own: compaction took it, aborted ones were left out."""
    log_file: Any = None
    batches = [LogBatch(0, 9), LogBatch(20, 29), LogBatch(30, 39)]
    read = ShareRead(FileSlice(log_file, 0, 300), [0, 100, 200, 300], batches, [(0, 9)])

    def covering(first_offset: int, last_offset: int) -> tuple[int, int]:
        part = read.covering(first_offset, last_offset)
        return part.position, part.position + part.length

    assert covering(0, 9) == (0, 100)
    assert covering(5, 12) == (0, 100)
    assert covering(10, 14) == (100, 200)
    assert covering(12, 24) == (100, 200)
    assert covering(25, 39) == (100, 300)


async def test_readable_bytes(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        led = await r.led()
        assert led.readable_bytes(1000) == 0
        r.produce(3)
        size = r.partition.log.size
        assert led.readable_bytes(1000) == size
        assert led.readable_bytes(size + 10) == size
        led.acquire(wanted(), 1 << 20)
        assert led.readable_bytes(1000) == 0


async def test_a_store_that_is_away(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Nothing is settled that is not stored: the member is told so, and has its records still."""
    async with partitions_rig(tmp_path, 1) as r:
        r.produce(2)
        led = await r.led()
        led.acquire(wanted(), 1 << 20)
        r.at.is_away = True
        await r.at.persister._peers[1].close()
        token = Token()
        led.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], False, token)
        await trio.sleep(16)
        assert token.answer == E.COORDINATOR_NOT_AVAILABLE
        r.at.is_away = False
        assert await acknowledged(led, (0, 1, ACCEPT)) == E.NONE
        assert await r.start_offset() == (0, 2)


@pytest.mark.parametrize("failing", ["resolved", "written", "expire"])
async def test_a_fault_of_ours_ends_it(
    failing: str, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever for what was lost with it, and the next one gets another share partition."""

    def fail(*_: Any) -> Any:
        raise ValueError("ours")

    async with partitions_rig(tmp_path) as r:
        r.produce(2)
        with monkeypatch.context() as patched:
            patched.setattr(SharePartition, failing, fail)
            led = await r.led(-1 if failing == "resolved" else 0)
            token, waiter = Token(), Waiter(led)
            if failing != "resolved":
                led.acquire(wanted(), 1 << 20)
            if failing == "written":
                led.acknowledge("a", [Acknowledgement(0, 1, [ACCEPT])], False, token)
            await trio.sleep(40)
            assert led.error == E.UNKNOWN_SERVER_ERROR
            assert waiter.woken or failing == "resolved", "it had ended before"
            assert failing != "written" or token.answer == E.UNKNOWN_SERVER_ERROR
            assert len(r.shares) == 0
        r.configure(auto_offset_reset="earliest")
        again = r.shares.of(r.at.key())
        await settle()
        assert ranges(again.acquire(wanted("b"), 1 << 20)) in ([(0, 1, 1)], [])


async def test_a_group_that_begins_below_the_log(tmp_path: Path) -> None:
    async with partitions_rig(tmp_path) as r:
        r.produce(3, 3)
        r.partition.log.delete_records(3, r.partition.high_watermark)
        led = await r.led(-5)
        assert ranges(led.acquire(wanted(), 1 << 20)) == [(3, 5, 1)]
        assert await acknowledged(led, (3, 4, ACCEPT)) == E.NONE
        assert await r.start_offset() == (3, 2)
