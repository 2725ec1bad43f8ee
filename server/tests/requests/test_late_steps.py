"""The rest of a share request in turns, after its acknowledgements."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.server.requests.api import PENDING
from barnabas.server.requests.share.late_steps import run_late
from barnabas.server.runtime.offload import inline
from barnabas.server.runtime.turns import TURN_UNITS, Steps, Turns


class Request:
    """A context, and what became of it."""

    def __init__(self) -> None:
        self.closed = False
        self.correlation_id = 7
        self.route = SimpleNamespace(
            name="SHARE_FETCH",
            is_large=lambda response: response == "large",
            encode_frame=lambda correlation_id, response: [f"{response} {correlation_id}"],
        )
        self.answered = 0
        self.said: list[Any] = []
        self.released = 0

    def steps(self, turns: int, error: Exception | None = None, response: Any = "small") -> Steps[Any]:
        for _ in range(turns):
            yield TURN_UNITS
        if error is not None:
            raise error
        return response

    def reply(self, response: Any) -> None:
        self.answered += 1
        self.said.append(response)

    def settle(self, response: Any) -> None:
        self.said.append("settled")

    def reply_encoded(self, *parts: Any) -> None:
        self.answered += 1
        self.said += parts

    def release_waiters(self) -> str:
        self.released += 1
        return "this request"


def services(nursery: trio.Nursery, written: list[int]) -> Any:
    turns = Turns(inline, nursery)
    return SimpleNamespace(turns=turns, partitions=SimpleNamespace(write_staged=lambda: written.append(1)))


async def test_a_turn_at_once_and_the_rest_later() -> None:
    async with trio.open_nursery() as nursery:
        written: list[int] = []
        svc, short, long = services(nursery, written), Request(), Request()
        run_late(svc, short, short.steps(0))  # type: ignore[arg-type]
        run_late(svc, long, long.steps(3))  # type: ignore[arg-type]
        assert (short.answered, long.answered, written) == (1, 0, [])
        await trio.testing.wait_all_tasks_blocked()
        assert (long.answered, long.released, written) == (1, 0, [1])


async def test_nobody_wants_it_any_more() -> None:
    async with trio.open_nursery() as nursery:
        gone = Request()
        run_late(services(nursery, []), gone, gone.steps(3))  # type: ignore[arg-type]
        gone.closed = True
        await trio.testing.wait_all_tasks_blocked()
        assert (gone.answered, gone.released) == (0, 0)


async def test_what_fails_closes_the_connection_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async with trio.open_nursery() as nursery:
        bad = Request()
        with caplog.at_level(logging.ERROR, "barnabas"):
            run_late(services(nursery, []), bad, bad.steps(3, ValueError("ours")))  # type: ignore[arg-type]
            await trio.testing.wait_all_tasks_blocked()
        assert (bad.answered, bad.released) == (0, 1)
        assert len(caplog.records) == 1


async def test_a_large_answer_is_encoded_off_the_loop() -> None:
    async with trio.open_nursery() as nursery:
        elsewhere: list[Any] = []

        async def offload(function: Any, *args: Any) -> Any:
            elsewhere.append(function)
            return function(*args)

        asked = Request()
        svc = services(nursery, [])
        svc.turns = Turns(offload, nursery)
        run_late(svc, asked, asked.steps(2, response="large"))  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked()
        assert elsewhere == [asked.route.encode_frame]
        assert asked.said == ["settled", "large 7"]


async def test_what_waits_is_answered_by_others() -> None:
    async with trio.open_nursery() as nursery:
        for turns in (0, 2):
            waits = Request()
            run_late(services(nursery, []), waits, waits.steps(turns, response=PENDING))  # type: ignore[arg-type]
            await trio.testing.wait_all_tasks_blocked()
            assert waits.said == []
