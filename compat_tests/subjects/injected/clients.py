"""A few things that three clients do, each with new connections, and what they say when it fails.

`produce(topic, retries, patience)`, `idempotent(topic)`, `consume(topic)`, `join(topic, group)`,
`commit(topic, group)`, `describe(topic)`: return a number, or raise `Failed` with the error's name as Apache Kafka has
it. An error of a client's own, without a number of the protocol, has its name there.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka
import kafka
import kafka.errors
from confluent_kafka import admin as confluent_admin

from compat_tests.harness.jars import SHORT_LIVED, classpath, compiled, java

LIMIT_S = 60.0
SHORT_S = 1.5


class Patience(Enum):
    """What ends a producer after `SHORT_S`, and not after `LIMIT_S`."""

    LONG = ""
    SHORT_FOR_AN_ANSWER = "answer"
    SHORT_FOR_ALL = "all"
    """However often it has tried, and whether it has at all."""


JARS = "clients-4.3.1"
SOURCES = sorted((Path(__file__).parent / "src").glob("*.java"))

NAMES = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    10: "MESSAGE_TOO_LARGE",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    19: "NOT_ENOUGH_REPLICAS",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    44: "POLICY_VIOLATION",
    56: "KAFKA_STORAGE_ERROR",
    87: "INVALID_RECORD",
}


class Failed(Exception):
    """`name`: of the error."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Client(Protocol):
    def produce(self, topic: str, retries: int, patience: Patience = Patience.LONG) -> int: ...

    def idempotent(self, topic: str) -> int: ...

    def consume(self, topic: str) -> int: ...

    def join(self, topic: str, group: str) -> int: ...

    def commit(self, topic: str, group: str) -> int: ...

    def describe(self, topic: str) -> int: ...

    def close(self) -> None: ...


# -- Java ------------------------------------------------------------------------------------------------------------


class Java:
    """Apache Kafka's clients 4.3.1: one JVM obeys lines (src/Faulted.java)."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        options = ["-Xmx256m", *SHORT_LIVED]
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        classes = compiled("faulted-4.3.1", SOURCES, JARS)
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*java(), *options, "-cp", f"{classes}:{classpath(JARS)}", "Faulted", bootstrap],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def _ask(self, *words: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        verdict, _, rest = self._process.stdout.readline().rstrip("\n").partition(" ")
        if verdict != "ok":
            name, _, text = rest.partition(" ")
            raise Failed(name, text)
        return int(rest or -1)

    def produce(self, topic: str, retries: int, patience: Patience = Patience.LONG) -> int:
        short_ms = int(SHORT_S * 1000)
        return self._ask("produce", topic, retries, *([] if patience is Patience.LONG else [short_ms]))

    def idempotent(self, topic: str) -> int:
        return self._ask("idempotent", topic)

    def consume(self, topic: str) -> int:
        return self._ask("consume", topic)

    def join(self, topic: str, group: str) -> int:
        return self._ask("join", topic, group)

    def commit(self, topic: str, group: str) -> int:
        return self._ask("commit", topic, group)

    def describe(self, topic: str) -> int:
        return self._ask("describe", topic)

    def close(self) -> None:
        """End the JVM."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._process.stdout.close()


# -- librdkafka ------------------------------------------------------------------------------------------------------


def _named(error: confluent_kafka.KafkaError) -> Failed:
    return Failed(NAMES.get(error.code(), error.name()), error.str())


