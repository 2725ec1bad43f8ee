"""Long requests in turns: the work between two rounds of the loop is bounded, whatever is requested."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from barnabas.kproto.messages import MetadataResponse, OffsetFetchResponse
from barnabas.server.runtime.offload import inline
from barnabas.server.runtime.turns import TURN_UNITS, UNFINISHED, Abandoned, Arrays, Steps, Turns, first_turn


class Work:
    """Generators that note how many units each round of the loop has seen; `rounds` needs `watch` to be running."""

    def __init__(self) -> None:
        self.units = 0
        self.rounds: list[int] = []

    def steps(self, items: int, units: int = 1) -> Steps[int]:
        for _ in range(items):
            self.units += units
            yield units
        return items

    async def watch(self) -> None:
        while True:
            self.rounds.append(self.units)
            self.units = 0
            await trio.lowlevel.checkpoint()


def test_a_short_request_is_done_in_one_turn() -> None:
    assert first_turn(Work().steps(TURN_UNITS - 1)) == TURN_UNITS - 1
    assert first_turn(Work().steps(0)) == 0


def test_a_turn_ends_when_its_units_are_done_and_the_rest_is_left() -> None:
    work = Work()
    steps = work.steps(TURN_UNITS, units=3)
    assert first_turn(steps) is UNFINISHED
    assert work.units == TURN_UNITS


def test_what_a_step_raises_is_raised() -> None:
    def steps() -> Steps[None]:
        yield 1
        raise ValueError

    with pytest.raises(ValueError):
        first_turn(steps())


async def test_many_long_requests_share_one_turn_per_round(autojump_clock: Any) -> None:
    work, turns = Work(), Turns(inline)
    done: list[int] = []

    async def long(items: int) -> None:
        done.append(await turns.run(work.steps(items, units=10)))

    async with trio.open_nursery() as watching:
        watching.start_soon(work.watch)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(long, 1000)
        watching.cancel_scope.cancel()
    assert done == [1000] * 20
    assert max(work.rounds) <= 2 * TURN_UNITS  # one turn before the watcher in its round, one after it in the last


async def test_the_first_to_come_is_not_the_first_to_end_if_it_has_more_to_do(autojump_clock: Any) -> None:
    work, turns = Work(), Turns(inline)
    ended: list[str] = []

    async def run(name: str, items: int) -> None:
        await turns.run(work.steps(items))
        ended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run, "long", 100 * TURN_UNITS)
        await trio.lowlevel.checkpoint()
        nursery.start_soon(run, "short", 1)
    assert ended == ["short", "long"]


async def test_nothing_more_is_done_for_a_client_that_is_gone(autojump_clock: Any) -> None:
    work, turns = Work(), Turns(inline)
    closed = False

    def is_wanted() -> bool:
        return not closed

    def steps() -> Steps[None]:
        nonlocal closed
        for _ in range(10 * TURN_UNITS):
            work.units += 1
            closed = work.units > TURN_UNITS + 1
            yield 1

    with pytest.raises(Abandoned):
        await turns.run(steps(), is_wanted)
    assert work.units <= 2 * TURN_UNITS


def test_elements_of_all_arrays_are_counted() -> None:
    topic = MetadataResponse.MetadataResponseTopic
    partition = MetadataResponse.MetadataResponsePartition
    arrays = Arrays(MetadataResponse.__description__.struct)
    response = MetadataResponse(topics=[topic(partitions=[partition(replica_nodes=[1, 2])]), topic()])
    # two topics, a partition, two replicas
    assert not arrays.has_more_than(5, response)
    assert arrays.has_more_than(4, response)
    assert not Arrays(OffsetFetchResponse.__description__.struct).has_more_than(0, OffsetFetchResponse())
