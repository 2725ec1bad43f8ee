"""A broker with several log directories, of which one fails: what clients see, and what the next start finds."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetForLeaderEpochRequest,
)
from barnabas.logdir import LogDirError
from barnabas.replication import GROUP_METADATA_TOPIC
from barnabas.server.broker.broker import BrokerFailed
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.storage.two_dirs import LONG_MS, World, fetch, two_dirs
from barnabas.server.tests.whole.faulty_disk import FaultyDisk

E = ErrorCode


async def test_partitions_are_spread_and_found_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        await world.topic("t", 6)
        homes = {index: world.home("t", index) for index in range(6)}
        assert sorted(path.name for path in homes.values() if path) == ["a", "a", "a", "b", "b", "b"]
        for index in range(6):
            assert await world.produce("t", index, b"%d" % index) == (E.NONE, 0)
        answer = await world.client.ask(DescribeLogDirsRequest(topics=None), 4)
        assert [(result.log_dir, result.error_code) for result in answer.results] == [
            (str(world.a), E.NONE),
            (str(world.b), E.NONE),
        ]
        assert [len(result.topics[0].partitions) for result in answer.results] == [3, 3]
    for each in (world.a, world.b):
        assert (each / ".kafka_cleanshutdown").exists()
        assert (each / "meta.properties").read_text() == (world.a / "meta.properties").read_text()
        assert len((each / "replication-offset-checkpoint").read_text().splitlines()) == 5
    async with two_dirs(tmp_path) as world:
        assert {index: world.home("t", index) for index in range(6)} == homes
        assert [await world.values("t", index) for index in range(6)] == [[b"%d" % index] for index in range(6)]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
async def test_a_failed_write_takes_its_directory_offline_and_no_other(
    tmp_path: Path, autojump_clock: MockClock, code: int
) -> None:
    async with two_dirs(tmp_path) as world:
        await world.topic("t", 4)
        lost, kept = world.in_dir(world.b, "t"), world.in_dir(world.a, "t")
        also_lost = next(index for index in range(4) if index != lost and world.home("t", index) == world.b)
        for index in range(4):
            assert await world.produce("t", index, b"before") == (E.NONE, 0)
        world.disk.break_below(world.b, code)
        async with trio.open_nursery() as nursery, connected(world.broker) as waiting:
            waited: list[Any] = []

            async def wait() -> None:
                waited.append(await waiting.ask(fetch("t", also_lost, 1, LONG_MS), 11))

            nursery.start_soon(wait)
            await trio.sleep(0.1)
            began = trio.current_time()
            assert await world.produce("t", lost) == (E.KAFKA_STORAGE_ERROR, -1)
            await trio.sleep(0.1)
            assert trio.current_time() - began < 1
            assert waited[0].responses[0].partitions[0].error_code == E.KAFKA_STORAGE_ERROR
        assert await world.produce("t", kept, b"after") == (E.NONE, 1)
        assert await world.values("t", kept) == [b"before", b"after"]
        for index in (lost, also_lost):
            await _all_say(world, index, E.KAFKA_STORAGE_ERROR)
            await world.until_told("t", index)
        partitions = await world.metadata("t")
        for partition in partitions:
            away = partition.partition_index in (lost, also_lost)
            assert partition.error_code == (E.LEADER_NOT_AVAILABLE if away else E.NONE)
            assert partition.offline_replicas == (partition.replica_nodes if away else [])
        answer = await world.client.ask(DescribeLogDirsRequest(topics=None), 4)
        assert [result.error_code for result in answer.results] == [E.NONE, E.KAFKA_STORAGE_ERROR]
        await world.topic("u", 2)  # goes where there is a disk
        assert {world.home("u", index) for index in range(2)} == {world.a}
    assert (world.a / ".kafka_cleanshutdown").exists()
    assert not (world.b / ".kafka_cleanshutdown").exists()
    async with two_dirs(tmp_path) as world:  # repaired
        assert await world.values("t", lost) == [b"before"]
        assert await world.values("t", kept) == [b"before", b"after"]
        assert await world.produce("t", lost, b"again") == (E.NONE, 1)
        assert all(not partition.offline_replicas for partition in await world.metadata("t"))


async def _all_say(world: World, index: int, code: ErrorCode) -> None:
    """Everything that a client may ask of an offline partition."""
    assert await world.produce("t", index) == (code, -1)
    assert await world.values("t", index) == code
    ask = world.client.ask
    offsets = ListOffsetsRequest.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=-1)
    answer = await ask(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[offsets])]),
        5,
    )
    assert answer.topics[0].partitions[0].error_code == code
    epochs = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
        partition=index, current_leader_epoch=-1, leader_epoch=0
    )
    answer = await ask(
        OffsetForLeaderEpochRequest(
            replica_id=-1,
            topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="t", partitions=[epochs])],
        ),
        3,
    )
    assert answer.topics[0].partitions[0].error_code == code
    delete = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=1)
    answer = await ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[delete])], timeout_ms=1000
        ),
        1,
    )
    assert answer.topics[0].partitions[0].error_code == code


async def test_a_failed_read_takes_its_directory_offline(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path, log_segment_bytes="200") as world:
        await world.topic("t", 2)
        lost = world.in_dir(world.b, "t")
        for _ in range(6):
            assert (await world.produce("t", lost, b"v" * 100))[0] == E.NONE
        for segment in world.broker.services.partitions.get("t", lost).log.state.segments:
            segment.release()
        world.disk.break_below(world.b)
        assert await world.values("t", lost) == E.KAFKA_STORAGE_ERROR
        await world.until_told("t", lost)
        assert (await world.produce("t", 1 - lost))[0] == E.NONE


async def test_groups_of_a_failed_directory(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Their coordinator is gone, those in the other directory stay."""
    async with two_dirs(tmp_path, offsets_topic_num_partitions="2") as world:
        ask = world.client.ask
        await world.topic("t")
        groups: dict[int, str] = {}
        while True:  # until the topic is there
            answer = await ask(FindCoordinatorRequest(key="g"), 3)
            if answer.error_code == E.NONE:
                break
            await trio.sleep(0.1)
        for number in range(20):
            place = world.broker.services.groups.place(f"g{number}")
            assert place is not None
            groups.setdefault(place.index, f"g{number}")

        async def commit(index: int) -> int:
            partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
            topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[partition])
            answer = await ask(OffsetCommitRequest(group_id=groups[index], topics=[topic]), 7)
            return int(answer.topics[0].partitions[0].error_code)

        lost = world.in_dir(world.b, GROUP_METADATA_TOPIC)
        for index in range(2):
            while await commit(index) == E.COORDINATOR_LOAD_IN_PROGRESS:  # noqa: ASYNC110
                await trio.sleep(0.1)
        world.disk.break_below(world.b)
        assert await commit(lost) in (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE)
        assert await commit(1 - lost) == E.NONE
        heartbeat = await ask(HeartbeatRequest(group_id=groups[lost], generation_id=1, member_id="m"), 3)
        assert heartbeat.error_code == E.NOT_COORDINATOR
        await world.until_told(GROUP_METADATA_TOPIC, lost)
        assert (await ask(FindCoordinatorRequest(key=groups[lost]), 3)).error_code == E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("which", ["a", "b and a"])
