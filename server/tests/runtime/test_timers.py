"""The timer heap under virtual time."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing

from barnabas.server.runtime.timers import SLEEP_MAX_S, Timers


async def test_timers_fire_in_order_at_their_time(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    timers = Timers()
    fired: list[tuple[str, float]] = []
    start = trio.current_time()

    def note(name: str) -> None:
        fired.append((name, trio.current_time() - start))

    nursery.start_soon(timers.run)
    timers.after(3, lambda: note("c"))
    timers.after(1, lambda: note("a"))
    await trio.sleep(0.5)
    timers.after(1, lambda: note("b"))
    dead = timers.after(2, lambda: note("never"))
    dead.cancel()
    dead.cancel()
    await trio.sleep(10)
    assert [(name, round(at, 6)) for name, at in fired] == [("a", 1), ("b", 1.5), ("c", 3)]


async def test_a_callback_may_arm_and_fail(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    timers = Timers()
    fired: list[int] = []

    def again() -> None:
        fired.append(1)
        if len(fired) < 3:
            timers.after(1, again)
        raise ValueError("on purpose")

    nursery.start_soon(timers.run)
    timers.after(1, again)
    await trio.sleep(10)
    assert len(fired) == 3
    assert len([record for record in caplog.records if record.exc_info]) == 3


async def test_cancelled_timers_do_not_pile_up(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    timers = Timers()
    nursery.start_soon(timers.run)
    fired: list[int] = []
    for _ in range(20):
        for timer in [timers.after(600, lambda: fired.append(0)) for _ in range(500)]:
            timer.cancel()
    assert len(timers._heap) < 3000
    timers.after(1, lambda: fired.append(1))
    await trio.sleep(700)
    assert fired == [1]


async def test_sleeps_that_end_early_leave_nothing_behind(autojump_clock: trio.testing.MockClock) -> None:
    """Each earlier timer ends a sleep. Its deadline may be far away, and trio keeps it."""
    timers = Timers()

    def scopes() -> int:
        return sum(type(one) is trio.CancelScope for one in gc.get_objects())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        await trio.testing.wait_all_tasks_blocked()
        before = scopes()
        for number in range(500):
            timers.after(3600.0 - number, lambda: None)
            await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(2 * SLEEP_MAX_S)
        assert scopes() - before < 50
        nursery.cancel_scope.cancel()
