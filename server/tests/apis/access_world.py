"""A broker with an authorizer, what alice may do there, and requests that she sends, for tests of what is denied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import (
    FetchRequest,
    MetadataRequest,
    ProduceRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, topic
from barnabas.server.tests.apis.test_access import ALICE, WITH_AUTHORIZER

Op, E = AclOperation, ErrorCode
T, G, C, X = (
    E.TOPIC_AUTHORIZATION_FAILED,
    E.GROUP_AUTHORIZATION_FAILED,
    E.CLUSTER_AUTHORIZATION_FAILED,
    E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class Rights:
    """What alice may do, and how that is changed."""

    def __init__(self, broker: Broker) -> None:
        assert broker.services.authorizer is not None
        self.authorizer = broker.services.authorizer

    def put(self, needed: Any, permission: PermissionType = PermissionType.ALLOW, *, prefix: bool = False) -> None:
        for kind, name, operation in needed:
            pattern = ResourcePattern(kind, name, PatternType.PREFIXED if prefix else PatternType.LITERAL)
            entry = AccessControlEntry(str(ALICE), "*", operation, permission)
            self.authorizer.put(pattern, [*self.authorizer.index.entries(pattern), entry])

    def clear(self) -> None:
        for pattern in self.authorizer.index.patterns():
            self.authorizer.put(pattern, [])


@asynccontextmanager
async def world(*topics: str, **settings: str) -> AsyncIterator[tuple[Broker, Rights, Client, Client]]:
    """A broker with topics, alice's rights, her connection, and one of a user who may do everything."""
    async with (
        embedded_broker(**WITH_AUTHORIZER, **settings) as broker,
        connected(broker, principal=ALICE) as alice,
        connected(broker) as root,
    ):
        for name in topics:
            await topic(broker, name)
        yield broker, Rights(broker), alice, root


def produce_to(*names: str, acks: int = 1, version: int = 9, ids: dict[str, bytes] | None = None) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="" if ids else name,
                topic_id=ids[name] if ids else ZERO_UUID,
                partition_data=[data(index=0, records=batch(b"a"))],
            )
            for name in names
        ],
    )


def produced(response: Any) -> list[tuple[str, int]]:
    return [(each.name, each.partition_responses[0].error_code) for each in response.responses]


def fetch_from(*names: str, session_id: int = 0, epoch: int = -1, replica_id: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                topic=name,
                partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
            for name in names
        ],
    )


def fetched(response: Any) -> list[tuple[str, int, bool]]:
    return [
        (each.topic, each.partitions[0].error_code, len(each.partitions[0].records or b"") > 0)
        for each in response.responses
    ]


def metadata(*names: str, create: bool = False, **more: Any) -> MetadataRequest:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **more)


def told(response: Any) -> list[tuple[str | None, int]]:
    return [(each.name, each.error_code) for each in response.topics]
