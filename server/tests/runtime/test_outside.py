"""Waits for other processes, whose time does not pass when the clock is moved."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from barnabas.server.runtime.counted_offload import CountedOffload
from barnabas.server.runtime.outside import answer_within, outside_of_this_loop
from barnabas.server.runtime.settling import Settling
from barnabas.server.runtime.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    """Of the test's loop."""
    return VirtualClock()


async def test_a_jump_makes_no_answer_late(clock: VirtualClock, nursery: trio.Nursery) -> None:
    answered, outcomes = trio.Event(), []

    async def ask(seconds: float, *, is_prompt: bool) -> None:
        try:
            with answer_within(seconds, is_prompt=is_prompt):
                await answered.wait()
            outcomes.append("answered")
        except trio.TooSlowError:
            outcomes.append("late")

    settling = Settling(CountedOffload())
    nursery.start_soon(lambda: ask(30, is_prompt=True))
    nursery.start_soon(lambda: ask(30, is_prompt=False))
    await settling.wait()
    assert clock.outside.prompt == 1
    await clock.advance(7 * 86400, settling.wait)
    assert outcomes == []
    answered.set()
    await settling.wait()
    assert outcomes == ["answered", "answered"]
    assert clock.outside.prompt == 0


async def test_in_real_time_it_is_late(clock: VirtualClock) -> None:
    with pytest.raises(trio.TooSlowError), answer_within(0.01, is_prompt=True):
        await trio.sleep_forever()
    assert clock.outside.prompt == 0


async def test_with_another_clock_it_is_a_time_out(autojump_clock: trio.testing.MockClock) -> None:
    assert outside_of_this_loop() is None
    with pytest.raises(trio.TooSlowError), answer_within(30, is_prompt=True):
        await trio.sleep(31)
    assert trio.current_time() == pytest.approx(30)
