"""The fast path of OffsetCommit: what it remembers, and a random conversation that `test_fast_paths.py` holds with it
and without.
"""

from __future__ import annotations

import errno
import gc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import (
    ConsumerGroupHeartbeatRequest,
    JoinGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from barnabas.kproto.records import iter_headers, iter_records
from barnabas.replication import PartitionImage
from barnabas.server.broker.broker import Broker
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fast_paths.offset_commit import OffsetCommitFastPath
from barnabas.server.sim.cluster import SharedRounds
from barnabas.server.testing import START_OF_VIRTUAL_TIME, Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import topic

E = ErrorCode
TURNS = 150
SESSION_MS = 10_000
SETTINGS = {
    "num_partitions": "3",
    "offsets_topic_num_partitions": "1",
    "offset_metadata_max_bytes": "20",
    "broker_id": "0",
    "advertised_listeners": "PLAINTEXT://here:9092",
}

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_Partition = OffsetCommitRequest.OffsetCommitRequestPartition


class Committer:
    """A client that commits the same again and again, and does odd things now and then; `answers`: all it got."""

    def __init__(self, broker: Broker, client: Client, version: int, rng: Random, group: str) -> None:
        self.broker = broker
        self.client = client
        self.version = version
        self.rng = rng
        self.group = group
        self.generation, self.member_id = -1, ""
        self.metadata: str | None = ""
        self.answers: list[bytes] = []
        self.is_in_trouble = False

    def request(self, *places: tuple[str, int], **changes: Any) -> OffsetCommitRequest:
        """A commit of some offset for each place."""
        rng = self.rng
        topics: list[_Topic] = []
        for name, index in places or (("t", 0), ("t", 2), ("u", 1)):
            if not topics or self.name_of(topics[-1]) != name:
                topics.append(self.topic(name))
            epoch = rng.choice((-1, 0, 7)) if self.version >= 6 else -1
            partition = _Partition(
                partition_index=index, committed_offset=rng.randrange(1 << 40), committed_leader_epoch=epoch
            )
            partition.committed_metadata = changes.get("metadata", self.metadata)
            topics[-1].partitions.append(partition)
        request = OffsetCommitRequest(
            group_id=changes.get("group", self.group),
            generation_id_or_member_epoch=changes.get("generation", self.generation),
            member_id=changes.get("member_id", self.member_id),
            topics=topics,
        )
        if self.version >= 7:
            request.group_instance_id = changes.get("instance_id")
        if self.version in range(2, 5):
            request.retention_time_ms = changes.get("retention_ms", -1)
        return request

    def topic(self, name: str) -> _Topic:
        if self.version < 10:
            return _Topic(name=name)
        known = self.broker.services.image.topics.get(name)
        return _Topic(topic_id=bytes(15) + b"?" if known is None else known.topic_id)

    def name_of(self, topic: _Topic) -> str:
        known = self.broker.services.image.topics_by_id.get(topic.topic_id)
        return topic.name if self.version < 10 else known.name if known is not None else "?"

    async def send(self, request: OffsetCommitRequest, client_id: str = "one") -> None:
        await trio.testing.wait_all_tasks_blocked()  # what is being loaded is loaded
        correlation_id = self.rng.randrange(-(1 << 31), 1 << 31)
        await self.client.stream.send_all(request_frame(self.version, correlation_id, client_id, request))

    async def ask(self, *places: tuple[str, int], client_id: str = "one", **changes: Any) -> None:
        await self.send(self.request(*places, **changes), client_id)
        self.answers.append(await self.client.receive_frame())
        self.is_in_trouble = self.code_of(self.answers[-1]) != E.NONE

    def code_of(self, frame: bytes) -> int:
        """Of the last partition."""
        end = len(frame) - (3 if self.version >= 8 else 0)  # tagged fields
        return int.from_bytes(frame[end - 2 : end], "big")

    async def turn(self) -> None:
        """One request, or a few."""
        rng = self.rng
        kind = rng.randrange(28)
        if kind == 0:
            await self.ask(("t", rng.randrange(3)))
        elif kind == 1:
            await self.ask(("t", rng.choice((-1, 3, 9))), ("t", 0))
        elif kind == 2:
            await self.ask(("missing", 0), ("t", 0))
        elif kind == 3:
            await self.ask(("t", 0), ("u", 0), ("t", 1), ("t", 0))
        elif kind == 4:
            await self.ask(client_id=rng.choice(("two", "", "fifteen")))
        elif kind == 5:
            await self.ask(metadata=rng.choice((None, "a", "some metadata", "x" * 21, "€" * 10)))
        elif kind == 6:
            self.metadata = rng.choice((None, "", "constant"))
        elif kind == 7:
            await self.ask(generation=rng.choice((-1, 0, self.generation + 1)))
        elif kind == 8:
            await self.ask(member_id=rng.choice(("", "nobody")))
        elif kind == 9:
            await self.ask(instance_id=rng.choice((None, "i")))
        elif kind == 10:
            await self.ask(retention_ms=rng.choice((0, 60_000)))
        elif kind == 11:
            await self.ask(group=rng.choice(("", "another", self.group)))
        elif kind == 12:
            await self.ask(*[("t", index % 3) for index in range(rng.choice((8, 40)))])
        elif kind == 13:
            await trio.sleep(rng.choice((1, SESSION_MS / 4000, SESSION_MS / 1000 + 1)))
        else:
            for _ in range(4):
                await self.ask()

    async def become(self, kind: str) -> None:
        """What the group's members are."""
        if kind == "classic":
            protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
            join = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=3 * SESSION_MS,
                protocol_type="consumer",
                protocols=[protocol],
            )
            joined = await self.client.ask(join, 3)
            self.generation, self.member_id = joined.generation_id, joined.member_id
            if joined.error_code == E.NONE and self.rng.random() < 0.9:
                sync = SyncGroupRequest(
                    group_id=self.group, generation_id=self.generation, member_id=self.member_id, assignments=[]
                )
                await self.client.ask(sync, 3)
        elif kind == "consumer":
            beat = ConsumerGroupHeartbeatRequest(
                group_id=self.group, member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[]
            )
            beat.subscribed_topic_names = ["t"]
            beat.member_id = "m" if self.rng.random() < 0.5 else "n"
            answer = await self.client.ask(beat, 1)
            self.generation, self.member_id = answer.member_epoch, answer.member_id or ""
        else:
            self.generation, self.member_id = -1, ""