@contextmanager
def _librdkafkas() -> Iterator[None]:
    try:
        yield
    except confluent_kafka.KafkaException as error:
        raise _named(error.args[0]) from None


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self._common = {
            "bootstrap.servers": bootstrap,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
        }

    def produce(self, topic: str, retries: int, patience: Patience = Patience.LONG) -> int:
        limit_s = SHORT_S if patience is Patience.SHORT_FOR_ALL else LIMIT_S
        more: dict[str, Any] = {"retries": retries, "message.timeout.ms": int(limit_s * 1000)}
        if patience is Patience.SHORT_FOR_AN_ANSWER:
            more["socket.timeout.ms"] = int(SHORT_S * 1000)
        return self._produce(topic, more)

    def idempotent(self, topic: str) -> int:
        return self._produce(topic, {"enable.idempotence": True})

    def _produce(self, topic: str, more: dict[str, Any]) -> int:
        told: list[Any] = []
        producer = confluent_kafka.Producer({**self._common, "linger.ms": 0, "acks": "all", **more})
        producer.produce(topic, b"value", partition=0, on_delivery=lambda error, message: told.append((error, message)))
        assert producer.flush(2 * LIMIT_S) == 0
        ((error, message),) = told
        if error is not None:
            raise _named(error)
        return int(message.offset())

    def _consumer(self, group: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **self._common,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 20,
            }
        )

    def consume(self, topic: str) -> int:
        consumer = self._consumer("unused")
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        return self._first(consumer)

    def join(self, topic: str, group: str) -> int:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        return self._first(consumer)

    @staticmethod
    def _first(consumer: confluent_kafka.Consumer) -> int:
        try:
            message = consumer.poll(LIMIT_S)
            assert message is not None, "nothing came"
            if message.error() is not None:
                raise _named(message.error())
            return int(message.offset())
        finally:
            consumer.close()

    def commit(self, topic: str, group: str) -> int:
        consumer = self._consumer(group)
        place = confluent_kafka.TopicPartition(topic, 0, 1)
        try:
            with _librdkafkas():
                (done,) = consumer.commit(offsets=[place], asynchronous=False)
                if done.error is not None:
                    raise _named(done.error)
                return int(consumer.committed([place], LIMIT_S)[0].offset)
        finally:
            consumer.close()

    def describe(self, topic: str) -> int:
        admin = confluent_admin.AdminClient(self._common)
        with _librdkafkas():
            (future,) = admin.describe_topics(
                confluent_kafka.TopicCollection([topic]), request_timeout=LIMIT_S
            ).values()
            return len(future.result(LIMIT_S).partitions)

    def close(self) -> None:
        pass


# -- kafka-python ----------------------------------------------------------------------------------------------------


@contextmanager
def _pythons() -> Iterator[None]:
    try:
        yield
    except kafka.errors.KafkaError as error:
        number = getattr(error, "errno", None)
        raise Failed(NAMES.get(number, type(error).__name__), str(error)) from None


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str) -> None:
        self._common: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 100,
        }

    def produce(self, topic: str, retries: int, patience: Patience = Patience.LONG) -> int:
        more: dict[str, Any] = {"enable_idempotence": False, "retries": retries}
        if patience is not Patience.LONG:
            more["request_timeout_ms"] = int(SHORT_S * 1000)
        return self._produce(topic, more)

    def idempotent(self, topic: str) -> int:
        return self._produce(topic, {"enable_idempotence": True})

    def _produce(self, topic: str, more: dict[str, Any]) -> int:
        producer = kafka.KafkaProducer(**self._common, acks="all", linger_ms=0, **more)
        try:
            with _pythons():
                return int(producer.send(topic, b"value", partition=0).get(LIMIT_S).offset)
        finally:
            producer.close(1)

    def _consumer(self, group: str | None) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            **self._common,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
        )

    def consume(self, topic: str) -> int:
        consumer = self._consumer(None)
        consumer.assign([kafka.TopicPartition(topic, 0)])
        return self._first(consumer)

    def join(self, topic: str, group: str) -> int:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        return self._first(consumer)

    @staticmethod
    def _first(consumer: kafka.KafkaConsumer) -> int:
        try:
            deadline = time.monotonic() + LIMIT_S
            with _pythons():
                while time.monotonic() < deadline:
                    for records in consumer.poll(200).values():
                        return int(records[0].offset)
            raise AssertionError("nothing came")
        finally:
            consumer.close()

    def commit(self, topic: str, group: str) -> int:
        consumer = self._consumer(group)
        place = kafka.TopicPartition(topic, 0)
        try:
            with _pythons():
                consumer.assign([place])
                consumer.commit({place: kafka.OffsetAndMetadata(1, "", -1)})
                return int(consumer.committed(place))
        finally:
            consumer.close()

    def describe(self, topic: str) -> int:
        admin = kafka.KafkaAdminClient(**self._common)
        try:
            with _pythons():
                (described,) = admin.describe_topics([topic])
                if described["error_code"]:
                    raise Failed(NAMES[described["error_code"]], str(described))
                return len(described["partitions"])
        finally:
            admin.close()

    def close(self) -> None:
        pass
