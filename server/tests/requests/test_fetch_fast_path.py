"""The fast path of Fetch: what it remembers, and a random conversation that `test_fast_paths.py` holds with it and
without.
"""

from __future__ import annotations

import gc
from random import Random
from typing import Any

import pytest
import trio

from barnabas.kproto import ApiKey, ErrorCode, decode, response_class, uvarint
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import FetchRequest
from barnabas.kproto.records import iter_headers
from barnabas.replication import PartitionImage
from barnabas.server.broker.broker import Broker
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.fast_paths.fetch import FetchFastPath
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_fetch_committed import Writer
from barnabas.server.tests.apis.records.test_produce import topic
from barnabas.server.tests.apis.test_access import ALICE, WITH_AUTHORIZER, Op, allow, on_topic

TURNS = 300


class Reader:
    """A consumer of one partition that does odd things now and then; `answers`: all frames that it got."""

    def __init__(self, client: Client, version: int, rng: Random, ids: list[bytes], isolation_level: int) -> None:
        self.client = client
        self.version = version
        self.rng = rng
        self.names: list[str | bytes] = list(ids) if version >= 13 else ["t", "u"]
        self.isolation_level = isolation_level
        self.answers: list[bytes] = []
        self.session_id, self.epoch = 0, 0
        self.offset = 0
        self.leader_epoch = -1

    async def ask(self, client_id: str = "one", **changes: Any) -> Any:
        """A fetch like the one before, but for the correlation id, the session's epoch, the offset and `changes`."""
        places = changes.pop("places", [(self.names[0], 0, self.offset)])
        asked = fetch(
            *places,
            **{
                "isolation_level": self.isolation_level,
                "session_id": self.session_id,
                "session_epoch": self.epoch,
                "partition_max_bytes": 3000,
                "current_leader_epoch": self.leader_epoch,
                **changes,
            },
        )
        correlation_id = self.rng.randrange(-(1 << 31), 1 << 31)
        await self.client.stream.send_all(request_frame(self.version, correlation_id, client_id, asked))
        frame = await self.client.receive_frame()
        self.answers.append(frame)
        offset = parse_response_header(ApiKey.FETCH, self.version, frame)[1]
        response: Any = decode(response_class(ApiKey.FETCH), self.version, frame, offset)
        if self.epoch >= 0:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if self.session_id and not response.error_code else 0
        return response

    async def turn(self, partition: Partition) -> None:
        """One request."""
        rng = self.rng
        end = partition.log_end_offset
        self.offset = rng.randrange(end + 1) if rng.random() < 0.3 else min(self.offset + rng.randrange(4), end)
        kind = rng.randrange(30)
        if kind == 0:
            await self.ask(session_id=0, session_epoch=-1)
            if self.epoch > 0:
                self.session_id = self.epoch = 0
        elif kind == 1:
            self.offset = rng.choice([-1, end + 1])
            await self.ask()
            self.offset = 0
        elif kind == 2:
            await self.ask(places=[(self.names[0], 0, self.offset), (self.names[rng.randrange(2)], 1, 0)])
        elif kind == 3:
            topic_id, name = (self.names[0], "") if self.version >= 13 else (bytes(16), self.names[0])
            gone = FetchRequest.ForgottenTopic(topic=name, topic_id=topic_id, partitions=[1])
            await self.ask(forgotten_topics_data=[gone])
        elif kind == 4:
            await self.ask(session_epoch=rng.choice([self.epoch + 1, 0, -1, 7]))
            self.session_id = self.epoch = 0
        elif kind == 5:
            await self.ask(client_id=rng.choice(["two", "", "fifteen"]))
        elif kind == 6:
            await self.ask(min_bytes=rng.choice([1, 2000, 100_000]), max_wait_ms=20)
        elif kind == 7:
            await self.ask(partition_max_bytes=rng.choice([0, 1, 100, 1 << 20]))
        elif kind == 8:
            self.leader_epoch = rng.choice([-1, partition.leader_epoch, partition.leader_epoch + 1])
        elif kind == 9:
            await self.ask(last_fetched_epoch=rng.choice([0, partition.leader_epoch]))
        elif kind == 10:
            await self.ask(rack_id="r")
        elif kind == 11:
            await self.ask(places=[])
        elif kind == 12:
            await self.ask(max_bytes=rng.choice([1, 1000]))
        else:
            for _ in range(3):
                await self.ask()
                self.offset = rng.randrange(min(self.offset, end), end + 1)


