"""Real partitions on a real log directory, and handlers asked through the codec: for the tests of APIs that look at
records.

The clock is a number in the test's hand; there is one broker, number 0, and no network.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.kproto import ErrorCode, KafkaError, decode, encode, request_class, response_class
from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.logdir import AppendOrigin, LogConfig, LogDirs
from barnabas.replication import Image, PartitionImage, TopicImage, is_internal
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.requests.api import Api
from barnabas.server.runtime.offload import inline
from barnabas.server.runtime.turns import Turns
from barnabas.server.tests.apis.fakes import at_once

NOW = 1_763_700_000_000


class FakeProducerIds:
    """Ids from 4000 on; `failure` is raised instead when set."""

    def __init__(self) -> None:
        self.next = 4000
        self.failure: KafkaError | None = None

    async def next_id(self) -> int:
        if self.failure is not None:
            raise self.failure
        self.next += 1
        return self.next - 1


class DataWorld:
    """See the module. `svc` is what handlers get; `seconds` and `wall_ms` are its clocks."""

    def __init__(self, *directories: Path) -> None:
        self.wall_ms = NOW
        self.seconds = 0.0
        self.image = Image()
        self.configs: dict[str, LogConfig] = {}
        self.log_dirs = LogDirs([str(each) for each in directories], wall_ms=lambda: self.wall_ms, random=lambda: 0.0)
        self.log_dir = self.log_dirs.dirs[0]
        self.partitions = Partitions(
            0, self.log_dirs, self._config, lambda: self.image, now=lambda: self.seconds, wall_ms=lambda: self.wall_ms
        )
        self.producer_ids = FakeProducerIds()
        self.svc: Any = SimpleNamespace(
            partitions=self.partitions,
            producer_ids=self.producer_ids,
            quotas=SimpleNamespace(limits_requests=False),
            offload=inline,
            turns=Turns(inline),
            now=lambda: self.seconds,
            wall_ms=lambda: self.wall_ms,
        )

    @staticmethod
    def _config(config: Mapping[str, str]) -> LogConfig:
        values: dict[str, Any] = {}
        types = {field.name: type(field.default) for field in dataclasses.fields(LogConfig)}
        for key, text in config.items():
            name = key.replace(".", "_")
            values[name] = frozenset(text.split(",")) if name == "cleanup_policy" else types[name](text)
        return LogConfig(**values)

    def topic(self, name: str, partitions: int = 1, *, elsewhere: int = 0, **config: str) -> list[Partition]:
        """A topic that this broker leads, but for the last `elsewhere` partitions; settings with `_` for `.`."""
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        topic_id = len(self.image.topics).to_bytes(16, "big")
        images = tuple(PartitionImage(i, 0, 0, 0, (0,), (0,)) for i in range(partitions))
        topic = TopicImage(name, topic_id, images, dotted, is_internal(name))
        self.image = self.image.with_topics([topic])
        return [
            self.partitions.become_leader(name, topic_id, image, dotted) for image in images[: partitions - elsewhere]
        ]

    def new_epoch(self, partition: Partition, epoch: int) -> None:
        partition.lead(PartitionImage(partition.index, 0, epoch, epoch, (0,), (0,)))

    def append(self, partition: Partition, *timestamps: int, value: bytes = b"v", **options: Any) -> int:
        """One batch from a client with a record for each timestamp; returns its base offset."""
        batch = build_batch([Record(0, timestamp, b"k", value) for timestamp in timestamps], **options)
        info = partition.append(batch, origin=AppendOrigin.CLIENT, now_ms=self.wall_ms)
        partition.write()
        return info.base_offset

    def end_transaction(self, partition: Partition, producer_id: int, epoch: int, *, commit: bool) -> None:
        marker = build_control_batch(
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=commit,
            coordinator_epoch=3,
            timestamp=self.wall_ms,
        )
        partition.append(marker, origin=AppendOrigin.COORDINATOR, now_ms=self.wall_ms)
        partition.write()

    async def ask(self, api: Api, request: Any, version: int) -> Any:
        """What a client would get: request and response go through the codec of that version."""
        assert api.versions[0] <= version <= api.versions[1]
        asked = decode(request_class(api.key), version, encode(request, version))
        ctx: Any = SimpleNamespace(api_version=version, client_id="test", client_host="127.0.0.1", closed=False)
        try:
            response = api.handle(self.svc, ctx, asked)
            if inspect.isawaitable(response):
                response = await response
            response = at_once(response)
            if inspect.isawaitable(response):  # a generator may come to one
                response = await response
        except KafkaError as error:
            response = self.error_answer(api, asked, error.code, version)
        return decode(response_class(api.key), version, encode(response, version))

    @staticmethod
    def error_answer(api: Api, request: Any, code: ErrorCode, version: int) -> Any:
        if api.on_error is not None:
            return api.on_error(request, code, version)
        response = response_class(api.key)()
        response.error_code = code
        return response


@contextmanager
def data_world(*directories: Path) -> Iterator[DataWorld]:
    world = DataWorld(*directories)
    world.log_dirs.open()
    world.log_dirs.check_identity(cluster_id="test", node_id=0)
    world.log_dirs.load(lambda topic: LogConfig())
    try:
        yield world
    finally:
        world.log_dirs.close()
