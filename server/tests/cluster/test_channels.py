"""The controller's queues to other brokers: order, retries, merging, restarts, answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import trio
from trio.testing import MockClock, memory_stream_pair

from barnabas.kproto import ApiKey, ErrorCode, decode, encode, request_class
from barnabas.kproto.frame import FrameSplitter, parse_request_header, response_frame
from barnabas.kproto.messages import LeaderAndIsrResponse, StopReplicaResponse, UpdateMetadataResponse
from barnabas.replication import (
    BrokerImage,
    Endpoint,
    LeaderAndIsr,
    Message,
    PartitionChange,
    PartitionImage,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from barnabas.replication.messages import wire
from barnabas.server.cluster.channels import ControllerChannels, merge
from barnabas.server.config.broker import BrokerConfig

TWO = BrokerImage(2, (Endpoint("PLAINTEXT", "two", 2),), epoch=20)
THREE = BrokerImage(3, (Endpoint("PLAINTEXT", "three", 3),), epoch=30)


def change(topic: str, leader: int, epoch: int = 0, index: int = 0) -> PartitionChange:
    return PartitionChange(topic, topic.encode() * 16, PartitionImage(index, leader, epoch, epoch, (2, 3), (2, 3)))


def lead(epoch: int, broker_epoch: int = 20) -> LeaderAndIsr:
    return LeaderAndIsr(1, 1, broker_epoch, (change("t", 2, epoch),))


def update(*changes: PartitionChange, broker_epoch: int = 20) -> UpdateMetadata:
    return UpdateMetadata(1, 1, broker_epoch, (TWO, THREE), changes)


def stop(*stopped: StoppedPartition) -> StopReplica:
    return StopReplica(1, 1, 20, stopped)


class Others:
    """Stands for the other brokers: what each has received, and how it answers."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.received: dict[str, list[tuple[ApiKey, int, Any]]] = {"two": [], "three": []}
        self.unreachable: set[str] = set()
        self.silent: set[str] = set()
        self.lost_answers = 0
        self.error = ErrorCode.NONE
        self.partition_errors: dict[tuple[str, int], ErrorCode] = {}
        self.opened: list[str] = []

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if endpoint.host in self.unreachable:
            raise ConnectionRefusedError("refused")
        self.opened.append(endpoint.host)
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self._serve, endpoint.host, theirs)
        return ours

    async def _serve(self, host: str, stream: trio.abc.Stream) -> None:
        splitter = FrameSplitter(1 << 20)
        while data := await stream.receive_some(1 << 16):
            for frame in splitter.feed(data):
                header = parse_request_header(frame)
                assert header.client_id == "1"
                key, version = ApiKey(header.api_key), header.api_version
                request: Any = decode(request_class(key), version, frame, header.body_offset)
                if host in self.silent:
                    await trio.sleep_forever()
                self.received[host].append((key, version, request))
                if self.lost_answers:
                    self.lost_answers -= 1
                    await stream.aclose()
                    return
                answer = encode(self._answer(key, version, request), version)
                await stream.send_all(b"".join(response_frame(key, version, header.correlation_id, [answer])))  # type: ignore[arg-type]

    def _answer(self, key: ApiKey, version: int, request: Any) -> Any:
        if key is ApiKey.UPDATE_METADATA:
            return UpdateMetadataResponse(error_code=self.error)
        response: LeaderAndIsrResponse | StopReplicaResponse
        if key is ApiKey.LEADER_AND_ISR:
            message = wire.leader_and_isr(request, "PLAINTEXT", "PLAINTEXT")
            keys = [(c.topic, c.partition.index) for c in message.partitions]
            response = wire.leader_and_isr_response(message, {k: self._code(k) for k in keys}, version)
        else:
            keys = [(s.topic, s.index) for s in wire.stop_replica(request).partitions]
            response = wire.stop_replica_response({k: self._code(k) for k in keys})
        response.error_code = self.error
        return response

    def _code(self, key: tuple[str, int]) -> ErrorCode:
        return self.partition_errors.get(key, ErrorCode.NONE)

    def epochs(self, host: str) -> list[int]:
        """Leader epochs of all partitions that a broker has heard of, in order."""
        epochs = []
        for _, _, request in self.received[host]:
            for topic in request.topic_states:
                epochs += [state.leader_epoch for state in topic.partition_states]
        return epochs


