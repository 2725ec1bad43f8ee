"""aiokafka. When it starts it tries each broker once, and writes the reason into its log."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError
from aiokafka.helpers import create_ssl_context

from compat_tests.clients.aio.adapter import stop
from compat_tests.harness.secured import Access
from compat_tests.subjects.security.clients.client import WITHIN_S, refused
from compat_tests.subjects.security.clients.log_lines import LogLines

T = TypeVar("T")


class Aiokafka:
    """Makes producers and consumers."""

    def sender(self, access: Access) -> _Sender:
        return _Sender(access)

    def reader(self, access: Access, topic: str) -> _Reader:
        return _Reader(access, topic)


class _Looped:
    """A loop that runs while something is asked of the client."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with LogLines("aiokafka") as log:
            try:
                return self._runner.run(asyncio.wait_for(work, WITHIN_S))
            except KafkaError as error:
                raise refused([repr(error), *log.lines]) from error

    def close(self) -> None:
        self._runner.close()


class _Sender:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._loop = _Looped()
        self._producer: AIOKafkaProducer | None = None

    def send(self, topic: str, value: bytes) -> None:
        self._loop.run(self._send(topic, value))

    async def _send(self, topic: str, value: bytes) -> None:
        if self._producer is None:
            self._producer = AIOKafkaProducer(**_options(self._access), enable_idempotence=True)
            await self._producer.start()
        await self._producer.send_and_wait(topic, value, partition=0)

    def connects(self) -> None:
        return None

    def logins_again(self) -> None:
        return None

    def close(self) -> None:
        if self._producer is not None:
            self._loop.run(self._producer.stop())
        self._loop.close()


class _Reader:
    def __init__(self, access: Access, topic: str) -> None:
        self._loop = _Looped()
        self._consumer = self._loop.run(self._start(access, TopicPartition(topic, 0)))

    async def _start(self, access: Access, partition: TopicPartition) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**_options(access))
        await consumer.start()
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return consumer

    def read(self) -> list[bytes]:
        found = self._loop.run(self._consumer.getmany(timeout_ms=200))
        return [record.value for records in found.values() for record in records]

    def connects(self) -> None:
        return None

    def logins_again(self) -> None:
        return None

    def close(self) -> None:
        self._loop.run(stop(self._consumer))
        self._loop.close()


class _Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def _options(access: Access) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": access.bootstrap, "security_protocol": access.protocol}
    if access.authority is not None:
        options["ssl_context"] = create_ssl_context(
            cafile=str(access.authority), certfile=access.identity, keyfile=access.identity
        )
    if access.mechanism:
        options["sasl_mechanism"] = access.mechanism
    if access.token:
        options["sasl_oauth_token_provider"] = _Token(access.token)
    elif access.mechanism:
        options |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    return options