async def test_the_broker_stops_without_its_metadata_and_without_any_directory(
    tmp_path: Path, autojump_clock: MockClock, which: str
) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with two_dirs(tmp_path) as world:
            await world.topic("t", 2)
            for name in which.split(" and "):
                path = tmp_path / name
                world.disk.break_below(path)
                assert (await world.produce("t", world.in_dir(path, "t")))[0] == E.KAFKA_STORAGE_ERROR
            await world.broker.stopped()
    failed = caught.value
    while isinstance(failed, BaseExceptionGroup):
        (failed,) = (error for error in failed.exceptions if not isinstance(error, EOFError))
    assert isinstance(failed, BrokerFailed)
    said = "all log directories have failed" if " " in which else "which holds the broker's metadata, has failed"
    assert said in str(failed)
    assert str(tmp_path / "a") in str(failed)
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists() == (which == "a")


async def test_a_directory_that_cannot_be_opened_is_offline_from_the_start(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with two_dirs(tmp_path) as world:
        await world.topic("t", 4)
        lost, kept = world.in_dir(world.b, "t"), world.in_dir(world.a, "t")
        for index in range(4):
            assert await world.produce("t", index, b"v") == (E.NONE, 0)
    disk = FaultyDisk()
    disk.break_below(tmp_path / "b")
    async with two_dirs(tmp_path, disk) as world:
        assert await world.values("t", kept) == [b"v"]
        await world.until_told("t", lost)
        assert await world.values("t", lost) == E.KAFKA_STORAGE_ERROR
        assert world.home("t", lost) is None  # and it was not made again elsewhere
        answer = await world.client.ask(DescribeLogDirsRequest(topics=None), 4)
        assert [result.error_code for result in answer.results] == [E.NONE, E.KAFKA_STORAGE_ERROR]
        await world.topic("u")
        assert world.home("u", 0) == world.a
    async with two_dirs(tmp_path) as world:
        assert await world.values("t", lost) == [b"v"]


async def test_a_topic_that_is_deleted_while_its_directory_is_away(tmp_path: Path, autojump_clock: MockClock) -> None:
    """It is gone for clients; as in Apache Kafka the rest of the deletion waits for the directory."""
    async with two_dirs(tmp_path) as world:
        await world.topic("t", 2)
        lost = world.in_dir(world.b, "t")
        world.disk.break_below(world.b)
        assert (await world.produce("t", lost))[0] == E.KAFKA_STORAGE_ERROR
        await world.until_told("t", lost)
        answer = await world.client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)
        assert answer.responses[0].error_code == E.NONE
        assert (await world.produce("t", 1 - lost))[0] == E.UNKNOWN_TOPIC_OR_PARTITION
        assert "t" in world.broker.services.cluster.machine().deleting
    assert (tmp_path / "b" / f"t-{lost}").is_dir()
    async with two_dirs(tmp_path) as world:
        assert not (tmp_path / "b" / f"t-{lost}").is_dir()
        assert "t" not in world.broker.services.cluster.machine().deleting
        await world.topic("t", 2)
        assert [await world.produce("t", index) for index in range(2)] == [(E.NONE, 0)] * 2


