"""Brokers for the client's tests: real ones in this process, with what lies between made to lie; and fakes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio
from trio.testing import memory_stream_pair

from barnabas.kproto import ApiKey, decode, encode, request_class, response_class
from barnabas.kproto.frame import FrameSplitter, parse_request_header, parse_response_header, response_frame
from barnabas.kproto.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsResponse,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataResponse,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.replication import Endpoint
from barnabas.server.broker.broker import Broker
from barnabas.server.client.client import Client, open_client
from barnabas.server.client.versions import SPOKEN
from barnabas.server.testing import Client as RawClient
from barnabas.server.testing import EmbeddedCluster, connected

KAFKA_0_11 = {
    ApiKey.PRODUCE: (0, 3),
    ApiKey.FETCH: (0, 5),
    ApiKey.LIST_OFFSETS: (0, 2),
    ApiKey.METADATA: (0, 4),
    ApiKey.OFFSET_COMMIT: (0, 3),
    ApiKey.OFFSET_FETCH: (0, 3),
    ApiKey.FIND_COORDINATOR: (0, 1),
    ApiKey.DESCRIBE_GROUPS: (0, 1),
    ApiKey.LIST_GROUPS: (0, 1),
    ApiKey.API_VERSIONS: (0, 1),
    ApiKey.CREATE_TOPICS: (0, 2),
    ApiKey.DELETE_TOPICS: (0, 1),
    ApiKey.DELETE_RECORDS: (0, 0),
    ApiKey.INIT_PRODUCER_ID: (0, 0),
    ApiKey.DESCRIBE_CONFIGS: (0, 0),
    ApiKey.WRITE_TXN_MARKERS: (0, 0),
}
"""What Apache Kafka 0.11 answered to ApiVersions, as far as it matters here."""

Hook = Callable[["Exchange"], Awaitable[bytes | None]]


@dataclass
class Exchange:
    """One request on its way. `forward()`: pass it on, and get the answer's frame without its length."""

    endpoint: Endpoint
    key: ApiKey
    version: int
    correlation_id: int
    request: bytes
    body_offset: int
    forward: Callable[[], Awaitable[bytes]]

    @property
    def message(self) -> Any:
        return decode(request_class(self.key), self.version, self.request, self.body_offset)

    async def answer(self) -> Any:
        """The answer as a message, to be changed and given to `framed`."""
        frame = await self.forward()
        _, offset = parse_response_header(self.key, self.version, frame)
        return decode(response_class(self.key), self.version, frame, offset)

    def framed(self, message: Any, version: int | None = None) -> bytes:
        chosen = self.version if version is None else version
        parts = response_frame(self.key, chosen, self.correlation_id, [encode(message, chosen)])
        return b"".join(map(bytes, parts))  # type: ignore[arg-type]


class Relay:
    """A `Connect`: passes requests on to the streams of another one. `hook`: makes the answer to each, with its length;
    None: hangs up. Without one everything is passed on.
    """

    def __init__(self, nursery: trio.Nursery, connect: Callable[[Endpoint], Awaitable[trio.abc.Stream]]) -> None:
        self._nursery = nursery
        self._connect = connect
        self.hook: Hook | None = None
        self.seen: list[tuple[ApiKey, int]] = []
        self.opened = 0

    async def __call__(self, endpoint: Endpoint) -> trio.abc.Stream:
        there = await self._connect(endpoint)
        ours, theirs = memory_stream_pair()
        self.opened += 1
        self._nursery.start_soon(self._serve, endpoint, theirs, there)
        return ours

    async def _serve(self, endpoint: Endpoint, near: trio.abc.Stream, far: trio.abc.Stream) -> None:
        requests, answers = FrameSplitter(1 << 30), FrameSplitter(1 << 30)
        waiting: list[bytes] = []
        async with near, far:
            try:
                while data := await near.receive_some(1 << 16):
                    for frame in requests.feed(data):
                        request = bytes(frame)

                        async def forward(request: bytes = request) -> bytes:
                            await far.send_all(len(request).to_bytes(4, "big") + request)
                            while not waiting:
                                received = await far.receive_some(1 << 16)
                                if not received:
                                    raise trio.BrokenResourceError
                                waiting.extend(bytes(each) for each in answers.feed(received))
                            return waiting.pop(0)

                        head = parse_request_header(request)
                        key = ApiKey(head.api_key)
                        self.seen.append((key, head.api_version))
                        exchange = Exchange(
                            endpoint, key, head.api_version, head.correlation_id, request, head.body_offset, forward
                        )
                        answer = await (self.hook or passed_on)(exchange)
                        if answer is None:
                            return
                        await near.send_all(answer)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass


async def passed_on(exchange: Exchange) -> bytes:
    frame = await exchange.forward()
    return len(frame).to_bytes(4, "big") + frame


def old(versions: Mapping[ApiKey, tuple[int, int]]) -> Hook:
    """A broker that speaks these versions only, and fails the test when it is asked for others."""

    async def hook(exchange: Exchange) -> bytes | None:
        if exchange.key is ApiKey.API_VERSIONS:
            code = 35 if exchange.version > versions[ApiKey.API_VERSIONS][1] else 0
            rows = [
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in versions.items()
            ]
            return exchange.framed(ApiVersionsResponse(error_code=code, api_keys=rows), 0)
        first, last = versions[exchange.key]
        assert first <= exchange.version <= last, (exchange.key, exchange.version)
        return await passed_on(exchange)

    return hook


def to_broker(broker: Broker) -> Callable[[Endpoint], Awaitable[trio.abc.Stream]]:
    """A `Connect` that leads to one broker, whatever the address."""

    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        broker.serve_stream(theirs)
        return ours

    return connect


def to_cluster(cluster: EmbeddedCluster) -> Callable[[Endpoint], Awaitable[trio.abc.Stream]]:
    """A `Connect` that leads to the broker that listens at the address."""

    async def connect(endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        for member in cluster.members.values():
            if member.is_running and member.broker.is_open:
                for each in member.broker.endpoints:
                    if (each.host, each.port) == (endpoint.host, endpoint.port):
                        ours, theirs = memory_stream_pair()
                        member.broker.serve_stream(theirs)
                        return ours
        raise ConnectionRefusedError(111, "connection refused")

    return connect


@asynccontextmanager
async def relayed(
    connect: Callable[[Endpoint], Awaitable[trio.abc.Stream]], hook: Hook | None = None, **options: Any
) -> AsyncIterator[tuple[Client, Relay]]:
    """A client whose requests pass a relay. options: of `open_client`."""
    async with trio.open_nursery() as nursery:
        relay = Relay(nursery, connect)
        relay.hook = hook
        chosen: dict[str, Any] = {"bootstrap": ["any:1"], "rng": Random(7), **options}
        async with open_client(chosen.pop("bootstrap"), connect=relay, **chosen) as client:
            yield client, relay
        nursery.cancel_scope.cancel()


@dataclass
class Fakes:
    """Brokers 1 … n that answer by a script: Metadata by `leaders`, everything else by `answer`. A `Connect`.

    `down`: brokers that refuse connections. answer(broker, exchange): the answer's frame; None: hang up.
    """

    nursery: trio.Nursery
    brokers: int
    leaders: dict[tuple[str, int], int]
    answer: Callable[[int, Exchange], Awaitable[bytes | None]]
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    controller: int = 1
    down: set[int] = field(default_factory=set)
    seen: list[tuple[int, ApiKey]] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    async def __call__(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        number = endpoint.port
        if number in self.down:
            raise ConnectionRefusedError(111, "connection refused")
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self._serve, number, theirs)
        return ours

    async def _serve(self, number: int, stream: trio.abc.Stream) -> None:
        splitter = FrameSplitter(1 << 30)
        async with stream:
            try:
                while data := await stream.receive_some(1 << 16):
                    for frame in splitter.feed(data):
                        answer = None if number in self.down else await self._respond(number, bytes(frame))
                        if answer is None:
                            return
                        await stream.send_all(answer)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async def _respond(self, number: int, request: bytes) -> bytes | None:
        head = parse_request_header(request)
        key = ApiKey(head.api_key)

        async def forward() -> bytes:
            raise AssertionError("there is nobody behind")

        exchange = Exchange(
            Endpoint("", "fake", number),
            key,
            head.api_version,
            head.correlation_id,
            request,
            head.body_offset,
            forward,
        )
        if key is ApiKey.API_VERSIONS:
            rows = [
                ApiVersionsResponse.ApiVersion(api_key=each, min_version=first, max_version=last)
                for each, (first, last) in SPOKEN.items()
            ]
            return exchange.framed(ApiVersionsResponse(api_keys=rows))
        self.seen.append((number, key))
        if key is ApiKey.METADATA:
            return exchange.framed(self.metadata(exchange.message))
        return await self.answer(number, exchange)

    def metadata(self, request: Any) -> MetadataResponse:
        asked = None if request.topics is None else {row.name for row in request.topics}
        names = {topic for topic, _ in self.leaders} | self.missing
        rows = []
        for name in sorted(names if asked is None else asked):
            partitions = [
                MetadataResponse.MetadataResponsePartition(
                    partition_index=index,
                    leader_id=leader,
                    leader_epoch=self.epochs.get((name, index), 0),
                    error_code=5 if leader < 0 else 0,
                )
                for (topic, index), leader in self.leaders.items()
                if topic == name
            ]
            code = 0 if partitions else 3
            rows.append(
                MetadataResponse.MetadataResponseTopic(
                    name=name, error_code=code, topic_id=name.encode().ljust(16, b"."), partitions=partitions
                )
            )
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=each, host="fake", port=each)
            for each in range(1, self.brokers + 1)
            if each not in self.down
        ]
        return MetadataResponse(brokers=brokers, controller_id=self.controller, cluster_id="fakes", topics=rows)


