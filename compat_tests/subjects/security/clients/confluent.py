"""confluent-kafka, so librdkafka. It goes on trying, too, and tells a callback of each error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from compat_tests.harness.secured import Access
from compat_tests.subjects.security.clients.client import WITHIN_S, kind_of, refused


class Confluent:
    """Makes producers and consumers."""

    def sender(self, access: Access) -> _Sender:
        return _Sender(access)

    def reader(self, access: Access, topic: str) -> _Reader:
        return _Reader(access, topic)


class _Told:
    """What a client was told of: errors, and how often it has connected and then logged in again, but for whom it asks
    where brokers are.
    """

    def __init__(self) -> None:
        self.all: list[KafkaError] = []
        self.connects = 0
        self.logins_again = 0
        self._reports = 0
        self.options = {"error_cb": self.all.append, "statistics.interval.ms": 200, "stats_cb": self._count}

    def _count(self, text: str) -> None:
        brokers = [broker for broker in json.loads(text)["brokers"].values() if broker["nodeid"] >= 0]
        self.connects = sum(broker["connects"] for broker in brokers)
        # Each log-in begins with one.
        self.logins_again = sum(broker["req"].get("SaslHandshake", 0) for broker in brokers) - self.connects
        self._reports += 1

    def hear(self, poll: Callable[[float], object]) -> None:
        """Wait for the next report but one: the next one may have been on its way. poll(seconds): have it come."""
        wanted = self._reports + 2
        deadline = time.monotonic() + WITHIN_S
        while self._reports < wanted:
            poll(0.05)
            assert time.monotonic() < deadline, "no statistics"

    def look(self) -> None:
        """Raises Refused when one of them is a reason."""
        if kind_of(self.all) is not None:
            raise refused(self.all)


class _Sender:
    def __init__(self, access: Access) -> None:
        self._told = _Told()
        self._producer = Producer({**_options(access), **self._told.options, "enable.idempotence": True})

    def send(self, topic: str, value: bytes) -> None:
        answers: list[KafkaError | None] = []
        self._producer.produce(topic, value, partition=0, on_delivery=lambda error, _: answers.append(error))
        deadline = time.monotonic() + WITHIN_S
        while not answers:
            self._producer.poll(0.05)
            self._told.look()
            assert time.monotonic() < deadline, self._told.all
        if answers[0] is not None:
            raise refused(answers)

    def connects(self) -> int:
        self._told.hear(self._producer.poll)
        return self._told.connects

    def logins_again(self) -> int:
        self._told.hear(self._producer.poll)
        return self._told.logins_again

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(1)


class _Reader:
    def __init__(self, access: Access, topic: str) -> None:
        self._told = _Told()
        own = {"group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        self._consumer = Consumer({**_options(access), **self._told.options, **own})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def read(self) -> list[bytes]:
        try:
            found = self._consumer.consume(1000, 0.2)
        except KafkaException as error:
            raise refused([error]) from error
        self._told.look()
        failed = [message.error() for message in found if message.error() is not None]
        if failed:
            raise refused(failed)
        return [message.value() for message in found]

    def connects(self) -> int:
        self._told.hear(self._consumer.poll)
        return self._told.connects

    def logins_again(self) -> int:
        self._told.hear(self._consumer.poll)
        return self._told.logins_again

    def close(self) -> None:
        self._consumer.close()


def _options(access: Access) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap.servers": access.bootstrap, "security.protocol": access.protocol}
    if access.authority is not None:
        options["ssl.ca.location"] = str(access.authority)
    if access.identity is not None:
        options |= {"ssl.certificate.location": str(access.identity), "ssl.key.location": str(access.identity)}
    if access.mechanism:
        options["sasl.mechanism"] = access.mechanism
    if access.token:
        # Said to be good for an hour, as a client that knows that it has ended does not show it.
        options["oauth_cb"] = lambda _: (access.token, time.time() + 3600)
    elif access.mechanism:
        options |= {"sasl.username": access.user, "sasl.password": access.password}
    return options
