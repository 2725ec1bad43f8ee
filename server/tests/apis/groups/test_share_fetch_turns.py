"""ShareFetch of very many partitions: looked into in turns with all other work, and what may happen between two."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.share import ShareKey
from barnabas.server.coordinators.share.partitions import LedShare
from barnabas.server.runtime import turns
from barnabas.server.runtime.turns import UNFINISHED, Abandoned, Steps, first_turn
from barnabas.server.tests.apis.data_world import NOW
from barnabas.server.tests.apis.groups.share_world import Asked, ShareWorld, found, share_world
from barnabas.server.tests.coordinators.share.persister_kit import settle


class TurnsByHand:
    """A turn comes when the test says so."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._allowed = trio.Semaphore(0)

    def start(self, what: str, work: Callable[[], Awaitable[object]]) -> None:
        self._nursery.start_soon(work)

    async def run(self, steps: Steps[Any], is_wanted: Callable[[], bool]) -> Any:
        while True:
            await self._allowed.acquire()
            if not is_wanted():
                steps.close()
                raise Abandoned
            value = first_turn(steps)
            if value is not UNFINISHED:
                return value

    async def go(self, until: Callable[[], object], most: int = 100) -> None:
        """Turn by turn, until something is so."""
        await settle()
        for _ in range(most):
            if until():
                return
            self._allowed.release()
            await settle()
        raise AssertionError("it does not happen")


@asynccontextmanager
async def many_turns(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ShareWorld, TurnsByHand]]:
    """Each step is a turn; members a and b have sessions with all partitions of t, whose state is loaded."""
    async with share_world(directory) as w, trio.open_nursery() as nursery:
        for member in "ab":
            asked = w.fetch(0, member=member, connection=member, partitions=(0, 1, 2), max_wait_ms=0)
            await settle()
            assert not asked.waits
        w.svc.turns = by_hand = TurnsByHand(nursery)
        monkeypatch.setattr(turns, "TURN_UNITS", 1)
        yield w, by_hand
        nursery.cancel_scope.cancel()


async def answer_of(asked: Asked, by_hand: TurnsByHand) -> Any:
    await by_hand.go(lambda: not asked.waits)
    return found(asked.answer)


def produce(w: ShareWorld, index: int) -> None:
    partition = w.groups.at.world.partitions.get("t", index)
    w.groups.at.world.append(partition, NOW)
    partition.announce(1)


def led(w: ShareWorld, index: int) -> LedShare:
    share = w.parts.shares.find(ShareKey("g", w.groups.at.topic_id, index))
    assert share is not None
    return share


def noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Which partitions are looked into from now on."""
    looked: list[int] = []
    acquire = LedShare.acquire

    def look(share: LedShare, *args: Any) -> Any:
        looked.append(share.key.partition)
        return acquire(share, *args)

    monkeypatch.setattr(LedShare, "acquire", look)
    return looked


async def test_other_work_comes_in_between(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        for index in range(3):
            produce(w, index)
        asked = w.fetch(1, partitions=())
        await settle()
        assert asked.waits
        assert await answer_of(asked, by_hand) == {index: (0, 0, [(0, 0, 1)]) for index in range(3)}
        # The next one begins elsewhere, and goes on until it has as many records as are wanted.
        for index in range(3):
            produce(w, index)
        firsts = []
        for epoch in (2, 3, 4):
            firsts += await answer_of(w.fetch(epoch, partitions=(), max_records=1), by_hand)
        assert sorted(firsts) == [0, 1, 2]


async def test_other_work_comes_in_between_share_partitions_that_are_made(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that begins may have very many of which nothing is in memory."""
    async with share_world(tmp_path) as w, trio.open_nursery() as nursery:
        w.svc.turns = by_hand = TurnsByHand(nursery)
        monkeypatch.setattr(turns, "TURN_UNITS", 5)
        asked = w.fetch(0, partitions=(0, 1, 2), max_wait_ms=0)
        assert len(w.parts.shares) == 1
        assert len(await answer_of(asked, by_hand)) == len(w.parts.shares) == 3
        nursery.cancel_scope.cancel()


