"""A broker that is restored: what is in it, who is connected, what time it is, and what may go wrong."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import trio

from barnabas.kproto import ErrorCode as E
from barnabas.kproto.messages import ApiVersionsRequest, FetchRequest, HeartbeatRequest, MetadataRequest
from barnabas.logdir.dirs import snapshot as snapshots_of_directories
from barnabas.logdir.dirs.snapshot import SnapshotDamaged
from barnabas.server.broker.broker import BrokerFailed
from barnabas.server.client.configs import Resource, ResourceKind, alter_configs
from barnabas.server.client.groups.committed import commit_offsets, committed_offsets
from barnabas.server.client.groups.groups import delete_groups, describe_groups
from barnabas.server.client.groups.values import Group
from barnabas.server.client.offsets import delete_records
from barnabas.server.client.topics import NewTopic, add_partitions, create_topics, delete_topics
from barnabas.server.client.transactions import Transaction, describe_transactions
from barnabas.server.runtime.virtual_clock import Held, InACluster, VirtualClock
from barnabas.server.storage.snapshots import Snapshots, UnknownSnapshot
from barnabas.server.testing import Client as RawClient
from barnabas.server.testing import connected
from barnabas.server.tests.broker.lives_kit import (
    Transactional,
    ask,
    client_of,
    groups_of,
    join,
    living,
    logs_of,
    produce,
    topics_of,
)

DAY_S = 86400.0


@pytest.fixture
def clock() -> VirtualClock:
    """Of the test's loop."""
    return VirtualClock()


async def test_restored_it_has_what_it_had(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 3, settings={"retention.ms": "7200000"}), NewTopic("b", 1)])
        for index in range(3):
            await produce(lives, "a", [b"one", b"two"], index)
        await commit_offsets(client, "g", {("a", 0): 1})
        member = await join(lives, "members", session_timeout_ms=600_000)
        done = Transactional(lives, "done")
        await done.begin()
        await done.write("b", 0, [b"yes"])
        assert await done.end(commit=True) == E.NONE
        open_ = Transactional(lives, "open")
        await open_.begin()
        await open_.write("b", 0, [b"perhaps"])
        snapshot = await lives.snapshot()
        logs, topics, groups = logs_of(lives), topics_of(lives), await groups_of(client)

        await produce(lives, "a", [b"three"])
        await delete_records(client, {("a", 1): 1})
        await delete_topics(client, ["b"])
        await create_topics(client, [NewTopic("b", 2), NewTopic("c", 1)])
        await add_partitions(client, {"a": 5})
        await alter_configs(client, {Resource(ResourceKind.TOPIC, "a"): {"retention.ms": None}})
        await commit_offsets(client, "g", {("a", 0): 2})
        await commit_offsets(client, "other", {("a", 0): 2})
        await delete_groups(client, ["members"])
        assert topics_of(lives) != topics
        await lives.restore(snapshot)
        assert (logs_of(lives), topics_of(lives), await groups_of(client)) == (logs, topics, groups)

        # and it is alive
        assert await open_.end(commit=False) == E.NONE
        assert await produce(lives, "a", [b"four"]) == 2
        answer = await ask(lives, HeartbeatRequest(group_id="members", generation_id=1, member_id=member), 3)
        assert answer.error_code == E.NONE
        await commit_offsets(client, "g", {("a", 0): 3})
        await lives.restore(snapshot)
        assert (logs_of(lives), topics_of(lives), await groups_of(client)) == (logs, topics, groups)


