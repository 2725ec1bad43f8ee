"""kafka-python behind the face of `compat_tests.harness.client`.

Its consumer joins groups inside `poll`, in the caller's thread; heartbeats have a thread of their own.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.protocol.consumer import OffsetSpec

from compat_tests.harness.client import (
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
    "cooperative-sticky": CooperativeStickyAssignor,
}
TIMEOUT_S = 60


@contextmanager
def refusals() -> Iterator[None]:
    """Turn the library's exceptions for broker errors into Refused."""
    try:
        yield
    except errors.BrokerResponseError as problem:
        raise Refused(int(problem.errno), str(problem)) from problem
    except errors.KafkaError as problem:
        # A producer that was fenced between two calls hands on what ended it beside the text.
        cause = next((one for one in problem.args if isinstance(one, errors.BrokerResponseError)), None)
        number = told_number(str(problem)) if cause is None else int(cause.errno)
        if number is None:
            raise
        raise Refused(number, str(problem)) from problem


def told_number(text: str) -> int | None:
    """Return the number of the broker's error in a text: what ends a transaction is often told in words only."""
    number = re.search(r"\[Error (\d+)\]", text)
    if number is not None:
        return int(number[1])
    last_word = text.split()[-1] if text else ""
    return getattr(getattr(errors, last_word, None), "errno", None)