async def test_what_comes_while_others_are_looked_into(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        looked = noted(monkeypatch)
        asked = w.fetch(1, partitions=(), max_wait_ms=10_000)
        await by_hand.go(lambda: looked)
        produce(w, looked[0])
        w.groups.round()
        assert await answer_of(asked, by_hand) == {looked[0]: (0, 0, [(0, 0, 1)])}
        assert looked == [2, 0, 1, 2]


async def test_only_those_that_woke_it_are_looked_into_again(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        looked = noted(monkeypatch)
        asked = w.fetch(1, partitions=(), max_wait_ms=10_000)
        await by_hand.go(lambda: len(looked) == 3)
        looked.clear()
        produce(w, 1)
        w.groups.round()
        assert await answer_of(asked, by_hand) == {1: (0, 0, [(0, 0, 1)])}
        assert looked == [1]
        # Where more is wanted than there is, all are looked into in the end.
        waiting = w.fetch(2, partitions=(), max_wait_ms=1_000, min_bytes=1_000_000)
        produce(w, 2)
        await by_hand.go(lambda: waiting.waits)
        await trio.sleep(2)
        assert await answer_of(waiting, by_hand) == {2: (0, 0, [(0, 0, 1)])}


async def interrupted(w: ShareWorld, by_hand: TurnsByHand, looked: list[int]) -> Asked:
    """A fetch that has got the record of the first partition that it has `looked` into."""
    for index in range(3):
        produce(w, index)
    asked = w.fetch(1, partitions=(), connection="a")
    await by_hand.go(lambda: looked)
    return asked


async def test_a_partition_that_is_forgotten_meanwhile(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the member has got it is told."""
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        looked = noted(monkeypatch)
        asked = await interrupted(w, by_hand, looked)
        w.fetch(2, partitions=(), forgotten=(looked[0],), max_records=0)
        assert await answer_of(asked, by_hand) == {index: (0, 0, [(0, 0, 1)]) for index in range(3)}


async def test_a_session_that_ends_meanwhile(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets no more, and what it has got others may have."""
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        looked = noted(monkeypatch)
        asked = await interrupted(w, by_hand, looked)
        first = looked[0]
        w.parts.shares.connection_closed("a")
        w.groups.round()
        assert await answer_of(asked, by_hand) == {}
        other = await answer_of(w.fetch(1, member="b", connection="b", partitions=()), by_hand)
        assert other == {index: (0, 0, [(0, 0, 2 if index == first else 1)]) for index in range(3)}


async def test_a_member_that_begins_anew_meanwhile(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has got stays its own, so it is told; the new session gets the rest."""
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        looked = noted(monkeypatch)
        asked = await interrupted(w, by_hand, looked)
        first = looked[0]
        anew = w.fetch(0, partitions=(0, 1, 2), connection="new", max_wait_ms=0)
        assert await answer_of(asked, by_hand) == {first: (0, 0, [(0, 0, 1)])}
        assert await answer_of(anew, by_hand) == {
            index: (0, 0, [] if index == first else [(0, 0, 1)]) for index in range(3)
        }


async def test_a_connection_that_is_closed_meanwhile(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits any more, and nothing is acquired for nobody."""
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        looked = noted(monkeypatch)
        asked = await interrupted(w, by_hand, looked)
        asked.context.closed = True
        assert asked.context.close is not None
        asked.context.close()
        assert not any(led(w, index).waiting for index in range(3))
        with pytest.raises(AssertionError, match="it does not happen"):
            await by_hand.go(lambda: len(looked) > 1, most=5)


async def test_the_broker_stops_meanwhile(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with many_turns(tmp_path, monkeypatch) as (w, by_hand):
        asked = w.fetch(1, partitions=(), max_wait_ms=60_000)
        await by_hand.go(lambda: led(w, 1).waiting)
        led(w, 1).answer_now()
        assert await answer_of(asked, by_hand) == {}
