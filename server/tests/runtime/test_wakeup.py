"""A flag that one task waits for."""

from __future__ import annotations

import trio

from barnabas.server.runtime.wakeup import Wakeup


async def test_it_wakes_waiting_tasks_and_is_cleared(autojump_clock: trio.abc.Clock) -> None:
    wakeup = Wakeup()
    woken: list[float] = []

    async def sleeper() -> None:
        while True:
            await wakeup.wait()
            woken.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeper)
        start = trio.current_time()
        for _ in range(3):
            await trio.sleep(1)
            wakeup.set()
            wakeup.set()
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [round(at - start) for at in woken] == [1, 2, 3]


async def test_setting_it_before_the_wait_is_not_lost(autojump_clock: trio.abc.Clock) -> None:
    wakeup = Wakeup()
    wakeup.set()
    with trio.fail_after(1):
        await wakeup.wait()


async def test_cleared_it_must_be_set_again(autojump_clock: trio.abc.Clock) -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.clear()
    with trio.move_on_after(5) as limit:
        await wakeup.wait()
    assert limit.cancelled_caught


async def test_a_wait_that_is_given_up_leaves_it_as_it_is(autojump_clock: trio.abc.Clock) -> None:
    wakeup = Wakeup()
    with trio.move_on_after(1):
        await wakeup.wait()
    wakeup.set()
    with trio.fail_after(1):
        await wakeup.wait()
