"""What a follower makes of each answer of its leader: errors, truncation, throttles; under a mock clock."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import FetchResponse, OffsetForLeaderEpochResponse
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.server.partitions.partition import Partition
from barnabas.server.tests.partitions.fake_leaders import (
    US,
    Asked,
    World,
    answer_offsets,
    batch,
    caught_up,
    fetched,
    following,
    part,
)

# ---- errors in answers

NOT_YET = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
]
RESTS = [
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


@pytest.mark.parametrize("code", RESTS)
async def test_partition_with_an_error_rests(autojump_clock: MockClock, code: ErrorCode) -> None:
    async with following(replica_fetch_backoff_ms="700") as world:
        world.follow(0)
        world.follow(1)
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, code=code), part(1, batch(0, b"a"), high_watermark=1)))
        assert world.log(1) == (0, 1, 1)
        asked = await world.leader.asked()
        assert (asked.forgotten, list(asked.partitions)) == ([0], [1])
        await trio.sleep(0.5)
        await asked.answer(fetched())
        asked = await world.leader.asked()
        await trio.sleep(0.3)
        await asked.answer(fetched())
        asked = await world.leader.asked()
        assert (asked.forgotten, list(asked.partitions)) == ([], [0])
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1)))
        assert world.log(0) == (0, 1, 1)


@pytest.mark.parametrize("code", RESTS)
async def test_only_partition_with_an_error_is_asked_for_after_the_rest(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    async with following() as world:
        world.follow()
        for _ in range(5):
            asked = await world.leader.asked()
            assert list(asked.partitions) == [0]
            began = asked.at
            await asked.answer(fetched(part(0, code=code)))
            asked = await world.leader.asked()
            assert asked.forgotten == [0]
            await asked.answer(fetched(session_id=0))
            assert world.leader.waiting() == 0
            await trio.sleep(0.99)
            assert world.leader.waiting() == 0
        asked = await world.leader.asked()
        assert asked.at - began == pytest.approx(1.0)


@pytest.mark.parametrize("code", NOT_YET)
async def test_leader_that_does_not_know_yet_is_asked_again_soon(autojump_clock: MockClock, code: ErrorCode) -> None:
    async with following() as world:
        world.follow()
        times = []
        for _ in range(9):
            asked = await world.leader.asked()
            assert list(asked.partitions) == [0]
            times.append(asked.at)
            await asked.answer(fetched(part(0, code=code)))
            asked = await world.leader.asked()
            assert asked.forgotten == [0]
            await asked.answer(fetched(session_id=0))
        rests = [round(later - earlier, 3) for earlier, later in pairwise(times)]
        assert rests == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


async def test_fenced_partition_waits_for_the_controller(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, code=ErrorCode.FENCED_LEADER_EPOCH)))
        asked = await world.leader.asked()
        await asked.answer(fetched(session_id=0))
        await trio.sleep(1000)
        assert world.leader.waiting() == 0
        world.follow(epoch=6)
        assert (await world.leader.asked()).partitions[0].current_leader_epoch == 6


@pytest.mark.parametrize("code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
async def test_session_that_is_gone(autojump_clock: MockClock, code: ErrorCode) -> None:
    async with following() as world:
        world.follow()
        asked = await caught_up(world, 0)
        await asked.answer(FetchResponse(error_code=code))
        again = await world.leader.asked()
        assert again.at == asked.at
        known = 0 if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND else 33
        assert (again.request.session_id, again.request.session_epoch, list(again.partitions)) == (known, 0, [0])


@pytest.mark.parametrize("code", [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR])
async def test_refused_request(autojump_clock: MockClock, code: ErrorCode) -> None:
    async with following() as world:
        world.follow()
        for _ in range(3):
            asked = await world.leader.asked()
            await asked.answer(FetchResponse(error_code=code))
            again = await world.leader.asked()
            assert again.at - asked.at == pytest.approx(1.0)
            await again.answer(FetchResponse(error_code=code))


@pytest.mark.parametrize(
    "bad",
    [
        batch(0, b"a")[:-1] + b"?",
        batch(0, b"a")[:16] + b"\1" + batch(0, b"a")[17:],
        batch(0, b"a") + batch(1, b"b")[:-1] + b"?",
    ],
    ids=["checksum", "magic", "second batch"],
)
async def test_bad_records_are_fetched_again(autojump_clock: MockClock, bad: bytes) -> None:
    async with following() as world:
        world.follow()
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, bad, high_watermark=1)))
        assert world.log() == (0, 0, 0)
        asked = await world.leader.asked()
        assert asked.forgotten == [0]
        await asked.answer(fetched(session_id=0))
        asked = await world.leader.asked()
        assert asked.at == pytest.approx(1.0)
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1)))
        assert world.log() == (0, 1, 1)


async def test_records_behind_the_offset_asked_for_fail_the_partition(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow(0)
        world.follow(1)
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, batch(0, b"a", b"b")), part(1)))
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, batch(1, b"b", b"c"))))
        assert world.log() == (0, 2, 0)
        assert (await world.leader.asked()).forgotten == [0]


async def test_an_interrupted_write_lets_a_partition_rest(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    disk.full = errno.EINTR
    async with following(disk) as world:
        world.follow(0)
        world.follow(1)
        asked = await world.leader.asked()
        disk.space = 10
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1), part(1)))
        assert world.log() == (0, 0, 0)
        asked = await world.leader.asked()
        assert asked.forgotten == [0]
        disk.space = None
        await trio.sleep(1)
        await asked.answer(fetched())
        asked = await world.leader.asked()
        assert list(asked.partitions) == [0]
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1)))
        assert world.log() == (0, 1, 1)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
async def test_failing_disk_fails_the_partition(autojump_clock: MockClock, code: int) -> None:
    """A full one, too: one behaviour of leader and follower, as in Apache Kafka."""
    disk = MemoryDisk()
    async with following(disk) as world:
        world.follow(0)
        world.follow(1)
        asked = await world.leader.asked()

        def broken(name: str, *args: object) -> None:
            if name == "pwritev":
                raise OSError(code, "broken")

        disk.on_call = broken
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1), part(1)))
        assert (await world.leader.asked()).forgotten == [0]
        assert world.log_dirs.dirs[0].failure is not None


async def test_our_own_mistake_with_a_partition_is_not_its_neighbours(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following() as world:
        partition = world.follow(0)
        world.follow(1)
        asked = await world.leader.asked()

        whole = type(partition).follow_offsets

        def broken(self: Partition, *offsets: int) -> None:
            if self.index == 0:
                raise RuntimeError("a bug")
            whole(self, *offsets)

        monkeypatch.setattr(type(partition), "follow_offsets", broken)
        await asked.answer(fetched(part(0, high_watermark=1), part(1, batch(0, b"a"), high_watermark=1)))
        assert "a bug" in caplog.text
        assert world.log(1) == (0, 1, 1)
        asked = await world.leader.asked()
        assert (asked.forgotten, list(asked.partitions)) == ([0], [1])


# ---- truncation


async def filled(world: World, *epochs: int) -> Asked:
    """One record of each epoch is in the log; the next request, which waits."""
    world.follow()
    asked = await world.leader.asked()
    await asked.answer(fetched(part(0, *(batch(n, b"x", epoch=epoch) for n, epoch in enumerate(epochs)))))
    return await world.leader.asked()


async def test_diverging_epoch(autojump_clock: MockClock) -> None:
    async with following() as world:
        asked = await filled(world, 1, 1, 2, 2)
        diverging = FetchResponse.EpochEndOffset(epoch=2, end_offset=3)
        await asked.answer(fetched(part(0, high_watermark=3, diverging_epoch=diverging)))
        assert world.log() == (0, 3, 0)
        again = await world.leader.asked()
        assert again.at == asked.at
        assert (again.partitions[0].fetch_offset, again.partitions[0].last_fetched_epoch) == (3, 2)
        await again.answer(fetched())
        assert world.log() == (0, 3, 3), "the high watermark came with the diverging epoch, and holds"


async def test_leader_that_ends_before_us(autojump_clock: MockClock) -> None:
    async with following() as world:
        asked = await filled(world, 1, 1, 1)
        await asked.answer(fetched(part(0, code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert await answer_offsets(world, 2) == -1
        assert world.log() == (0, 2, 0)
        assert (await world.leader.asked()).partitions[0].fetch_offset == 2


async def test_leader_that_starts_behind_us(autojump_clock: MockClock) -> None:
    async with following() as world:
        asked = await filled(world, 1, 1, 1)
        await asked.answer(fetched(part(0, code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert await answer_offsets(world, 90) == -1
        assert await answer_offsets(world, 50) == -2
        assert world.log() == (50, 50, 50)
        asked = await world.leader.asked()
        assert (asked.partitions[0].fetch_offset, asked.partitions[0].last_fetched_epoch) == (50, -1)
        await asked.answer(fetched(part(0, batch(50, b"y"), high_watermark=51, log_start_offset=50)))
        assert world.log() == (50, 51, 51)


async def test_leader_that_has_our_end_after_all(autojump_clock: MockClock) -> None:
    async with following() as world:
        asked = await filled(world, 1, 1, 1)
        await asked.answer(fetched(part(0, code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        assert await answer_offsets(world, 90) == -1
        assert await answer_offsets(world, 2) == -2
        asked = await world.leader.asked()
        assert asked.forgotten == [0]
        await asked.answer(fetched(session_id=0))
        asked = await world.leader.asked()
        assert asked.partitions[0].fetch_offset == 3
        assert asked.at == pytest.approx(1.0)


async def test_old_protocol_asks_where_epochs_end(autojump_clock: MockClock) -> None:
    async with following(inter_broker_protocol_version="2.7-IV0") as world:
        asked = await filled(world, 1, 1, 2, 2)
        assert asked.version == 11
        world.follow(epoch=6)
        await asked.answer(fetched())
        asked = await world.leader.asked()
        assert (asked.key, asked.version) == (ApiKey.OFFSET_FOR_LEADER_EPOCH, 3)
        of = asked.request.topics[0].partitions[0]
        assert (of.partition, of.current_leader_epoch, of.leader_epoch) == (0, 6, 2)
        end = OffsetForLeaderEpochResponse.EpochEndOffset(partition=0, leader_epoch=2, end_offset=3)
        topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic="t", partitions=[end])
        await asked.answer(OffsetForLeaderEpochResponse(topics=[topic]))
        assert world.log() == (0, 3, 0)
        assert (await world.leader.asked()).partitions[0].fetch_offset == 3


# ---- throttle


async def test_follower_throttle(autojump_clock: MockClock) -> None:
    limits = {"follower.replication.throttled.rate": "1000"}
    async with following() as world:
        world.config = world.config.with_dynamic(cluster=limits, broker={})
        world.configure(follower_replication_throttled_replicas=f"0:{US},1:{US + 1}")
        world.follow(0)
        world.follow(1)
        asked = await world.leader.asked()
        big = batch(0, b"x" * 5000)
        await asked.answer(fetched(part(0, big, high_watermark=2), part(1, big, high_watermark=2)))
        held = await world.leader.asked()
        assert (held.forgotten, list(held.partitions)) == ([0], [1]), "1 is throttled on another broker"
        asked = held
        while 0 not in asked.partitions:
            await trio.sleep(0.5)
            await asked.answer(fetched())
            asked = await world.leader.asked()
        assert 5.0 <= asked.at - held.at <= 6.5, "5,000 bytes at 1,000 a second"
        # In sync, it is never held back.
        await asked.answer(fetched(part(0, batch(1, b"x" * 5000), high_watermark=2)))
        assert (await world.leader.asked()).forgotten == []


async def test_all_are_held_back(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.config = world.config.with_dynamic(cluster={"follower.replication.throttled.rate": "1000"}, broker={})
        world.configure(follower_replication_throttled_replicas="*")
        world.follow(0)
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, batch(0, b"x" * 5000), high_watermark=2)))
        asked = await world.leader.asked()
        assert asked.forgotten == [0]
        await asked.answer(fetched(session_id=0))
        asked = await world.leader.asked()
        assert 5.0 <= asked.at <= 6.5
