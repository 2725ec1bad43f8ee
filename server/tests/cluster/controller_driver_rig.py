"""A broker as member of a cluster and its controller, on an embedded store and without logs: what tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import (
    BrokerImage,
    EmbeddedSession,
    EmbeddedStore,
    Endpoint,
    NewTopic,
    PartitionImage,
    TopicDefaults,
    TopicRequest,
    plan_creation,
)
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.cluster.partition_requests import PartitionRequests
from barnabas.server.cluster.topic_requests import TopicRequests
from barnabas.server.config.broker import BrokerConfig

BROKER = BrokerImage(1, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),))
CLUSTER = "4L6g3nShT-eMCtK--X86sw"


class Replicas:
    """Stands for the broker's partitions."""

    def __init__(self) -> None:
        self.led: dict[tuple[str, int], tuple[bytes, PartitionImage, Mapping[str, str]]] = {}
        self.deleted: list[tuple[str, int]] = []
        self.configs: list[tuple[str, dict[str, str]]] = []
        self.broken: set[str] = set()

    def become_leader(
        self, topic: str, topic_id: bytes, image: PartitionImage, config: Mapping[str, str], *, is_new: bool
    ) -> None:
        if topic in self.broken:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        self.led[topic, image.index] = (topic_id, image, dict(config))

    def become_follower(
        self,
        topic: str,
        topic_id: bytes,
        image: PartitionImage,
        config: Mapping[str, str],
        leader: BrokerImage | None,
        *,
        is_new: bool,
    ) -> None:
        assert leader is None, "there is nobody to follow"

    def stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> None:
        if delete:
            self.led.pop((topic, index), None)
            self.deleted.append((topic, index))

    async def settle_deletions(self) -> None:
        pass

    def config_changed(self, topic: str, config: Mapping[str, str]) -> None:
        self.configs.append((topic, dict(config)))


class Rig:
    """A member, requests to it as controller, what it drives, and the store behind it."""

    def __init__(self, store: EmbeddedStore, broker: BrokerImage = BROKER, **options: Any) -> None:
        self.store = store
        self.session: EmbeddedSession = store.connect()
        self.replicas = Replicas()
        self.now_ms = 1_000_000
        self.broker_configs: list[dict[str, dict[str, str]]] = []
        values = options.pop("values", {})
        self.config = BrokerConfig.from_values({"log.dirs": "/nowhere", **values})
        self.member = ClusterMember(
            self.session,
            broker,
            self.replicas,
            config=lambda: self.config,
            wall_ms=lambda: self.now_ms,
            rng=Random(7),
            make_cluster_id=lambda: CLUSTER,
            broker_configs_changed=lambda c: self.broker_configs.append({k: dict(v) for k, v in c.items()}),
            **options,
        )
        self.topics = TopicRequests(self.member, lambda: self.config, Random(7))
        self.partitions = PartitionRequests(self.member)

    async def create(self, *names: str, timeout_ms: int = 60_000, **fields: Any) -> list[ErrorCode]:
        outcomes = await self.topics.create_topics([TopicRequest(n, **fields) for n in names], timeout_ms=timeout_ms)
        return [code_of(outcomes[name].error) for name in names]


def code_of(error: KafkaError | None) -> ErrorCode:
    return ErrorCode.NONE if error is None else error.code


@asynccontextmanager
async def running(store: EmbeddedStore | None = None, **options: Any) -> AsyncIterator[Rig]:
    rig = Rig(store or EmbeddedStore.open(), **options)
    async with trio.open_nursery() as nursery:
        await nursery.start(rig.member.run)
        yield rig
        nursery.cancel_scope.cancel()


def new_topic(rig: Rig, name: str) -> NewTopic:
    request = TopicRequest(name)
    return plan_creation(rig.member.image, request, TopicDefaults(), check_config=lambda _: None, rng=Random(1))


class FilesInMemory:
    """The files of a journal, in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def hold(self, name: str) -> None:
        pass

    def sync_names(self) -> None:
        pass

    def close(self) -> None:
        pass

    def replace(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def append(self, name: str, data: bytes) -> None:
        self.files[name] += data

    def truncate(self, name: str, length: int) -> None:
        self.files[name] = self.files[name][:length]
