"""ISR proposals to a scripted controller: versions, errors, incomplete answers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import memory_stream_pair

from barnabas.kproto import ApiKey, ErrorCode, decode, encoder, request_class
from barnabas.kproto.frame import FrameSplitter, parse_request_header, response_frame
from barnabas.kproto.messages import AlterPartitionRequest, AlterPartitionResponse, ApiVersionsResponse
from barnabas.replication import BrokerImage, Endpoint, Image
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.in_sync import IsrManager
from barnabas.server.partitions.roles import RoleListeners
from barnabas.server.tests.partitions.replicas import TOPIC, TOPIC_ID, ReplicaWorld, replica_world

Script = Callable[[AlterPartitionRequest, int], AlterPartitionResponse | None]
CONTROLLER = 9


class Controller:
    """Serves AlterPartition from `versions` as `script` says (None: close the connection), and notes what it was
    asked.
    """

    def __init__(self, nursery: trio.Nursery, versions: tuple[int, int], script: Script) -> None:
        self._nursery = nursery
        self._versions = versions
        self._script = script
        self.asked: list[tuple[int, AlterPartitionRequest]] = []
        self.asked_at: list[float] = []
        self.connections = 0

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        assert endpoint.host == "controller"
        self.connections += 1
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        splitter = FrameSplitter(1 << 20)
        async with stream:
            async for data in stream:
                for frame in splitter.feed(data):
                    header = parse_request_header(frame)
                    key, version = ApiKey(header.api_key), header.api_version
                    if key is ApiKey.API_VERSIONS:
                        row = ApiVersionsResponse.ApiVersion(
                            api_key=56, min_version=self._versions[0], max_version=self._versions[1]
                        )
                        response: Any = ApiVersionsResponse(api_keys=[row])
                    else:
                        request = decode(request_class(key), version, frame, header.body_offset)
                        self.asked.append((version, request))
                        self.asked_at.append(trio.current_time())
                        response = self._script(request, version)
                        if response is None:
                            return
                    parts = encoder(type(response), version)(response)
                    whole = response_frame(key, version, header.correlation_id, parts)
                    await stream.send_all(b"".join(bytes(part) for part in whole))


def granted(
    request: AlterPartitionRequest, version: int, *, code: ErrorCode = ErrorCode.NONE
) -> AlterPartitionResponse:
    """Every proposal is accepted, or rejected with `code`."""
    topics = []
    for topic in request.topics:
        rows = [
            AlterPartitionResponse.PartitionData(
                partition_index=wish.partition_index,
                error_code=code,
                leader_id=1,
                leader_epoch=wish.leader_epoch,
                isr=[each.broker_id for each in wish.new_isr_with_epochs] if version >= 3 else wish.new_isr,
                partition_epoch=wish.partition_epoch + 1,
            )
            for wish in topic.partitions
        ]
        topics.append(
            AlterPartitionResponse.TopicData(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=rows)
        )
    return AlterPartitionResponse(topics=topics)


class NotController:
    """What broker 1 is: a broker whose image changes while the test goes on."""

    is_active = False
    broker_epoch = 77

    def __init__(self, world: ReplicaWorld) -> None:
        self._world = world

    async def alter_partition(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        raise AssertionError("it is not the controller")

    async def image_until(self, ready: Callable[[Image], bool]) -> None:
        while not ready(self._world.image):  # noqa: ASYNC110
            await trio.sleep(0.01)


@asynccontextmanager
async def managed(
    tmp_path: Path, script: Script, versions: tuple[int, int] = (0, 3), protocol: str = "3.9"
) -> AsyncIterator[tuple[ReplicaWorld, Controller]]:
    """Broker 1 leads alone in sync; its proposals go to broker 9."""
    with replica_world(tmp_path) as world:
        async with trio.open_nursery() as nursery:
            controller = Controller(nursery, versions, script)
            config = BrokerConfig.from_values({"broker.id": "1", "inter.broker.protocol.version": protocol})
            place = BrokerImage(CONTROLLER, (Endpoint("PLAINTEXT", "controller", 1),))
            world.image = world.image.with_brokers({**world.image.brokers, CONTROLLER: place})
            world.image = world.image.with_controller(CONTROLLER, 1)
            partitions = world[1].partitions
            member = NotController(world)
            manager = IsrManager(
                partitions,
                member,
                member,
                SimpleNamespace(),  # type: ignore[arg-type]
                controller.connect,
                current_config=lambda: config,
                current_image=lambda: world.image,
            )
            partitions.listen(RoleListeners(isr=manager))
            world.lead(1, 1)
            nursery.start_soon(manager.run)
            yield world, controller
            nursery.cancel_scope.cancel()


async def settled(world: ReplicaWorld) -> tuple[int, ...]:
    """The ISR when nothing is pending any more."""
    partition = world[1].replica
    assert partition.leader is not None
    while partition.leader.pending is not None:  # noqa: ASYNC110
        await trio.sleep(0.01)
    return partition.isr


@pytest.mark.parametrize(
    ("versions", "protocol", "used"),
    [
        ((0, 3), "3.9", 3),
        ((0, 9), "3.9", 3),
        ((0, 2), "3.9", 2),
        ((0, 1), "3.9", 1),
        ((0, 0), "3.9", 0),
        ((0, 3), "2.8", 3),
        ((0, 3), "2.7", 1),
    ],
)
async def test_versions(
    autojump_clock: trio.abc.Clock, tmp_path: Path, versions: tuple[int, int], protocol: str, used: int
) -> None:
    async with managed(tmp_path, granted, versions, protocol) as (world, controller):
        world.replicate(2)
        assert await settled(world) == (1, 2)
        ((version, request),) = controller.asked
        assert version == used
        assert (request.broker_id, request.broker_epoch) == (1, 77)
        (topic,) = request.topics
        assert (topic.topic_id, topic.topic_name) == ((TOPIC_ID, "") if used >= 2 else (bytes(16), TOPIC))
        (wish,) = topic.partitions
        isr = [(each.broker_id, each.broker_epoch) for each in wish.new_isr_with_epochs]
        assert (isr, list(wish.new_isr)) == (([(1, -1), (2, -1)], []) if used >= 3 else ([], [1, 2]))
        assert (wish.leader_epoch, wish.partition_epoch, wish.leader_recovery_state) == (0, 0, 0)
        assert world[1].replica.partition_epoch == 1


async def test_one_after_the_other(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with managed(tmp_path, granted) as (world, controller):
        world.replicate(2)
        assert await settled(world) == (1, 2)
        world.replicate(3)
        assert await settled(world) == (1, 2, 3)
        assert [request.topics[0].partitions[0].partition_epoch for _, request in controller.asked] == [0, 1]
        assert controller.connections == 1


@pytest.mark.parametrize(
    "trouble",
    [
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        AlterPartitionResponse(error_code=999),
        AlterPartitionResponse(),  # the partition is missing
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        None,
    ],
    ids=lambda trouble: getattr(trouble, "name", None) or str(getattr(trouble, "error_code", "closed")),
)
async def test_it_is_sent_again(autojump_clock: trio.abc.Clock, tmp_path: Path, trouble: Any) -> None:
    left = 3

    def script(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse | None:
        nonlocal left
        left -= 1
        if left < 0:
            return granted(request, version)
        if isinstance(trouble, ErrorCode):
            return granted(request, version, code=trouble)
        return trouble  # type: ignore[no-any-return]

    async with managed(tmp_path, script) as (world, controller):
        world.replicate(2)
        assert await settled(world) == (1, 2)
        assert len(controller.asked) == 4
        pauses = [later - earlier for earlier, later in zip(controller.asked_at, controller.asked_at[1:], strict=False)]
        assert all(pause == pytest.approx(0.05, abs=0.01) for pause in pauses)


async def test_a_dropped_proposal_is_not_resent(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    def script(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)

    async with managed(tmp_path, script) as (world, controller):
        world.replicate(2)
        await trio.sleep(1)
        count = len(controller.asked)
        assert count > 10
        world.lead(2, 1, 2)
        await trio.sleep(1)
        assert len(controller.asked) <= count + 1


async def test_a_refusal_for_good_ends_it(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    def script(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        return granted(request, version, code=ErrorCode.INVALID_UPDATE_VERSION)

    async with managed(tmp_path, script) as (world, controller):
        world.replicate(2)
        await trio.sleep(1)
        assert len(controller.asked) == 1
        leader = world[1].replica.leader
        assert leader is not None
        assert leader.pending is not None
        assert leader.maximal_isr == frozenset((1, 2))


async def test_without_a_controller_it_waits_for_one(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with managed(tmp_path, granted) as (world, controller):
        world.image = world.image.with_controller(-1, 1)
        world.replicate(2)
        await trio.sleep(2)
        assert controller.asked == []
        world.image = world.image.with_controller(CONTROLLER, 2)
        assert await settled(world) == (1, 2)


async def test_a_former_controller_is_not_waited_for(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    answers = trio.Event()

    async with managed(tmp_path, granted) as (world, controller):
        connect = controller.connect

        async def hang(endpoint: Endpoint) -> trio.abc.Stream:
            if endpoint.port == 1:  # cut off: nothing comes back, not even a refusal
                await answers.wait()
            return await connect(endpoint)

        manager = world[1].partitions._listeners.isr
        assert isinstance(manager, IsrManager)
        manager._peer._connect = hang
        world.replicate(2)
        began = trio.current_time()
        await trio.sleep(1)
        place = BrokerImage(8, (Endpoint("PLAINTEXT", "controller", 2),))
        world.image = world.image.with_brokers({**world.image.brokers, 8: place}).with_controller(8, 2)
        assert await settled(world) == (1, 2)
        assert trio.current_time() - began < 2


async def test_trouble_with_one_partition_does_not_keep_laggards_of_others(
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    autojump_clock: trio.abc.Clock,
    tmp_path: Path,
) -> None:
    """Every time that it is looked at."""
    looked: list[str] = []

    def fails(now: float) -> None:
        looked.append("bad")
        raise ValueError("by the test")

    async with managed(tmp_path, granted) as (world, _):
        bad = SimpleNamespace(shrink_isr=fails)
        good = SimpleNamespace(shrink_isr=lambda now: looked.append("good"))
        monkeypatch.setattr(type(world[1].partitions), "__iter__", lambda self: iter((bad, good)))
        await trio.sleep(65)
        assert looked == ["bad", "good"] * 4, "twice in replica.lag.time.max.ms"
        assert len(trouble) == 4