Answer = tuple[int, Message, ErrorCode, Mapping[tuple[str, int], ErrorCode]]


class Rig:
    def __init__(self, nursery: trio.Nursery, **settings: str) -> None:
        self.others = Others(nursery)
        self.answers: list[Answer] = []
        self.config = BrokerConfig.from_values({"log.dirs": "/nowhere", "zookeeper.connect": "x:1", **settings})
        self.channels = ControllerChannels(
            nursery,
            self.others.connect,
            1,
            config=lambda: self.config,
            answered=lambda *answer: self.answers.append(answer),
        )

    async def answered(self, count: int) -> None:
        with trio.fail_after(100):
            while True:
                if len(self.answers) >= count:
                    return
                await trio.sleep(0.01)


@asynccontextmanager
async def rig(**settings: str) -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        yield Rig(nursery, **settings)
        nursery.cancel_scope.cancel()


async def test_in_order_on_one_connection_each(autojump_clock: MockClock) -> None:
    async with rig() as r:
        for epoch in range(5):
            r.channels.send(TWO, lead(epoch))
            r.channels.send(TWO, update(change("t", 2, epoch)))
        r.channels.send(THREE, lead(7, 30))
        await r.answered(11)
        assert r.others.epochs("two") == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert r.others.epochs("three") == [7]
        assert sorted(r.others.opened) == ["three", "two"]


async def test_versions_follow_the_inter_broker_protocol(autojump_clock: MockClock) -> None:
    async with rig() as r:
        for protocol in ("3.9", "2.8", "2.3", "1.1"):
            r.config = BrokerConfig.from_values(
                {"log.dirs": "/nowhere", "zookeeper.connect": "x:1", "inter.broker.protocol.version": protocol}
            )
            count = len(r.answers)
            for message in (lead(1), update(), stop(StoppedPartition("t", 0, -2, True))):
                r.channels.send(TWO, message)
            await r.answered(count + 3)
        versions = [version for _, version, _ in r.others.received["two"]]
        assert versions == [7, 8, 4, 5, 7, 3, 2, 5, 1, 1, 4, 0]


