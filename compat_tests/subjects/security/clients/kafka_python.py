"""kafka-python. It tries again until its time is over whatever the broker says, and writes the reason into its log.

What arrives together with the end of a connection it throws away, and that is how Apache Kafka answers a failed log-in:
of three tries one or more ends as "socket disconnected". On a busy machine all of them do, and it never comes to know
the reason; that is `UNSAID`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any, TypeVar

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from compat_tests.harness.secured import Access
from compat_tests.subjects.security.clients.client import UNSAID, WITHIN_S, Refused, kind_of, refused
from compat_tests.subjects.security.clients.log_lines import LogLines

GIVES_UP_MS = 1000
T = TypeVar("T")


class KafkaPython:
    """Makes producers and consumers."""

    def sender(self, access: Access) -> _Sender:
        return _Sender(access)

    def reader(self, access: Access, topic: str) -> _Reader:
        return _Reader(access, topic)


class _Sender:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._producer: KafkaProducer | None = None

    def send(self, topic: str, value: bytes) -> None:
        if self._producer is None:
            self._producer = _connected(KafkaProducer, self._access)
        with LogLines("kafka") as log:
            try:
                self._producer.send(topic, value, partition=0).get(WITHIN_S)
            except KafkaError as error:
                raise refused([repr(error), *log.lines]) from error

    def connects(self) -> None:
        return None

    def logins_again(self) -> None:
        return None

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=5)


class _Reader:
    def __init__(self, access: Access, topic: str) -> None:
        self._consumer = _connected(KafkaConsumer, access)
        partition = TopicPartition(topic, 0)
        self._consumer.assign([partition])
        self._consumer.seek_to_beginning(partition)

    def read(self) -> list[bytes]:
        with LogLines("kafka") as log:
            try:
                found = self._consumer.poll(500)
            except KafkaError as error:
                raise refused([repr(error), *log.lines]) from error
        return [record.value for records in found.values() for record in records]

    def connects(self) -> None:
        return None

    def logins_again(self) -> None:
        return None

    def close(self) -> None:
        self._consumer.close()


def _connected(make: Callable[..., T], access: Access) -> T:
    """Try, each time for longer, until it works or the library says why it does not. Raises Refused."""
    deadline = time.monotonic() + WITHIN_S
    for tries in itertools.count():
        with LogLines("kafka") as log:
            try:
                return make(**_options(access), bootstrap_timeout_ms=GIVES_UP_MS << tries)
            except KafkaError as error:
                words = [repr(error), *log.lines]
                if kind_of(words) is None and tries > 1 and any("socket disconnected" in line for line in log.lines):
                    raise Refused(UNSAID, repr(error)) from error
                if kind_of(words) is not None or time.monotonic() > deadline:
                    raise refused(words) from error
    raise AssertionError("unreachable")


class _Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def _options(access: Access) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": access.bootstrap,
        "security_protocol": access.protocol,
        "reconnect_backoff_ms": 10,
        "reconnect_backoff_max_ms": 50,
    }
    if access.authority is not None:
        options["ssl_cafile"] = str(access.authority)
    if access.identity is not None:
        options |= {"ssl_certfile": str(access.identity), "ssl_keyfile": str(access.identity)}
    if access.mechanism:
        options["sasl_mechanism"] = access.mechanism
    if access.token:
        options["sasl_oauth_token_provider"] = _Token(access.token)
    elif access.mechanism:
        options |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    return options