def change(broker: Broker, writer: Writer, rng: Random) -> None:
    """Something happens to the partition."""
    partition = writer.partition
    kind = rng.randrange(9)
    producers = list(writer.open)
    if kind < 3 or partition.log_end_offset < 20:
        for _ in range(rng.randrange(1, 12)):
            writer.data(bytes(rng.randrange(1, 900)), producer=rng.choice([-1, -1, 7, 8]))
    elif kind < 7 and producers:
        writer.end(rng.choice(producers), commit=rng.random() < 0.8)
    elif kind == 7:
        start = partition.log_start_offset
        cut = start + rng.randrange(max(1, partition.high_watermark - start) // 3 + 1)
        partition.log.delete_records(cut, partition.high_watermark)
    elif kind == 8:
        epoch = partition.leader_epoch + 1
        partition.lead(PartitionImage(0, 0, epoch, epoch, (0,), (0,)))


async def conversation(version: int, seed: int, isolation_level: int) -> list[bytes]:
    """All answers."""
    rng = Random(seed)
    async with (
        embedded_broker(
            num_partitions="2", broker_id="0", log_segment_bytes="8000", advertised_listeners="PLAINTEXT://here:9092"
        ) as broker,
        connected(broker) as client,
    ):
        ids = [await topic(broker, name) for name in ("t", "u")]
        writer = Writer(broker.services.partitions.get("t", 0))
        reader = Reader(client, version, rng, ids, isolation_level)
        if rng.random() < 0.3:
            reader.epoch = -1  # who wants no session
        for _ in range(TURNS):
            if rng.random() < 0.2:
                change(broker, writer, rng)
            await reader.turn(writer.partition)
        return reader.answers


PARTS = 3


class ReaderOfSeveral:
    """A consumer of all partitions of two topics, in a session or without one. Where it has read all there is it waits,
    and what it waits for comes a moment later, or does not.
    """

    def __init__(
        self, broker: Broker, client: Client, version: int, rng: Random, ids: list[bytes], **fields: Any
    ) -> None:
        self.client = client
        self.version = version
        self.rng = rng
        self.in_session = fields.pop("in_session")
        only_one = fields.pop("only_one")
        self.fields = {**fields, "rack_id": rng.choice(["", "", "r"]), "max_wait_ms": 50}
        self.knows_epochs = rng.random() < 0.5
        names: list[str | bytes] = list(ids) if version >= 13 else ["t", "u"]
        self.offsets = {(name, index): 0 for name in names for index in range(PARTS)}
        if only_one:
            self.offsets = {(names[0], 0): 0}
        self.writers = {
            (name, index): Writer(broker.services.partitions.get("tu"[number], index))
            for number, name in enumerate(names)
            for index in range(PARTS)
        }
        self.session_id = self.epoch = 0
        self.answers: list[bytes] = []

    async def turn(self) -> None:
        rng = self.rng
        places = list(self.offsets)
        if self.epoch > 0:
            places = rng.sample(places, min(len(places), rng.choice([0, 1, 1, 1, 1, 1, 1, 2, 6])))
        elif rng.random() < 0.1:
            places = places[1:] + places[:1]
        asked = fetch(
            *[(*place, self.offsets[place]) for place in places],
            session_id=self.session_id,
            session_epoch=self.epoch if self.in_session else -1,
            partition_max_bytes=rng.choice([3000, 3000, 3000, 100]),
            min_bytes=rng.choice([1, 1, 1, 1, 500]),
            **self.fields,
        )
        for place, each in zip(places, [each for one in asked.topics for each in one.partitions], strict=True):
            if self.knows_epochs:
                each.current_leader_epoch = self.writers[place].partition.leader_epoch
                each.last_fetched_epoch = (
                    each.current_leader_epoch if rng.random() < 0.97 else each.current_leader_epoch - 1
                )
            if rng.random() < 0.01:
                each.fetch_offset = rng.choice([-1, 1 << 40])
            if rng.random() < 0.01:
                each.partition = PARTS
        frame = request_frame(self.version, rng.randrange(-(1 << 31), 1 << 31), "one", asked)
        await self.client.stream.send_all(frame)
        if rng.random() < 0.5:
            await trio.sleep(0.01)
            for place in rng.sample(list(self.offsets), min(len(self.offsets), rng.choice([1, 2]))):
                self.write(self.writers[place])
        answer = await self.client.receive_frame()
        self.answers.append(answer)
        offset = parse_response_header(ApiKey.FETCH, self.version, answer)[1]
        response: Any = decode(response_class(ApiKey.FETCH), self.version, answer, offset)
        if self.in_session:
            self.session_id = response.session_id
            self.epoch = self.epoch + 1 if self.session_id and not response.error_code else 0
        for topic_data in response.responses:
            name = topic_data.topic_id if self.version >= 13 else topic_data.topic
            for data in topic_data.partitions:
                place = (name, data.partition_index)
                if place in self.offsets and data.records:
                    last = list(iter_headers(bytes(data.records)))[-1][1]
                    self.offsets[place] = last.last_offset + 1

    def write(self, writer: Writer) -> None:
        rng = self.rng
        kind = rng.randrange(12)
        if kind == 0 and writer.open:
            writer.end(next(iter(writer.open)), commit=rng.random() < 0.5)
        elif kind == 1:
            epoch = writer.partition.leader_epoch + 1
            writer.partition.lead(PartitionImage(0, 0, epoch, epoch, (0,), (0,)))
        else:
            writer.data(bytes(rng.randrange(1, 900)), producer=rng.choice([-1, -1, -1, 7]))


async def several_conversation(version: int, seed: int, **fields: Any) -> list[bytes]:
    """All answers."""
    rng = Random(seed)
    async with (
        embedded_broker(num_partitions=str(PARTS), broker_id="0", advertised_listeners="PLAINTEXT://h:9092") as broker,
        connected(broker) as client,
    ):
        ids = [await topic(broker, name) for name in ("t", "u")]
        reader = ReaderOfSeveral(broker, client, version, rng, ids, **fields)
        for _ in range(150):
            await reader.turn()
        return reader.answers


@pytest.mark.parametrize("names_one", [True, False])
@pytest.mark.parametrize("version", [12, 18])
async def test_what_others_put_into_a_session_is_not_read_without_permission(
    version: int, names_one: bool, autojump_clock: trio.abc.Clock
) -> None:
    """Sessions are found by their id on any connection: permissions are those of who asks."""
    async with embedded_broker(**WITH_AUTHORIZER) as broker:
        names = ["t", "u", "v"]
        ids = [await topic(broker, name) for name in names]
        allow(broker, [*on_topic(Op.READ, name="t"), *on_topic(Op.READ, name="u")])
        for name in names:
            Writer(broker.services.partitions.get(name, 0)).data(name.encode())
        by_id = version >= 13
        places: list[tuple[str | bytes, int, int]] = [(ids[i] if by_id else names[i], 0, 0) for i in range(3)]
        async with connected(broker) as owner, connected(broker, principal=ALICE) as alice:
            opened = await owner.ask(fetch(*places[:2], session_epoch=0), version)
            session = {"session_id": opened.session_id}
            epoch = 0

            async def ask(client: Client, *asked: tuple[str | bytes, int, int]) -> Any:
                nonlocal epoch
                epoch += 1
                return await client.ask(fetch(*asked, session_epoch=epoch, **session), version)

            named = places[:1] if names_one else []
            for _ in range(3):
                assert sorted(values_of(await ask(alice, *named))) == [b"t", b"u"]
            assert sorted(values_of(await ask(owner, places[2]))) == [b"t", b"u", b"v"]
            if not names_one:
                gone = [
                    FetchRequest.ForgottenTopic(topic_id=name, partitions=[0])
                    if isinstance(name, bytes)
                    else FetchRequest.ForgottenTopic(topic=name, partitions=[0])
                    for name, *_ in places[:2]
                ]
                epoch += 1
                forget = fetch(session_epoch=epoch, forgotten_topics_data=gone, **session)
                assert values_of(await owner.ask(forget, version)) == [b"v"]
            answer = await ask(alice, *named)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            assert values_of(answer) == []


def values_of(response: Any) -> list[bytes]:
    return [value for topic in response.responses for data in topic.partitions for value in values(data)]


@pytest.mark.parametrize("in_session", [True, False])
@pytest.mark.parametrize("version", [12, 18])
async def test_a_deleted_topic_is_not_remembered(
    version: int, in_session: bool, autojump_clock: trio.abc.Clock
) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id = await topic(broker)
        reader = Reader(client, version, Random(0), [topic_id, topic_id], 0)
        if not in_session:
            reader.epoch = -1
        Writer(broker.services.partitions.get("t", 0)).data(b"old")
        for _ in range(4):
            assert values(flat(await reader.ask())[0]) == [b"old"]
        await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
        assert flat(await reader.ask())[0].error_code == (100 if version >= 13 else 3)
        await topic(broker)
        Writer(broker.services.partitions.get("t", 0)).data(b"new")
        for _ in range(4):
            if version >= 13:
                assert flat(await reader.ask())[0].error_code == 100
            else:
                assert values(flat(await reader.ask())[0]) == [b"new"]


@pytest.mark.parametrize("in_session", [True, False])
@pytest.mark.parametrize("version", [12, 18])
async def test_a_topic_without_partitions(
    version: int, in_session: bool, autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The fuzzer's: the only partition is not one of the first topic."""
    async with embedded_broker() as broker, connected(broker) as client:
        topic_id, other_id = await topic(broker), await topic(broker, "u")
        Writer(broker.services.partitions.get("t", 0)).data(b"one")
        session_id = 0
        if in_session:
            opened = await client.ask(fetch((topic_id if version >= 13 else "t", 0, 0), session_epoch=0), version)
            session_id = opened.session_id
        for number in range(1, 5):
            asked = fetch(
                (topic_id if version >= 13 else "t", 0, 0),
                session_id=session_id,
                session_epoch=number if in_session else -1,
            )
            asked.topics.insert(
                0,
                FetchRequest.FetchTopic(topic_id=other_id, partitions=[])
                if version >= 13
                else FetchRequest.FetchTopic(topic="u", partitions=[]),
            )
            assert values_of(await client.ask(asked, version)) == [b"one"]
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize(("size", "is_learnt"), [(1000, True), (2000, False), (100_000, False)])
async def test_long_requests_are_not_kept(size: int, is_learnt: bool, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        for _ in range(2):
            frame = request_frame(12, 5, "one", fetch(("t", 0, 0)))[4:]
            at = 8 + 2 + 3
            frame = frame[:at] + b"\x01\x4d" + uvarint(size) + bytes(size) + frame[at + 1 :]
            await client.stream.send_all(len(frame).to_bytes(4, "big") + frame)
            assert (await client.receive(fetch(("t", 0, 0)), 12)).error_code == 0
        gc.collect()
        learnt = [made for made in gc.get_objects() if type(made) is FetchFastPath]
        assert bool(learnt) == is_learnt
