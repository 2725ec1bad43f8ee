"""A broker whose requests can be made to fail, and requests of several partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode
from barnabas.kproto.messages import FetchRequest, ProduceRequest
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.faults.rules import Act, Fault, Rule
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, topic

E = ErrorCode


class World(NamedTuple):
    """Topics `t` and `u` of two partitions, and one client."""

    broker: Broker
    client: Client
    ids: dict[str, bytes]

    def fails(self, api: ApiKey | None = None, code: ErrorCode = E.NONE, **filters: Any) -> Rule:
        """Begin with an error; without a code: with what `filters` says."""
        apis = frozenset() if api is None else frozenset((api,))
        if code:
            filters = {"act": Act.ERROR, "error": code, **filters}
        return self.broker.faults.add(Fault(apis, **filters))

    async def produce(self, *places: tuple[str, int], version: int = 9, acks: int = 1) -> dict[tuple[str, int], Any]:
        """The answers by place."""
        return self.places(await self.client.ask(self.produce_request(*places, version=version, acks=acks), version))

    def produce_request(self, *places: tuple[str, int], version: int = 9, acks: int = 1) -> ProduceRequest:
        names = dict.fromkeys(name for name, _ in places)
        return ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="" if version >= 13 else name,
                    topic_id=self.ids[name] if version >= 13 else ZERO_UUID,
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=batch(b"a"))
                        for other, index in places
                        if other == name
                    ],
                )
                for name in names
            ],
        )

    def places(self, response: Any) -> dict[tuple[str, int], Any]:
        by_id = {id_: name for name, id_ in self.ids.items()}
        return {
            (topic.name or by_id[topic.topic_id], each.index): each
            for topic in response.responses
            for each in topic.partition_responses
        }

    async def fetch(
        self, *places: tuple[str, int], version: int = 12, session: tuple[int, int] = (0, -1), max_wait_ms: int = 0
    ) -> Any:
        names = dict.fromkeys(name for name, _ in places)
        session_id, epoch = session
        fields = {"session_id": session_id, "session_epoch": epoch} if version >= 7 else {}
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[
                FetchRequest.FetchTopic(
                    topic="" if version >= 13 else name,
                    topic_id=self.ids[name] if version >= 13 else ZERO_UUID,
                    partitions=[
                        FetchRequest.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
                        for other, index in places
                        if other == name
                    ],
                )
                for name in names
            ],
            **fields,
        )
        return await self.client.ask(request, version)

    def fetched(self, response: Any) -> dict[tuple[str, int], tuple[ErrorCode, int]]:
        """Error and bytes of each partition in an answer."""
        by_id = {id_: name for name, id_ in self.ids.items()}
        return {
            (topic.topic or by_id[topic.topic_id], each.partition_index): (
                ErrorCode(each.error_code),
                len(each.records or b""),
            )
            for topic in response.responses
            for each in topic.partitions
        }


@asynccontextmanager
async def failing_broker(**settings: str) -> AsyncIterator[World]:
    async with (
        embedded_broker(may_fail=True, num_partitions="2", **settings) as broker,
        connected(broker) as client,
    ):
        yield World(broker, client, {name: await topic(broker, name) for name in ("t", "u")})
