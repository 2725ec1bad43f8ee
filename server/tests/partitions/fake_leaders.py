"""Leader brokers whose every answer a test writes down, for tests of `barnabas.server.partitions.followers`: real
partitions and logs (on a disk in memory), memory streams, a mock clock.

    async with following() as world:
        world.follow(0)                            the controller says: follow leader 1 with epoch 5
        asked = await world.leader.asked()         a Fetch arrived
        await asked.answer(records(asked, ...))    its answer leaves
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import memory_stream_pair

from barnabas.kproto import ApiKey, decode, encode, request_class
from barnabas.kproto.frame import FrameSplitter, parse_request_header, response_frame
from barnabas.kproto.messages import FetchRequest, FetchResponse, ListOffsetsResponse
from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import LogConfig, LogDirs
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.replication import BrokerImage, Endpoint, Image, PartitionImage, TopicImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.followers import Followers
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.partitions.roles import RoleListeners
from barnabas.server.runtime.offload import inline

NOW = 1_763_700_000_000
TOPIC_ID = bytes(15) + b"\7"
US = 9


class Asked:
    """One request that arrived; `answer` it, or `hang_up`."""

    def __init__(self, leader: FakeLeader, stream: trio.abc.Stream, frame: bytes) -> None:
        header = parse_request_header(frame)
        self.at = trio.current_time()
        self.leader = leader
        self.key = ApiKey(header.api_key)
        self.version = header.api_version
        self.client_id = header.client_id
        self.request: Any = decode(request_class(self.key), self.version, frame, header.body_offset)
        self._correlation_id = header.correlation_id
        self._stream = stream

    async def answer(self, response: Any) -> None:
        parts = response_frame(self.key, self.version, self._correlation_id, [encode(response, self.version)])
        await self._stream.send_all(b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked()

    async def hang_up(self) -> None:
        await trio.aclose_forcefully(self._stream)
        await trio.testing.wait_all_tasks_blocked()

    @property
    def partitions(self) -> dict[int, FetchRequest.FetchPartition]:
        """What the request names, by partition."""
        return {each.partition: each for topic in self.request.topics for each in topic.partitions}

    @property
    def forgotten(self) -> list[int]:
        return [index for topic in self.request.forgotten_topics_data for index in topic.partitions]


class FakeLeader:
    """One leader broker. `refusing`: it cannot be connected to; `streams`: the connections it took."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.refusing = False
        self.streams: list[trio.abc.Stream] = []
        self.closed = 0
        self._send, self._receive = trio.open_memory_channel[Asked](100)

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if self.refusing:
            raise ConnectionRefusedError("refused")
        ours, theirs = memory_stream_pair()
        self.streams.append(theirs)
        self.nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        splitter = FrameSplitter(1 << 24)
        try:
            while data := await stream.receive_some(1 << 16):
                for frame in splitter.feed(data):
                    self._send.send_nowait(Asked(self, stream, bytes(frame)))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.closed += 1

    async def asked(self) -> Asked:
        """The next request, which must come within a minute of the mock clock."""
        with trio.fail_after(60):
            return await self._receive.receive()

    def waiting(self) -> int:
        """Requests that arrived and were not taken."""
        return self._receive.statistics().current_buffer_used


