"""aiokafka behind the face of `compat_tests.harness.client`: its coroutines run on an event loop in a thread of the
adapter.

Its admin client knows old versions of the admin requests only (CreateTopics up to 3, AlterConfigs instead of the
incremental one): which makes it a good witness that those still work.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition, errors
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from compat_tests.harness.client import (
    PRODUCER_FENCED,
    SESSION_MS,
    Cluster,
    Delivered,
    Group,
    Member,
    Message,
    Partition,
    Record,
    Refused,
    Replicas,
)

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}
TIMEOUT_S = 60
T = TypeVar("T")


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the library's exceptions for broker errors into Refused."""
    try:
        yield
    except errors.ProducerFenced as problem:
        raise Refused(PRODUCER_FENCED, str(problem)) from problem
    except errors.KafkaError as problem:
        cause = problem.__cause__
        number = getattr(problem, "errno", None) or getattr(cause, "errno", None)
        if number is None:
            raise
        raise Refused(int(number), str(problem)) from problem


async def stop(consumer: AIOKafkaConsumer) -> None:
    """Stop a consumer, also one whose last fetch failed.

    aiokafka 0.14 cancels the fetch that waits before it tries again, and takes that for its caller's cancellation: its
    own `stop` raises CancelledError then, and leaves the connections open.
    """
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is None or caller.cancelling():
            raise
        await consumer._client.close()


