"""Requests to the share coordinator: one group, and for each partition an operation and an answer of its own.

They are alike but for what is asked and told (`barnabas.server.coordinators.share.state_wire`). Answered when all of it
is committed or refused; NOT_COORDINATOR and COORDINATOR_LOAD_IN_PROGRESS stand at the partitions. Without a group id,
or without topics, the answer is empty, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.coordinator.share import ShareKey
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.coordinators.share.state_wire import Wire
from barnabas.server.requests.api import PENDING, ErrorAnswer, Handler
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, in_portions
from barnabas.server.requests.services import Services


def handler_of(wire: Wire) -> Handler:
    """The handler of one of the requests."""

    def handle(svc: Services, ctx: RequestContext, req: Any) -> Any:
        wanted = list(wire.from_request(req)) if req.group_id else []
        if not wanted:
            return wire.to_response(())
        answers = _Answers(ctx, wire, [key for key, _ in wanted])
        if len(wanted) > AT_ONCE:
            return _in_portions(svc, answers, wanted)
        answers.ask(svc, wanted, 0)
        return PENDING

    return handle


def error_answer_of(wire: Wire) -> ErrorAnswer:
    """How it is answered when the whole request fails."""

    def on_error(req: Any, code: ErrorCode, version: int) -> Any:
        return wire.to_response((key, wire.failed(code, None)) for key, _ in wire.from_request(req))

    return on_error


async def _in_portions(svc: Services, answers: _Answers, wanted: Sequence[tuple[ShareKey, Any]]) -> Any:
    def ask(first: int, end: int) -> None:
        answers.ask(svc, wanted[first:end], first)

    await in_portions(svc, len(wanted), ask)
    return PENDING


class _Answers:
    """Answers the request once it has the answers for all partitions."""

    __slots__ = ("_ctx", "_keys", "_pending", "_told", "_wire")

    def __init__(self, ctx: RequestContext, wire: Wire, keys: Sequence[ShareKey]) -> None:
        self._ctx = ctx
        self._wire = wire
        self._keys = keys
        self._told: list[Any] = [None] * len(keys)
        self._pending = len(keys)

    def ask(self, svc: Services, wanted: Sequence[tuple[ShareKey, Any]], first: int) -> None:
        """first: the number of the first of them."""
        wire = self._wire
        for number, (key, asked) in enumerate(wanted, first):
            try:
                wire.act(svc.share_states, key, asked, _Answer(self, number))
            except KafkaError as error:
                self.answered(number, wire.failed(error.code, error.message))

    def answered(self, number: int, told: Any) -> None:
        self._told[number] = told
        self._pending -= 1
        if not self._pending:
            self._ctx.reply(self._wire.to_response(zip(self._keys, self._told, strict=True)))

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


class _Answer:
    """The token for one partition."""

    __slots__ = ("_answers", "_number")

    def __init__(self, answers: _Answers, number: int) -> None:
        self._answers = answers
        self._number = number

    def reply(self, told: Any) -> None:
        self._answers.answered(self._number, told)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._answers.release_waiters()