class World:
    """A broker that follows: its partitions, its fetchers, and the leaders 1 and 2."""

    def __init__(self, nursery: trio.Nursery, settings: dict[str, str], disk: MemoryDisk) -> None:
        values = {"broker.id": str(US), "log.dirs": "/data", "zookeeper.connect": "memory", **settings}
        self.config = BrokerConfig.from_values(values)
        self.disk = disk
        self.log_dirs = LogDirs(["/data"], wall_ms=lambda: NOW, disk=disk, random=lambda: 0.5)
        self.log_dirs.open()
        self.log_dirs.load(lambda topic: LogConfig())
        self.image = Image()
        self.partitions = Partitions(
            US,
            self.log_dirs,
            lambda overrides: LogConfig(),
            lambda: self.image,
            now=trio.current_time,
            wall_ms=lambda: NOW,
        )
        self.leaders = {1: FakeLeader(nursery), 2: FakeLeader(nursery)}
        self.followers = Followers(
            US,
            self._connect,
            current_config=lambda: self.config,
            current_image=lambda: self.image,
            broker_epoch=lambda: 77,
            offload=inline,
        )
        self.partitions.listen(RoleListeners(followers=self.followers))

    async def _connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        return await self.leaders[endpoint.port % 10].connect(endpoint)

    @property
    def leader(self) -> FakeLeader:
        return self.leaders[1]

    def broker(self, broker_id: int, epoch: int = 100, host: str = "one") -> BrokerImage:
        return BrokerImage(broker_id, (Endpoint("PLAINTEXT", host, 9090 + broker_id),), epoch=epoch)

    def follow(
        self,
        index: int = 0,
        *,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        leader: int = 1,
        epoch: int = 5,
        broker: BrokerImage | None = None,
    ) -> Partition:
        """The controller says: follow `leader`."""
        image = PartitionImage(index, leader, epoch, epoch, (leader, US), (leader, US))
        return self.partitions.become_follower(topic, topic_id, image, {}, broker or self.broker(leader))

    def lead(self, index: int = 0, *, epoch: int) -> Partition:
        image = PartitionImage(index, US, epoch, epoch, (US, 1), (US,))
        return self.partitions.become_leader("t", TOPIC_ID, image, {})

    def configure(self, **config: str) -> None:
        """Settings of the topic: dots for underscores."""
        own = {key.replace("_", "."): value for key, value in config.items()}
        self.image = self.image.with_topics([TopicImage("t", TOPIC_ID, (), own)])

    def log(self, index: int = 0) -> tuple[int, int, int]:
        """(log start, log end, high watermark)."""
        partition = self.partitions.get("t", index)
        return partition.log_start_offset, partition.log_end_offset, partition.high_watermark


@asynccontextmanager
async def following(disk: MemoryDisk | None = None, **settings: str) -> AsyncIterator[World]:
    """A broker with its fetchers running. Settings are Kafka's keys with `_` for `.`."""
    async with trio.open_nursery() as nursery:
        world = World(nursery, {key.replace("_", "."): value for key, value in settings.items()}, disk or MemoryDisk())
        nursery.start_soon(world.followers.run)
        yield world
        nursery.cancel_scope.cancel()


def batch(base_offset: int, *values: bytes, epoch: int = 5) -> bytes:
    """One batch as a leader has it."""
    return bytes(
        build_batch([Record(0, NOW, None, value) for value in values], base_offset=base_offset, leader_epoch=epoch)
    )


def part(
    index: int = 0, *batches: bytes, code: int = 0, high_watermark: int = 0, log_start_offset: int = 0, **fields: Any
) -> FetchResponse.PartitionData:
    """One partition of an answer."""
    return FetchResponse.PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        records=b"".join(batches),
        **fields,
    )


def fetched(*partitions: FetchResponse.PartitionData, session_id: int = 33, **fields: Any) -> FetchResponse:
    """The answer to a Fetch."""
    responses: Sequence[Any] = ()
    if partitions:
        topic = FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=list(partitions))
        responses = [topic]
    return FetchResponse(responses=list(responses), session_id=session_id, **fields)


async def caught_up(world: World, *indexes: int) -> Asked:
    """The first answer, empty, has come; the next request, which waits."""
    asked = await world.leader.asked()
    await asked.answer(fetched(*(part(index) for index in indexes)))
    return await world.leader.asked()


async def answer_offsets(world: World, offset: int, code: int = 0) -> int:
    """Answer the ListOffsets that is next; the timestamp it asked for."""
    asked = await world.leader.asked()
    assert asked.key is ApiKey.LIST_OFFSETS
    assert asked.request.replica_id == US
    of = asked.request.topics[0].partitions[0]
    answer = ListOffsetsResponse.ListOffsetsPartitionResponse(
        partition_index=of.partition_index, error_code=code, offset=offset
    )
    topic = ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[answer])
    await asked.answer(ListOffsetsResponse(topics=[topic]))
    return int(of.timestamp)
