"""confluent-kafka (librdkafka) behind the face of `compat_tests.harness.client`.

librdkafka does its work in threads of its own; `poll` hands out what arrived and runs the callbacks. Positive
error numbers are Kafka's, negative ones librdkafka's own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import confluent_kafka as ck
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

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

TIMEOUT_S = 60


@contextmanager
def refusals() -> Iterator[None]:
    """Turn KafkaException into Refused."""
    try:
        yield
    except KafkaException as problem:
        raise refused(problem.args[0]) from problem


def refused(error: ck.KafkaError) -> Refused:
    """Return a librdkafka error as Refused. It has an error of its own for all that says: fenced."""
    return Refused(PRODUCER_FENCED if error.code() == ck.KafkaError._FENCED else error.code(), error.str())


class ConfluentConsumer:
    """A confluent_kafka.Consumer. *lost* counts rebalances that took partitions away."""

    def __init__(self, inner: ck.Consumer, counters: dict[str, int]) -> None:
        self.inner = inner
        self.counters = counters
        self.closed = False

    def poll(self, timeout: float) -> list[Record]:
        with refusals():
            first = self.inner.poll(timeout)
            found = [] if first is None else [first, *self.inner.consume(2000, 0)]
        records = []
        for one in found:
            if one.error() is not None:
                if one.error().code() > 0:
                    raise refused(one.error())
                continue
            headers = tuple(one.headers() or ())
            place = (one.topic(), one.partition(), one.offset(), one.timestamp()[1])
            records.append(Record(*place, one.key(), one.value(), headers))
        return records

    def assignment(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self.inner.assignment()}

    def reassign(self, partitions: Sequence[Partition]) -> None:
        self.inner.assign([TopicPartition(*one) for one in partitions])

    def seek(self, partition: Partition, offset: int) -> None:
        # Right after assign() the partition may not be up yet: librdkafka then says "erroneous state".
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return self.inner.seek(TopicPartition(*partition, offset))
            except KafkaException as problem:
                if problem.args[0].code() != ck.KafkaError._STATE or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def position(self, partition: Partition) -> int:
        with refusals():
            return int(self.inner.position([TopicPartition(*partition)])[0].offset)

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        with refusals():
            return self.inner.get_watermark_offsets(TopicPartition(*partition), timeout=TIMEOUT_S, cached=False)

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        with refusals():
            (found,) = self.inner.offsets_for_times([TopicPartition(*partition, timestamp_ms)], timeout=TIMEOUT_S)
            if found.error is not None:
                raise KafkaException(found.error)
        return None if found.offset < 0 else int(found.offset)

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        with refusals():
            if offsets is None:
                done = self.inner.commit(asynchronous=False)
            else:
                given = [TopicPartition(*one, offset) for one, offset in offsets.items()]
                done = self.inner.commit(offsets=given, asynchronous=False)
            for one in done:
                if one.error is not None:
                    raise KafkaException(one.error)

    def committed(self, partition: Partition) -> int | None:
        with refusals():
            (found,) = self.inner.committed([TopicPartition(*partition)], timeout=TIMEOUT_S)
            if found.error is not None:
                raise KafkaException(found.error)
        return None if found.offset < 0 else int(found.offset)

    def membership(self) -> object:
        return self.inner.consumer_group_metadata()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.inner.close()


def send_all(producer: ck.Producer, topic: str, messages: Iterable[Message]) -> list[Delivered]:
    """Send and wait for all answers. Raises Refused."""
    reports: dict[int, Any] = {}
    sent = 0
    with refusals():
        for sent, one in enumerate(messages, 1):
            extra: dict[str, Any] = {}
            if one.partition is not None:
                extra["partition"] = one.partition
            if one.timestamp_ms is not None:
                extra["timestamp"] = one.timestamp_ms

            def report(error: Any, message: Any, number: int = sent) -> None:
                reports[number] = error if error is not None else Delivered(message.partition(), message.offset())

            try:
                producer.produce(topic, one.value, one.key, headers=list(one.headers), on_delivery=report, **extra)
            except KafkaException as error:
                if error.args[0].code() != ck.KafkaError._UNKNOWN_TOPIC:
                    raise
                # Its look at the topic was faster than the record; it does not say what the broker said.
                raise KafkaException(producer.list_topics(topic, TIMEOUT_S).topics[topic].error) from error
            producer.poll(0)
        left = producer.flush(TIMEOUT_S)
    assert left == 0, f"{left} records were neither delivered nor refused within {TIMEOUT_S} s"
    for number in range(1, sent + 1):
        if not isinstance(reports[number], Delivered):
            raise refused(reports[number])
    return [reports[number] for number in range(1, sent + 1)]


class ConfluentTransactor:
    """A confluent_kafka.Producer with a transactional.id."""

    def __init__(self, inner: ck.Producer, client: ConfluentClient) -> None:
        self.inner = inner
        self.client = client

    def begin(self) -> None:
        with refusals():
            self.inner.begin_transaction()

    def send(self, topic: str, messages: Iterable[Message]) -> list[Delivered]:
        try:
            return send_all(self.inner, topic, messages)
        except Refused as refusal:
            if refusal.code == ck.KafkaError._FATAL:
                # What ended this producer was told before the record was given to it. Then `produce` says only that
                # there is such an error; the calls of transactions say which.
                self.abort()
            raise

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, membership: object = None) -> None:
        given = [TopicPartition(*one, offset) for one, offset in offsets.items()]
        if membership is None:
            no_member = self.client.consumer(assign=(), group=group)
            membership = no_member.membership()
            no_member.close()
        with refusals():
            self.inner.send_offsets_to_transaction(given, membership, TIMEOUT_S)

    def commit(self) -> None:
        with refusals():
            self.inner.commit_transaction(TIMEOUT_S)

    def abort(self) -> None:
        with refusals():
            self.inner.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        # Without an owner it ends; records that nobody waited for must not keep it.
        self.inner.purge()
        del self.inner


class ConfluentClient:
    """confluent-kafka."""

    name = f"confluent-kafka {ck.__version__} (librdkafka {ck.libversion()[0]})"
    lacks: Mapping[str, str] = {
        "delete_group_offsets": "its AdminClient has no call for OffsetDelete",
    }

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: AdminClient | None = None
        # An idempotent one waits half a second for its id: producers are kept, one for each set of options and thread.
        self._producers: dict[Any, ck.Producer] = {}
        self._reader: ConfluentConsumer | None = None

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": TIMEOUT_S * 1000})
        return self._admin

    def reader(self) -> ConfluentConsumer:
        # librdkafka takes half a second to read from a topic that is new to a consumer which already runs.
        if self._reader is not None:
            self._reader.close()
        self._reader = self.consumer(assign=())
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._admin = None
        self._producers.clear()

    def _producer(self, options: Mapping[str, Any]) -> ck.Producer:
        if options.get("fresh"):
            return self._new_producer(options)
        key = (threading.get_ident(), *sorted(options.items()))
        if key not in self._producers:
            self._producers[key] = self._new_producer(options)
        return self._producers[key]

    def _new_producer(self, options: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> ck.Producer:
        return ck.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": options.get("acks", -1),
                "enable.idempotence": options.get("idempotent", False),
                "compression.type": options.get("codec") or "none",
                "batch.size": options.get("batch_bytes", 16384),
                "linger.ms": options.get("linger_ms", 5),
                "message.max.bytes": options.get("max_request_bytes", 4_000_000),
                "message.timeout.ms": TIMEOUT_S * 1000,
                "queue.buffering.max.messages": 1_000_000,
                **(extra or {}),
            }
        )

    def produce(self, topic: str, messages: Iterable[Message], **options: Any) -> list[Delivered]:
        sent = send_all(self._producer(options), topic, messages)
        return sent if options.get("acks", -1) != 0 else [Delivered(one.partition, -1) for one in sent]

    def transactor(self, transactional_id: str, **options: Any) -> ConfluentTransactor:
        extra = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": options.get("timeout_ms", 60_000),
            # A record may not outlive its transaction.
            "message.timeout.ms": min(options.get("timeout_ms", 60_000), TIMEOUT_S * 1000),
        }
        producer = self._new_producer({**options, "idempotent": True}, extra)
        with refusals():
            producer.init_transactions(TIMEOUT_S)
        return ConfluentTransactor(producer, self)

    def consumer(self, **options: Any) -> ConfluentConsumer:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            # librdkafka wants a group id even where no group is used.
            "group.id": options.get("group") or "compat-no-group",
            "auto.offset.reset": options.get("reset", "earliest"),
            "enable.auto.commit": False,
            "session.timeout.ms": options.get("session_timeout_ms", SESSION_MS),
            "heartbeat.interval.ms": 200,
            "fetch.wait.max.ms": options.get("max_wait_ms", 100),
            "isolation.level": options.get("isolation", "read_uncommitted"),
            "partition.assignment.strategy": options.get("assignor", "range"),
            "topic.metadata.refresh.interval.ms": 300,
            "fetch.error.backoff.ms": 50,
        }
        if options.get("instance"):
            config["group.instance.id"] = options["instance"]
        if options.get("client_id"):
            config["client.id"] = options["client_id"]
        if options.get("fetch_max_bytes"):
            config["fetch.max.bytes"] = config["message.max.bytes"] = options["fetch_max_bytes"]
        if options.get("partition_max_bytes"):
            config["max.partition.fetch.bytes"] = options["partition_max_bytes"]
        inner = ck.Consumer(config)
        counters = {"assigned": 0, "revoked": 0}
        if options.get("assign") is not None:
            # A plain assign() asks for commits; without a group there are none.
            reset = ck.OFFSET_BEGINNING if config["auto.offset.reset"] == "earliest" else ck.OFFSET_END
            start = ck.OFFSET_INVALID if options.get("group") else reset
            inner.assign([TopicPartition(*one, start) for one in options["assign"]])
        else:
            pattern = options.get("pattern")
            topics = [f"^{pattern.removeprefix('^')}"] if pattern else list(options.get("subscribe", ()))

            def assigned(*_: Any) -> None:
                counters["assigned"] += 1

            def revoked(*_: Any) -> None:
                counters["revoked"] += 1

            inner.subscribe(topics, on_assign=assigned, on_revoke=revoked)
        return ConfluentConsumer(inner, counters)

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
        if assignment is None:
            topic = NewTopic(name, partitions, replication, config=dict(config or {}))
        else:
            replicas = [list(one) for one in assignment]
            topic = NewTopic(name, len(replicas), replica_assignment=replicas, config=dict(config or {}))
        with refusals():
            self.admin.create_topics([topic], validate_only=validate_only, request_timeout=TIMEOUT_S)[name].result()

    def delete_topic(self, name: str) -> None:
        with refusals():
            self.admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result()

    def create_partitions(self, topic: str, total: int) -> None:
        with refusals():
            self.admin.create_partitions([NewPartitions(topic, total)], request_timeout=TIMEOUT_S)[topic].result()

    def topics(self) -> set[str]:
        return set(self.admin.list_topics(timeout=TIMEOUT_S).topics)

    def describe_topic(self, name: str) -> dict[int, Replicas]:
        with refusals():
            found = self.admin.describe_topics(TopicCollection([name]), request_timeout=TIMEOUT_S)[name].result()
        return {
            one.id: Replicas(one.leader.id, tuple(node.id for node in one.replicas), tuple(node.id for node in one.isr))
            for one in found.partitions
        }

    def leaders_answer(self, partitions: Sequence[Partition]) -> bool:
        asked = self.admin.list_offsets({TopicPartition(*one): OffsetSpec.latest() for one in partitions})
        try:
            for future in asked.values():
                future.result()
        except KafkaException:
            # A broker that had not heard of the topic said so. librdkafka (2.16) would keep that for five minutes.
            for topic in {topic for topic, _ in partitions}:
                self.admin.list_topics(topic, timeout=TIMEOUT_S)
            return False
        return True

    def describe_cluster(self) -> Cluster:
        with refusals():
            found = self.admin.describe_cluster(request_timeout=TIMEOUT_S).result()
        return Cluster(found.cluster_id, found.controller.id, {one.id: (one.host, one.port) for one in found.nodes})

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResource.Type.TOPIC, name))

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return self._config(ConfigResource(ConfigResource.Type.BROKER, str(broker)))

    def _config(self, resource: ConfigResource) -> dict[str, str | None]:
        with refusals():
            found = self.admin.describe_configs([resource], request_timeout=TIMEOUT_S)[resource].result()
        return {key: entry.value for key, entry in found.items()}

    def alter_topic_config(
        self, name: str, *, set: Mapping[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        operations = AlterConfigOpType
        changes = [ConfigEntry(key, value, incremental_operation=operations.SET) for key, value in (set or {}).items()]
        changes += [ConfigEntry(key, None, incremental_operation=operations.DELETE) for key in delete]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
        with refusals():
            self.admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_S)[resource].result()

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        one = TopicPartition(*partition, before_offset)
        with refusals():
            (future,) = self.admin.delete_records([one], request_timeout=TIMEOUT_S).values()
            return int(future.result().low_watermark)

    def max_timestamp_offset(self, partition: Partition) -> int:
        wanted = {TopicPartition(*partition): OffsetSpec.max_timestamp()}
        with refusals():
            asked = self.admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED)
            (future,) = asked.values()
            return int(future.result().offset)

    def groups(self) -> set[str]:
        with refusals():
            return {one.group_id for one in self.admin.list_consumer_groups(request_timeout=TIMEOUT_S).result().valid}

    def describe_group(self, group: str) -> Group:
        with refusals():
            found = self.admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()
        members = tuple(
            Member(
                one.client_id,
                frozenset((part.topic, part.partition) for part in one.assignment.topic_partitions),
            )
            for one in found.members
        )
        state = "".join(word.capitalize() for word in found.state.name.split("_"))
        return Group(state, members)

    def delete_group(self, group: str) -> None:
        with refusals():
            self.admin.delete_consumer_groups([group], request_timeout=TIMEOUT_S)[group].result()

    def group_offsets(self, group: str) -> dict[Partition, int]:
        wanted = ConsumerGroupTopicPartitions(group)
        with refusals():
            found = self.admin.list_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)[group].result()
        return {(one.topic, one.partition): one.offset for one in found.topic_partitions}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        given = [TopicPartition(*one, offset) for one, offset in offsets.items()]
        wanted = ConsumerGroupTopicPartitions(group, given)
        with refusals():
            done = self.admin.alter_consumer_group_offsets([wanted], request_timeout=TIMEOUT_S)[group].result()
            for one in done.topic_partitions:
                if one.error is not None:
                    raise KafkaException(one.error)

    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None:
        raise NotImplementedError(self.lacks["delete_group_offsets"])