def offsets_of(broker: Broker) -> Partition:
    return broker.services.partitions.get("__consumer_offsets", 0)


def fail_next_write(partition: Partition, code: int) -> None:
    writer = partition.log.writer
    write = writer.pwritev

    def fail(*_: Any) -> int:
        writer.pwritev = write
        raise OSError(code, "said the test")

    writer.pwritev = fail


def lead(partition: Partition, *replicas: int) -> None:
    """In a new epoch; of several replicas the others do not fetch."""
    epoch = partition.leader_epoch + 1
    partition.lead(PartitionImage(0, 0, epoch, epoch, replicas, replicas))


async def change(broker: Broker, rng: Random) -> None:
    """Something happens to the broker."""
    kind = rng.randrange(6)
    partition = offsets_of(broker)
    groups = broker.services.groups
    if kind == 0:
        fail_next_write(partition, errno.EINTR)
    elif kind == 1:
        groups.resign(0)
        groups.lead(partition)
    elif kind == 2:
        await broker.services.topics.delete_topics(["u"], timeout_ms=1000)
        if rng.random() < 0.8:
            await topic(broker, "u")
    elif kind == 3:
        lead(partition, *rng.choice(((0,), (0, 1))))
    elif kind == 4:
        await trio.sleep(0.125)
    else:
        lead(partition, 0)


@asynccontextmanager
async def running(version: int, seed: int, count: int = 1) -> AsyncIterator[tuple[Broker, list[Committer]]]:
    """`count` clients, whose requests share rounds if they are several."""
    begun = trio.current_time()
    async with embedded_broker(**SETTINGS) as broker, AsyncExitStack() as stack:
        # Whenever it is held, a conversation writes the same times.
        broker._wall_clock = lambda: START_OF_VIRTUAL_TIME + round(trio.current_time() - begun, 3)
        for name in ("t", "u", "__consumer_offsets"):
            await topic(broker, name)
        await trio.testing.wait_all_tasks_blocked()
        rng = Random(seed)
        nursery = await stack.enter_async_context(trio.open_nursery())
        if count > 1:
            nursery.start_soon(SharedRounds(broker.services.partitions).run)
        clients = [await stack.enter_async_context(connected(broker)) for _ in range(count)]
        yield broker, [Committer(broker, client, version, rng, f"g{n}") for n, client in enumerate(clients)]
        nursery.cancel_scope.cancel()