class PythonConsumer:
    """A KafkaConsumer."""

    def __init__(self, inner: KafkaConsumer, shortest_poll: float = 0.0) -> None:
        self.inner = inner
        self.shortest_poll = shortest_poll

    def poll(self, timeout: float) -> list[Record]:
        with refusals():
            found = self.inner.poll(timeout_ms=int(max(timeout, self.shortest_poll) * 1000), max_records=2000)
        return [
            Record(one.topic, one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
            for records in found.values()
            for one in records
        ]

    def assignment(self) -> set[Partition]:
        return {(one.topic, one.partition) for one in self.inner.assignment()}

    def reassign(self, partitions: Sequence[Partition]) -> None:
        self.inner.assign([TopicPartition(*one) for one in partitions])
        self.inner.seek_to_beginning()

    def seek(self, partition: Partition, offset: int) -> None:
        self.inner.seek(TopicPartition(*partition), offset)

    def position(self, partition: Partition) -> int:
        with refusals():
            return int(self.inner.position(TopicPartition(*partition), timeout_ms=TIMEOUT_S * 1000))

    def watermarks(self, partition: Partition) -> tuple[int, int]:
        one = TopicPartition(*partition)
        with refusals():
            return self.inner.beginning_offsets([one])[one], self.inner.end_offsets([one])[one]

    def offset_for_time(self, partition: Partition, timestamp_ms: int) -> int | None:
        one = TopicPartition(*partition)
        with refusals():
            found = self.inner.offsets_for_times({one: timestamp_ms})[one]
        return None if found is None else int(found.offset)

    def commit(self, offsets: Mapping[Partition, int] | None = None) -> None:
        given = None
        if offsets is not None:
            given = {TopicPartition(*one): OffsetAndMetadata(offset, "", -1) for one, offset in offsets.items()}
        with refusals():
            self.inner.commit(given, timeout_ms=TIMEOUT_S * 1000)

    def committed(self, partition: Partition) -> int | None:
        with refusals():
            found = self.inner.committed(TopicPartition(*partition), timeout_ms=TIMEOUT_S * 1000)
        return None if found is None else int(found)

    def membership(self) -> object:
        return self.inner.group_metadata()

    def close(self) -> None:
        self.inner.close(autocommit=False, timeout_ms=TIMEOUT_S * 1000)


def send_all(producer: KafkaProducer, topic: str, messages: Iterable[Message]) -> list[Delivered]:
    """Send and wait for all answers. Raises Refused."""
    with refusals():
        futures = [
            producer.send(
                topic,
                one.value,
                one.key,
                headers=list(one.headers),
                partition=one.partition,
                timestamp_ms=one.timestamp_ms,
            )
            for one in messages
        ]
        producer.flush(timeout=TIMEOUT_S)
        sent = [future.get(timeout=TIMEOUT_S) for future in futures]
    return [Delivered(one.partition, -1 if one.offset is None else one.offset) for one in sent]


class PythonTransactor:
    """A KafkaProducer with a transactional_id."""

    def __init__(self, inner: KafkaProducer) -> None:
        self.inner = inner

    def begin(self) -> None:
        with refusals():
            self.inner.begin_transaction()

    def send(self, topic: str, messages: Iterable[Message]) -> list[Delivered]:
        return send_all(self.inner, topic, messages)

    def send_offsets(self, offsets: Mapping[Partition, int], group: str, membership: object = None) -> None:
        given = {TopicPartition(*one): OffsetAndMetadata(offset, "", -1) for one, offset in offsets.items()}
        with refusals():
            self.inner.send_offsets_to_transaction(given, group if membership is None else membership)

    def commit(self) -> None:
        with refusals():
            self.inner.commit_transaction()

    def abort(self) -> None:
        with refusals():
            self.inner.abort_transaction()

    def close(self) -> None:
        # Its own `close` raises while a record is on its way that nobody waited for, and leaves its thread behind.
        self.inner.flush(timeout=TIMEOUT_S)
        self.inner.close(timeout=0)


class PythonClient:
    """kafka-python. *api_version* makes it behave as with a broker of that version, with the requests of those days."""

    name = f"kafka-python {kafka.__version__}"
    api_version: tuple[int, int] | None = None
    lacks: Mapping[str, str] = {
        "null headers": "it refuses a header without a value itself",
        "empty records": "it refuses a record without key and value itself",
        "invalid topic names": "its producer refuses an invalid topic name itself",
        "idempotence after a refusal": "its idempotent producer ends with the first refused batch",
        "quiet zombies": "its fenced producer asks for a new epoch, which ends the newer one's transaction too",
    }

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin: KafkaAdminClient | None = None
        # A KafkaProducer waits 100 ms when it starts; it is kept, one for each set of options (and thread).
        self._producers: dict[Any, KafkaProducer] = {}
        self._reader: PythonConsumer | None = None

    @property
    def admin(self) -> KafkaAdminClient:
        if self._admin is None:
            self._admin = KafkaAdminClient(
                bootstrap_servers=self.bootstrap,
                request_timeout_ms=TIMEOUT_S * 1000,
                api_version=self.api_version,
            )
        return self._admin

    def reader(self) -> PythonConsumer:
        if self._reader is None:
            self._reader = self.consumer(assign=())
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        for producer in self._producers.values():
            producer.close(timeout=2)
        if self._admin is not None:
            self._admin.close()

    def _producer(self, options: Mapping[str, Any]) -> KafkaProducer:
        if options.get("fresh"):
            return self._new_producer(options)
        key = (threading.get_ident(), *sorted(options.items()))
        if key not in self._producers:
            self._producers[key] = self._new_producer(options)
        return self._producers[key]

    def _new_producer(self, options: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks=options.get("acks", -1),
            enable_idempotence=options.get("idempotent", False),
            compression_type=options.get("codec"),
            batch_size=options.get("batch_bytes", 16384),
            linger_ms=options.get("linger_ms", 5),
            max_request_size=options.get("max_request_bytes", 4_000_000),
            api_version=self.api_version,
            max_block_ms=TIMEOUT_S * 1000,
            delivery_timeout_ms=TIMEOUT_S * 1000,
            # A request that is given up is sent again: without idempotence its records would be there twice.
            request_timeout_ms=TIMEOUT_S * 1000 - 5000,
            **(extra or {}),
        )

    def produce(self, topic: str, messages: Iterable[Message], **options: Any) -> list[Delivered]:
        producer = self._producer(options)
        sent = send_all(producer, topic, messages)
        if options.get("fresh"):
            producer.close(timeout=2)
        return sent

    def transactor(self, transactional_id: str, **options: Any) -> PythonTransactor:
        timeout_ms = options.get("timeout_ms", 60_000)
        extra = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
        producer = self._new_producer({**options, "idempotent": True}, extra)
        try:
            with refusals():
                producer.init_transactions()
        except BaseException:
            producer.close(timeout=0)
            raise
        return PythonTransactor(producer)

    def consumer(self, **options: Any) -> PythonConsumer:
        config: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "group_id": options.get("group"),
            "group_instance_id": options.get("instance"),
            "auto_offset_reset": options.get("reset", "earliest"),
            "enable_auto_commit": False,
            "api_version": self.api_version,
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
        inner = KafkaConsumer(**config)
        if options.get("assign") is not None:
            inner.assign([TopicPartition(*one) for one in options["assign"]])
        elif options.get("pattern"):
            inner.subscribe(pattern=options["pattern"])
        else:
            inner.subscribe(list(options.get("subscribe", ())))
        # A rebalance that its own metadata asked for, and that is answered between two polls, is lost on kafka-python
        # 3.0.12: it never takes up the assignment, nor sends a heartbeat again. Longer polls make that unlikely.
        return PythonConsumer(inner, 0.0 if options.get("assign") is not None else 1.5)

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
        wanted: dict[str, Any] = {"configs": dict(config or {})}
        if assignment is None:
            wanted |= {"num_partitions": partitions, "replication_factor": replication}
        else:
            wanted["assignments"] = {index: list(replicas) for index, replicas in enumerate(assignment)}
        with refusals():
            self.admin.create_topics({name: wanted}, validate_only=validate_only)

    def delete_topic(self, name: str) -> None:
        with refusals():
            self.admin.delete_topics([name])

    def create_partitions(self, topic: str, total: int) -> None:
        with refusals():
            self.admin.create_partitions({topic: total})

    def topics(self) -> set[str]:
        return set(self.admin.list_topics())

    def describe_topic(self, name: str) -> dict[int, Replicas]:
        (found,) = self.admin.describe_topics([name])
        if found["error_code"]:
            raise Refused(found["error_code"], name)
        return {
            one["partition_index"]: Replicas(one["leader_id"], tuple(one["replica_nodes"]), tuple(one["isr_nodes"]))
            for one in found["partitions"]
        }

    def leaders_answer(self, partitions: Sequence[Partition]) -> bool:
        try:
            self.admin.list_partition_offsets({TopicPartition(*one): OffsetSpec.LATEST for one in partitions})
        except errors.BrokerResponseError:
            return False
        return True

    def describe_cluster(self) -> Cluster:
        found = self.admin.describe_cluster()
        brokers = {one["broker_id"]: (one["host"], one["port"]) for one in found["brokers"]}
        return Cluster(found["cluster_id"], found["controller_id"], brokers)

    def topic_config(self, name: str) -> dict[str, str | None]:
        return self._config(ConfigResourceType.TOPIC, name)

    def broker_config(self, broker: int) -> dict[str, str | None]:
        return self._config(ConfigResourceType.BROKER, str(broker))

    def _config(self, kind: ConfigResourceType, name: str) -> dict[str, str | None]:
        found = self.admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        return {key: entry["value"] for key, entry in found[kind.name.lower()][name].items()}

    def alter_topic_config(
        self, name: str, *, set: Mapping[str, str] | None = None, delete: Sequence[str] = ()
    ) -> None:
        changes: dict[str, Any] = dict(set or {}) | dict.fromkeys(delete, ("DELETE", None))
        found = self.admin.alter_configs([ConfigResource("TOPIC", name, changes)], raise_on_unknown=False)
        outcome = found["topic"][name]
        if outcome != "OK":
            number = re.search(r"\d+", outcome)
            raise Refused(int(number[0]) if number else -1, outcome)

    def delete_records(self, partition: Partition, before_offset: int) -> int:
        one = TopicPartition(*partition)
        with refusals():
            return int(self.admin.delete_records({one: before_offset})[one]["low_watermark"])

    def max_timestamp_offset(self, partition: Partition) -> int:
        one = TopicPartition(*partition)
        with refusals():
            return int(self.admin.list_partition_offsets({one: OffsetSpec.MAX_TIMESTAMP})[one].offset)

    def groups(self) -> set[str]:
        return {one["group_id"] for one in self.admin.list_groups()}

    def describe_group(self, group: str) -> Group:
        found = self.admin.describe_groups([group])[group]
        if found["error"]:
            number = re.search(r"\d+", found["error"])
            raise Refused(int(number[0]) if number else -1, found["error"])
        members = []
        for one in found["members"]:
            assigned = one["member_assignment"] or {}
            parts = {
                (topic["topic"], index)
                for topic in (assigned.get("assigned_partitions", ()) if assigned else ())
                for index in topic["partitions"]
            }
            members.append(Member(one["client_id"], frozenset(parts)))
        return Group(found["group_state"], tuple(members))

    def delete_group(self, group: str) -> None:
        outcome = self.admin.delete_groups([group])[group]
        if outcome != "OK":
            raise Refused(getattr(errors, outcome).errno, outcome)

    def group_offsets(self, group: str) -> dict[Partition, int]:
        with refusals():
            found = self.admin.list_group_offsets({group: None})[group]
        return {(one.topic, one.partition): value.offset for one, value in found.items()}

    def set_group_offsets(self, group: str, offsets: Mapping[Partition, int]) -> None:
        given = {TopicPartition(*one): OffsetAndMetadata(offset, "", -1) for one, offset in offsets.items()}
        with refusals():
            self._raise_first(self.admin.alter_group_offsets(group, given))

    def delete_group_offsets(self, group: str, partitions: Sequence[Partition]) -> None:
        with refusals():
            self._raise_first(self.admin.delete_group_offsets(group, [TopicPartition(*one) for one in partitions]))

    @staticmethod
    def _raise_first(outcomes: Mapping[Any, type[errors.KafkaError]]) -> None:
        for kind in outcomes.values():
            if kind is not errors.NoError:
                raise kind()


class OldPythonClient(PythonClient):
    """kafka-python speaking as with a broker of 2018: the oldest requests Apache Kafka 4 still takes."""

    name = f"kafka-python {kafka.__version__} as of Kafka 2.1"
    api_version = (2, 1)
    lacks: Mapping[str, str] = {
        **PythonClient.lacks,
        "delete_group_offsets": "OffsetDelete came with Kafka 2.4",
        "max_timestamp_offset": "asking for the largest timestamp came with Kafka 3.0",
        "default counts": "-1 came with Kafka 2.4",
        "named replicas": "it wants counts beside the names, which brokers refuse",
        "settings back to defaults": "it cannot take a setting back by AlterConfigs",
        "static members": "they came with Kafka 2.3",
    }
