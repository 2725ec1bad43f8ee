"""Two brokers with share coordinators over real partitions, under a virtual clock: broker 0 asks, broker 1 answers
through the handlers of the requests between them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing

from barnabas.coordinator.share import ShareKey
from barnabas.kproto import ApiKey, decode, encode, request_class
from barnabas.kproto.frame import FrameSplitter, parse_request_header, response_frame
from barnabas.kproto.messages import ApiVersionsResponse
from barnabas.replication import SHARE_GROUP_STATE_TOPIC, BrokerImage, Endpoint, PartitionImage, TopicImage
from barnabas.server.apis.between_brokers import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.share.persister import SharePersister
from barnabas.server.coordinators.share.state_wire import Asked
from barnabas.server.coordinators.share_states import ShareStateCoordinator
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.runtime.timers import Timers
from barnabas.server.tests.apis.data_world import NOW, DataWorld, data_world

TOPIC = SHARE_GROUP_STATE_TOPIC
APIS: dict[ApiKey, Api] = {
    api.key: api
    for api in (
        initialize_share_group_state.API,
        read_share_group_state.API,
        write_share_group_state.API,
        delete_share_group_state.API,
        read_share_group_state_summary.API,
    )
}


class Context:
    """Of a request: keeps the answer."""

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.answer: Any = None
        self._is_there = trio.Event()

    def reply(self, response: Any) -> None:
        self.answer = response
        self._is_there.set()

    async def wait(self) -> Any:
        await self._is_there.wait()
        return self.answer

    def release_waiters(self) -> str:
        return "test"


class Answers(list[Any]):
    """Keeps what it is told."""

    def __call__(self, told: Any) -> None:
        self.append(told)


class PersisterRig:
    """`persister` of broker 0, with `states`; `others` is broker 1's coordinator. is_silent: broker 1 does not answer;
    is_away: it refuses connections. `newest`: the last version that it serves. `received`: (key, version, request).
    """

    def __init__(self, world: DataWorld, other: DataWorld, **settings: str) -> None:
        self.world = world
        self.other = other
        self.config = BrokerConfig.from_values({key.replace("_", "."): value for key, value in settings.items()})
        self.timers = Timers()
        self.created: list[str] = []
        self.is_silent = self.is_away = False
        self.newest = 1
        self.received: list[tuple[ApiKey, int, Any]] = []
        self.nursery: trio.Nursery | None = None
        for each in (world, other):
            each.topic("first")  # whose id is zero
            each.topic("t", 3)
        self.topic_id = world.image.topics["t"].topic_id
        self.states = ShareStateCoordinator(self.ground(world))
        self.others = ShareStateCoordinator(self.ground(other))
        self.persister = SharePersister(self.ground(world), self.states, self.connect)
        other.svc.share_states = self.others

    def ground(self, world: DataWorld) -> CoordinatorGround:
        return CoordinatorGround(
            world.partitions,
            self.timers,
            current_image=lambda: world.image,
            current_config=lambda: self.config,
            create_topic=self._create_topic,
            now=trio.current_time,
            wall_ms=lambda: NOW + round(trio.current_time() * 1000),
        )

    async def _create_topic(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.created.append(name)
        self.topic(0)

    def topic(self, *leaders: int) -> None:
        """`__share_group_state`, whose partitions these brokers lead."""
        images = tuple(PartitionImage(i, leader, 0, 0, (leader,), (leader,)) for i, leader in enumerate(leaders))
        topic = TopicImage(TOPIC, b"share state".ljust(16), images, {}, True)
        brokers = {i: BrokerImage(i, (Endpoint("PLAINTEXT", f"broker{i}", 9092, "PLAINTEXT"),)) for i in (0, 1)}
        for world, states, broker_id in ((self.world, self.states, 0), (self.other, self.others, 1)):
            world.image = dataclasses.replace(world.image.with_topics([topic]), brokers=brokers)
            for image in images:
                if image.leader == broker_id:
                    # Each world is broker 0 to itself.
                    here = PartitionImage(image.index, 0, 0, 0, (0,), (0,))
                    states.lead(world.partitions.become_leader(TOPIC, topic.topic_id, here, {}))

    def lead_elsewhere(self, leader: int, epoch: int = 1, index: int = 0) -> None:
        """As the image of broker 0 has it from now on."""
        topic = self.world.image.topics[TOPIC]
        moved = topic.with_partitions([PartitionImage(index, leader, epoch, epoch, (0, 1), (0, 1))])
        self.world.image = self.world.image.with_topics([moved])

    def key(self, group_id: str = "g", partition: int = 0) -> ShareKey:
        return ShareKey(group_id, self.topic_id, partition)

    def ask(self, asked: Asked, key: ShareKey | None = None) -> Answers:
        answers = Answers()
        self.persister.ask(key or self.key(), asked, answers)
        return answers

    async def told(self, asked: Asked, key: ShareKey | None = None) -> Any:
        answers = self.ask(asked, key)
        assert not answers, "it is never answered at once"
        await settle()
        (told,) = answers
        return told

    # -- broker 1 ---------------------------------------------------------------------------------

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        assert endpoint.host == "broker1"
        if self.is_away:
            raise ConnectionRefusedError("refused")
        ours, theirs = trio.testing.memory_stream_pair()
        assert self.nursery is not None
        self.nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, stream: trio.abc.Stream) -> None:
        splitter = FrameSplitter(1 << 20)
        while data := await stream.receive_some(1 << 16):
            for frame in splitter.feed(data):
                header = parse_request_header(frame)
                key, version = ApiKey(header.api_key), header.api_version
                request: Any = decode(request_class(key), version, frame, header.body_offset)
                if key is ApiKey.API_VERSIONS:
                    rows = [
                        ApiVersionsResponse.ApiVersion(
                            api_key=api.key, min_version=0, max_version=min(api.versions[1], self.newest)
                        )
                        for api in APIS.values()
                    ]
                    answer: Any = ApiVersionsResponse(api_keys=rows)
                else:
                    self.received.append((key, version, request))
                    if self.is_silent:
                        await trio.sleep_forever()
                    answer = await handled(self.other.svc, APIS[key], request, version)
                parts = response_frame(key, version, header.correlation_id, [encode(answer, version)])
                await stream.send_all(b"".join(bytes(part) for part in parts))


async def handled(svc: Any, api: Api, request: Any, version: int) -> Any:
    """What a handler answers, at the end of its round or later."""
    context: Any = Context(version)
    response = api.handle(svc, context, request)
    if hasattr(response, "__await__"):
        response = await response
    svc.partitions.write_staged()
    return await context.wait() if response is PENDING else response


async def settle() -> None:
    """Until nothing happens but by the clock, which stands still meanwhile."""
    for _ in range(3):
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def persister_rig(directory: Path, **settings: str) -> AsyncIterator[PersisterRig]:
    with data_world(directory / "0") as world, data_world(directory / "1") as other:
        made = PersisterRig(world, other, **settings)
        async with trio.open_nursery() as nursery:
            made.nursery = nursery
            for run in (made.timers.run, made.states.run, made.others.run, made.persister.run):
                nursery.start_soon(run)
            await trio.testing.wait_all_tasks_blocked()
            yield made
            nursery.cancel_scope.cancel()