async def test_the_broker_goes_on_after_a_snapshot(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        async with connected(lives.broker) as raw:
            for number in range(5):
                assert await produce(lives, "a", [b"x"]) == number
                await lives.snapshot()
            assert (await raw.ask(ApiVersionsRequest(), 0)).error_code == E.NONE  # it was not closed
        assert len(lives.snapshots()) == 5
        for name in lives.snapshots():
            await lives.remove_snapshot(name)
        assert lives.snapshots() == []
        assert lives.services.partitions.get("a", 0).log.log_end_offset == 5


async def test_of_several_directories_each_is_restored(clock: VirtualClock, tmp_path: Path) -> None:
    directories = tmp_path / "one", tmp_path / "other"
    async with (
        living(tmp_path, clock, log_dirs=",".join(map(str, directories))) as lives,
        client_of(lives) as client,
    ):
        await create_topics(client, [NewTopic("a", 6)])
        for index in range(6):
            await produce(lives, "a", [b"x"] * index, index) if index else None
        snapshot, logs = await lives.snapshot(), logs_of(lives)
        homes = [lives.services.partitions.get("a", index).log.directory for index in range(6)]
        assert len({os.path.dirname(home) for home in homes}) == 2
        for index in range(6):
            await produce(lives, "a", [b"y"], index)
        await lives.restore(snapshot)
        assert logs_of(lives) == logs


async def test_segments_are_shared_and_stay_as_they_are(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_of_directories, "SMALL_BYTES", 500)
    settings = {"segment.bytes": "1000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    async with (
        living(tmp_path, clock, log_retention_check_interval_ms="1000", log_cleaner_backoff_ms="1000") as lives,
        client_of(lives) as client,
    ):
        await create_topics(client, [NewTopic("compacted", 1, settings=settings)])
        await create_topics(client, [NewTopic("kept", 1, settings={"segment.bytes": "1000"})])
        for _ in range(20):
            await produce(lives, "compacted", [b"x" * 100], keyed=True)
            await produce(lives, "kept", [b"x" * 100])
        await lives.advance(60)  # what is due is compacted: a start does that at once
        snapshot, logs = await lives.snapshot(), logs_of(lives)
        first = Path(lives.services.partitions.get("kept", 0).log.directory) / f"{0:020}.log"
        assert first.stat().st_nlink == 2
        for _ in range(3):
            before = lives.services.partitions.get("compacted", 0).log.size
            for _ in range(20):
                await produce(lives, "compacted", [b"x" * 100], keyed=True)
            await lives.advance(60)
            assert lives.services.partitions.get("compacted", 0).log.size < before
            await delete_records(client, {("kept", 0): -1})
            await lives.advance(100)
            assert not first.exists()
            await lives.restore(snapshot)
            assert logs_of(lives) == logs


async def test_who_is_connected_is_disconnected_and_may_come_again_at_once(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives:
        bootstrap = lives.bootstrap
        host, _, port = bootstrap.rpartition(":")
        snapshot = await lives.snapshot()

        async def come() -> None:
            """While the broker is away the connection waits."""
            await lives.broker.stopped()
            async with await trio.open_tcp_stream(host, int(port)) as again:
                assert (await RawClient(again).ask(ApiVersionsRequest(), 0)).error_code == E.NONE

        async with await trio.open_tcp_stream(host, int(port)) as stream:
            before = RawClient(stream)
            await before.ask(ApiVersionsRequest(), 0)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(come)
                await lives.restore(snapshot)
            assert lives.bootstrap == bootstrap
            with pytest.raises(EOFError):
                await before.receive_frame()


async def test_the_wall_clock_is_as_far_ahead_as_it_was(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock, log_retention_ms="3600000") as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        await lives.advance(30 * DAY_S)
        await produce(lives, "a", [b"young"])
        snapshot, then_ms, seconds = await lives.snapshot(), lives.now_ms(), trio.current_time()
        log = lives.services.partitions.get("a", 0).log
        await lives.advance(DAY_S)
        assert log.log_start_offset == 1
        await lives.restore(snapshot)
        assert 0 <= lives.now_ms() - then_ms < 600_000
        assert trio.current_time() >= seconds + DAY_S
        await lives.advance(600)
        assert lives.services.partitions.get("a", 0).log.log_start_offset == 0


async def test_an_open_transaction_is_open_again_and_runs_out_of_time(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        producer = Transactional(lives, "t", timeout_ms=600_000)
        await producer.begin()
        await producer.write("a", 0, [b"x"])
        snapshot = await lives.snapshot()
        assert await producer.end(commit=True) == E.NONE
        await lives.restore(snapshot)

        async def state() -> str:
            found = (await describe_transactions(client, ["t"]))["t"]
            assert isinstance(found, Transaction)
            return found.state

        assert await state() == "Ongoing"
        await lives.advance(660)
        assert await state() == "CompleteAbort"
        partition = lives.services.partitions.get("a", 0)
        assert partition.log.last_stable_offset(partition.high_watermark) == partition.log.log_end_offset == 2


async def test_members_of_groups_are_known_and_expire_if_they_do_not_come(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await join(lives, "g", session_timeout_ms=300_000)
        snapshot = await lives.snapshot()
        await lives.restore(snapshot)

        async def group() -> Group:
            found = (await describe_groups(client, ["g"]))["g"]
            assert isinstance(found, Group)
            return found

        assert (await group()).state == "Stable"
        assert len((await group()).members) == 1
        await lives.advance(301)
        assert ((await group()).state, (await group()).members) == ("Empty", ())


async def test_a_snapshot_outlasts_the_broker(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path / "data", clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        await produce(lives, "a", [b"x"])
        snapshot = await lives.snapshot()
        await produce(lives, "a", [b"y"])
    async with living(tmp_path / "data", clock) as lives:
        assert lives.services.partitions.get("a", 0).log.log_end_offset == 2
        await lives.restore(snapshot)
        assert lives.services.partitions.get("a", 0).log.log_end_offset == 1


async def test_one_that_is_unknown_or_damaged_is_refused_and_nothing_happens(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots_of_directories, "SMALL_BYTES", 500)
    async with living(tmp_path / "data", clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1, settings={"segment.bytes": "1000"})])
        for _ in range(20):
            await produce(lives, "a", [b"x" * 100])
        snapshot, logs, life = await lives.snapshot(), logs_of(lives), lives.broker
        for name in ("0" * 32, "..", "", "x" * 32):
            with pytest.raises(UnknownSnapshot):
                await lives.restore(name)
            with pytest.raises(UnknownSnapshot):
                await lives.remove_snapshot(name)
        (shared,) = tmp_path.glob(f"*/{snapshot}/0/0")
        os.truncate(shared, shared.stat().st_size - 1)
        with pytest.raises(SnapshotDamaged, match="when the snapshot was made"):
            await lives.restore(snapshot)
        assert lives.broker is life
        os.truncate(shared, shared.stat().st_size + 1)
        assert list(logs_of(lives)) == list(logs)


async def test_a_snapshot_that_cannot_be_made_leaves_nothing(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(tmp_path / "data", clock) as lives:
        (tmp_path / "data" / "stranger").mkdir()
        (tmp_path / "data" / "stranger" / "inner").symlink_to(tmp_path / "nowhere")
        with pytest.raises(OSError, match="inner"):
            await lives.snapshot()
        assert lives.snapshots() == []
        assert list((tmp_path / "data.barnabas-snapshots").iterdir()) == []
        (tmp_path / "data" / "stranger" / "inner").unlink()
        await lives.restore(await lives.snapshot())


async def test_if_it_cannot_be_restored_it_ends(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(snapshots: Snapshots, name: str) -> list[str]:
        raise OSError(28, "No space left on device")

    with pytest.raises(BaseExceptionGroup) as ended:  # noqa: PT012  # it comes out of the block
        async with living(tmp_path, clock) as lives:
            snapshot = await lives.snapshot()
            monkeypatch.setattr(Snapshots, "put_back", fail)
            with pytest.raises(OSError, match="No space"):
                await lives.restore(snapshot)
            await lives.stopped()
    assert ended.group_contains(BrokerFailed, match="could not be restored: .*No space")


async def test_a_stop_that_comes_meanwhile_counts(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives:
        snapshot = await lives.snapshot()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lives.restore, snapshot)
            await lives.broker.stopped()
            await lives.stop()
        assert not lives.is_open


async def test_metrics_keep_their_port(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock, metrics_listener="http://127.0.0.1:0") as lives:
        address = lives.metrics_address
        assert address is not None
        await lives.restore(await lives.snapshot())
        assert lives.metrics_address == address
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))):
            pass


async def test_files_are_closed(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path / "data", clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 20)])
        for index in range(20):
            await produce(lives, "a", [b"x"], index)
        snapshot = await lives.snapshot()
        await lives.restore(snapshot)
        before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        for _ in range(3):
            for index in range(20):
                await produce(lives, "a", [b"x"], index)
            await lives.restore(snapshot)
        after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        assert after < before + 15