class Loop:
    """An asyncio event loop in a thread; `run` waits for a coroutine from outside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, name="aiokafka", daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float = TIMEOUT_S + 10) -> T:
        with refusals():
            return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(TIMEOUT_S)
        self.loop.close()


class AioConsumer:
    """An AIOKafkaConsumer."""

    def __init__(self, inner: AIOKafkaConsumer, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop
        self.closed = False

    def poll(self, timeout: float) -> list[Record]:
        found = self.loop.run(self.inner.getmany(timeout_ms=int(timeout * 1000), max_records=2000))
        return [
            Record(one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
            for records in found.values()
            for one in records
        ]

    def assignment(self) -> set[Partition]:
        async def assignment() -> set[Partition]:
            return {(one.topic, one.partition) for one in self.inner.assignment()}

        return self.loop.run(assignment())

    def reassign(self, partitions: Sequence[Partition]) -> None:
        async def reassign() -> None:
            self.inner.assign([TopicPartition(*one) for one in partitions])
            await self.inner.seek_to_beginning()

        self.loop.run(reassign())

    def seek(self, partition: Partition, offset: int) -> None:
        async def seek() -> None:
            self.inner.seek(TopicPartition(*partition), offset)

        self.loop.run(seek())

    def position(self, partition: Partition) -> int:
        return int(self.loop.run(self.inner.position(TopicPartition(*partition))))

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        one = TopicPartition(*partition)
        low = self.loop.run(self.inner.beginning_offsets([one]))[one]
        return low, self.loop.run(self.inner.end_offsets([one]))[one]

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        one = TopicPartition(*partition)
        found = self.loop.run(self.inner.offsets_for_times({one: timestamp_ms}))[one]
        return None if found is None else int(found.offset)

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        given = None
        if offsets is not None:
            given = {TopicPartition(*one): offset for one, offset in offsets.items()}
        self.loop.run(self.inner.commit(given))

    def committed(self, partition: Partition) -> int | None:
        found = self.loop.run(self.inner.committed(TopicPartition(*partition)))
        return None if found is None else int(found)

    def membership(self) -> object:
        # Its producer sends no more than the group's name.
        return None

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.loop.run(stop(self.inner))


async def send_all(producer: AIOKafkaProducer, topic: str, messages: Iterable[Message]) -> list[Delivered]:
    """Send and wait for all answers."""
    futures = [
        await producer.send(
            topic,
            one.value,
            one.key,
            partition=one.partition,
            timestamp_ms=one.timestamp_ms,
            headers=list(one.headers),
        )
        for one in messages
    ]
    sent = await asyncio.wait_for(asyncio.gather(*futures), TIMEOUT_S)
    return [Delivered(one.partition, one.offset) if one else Delivered(-1, -1) for one in sent]


class AioTransactor:
    """An AIOKafkaProducer with a transactional_id."""

    def __init__(self, inner: AIOKafkaProducer, loop: Loop) -> None:
        self.inner = inner
        self.loop = loop

    def begin(self) -> None:
        self.loop.run(self.inner.begin_transaction())

    def send(self, topic: str, messages: Iterable[Message]) -> list[Delivered]:
        return self.loop.run(send_all(self.inner, topic, messages))

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, membership: object = None) -> None:
        given = {TopicPartition(*one): offset for one, offset in offsets.items()}
        self.loop.run(self.inner.send_offsets_to_transaction(given, group))

    def commit(self) -> None:
        self.loop.run(self.inner.commit_transaction())

    def abort(self) -> None:
        self.loop.run(self.inner.abort_transaction())

    def close(self) -> None:
        self.loop.run(self.inner.stop())


class AioClient:
    """aiokafka."""

    name = f"aiokafka {aiokafka.__version__}"
    lacks: Mapping[str, str] = {
        "cooperative-sticky": "it has no cooperative assignor",
        "delete_group": "its admin client has no call for DeleteGroups",
        "set_group_offsets": "its admin client cannot alter a group's offsets",
        "delete_group_offsets": "its admin client has no call for OffsetDelete",
        "max_timestamp_offset": "its admin client has no call for ListOffsets",
        "empty records": "it refuses a record without key and value itself",
        "error 87": "it does not know INVALID_RECORD and reports an unknown error",
        "invalid topic names": "its producer asks again for an invalid topic name until its own timeout",
        "metadata without creation": "its requests for metadata always create an unknown topic",
        "default counts": "its NewTopic refuses -1 itself",
        "membership": "its producer sends only the group's name with offsets",
        "stable offsets": "its consumer does not ask for stable offsets",
    }

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.loop = Loop()
        self._admin: AIOKafkaAdminClient | None = None
        self._reader: AioConsumer | None = None

    @property
    def admin(self) -> AIOKafkaAdminClient:
        if self._admin is None:

            async def start() -> AIOKafkaAdminClient:
                admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap, request_timeout_ms=TIMEOUT_S * 1000)
                await admin.start()
                return admin

            self._admin = self.loop.run(start())
        return self._admin

    def reader(self) -> AioConsumer:
        if self._reader is None:
            self._reader = self.consumer(assign=())
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._admin is not None:
            self.loop.run(self._admin.close())
        self.loop.close()

    def _new_producer(self, options: Mapping[str, Any], **extra: Any) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=options.get("acks", -1),
            enable_idempotence=options.get("idempotent", False),
            compression_type=options.get("codec"),
            max_batch_size=options.get("batch_bytes", 16384),
            linger_ms=options.get("linger_ms", 5),
            max_request_size=options.get("max_request_bytes", 4_000_000),
            request_timeout_ms=TIMEOUT_S * 1000,
            **extra,
        )

    def transactor(self, transactional_id: str, **options: Any) -> AioTransactor:
        async def start() -> AIOKafkaProducer:
            producer = self._new_producer(
                {**options, "idempotent": True},
                transactional_id=transactional_id,
                transaction_timeout_ms=options.get("timeout_ms", 60_000),
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
            return producer

        return AioTransactor(self.loop.run(start()), self.loop)

    def produce(self, topic: str, messages: Iterable[Message], **options: Any) -> list[Delivered]:
        async def produce() -> list[Delivered]:
            producer = self._new_producer(options)
            await producer.start()
            try:
                sent = await send_all(producer, topic, messages)
            finally:
                await producer.stop()
            return sent if options.get("acks", -1) != 0 else [Delivered(one.partition, -1) for one in sent]

        return self.loop.run(produce(), TIMEOUT_S * 2)

    def consumer(self, **options: Any) -> AioConsumer:
        config: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": options.get("group"),
            "group_instance_id": options.get("instance"),
            "auto_offset_reset": options.get("reset", "earliest"),
            "enable_auto_commit": False,
            "session_timeout_ms": options.get("session_timeout_ms", SESSION_MS),
            "heartbeat_interval_ms": 200,
            "retry_backoff_ms": 50,
            "fetch_max_wait_ms": options.get("max_wait_ms", 100),
            "isolation_level": options.get("isolation", "read_uncommitted"),
            "partition_assignment_strategy": (ASSIGNORS[options.get("assignor", "range")],),
            "metadata_max_age_ms": 300,
        }
        if options.get("client_id"):
            config["client_id"] = options["client_id"]
        if options.get("fetch_max_bytes"):
            config["fetch_max_bytes"] = options["fetch_max_bytes"]
        if options.get("partition_max_bytes"):
            config["max_partition_fetch_bytes"] = options["partition_max_bytes"]

        async def start() -> AIOKafkaConsumer:
            inner = AIOKafkaConsumer(**config)
            if options.get("assign") is not None:
                inner.assign([TopicPartition(*one) for one in options["assign"]])
            elif options.get("pattern"):
                inner.subscribe(pattern=options["pattern"])
            else:
                inner.subscribe(list(options.get("subscribe", ())))
            try:
                await inner.start()
            except BaseException:
                await stop(inner)
                raise
            return inner

        return AioConsumer(self.loop.run(start()), self.loop)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        admin = self.admin

        async def create() -> None:
            settings = dict(config or {})
            if assignment is None:
                topic = NewTopic(name, partitions, replication, topic_configs=settings)
            else:
                replicas = {index: list(one) for index, one in enumerate(assignment)}
                topic = NewTopic(name, -1, -1, replica_assignments=replicas, topic_configs=settings)
            answer = await admin.create_topics([topic], validate_only=validate_only)
            for _, code, *message in answer.topic_errors:
                if code:
                    raise Refused(code, str(message))

        self.loop.run(create())

    def delete_topic(self, name: str) -> None:
        answer = self.loop.run(self.admin.delete_topics([name]))
        for _, code in answer.topic_error_codes:
            if code:
                raise Refused(code, name)

    def create_partitions(self, topic: str, total: int) -> None:
        self.loop.run(self.admin.create_partitions({topic: NewPartitions(total)}))

    def topics(self) -> set[str]:
        return set(self.loop.run(self.admin.list_topics()))

    def describe_topic(self, name: str) -> dict[int, Replicas]:
        (found,) = self.loop.run(self.admin.describe_topics([name]))
        if found["error_code"]:
            raise Refused(found["error_code"], name)
        return {
            one["partition"]: Replicas(one["leader"], tuple(one["replicas"]), tuple(one["isr"]))
            for one in found["partitions"]
        }

    def leaders_answer(self, partitions: Sequence[Partition]) -> bool:
        async def ends() -> None:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, retry_backoff_ms=20)
            await consumer.start()
            try:
                await consumer.end_offsets([TopicPartition(*one) for one in partitions])
            finally:
                await stop(consumer)

        try:
            self.loop.run(ends())
        except Refused:
            return False
        return True

    def describe_cluster(self) -> Cluster:
        found = self.loop.run(self.admin.describe_cluster())
        brokers = {one["node_id"]: (one["host"], one["port"]) for one in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], brokers)

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResourceType.TOPIC, name))

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResourceType.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, str | None]:
        (answer,) = self.loop.run(self.admin.describe_configs([resource]))
        ((code, message, _, _, entries),) = answer.resources
        if code:
            raise Refused(code, message)
        return {entry[0]: entry[1] for entry in entries}

    def alter_topic_config(
        self, name: str, *, set: Mapping[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        """AlterConfigs replaces the whole: what was set before, and is not deleted, must be sent anew."""
        (answer,) = self.loop.run(self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)]))
        ((code, message, _, _, entries),) = answer.resources
        if code:
            raise Refused(code, message)
        dynamic_topic_config = 1
        wanted = {entry[0]: entry[1] for entry in entries if entry[3] == dynamic_topic_config}
        wanted |= set or {}
        for key in delete:
            wanted.pop(key, None)
        answers = self.loop.run(self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, wanted)]))
        for one in answers:
            for code, message, *_ in one.resources:
                if code:
                    raise Refused(code, message)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        one = TopicPartition(*partition)
        return int(self.loop.run(self.admin.delete_records({one: RecordsToDelete(before_offset)}))[one])

    def max_timestamp_offset(self, partition: Partition) -> int:
        raise NotImplementedError(self.lacks["max_timestamp_offset"])

    def groups(self) -> set[str]:
        return {one[0] for one in self.loop.run(self.admin.list_consumer_groups())}

    def describe_group(self, group: str) -> Group:
        (answer,) = self.loop.run(self.admin.describe_consumer_groups([group]))
        ((code, _, state, _, _, found, *_),) = answer.groups
        if code:
            raise Refused(code, group)
        members = []
        for one in found:
            client_id, assigned = one[1], one[-1]
            if len(one) > 5:  # version 4 puts the instance id second
                client_id = one[2]
            parts = ConsumerProtocolMemberAssignment.decode(assigned).partitions() if assigned else []
            members.append(Member(client_id, frozenset((part.topic, part.partition) for part in parts)))
        return Group(state, tuple(members))

    def delete_group(self, group: str) -> None:
        raise NotImplementedError(self.lacks["delete_group"])

    def group_offsets(self, group: str) -> dict[Partition, int]:
        found = self.loop.run(self.admin.list_consumer_group_offsets(group))
        return {(one.topic, one.partition): value.offset for one, value in found.items()}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        raise NotImplementedError(self.lacks["set_group_offsets"])

    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None:
        raise NotImplementedError(self.lacks["delete_group_offsets"])
