"""Fetches of versions 0 to 3: they read and wait like all others; records are converted before the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import FetchResponse
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fetch.consumers import ReaderWithoutZstd
from barnabas.server.requests.fetch.reader import Answer, Found, partition_error
from barnabas.server.requests.fetch.sessions import FetchTarget
from barnabas.server.requests.old_formats import RESPONSE_BYTES_MAX, Budget, down_converted, fair_order

HARD_LIMITS_BELOW = 3
FORMAT_1_FROM = 2


class ConvertingReader:
    """A `Reader` that returns at least one whole batch of every partition with records; the converted messages may not
    all fit. `answers`: the answers to convert.
    """

    read_committed = False

    def __init__(self, version: int) -> None:
        self.hard_limits = version < HARD_LIMITS_BELOW
        self.answers: list[Answer] = []
        self._stored = ReaderWithoutZstd(version, False)
        self.read_again = self._stored.read_again
        self.next_part = self._stored.next_part
        self.is_quiet = self._stored.is_quiet
        self.watch = self._stored.watch

    def read(self, partition: Partition, target: FetchTarget, left_bytes: int, first: bool) -> Found:
        """Part of `Reader`."""
        if not partition.log.state.config.message_downconversion_enable:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        first = target.max_bytes > 0 if self.hard_limits else first
        return self._stored.read(partition, target, min(left_bytes, RESPONSE_BYTES_MAX), first)

    def answering(self, answers: list[Answer]) -> None:
        """Part of `Reader`."""
        self._stored.answering(answers)
        self.answers += answers

    async def convert(self, ctx: RequestContext, max_bytes: int) -> None:
        """Convert the records of the answers: up to `max_bytes` in all, the first ones excepted."""
        answers: Iterable[Answer] = self.answers
        budget = Budget()
        budget.left = min(budget.left, max_bytes)
        if self.hard_limits:
            answers = fair_order(self.answers, ctx.correlation_id)
        first = True
        for target, data in answers:
            stored: Any = data.records
            data.records = b""
            partition = target.partition
            if not len(stored) or partition is None or (budget.left <= 0 and not first) or ctx.closed:
                continue
            try:
                data.records = await down_converted(
                    partition,
                    stored,
                    magic=0 if ctx.api_version < FORMAT_1_FROM else 1,
                    offset=target.fetch_offset,
                    max_bytes=target.max_bytes,
                    one_at_least=first and not self.hard_limits,
                    budget=budget,
                )
            except KafkaError as error:
                failed = partition_error(target, error.code)
                data.error_code, data.high_watermark = failed.error_code, failed.high_watermark
            first = first and not data.records


class Waiting:
    """Replaces the context of an old request: its task waits for the response, and converts it."""

    __slots__ = ("_ctx", "_done", "api_version", "response")

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._done = trio.Event()
        self.api_version = ctx.api_version
        self.response: FetchResponse | None = None

    @property
    def listener(self) -> str:
        return self._ctx.listener

    @property
    def closed(self) -> bool:
        return self._ctx.closed

    def reply(self, response: Any) -> None:
        self.response = response
        self._done.set()

    def on_close(self, callback: Callable[[], None]) -> None:
        def closed() -> None:
            callback()
            self._done.set()

        self._ctx.on_close(closed)

    def release_waiters(self) -> str:
        return self._ctx.release_waiters()

    def withholds(self, size: int) -> bool:
        return self._ctx.withholds(size)

    async def wait(self) -> FetchResponse | None:
        """The response; None if the client has disconnected."""
        await self._done.wait()
        return self.response