async def test_the_answers_come_back(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.partition_errors = {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}
        stopped = stop(StoppedPartition("t", 0, 3, True), StoppedPartition("u", 1, -2, False))
        for message in (lead(3), stopped, update()):
            r.channels.send(TWO, message)
        await r.answered(3)
        assert r.answers == [
            (2, lead(3), ErrorCode.NONE, {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR}),
            (2, stopped, ErrorCode.NONE, {("t", 0): ErrorCode.KAFKA_STORAGE_ERROR, ("u", 1): ErrorCode.NONE}),
            (2, update(), ErrorCode.NONE, {}),
        ]


async def test_an_old_stop_replica_is_two_requests_and_one_answer(autojump_clock: MockClock) -> None:
    async with rig(**{"inter.broker.protocol.version": "2.4"}) as r:
        stopped = stop(StoppedPartition("t", 0, 3, True), StoppedPartition("u", 1, -2, False))
        r.channels.send(TWO, stopped)
        await r.answered(1)
        assert [request.delete_partitions for _, _, request in r.others.received["two"]] == [True, False]
        assert r.answers == [(2, stopped, ErrorCode.NONE, dict.fromkeys((("t", 0), ("u", 1)), ErrorCode.NONE))]


async def test_a_whole_message_refused_is_not_sent_again(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.error = ErrorCode.STALE_BROKER_EPOCH
        r.channels.send(TWO, lead(1))
        await r.answered(1)
        await trio.sleep(10)
        assert len(r.others.received["two"]) == 1
        assert r.answers[0][2] is ErrorCode.STALE_BROKER_EPOCH


async def test_sent_again_every_100_ms_until_there_is_an_answer(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.unreachable = {"two"}
        r.channels.send(TWO, lead(1))
        r.channels.send(TWO, lead(2))
        r.channels.send(THREE, lead(3, 30))
        await r.answered(1)
        assert trio.current_time() < 0.1, "the other one is not held up"
        await trio.sleep(60)
        assert r.others.received["two"] == []
        r.others.unreachable = set()
        r.others.lost_answers = 2
        await trio.sleep(0.5)
        assert r.others.epochs("two") == [1, 1, 1, 2]
        assert [answer[0] for answer in r.answers] == [3, 2, 2]


async def test_a_broker_that_does_not_answer_gets_the_request_again(autojump_clock: MockClock) -> None:
    async with rig(**{"request.timeout.ms": "5000"}) as r:
        r.others.silent = {"two"}
        r.channels.send(TWO, lead(1))
        await trio.sleep(4)
        assert r.others.opened == ["two"]
        await trio.sleep(2)
        assert r.others.opened == ["two", "two"]
        r.others.silent = set()
        await r.answered(1)


async def test_what_queues_up_for_a_broker_is_merged(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.unreachable = {"two"}
        r.channels.send(TWO, update())
        await trio.sleep(1)
        for epoch in range(100):
            r.channels.send(TWO, update(change("t", 2, epoch), change("u", 3, epoch)))
        r.channels.send(TWO, lead(100))
        r.channels.send(TWO, update(change("v", 3, 1)))
        r.channels.send(TWO, update(change("t", 2, 100)))
        assert r.channels.backlog == {2: 3}
        r.others.unreachable = set()
        await r.answered(4)
        assert r.others.epochs("two") == [99, 99, 100, 1, 100]


async def test_a_broker_that_is_gone_or_came_back_gets_nothing_from_before(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.unreachable = {"two"}
        for epoch in range(3):
            r.channels.send(TWO, lead(epoch))
        await trio.sleep(1)
        r.channels.keep({3: THREE})
        assert r.channels.backlog == {}
        r.others.unreachable = set()
        again = replace(TWO, epoch=21)
        r.channels.send(again, lead(9, 21))
        await r.answered(1)
        assert r.others.epochs("two") == [9]
        r.others.silent = {"two"}
        r.channels.send(again, lead(10, 21))
        r.channels.send(again, lead(11, 21))
        await trio.sleep(1)
        r.others.silent = set()
        r.channels.send(replace(TWO, epoch=22), lead(12, 22))
        await r.answered(2)
        await trio.sleep(100)
        assert r.others.epochs("two") == [9, 12]


async def test_another_address_under_the_same_registration(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.unreachable = {"two"}
        r.channels.send(TWO, lead(1))
        await trio.sleep(1)
        r.channels.keep({2: replace(TWO, endpoints=THREE.endpoints)})
        await r.answered(1)
        assert r.others.epochs("three") == [1]


async def test_a_broker_without_the_listener_between_brokers_is_tried_again(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.channels.send(replace(TWO, endpoints=()), lead(1))
        await trio.sleep(1)
        r.channels.keep({2: TWO})
        await r.answered(1)


async def test_nothing_is_sent_when_the_term_is_over(autojump_clock: MockClock) -> None:
    async with rig() as r:
        r.others.unreachable = {"two"}
        r.channels.send(TWO, lead(1))
        r.channels.send(THREE, lead(1, 30))
        await trio.sleep(1)
        r.channels.close()
        r.others.unreachable = set()
        await trio.sleep(10)
        assert r.others.received["two"] == []


def test_merging() -> None:
    first = update(change("t", 2, 1), change("t", 3, 1, index=1))
    second = replace(update(change("t", 3, 2)), brokers=(TWO,))
    merged = merge(first, second)
    assert merged == replace(second, partitions=(change("t", 3, 2), change("t", 3, 1, index=1)))
    assert merge(first, lead(1)) is None
    assert merge(lead(1), first) is None
    assert merge(first, update(broker_epoch=21)) is None
    gone = update(change("t", -2, -2))
    assert merge(first, gone) is None
    assert merge(gone, first) is None


async def test_the_controller_s_own_listener_is_used_where_there_is_one(autojump_clock: MockClock) -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,CONTROL://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }
    both = BrokerImage(2, (Endpoint("PLAINTEXT", "two", 2), Endpoint("CONTROL", "three", 2)), epoch=20)
    async with rig(**settings) as r:
        r.channels.send(both, lead(1))
        await r.answered(1)
        assert r.others.opened == ["three"]