async def test_in_a_cluster_there_is_none(clock: VirtualClock, tmp_path: Path) -> None:
    from barnabas.server.broker.lives import Lives
    from barnabas.server.config.broker import BrokerConfig

    lives = Lives(BrokerConfig.from_values({"log.dirs": str(tmp_path), "zookeeper.connect": "nowhere:2181"}), clock)
    with pytest.raises(InACluster):
        await lives.snapshot()
    with pytest.raises(InACluster):
        await lives.advance(1)
    with pytest.raises(InACluster):
        await lives.restore("0" * 32)


async def test_a_fetch_that_waits_is_forgotten_with_its_connection(clock: VirtualClock, tmp_path: Path) -> None:
    async with living(tmp_path, clock) as lives, client_of(lives) as client:
        await create_topics(client, [NewTopic("a", 1)])
        snapshot = await lives.snapshot()
        request = FetchRequest(
            max_wait_ms=300_000,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchRequest.FetchTopic(
                    topic="a",
                    partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
            ],
        )
        host, _, port = lives.bootstrap.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            waiting = RawClient(stream)
            await waiting.ask(MetadataRequest(topics=None), 5)
            await waiting.send(request, 11)
            await lives.restore(snapshot)
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await waiting.receive(request, 11)
        assert (await committed_offsets(client, ["g"]))["g"] == {}


async def test_a_broker_whose_clock_is_held_stops(clock: VirtualClock, tmp_path: Path) -> None:
    """Who held it is gone, perhaps. A stop waits for clients, as long as a clock says."""
    async with living(tmp_path, clock) as lives:
        await lives.hold()
        await lives.stop()
        assert not clock.is_advancing
        with pytest.raises(Held):
            await lives.hold()