async def test_a_start_that_cannot_be(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        await world.topic("t", 2)
        kept = world.in_dir(world.b, "t")
        assert await world.produce("t", kept) == (E.NONE, 0)
    broken = FaultyDisk()
    broken.break_below(tmp_path / "a")
    with pytest.raises(BaseExceptionGroup) as caught:
        async with two_dirs(tmp_path, broken):
            pass
    assert caught.group_contains(LogDirError, match="none of the other log directories holds this broker's metadata")
    broken.break_below(tmp_path / "b")
    with pytest.raises(BaseExceptionGroup) as caught:
        async with two_dirs(tmp_path, broken):
            pass
    assert caught.group_contains(LogDirError, match="no log directory can be used")
    # The same partition in both directories: nobody knows which one is right.
    shutil.copytree(tmp_path / "b" / f"t-{kept}", tmp_path / "a" / f"t-{kept}")
    with pytest.raises(BaseExceptionGroup) as caught:
        async with two_dirs(tmp_path):
            pass
    assert caught.group_contains(LogDirError, match=f"t-{kept} is in both")


async def test_the_metadata_are_found_wherever_they_are(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with embedded_broker(log_dirs=f"{tmp_path / 'a'}") as broker, connected(broker) as client:
        await World(broker, client, FaultyDisk(), tmp_path, tmp_path).topic("t")
    async with embedded_broker(log_dirs=f"{tmp_path / 'new'},{tmp_path / 'a'}") as broker:
        assert "t" in broker.services.image.topics
        assert not (tmp_path / "new" / "metadata.journal").exists()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EINTR])
async def test_a_topic_that_is_made_while_descriptors_lack_is_there_when_they_do_not(
    tmp_path: Path, autojump_clock: MockClock, code: int
) -> None:
    """Its files are made when the first record comes, or by the broker, which retries by itself."""
    async with two_dirs(tmp_path) as world:
        for each in (world.a, world.b):
            world.disk.break_below(each / "t-0", code)
        await world.topic("t", 2)
        await trio.sleep(5)
        assert await world.values("t", 0) == []
        assert await world.produce("t", 0) == (E.KAFKA_STORAGE_ERROR, -1)
        assert await world.produce("t", 1) == (E.NONE, 0)
        world.disk.heal()
        await trio.sleep(1.5)
        assert await world.produce("t", 0) == (E.NONE, 0)
        assert not world.broker.services.partitions.log_dirs.offline
        await trio.sleep(10)
        found = [path.name for each in (world.a, world.b) for path in each.iterdir() if path.name.startswith("t-")]
        assert sorted(found) == ["t-0", "t-1"]
    async with two_dirs(tmp_path) as world:
        assert await world.produce("t", 0) == (E.NONE, 1)


async def test_a_partition_that_is_opened_while_descriptors_lack(tmp_path: Path, autojump_clock: MockClock) -> None:
    """At a start, too: its topic got an id, say, that is to be written."""
    async with two_dirs(tmp_path) as world:
        await world.topic("t")
        assert await world.produce("t", 0) == (E.NONE, 0)
        home = world.home("t", 0)
    assert home is not None
    (home / "t-0" / "partition.metadata").unlink()
    disk = FaultyDisk()
    disk.break_below(home / "t-0" / "partition.metadata.tmp", errno.EMFILE)
    async with two_dirs(tmp_path, disk) as world:
        await trio.sleep(3)
        assert (await world.produce("t", 0))[0] in (E.NOT_LEADER_OR_FOLLOWER, E.KAFKA_STORAGE_ERROR)
        disk.heal()
        await trio.sleep(1.5)
        assert await world.produce("t", 0) == (E.NONE, 1)