def stored(broker: Broker) -> list[bytes]:
    """All that is in the log of the groups, byte for byte."""
    partition = offsets_of(broker)
    found = partition.read(0, 1 << 30, upper_offset=partition.log_end_offset, min_one_batch=True)
    return [] if found is None else [bytes(found.read())]


async def conversation(version: int, seed: int, members: str) -> list[bytes]:
    """All answers, and what is in the log."""
    async with running(version, seed) as (broker, (committer,)):
        rng = committer.rng
        for number in range(TURNS):
            if committer.is_in_trouble and rng.random() < 0.3:
                lead(offsets_of(broker), 0)
            if rng.random() < (0.3 if committer.is_in_trouble else 0.03) or number == 0:
                await committer.become(rng.choice((members, members, "none")))
            if rng.random() < 0.08:
                await change(broker, rng)
            await committer.turn()
        fetch = OffsetFetchRequest(group_id=committer.group, topics=None)
        await committer.client.stream.send_all(request_frame(5, 1, "one", fetch))
        return [*committer.answers, await committer.client.receive_frame(), *stored(broker)]


async def joint_conversation(version: int, seed: int) -> list[bytes]:
    """Several clients, whose commits share rounds, and with them batches and lost writes."""
    async with running(version, seed, 5) as (broker, committers):
        rng = committers[0].rng
        answers: list[bytes] = []
        for _ in range(TURNS // 2):
            if rng.random() < 0.1:
                fail_next_write(offsets_of(broker), errno.EINTR)
            asking = rng.sample(committers, rng.randrange(1, 6))
            for each in asking:
                places = [("t", index % 3) for index in range(rng.choice((8, 40)))] if rng.random() < 0.1 else []
                await each.send(each.request(*places))
            for each in asking:
                answers.append(await each.client.receive_frame())
            if rng.random() < 0.5:
                await trio.sleep(0.5)
        return answers + stored(broker)


async def test_commits_of_several_groups_are_one_batch(autojump_clock: trio.abc.Clock) -> None:
    async with running(8, 0, 4) as (broker, committers):
        for _ in range(4):
            for each in committers:
                await each.send(each.request())
            for each in committers:
                await each.client.receive_frame()
        (data,) = stored(broker)
        found = [(header.record_count, position) for position, header in iter_headers(data)]
        assert [count for count, _ in found] == [12] * 4
        assert len({bytes(record.key or b"") for record in iter_records(data, found[3][1])}) == 12


@pytest.mark.parametrize(("partitions", "is_learnt"), [(150, True), (400, False)])
async def test_long_requests_are_not_kept(partitions: int, is_learnt: bool, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(**{**SETTINGS, "num_partitions": "500"}) as broker, connected(broker) as client:
        for name in ("t", "__consumer_offsets"):
            await topic(broker, name)
        await trio.testing.wait_all_tasks_blocked()
        committer = Committer(broker, client, 8, Random(0), "g")
        await committer.ask(*[("t", index) for index in range(partitions)])
        gc.collect()
        paths = [made for made in gc.get_objects() if type(made) is OffsetCommitFastPath]
        assert bool(paths) == is_learnt


async def test_a_request_with_tagged_fields_is_left_to_the_slow_path(autojump_clock: trio.abc.Clock) -> None:
    async with running(8, 0) as (_, (committer,)):
        for _ in range(4):
            frame = request_frame(8, 5, "one", committer.request())
            tagged = frame[4:-1] + b"\x01\x4d\x01x"
            await committer.client.stream.send_all(len(tagged).to_bytes(4, "big") + tagged)
            await committer.client.receive_frame()
        gc.collect()
        paths = [made for made in gc.get_objects() if type(made) is OffsetCommitFastPath]
        assert not paths