@asynccontextmanager
async def faked(
    brokers: int,
    leaders: dict[tuple[str, int], int],
    answer: Callable[[int, Exchange], Awaitable[bytes | None]],
    **options: Any,
) -> AsyncIterator[tuple[Client, Fakes]]:
    """A client of `Fakes`."""
    async with trio.open_nursery() as nursery:
        fakes = Fakes(nursery, brokers, leaders, answer)
        chosen = {"bootstrap": [f"fake:{each}" for each in range(1, brokers + 1)], "rng": Random(7), **options}
        async with open_client(chosen.pop("bootstrap"), connect=fakes, **chosen) as client:
            yield client, fakes
        nursery.cancel_scope.cancel()


class TransactionalWriter:
    """A producer with transactions, of one partition, over single requests."""

    def __init__(self, raw: RawClient, name: str) -> None:
        self._raw = raw
        self._name = name
        self._sequence: dict[str, int] = {}
        self.producer_id = -1
        self.producer_epoch = -1

    async def begin(self) -> None:
        await self._raw.ask(FindCoordinatorRequest(key=self._name, key_type=1), 2)  # makes the internal topic
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
        made = await self._until_well(request, 1, lambda answer: answer.error_code)
        self.producer_id, self.producer_epoch = made.producer_id, made.producer_epoch

    async def write(self, topic: str, value: bytes) -> None:
        row = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[row],
        )
        await self._until_well(
            added,
            1,
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )
        sequence = self._sequence.get(topic, 0)
        self._sequence[topic] = sequence + 1
        data = build_batch(
            [Record(0, 1, None, value)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        rows = [ProduceRequest.PartitionProduceData(index=0, records=bytes(data))]
        topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=rows)]
        request = ProduceRequest(transactional_id=self._name, acks=-1, timeout_ms=1000, topic_data=topics)
        await self._until_well(request, 7, lambda answer: answer.responses[0].partition_responses[0].error_code)

    async def end(self, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        await self._until_well(request, 1, lambda answer: answer.error_code)

    async def _until_well(self, request: Any, version: int, code_of: Callable[[Any], int]) -> Any:
        for _ in range(100):
            answer = await self._raw.ask(request, version)
            if not code_of(answer):
                return answer
            await trio.sleep(0.1)
        raise AssertionError(code_of(answer))


@asynccontextmanager
async def transactional(broker: Broker, name: str) -> AsyncIterator[TransactionalWriter]:
    """A writer whose producer id is there; its transactions begin by themselves."""
    async with connected(broker) as raw:
        writer = TransactionalWriter(raw, name)
        await writer.begin()
        yield writer
