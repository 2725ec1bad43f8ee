"""How a pass of the reactor waits for busy clients, on an epoll that a test writes the answers of."""

from __future__ import annotations

import os
from itertools import count

import pytest
import trio

from barnabas.server.network.reactor import LINGER_REST_PASSES, LINGER_S, LINGERS_S, PASS_S, ROUNDS_MAX, Reactor
from barnabas.server.network.readiness import READABLE

NOBODY = 1 << 20
SOMETHING = [(NOBODY, READABLE)]
"""An event of a connection that is gone: a round, and nothing to do in it."""


class ScriptedEpoll:
    """Always readable for trio. `busy`: who waits gets an event; else a pass has one event and no more."""

    def __init__(self, passes: int) -> None:
        self.readable, self._other_end = os.pipe()
        os.write(self._other_end, b"x")
        self.closed = False
        self.busy = True
        self.passes_left = passes
        self.asked: list[list[float]] = []
        self._fresh = False

    def fileno(self) -> int:
        """Asked for once for all passes."""
        return self.readable

    def begin(self) -> None:
        self.asked.append([])
        self._fresh = True

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        self.asked[-1].append(timeout)
        if self._fresh or (timeout and self.busy):
            self._fresh = False
            return SOMETHING
        return []

    def close(self) -> None:
        self.closed = True
        os.close(self.readable)
        os.close(self._other_end)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> tuple[Reactor, ScriptedEpoll]:
    reactor = Reactor(end_of_round=lambda: None, now=lambda: 0.0, closed=lambda connection: None)
    reactor._epoll.close()
    epoll = ScriptedEpoll(LINGER_REST_PASSES + 2)
    reactor._epoll = epoll

    async def wait_readable(fd: int) -> None:
        await trio.lowlevel.checkpoint()
        if epoll.passes_left == 0:
            raise trio.ClosedResourceError
        epoll.passes_left -= 1
        epoll.begin()

    monkeypatch.setattr(trio.lowlevel, "wait_readable", wait_readable)
    return reactor, epoll


async def test_waits_for_the_busy(script: tuple[Reactor, ScriptedEpoll]) -> None:
    reactor, epoll = script
    with pytest.raises(trio.ClosedResourceError):
        await reactor.run()
    *first, last = epoll.asked
    assert first[:LINGER_REST_PASSES] == [[0, 0]] * LINGER_REST_PASSES, "it does not wait at once"
    assert last == [LINGER_S] * ROUNDS_MAX


async def test_waits_for_the_busy_so_long_and_no_longer(script: tuple[Reactor, ScriptedEpoll]) -> None:
    reactor, epoll = script
    reactor._now = count(step=0.4 * LINGERS_S).__next__
    with pytest.raises(trio.ClosedResourceError):
        await reactor.run()
    assert 6 * 0.4 * LINGERS_S < PASS_S
    assert epoll.asked[-1] == [LINGER_S, LINGER_S, LINGER_S, 0], "waiting is over after two and a half rounds"


async def test_after_a_wait_in_vain_it_rests(script: tuple[Reactor, ScriptedEpoll]) -> None:
    reactor, epoll = script
    epoll.busy = False
    epoll.passes_left = 3 * LINGER_REST_PASSES
    with pytest.raises(trio.ClosedResourceError):
        await reactor.run()
    waited = [number for number, asked in enumerate(epoll.asked) if LINGER_S in asked]
    assert waited == [LINGER_REST_PASSES, 2 * LINGER_REST_PASSES + 1]
    assert [epoll.asked[number] for number in waited] == [[LINGER_S, LINGER_S]] * 2, "an event, and none"


async def test_a_pass_ends_when_its_rounds_take_long(script: tuple[Reactor, ScriptedEpoll]) -> None:
    reactor, epoll = script
    reactor._now = count(step=0.6 * PASS_S).__next__
    with pytest.raises(trio.ClosedResourceError):
        await reactor.run()
    assert epoll.asked[-1] == [LINGER_S, 0], "two rounds of three fifths, and no third"
