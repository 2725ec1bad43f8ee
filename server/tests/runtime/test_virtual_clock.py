"""The clock of a broker under test."""

from __future__ import annotations

import math
import threading

import pytest
import trio

from barnabas.server.runtime.counted_offload import CountedOffload
from barnabas.server.runtime.settling import PATIENCE_S, Settling
from barnabas.server.runtime.virtual_clock import ADVANCE_MAX_S, GRAIN, GRAIN_MIN_S, VirtualClock

DAY_S = 86400.0


class Real:
    """Real clocks that a test moves."""

    def __init__(self) -> None:
        self.monotonic_s = 1000.0
        self.wall_s = 1_750_000_000.0

    def pass_by(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds


@pytest.fixture
def real() -> Real:
    return Real()


@pytest.fixture
def clock(real: Real) -> VirtualClock:
    """The clock of the test's own loop: pytest-trio takes it for that."""
    return VirtualClock(lambda: real.monotonic_s, lambda: real.wall_s)


@pytest.fixture
def offload() -> CountedOffload:
    return CountedOffload()


@pytest.fixture
def settling(offload: CountedOffload) -> Settling:
    return Settling(offload)


async def test_what_is_due_happens_at_its_time_and_what_follows_too(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery
) -> None:
    begin = trio.current_time()
    seen: list[tuple[str, float]] = []

    async def sleep(name: str, *pauses_s: float) -> None:
        for pause_s in pauses_s:
            await trio.sleep(pause_s)
            seen.append((name, trio.current_time() - begin))

    nursery.start_soon(sleep, "a", 1, 30, 0.001)
    nursery.start_soon(sleep, "b", 10, 45)
    await clock.advance(60, settling.wait)
    assert trio.current_time() - begin == 60
    assert [name for name, _ in seen] == ["a", "b", "a", "a", "b"]
    assert [at for _, at in seen] == pytest.approx([1, 10, 31, 31.001, 55], abs=60 * GRAIN)
    assert seen[0][1] == 1
    assert all(at >= due for (_, at), due in zip(seen, [1, 10, 31, 31, 55], strict=True))


async def test_what_is_not_due_waits_and_the_clock_goes_on_from_there(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery, real: Real
) -> None:
    woken = trio.Event()

    async def sleep() -> None:
        await trio.sleep(100)
        woken.set()

    nursery.start_soon(sleep)
    await clock.advance(99, settling.wait)
    assert not woken.is_set()
    before = trio.current_time()
    real.pass_by(0.5)
    assert trio.current_time() - before == pytest.approx(0.5)
    real.pass_by(0.5)
    await woken.wait()


async def test_the_wall_clock_goes_along(clock: VirtualClock, settling: Settling, nursery: trio.Nursery) -> None:
    walls: list[tuple[float, float]] = []

    async def look() -> None:
        for _ in range(7):
            await trio.sleep(DAY_S)
            walls.append((trio.current_time(), clock.wall()))

    begin, begin_wall = trio.current_time(), clock.wall()
    nursery.start_soon(look)
    await clock.advance(7 * DAY_S, settling.wait)
    assert clock.wall() - begin_wall == pytest.approx(7 * DAY_S)
    assert clock.ahead_of_wall_s == pytest.approx(7 * DAY_S)
    assert len(walls) >= 6
    for at, wall in walls:
        assert wall - begin_wall == pytest.approx(at - begin)


async def test_blocking_work_ends_before_time_goes_on(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery, offload: CountedOffload
) -> None:
    ended: list[tuple[float, bool]] = []

    async def work() -> None:
        await trio.sleep(1)
        in_loop = threading.get_ident()
        for _ in range(10):
            thread = await offload(threading.get_ident)
            ended.append((trio.current_time(), thread != in_loop))

    begin = trio.current_time()
    nursery.start_soon(work)
    await clock.advance(3600, settling.wait)
    assert ended == [(begin + 1, True)] * 10


async def test_a_week_of_ticks_takes_some_thousand_steps_and_none_is_very_late(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery
) -> None:
    begin = trio.current_time()
    steps: list[float] = []
    clock.followers.append(steps.append)
    late: list[tuple[float, float]] = []

    async def once(due_s: float) -> None:
        await trio.sleep_until(begin + due_s)
        late.append((due_s, trio.current_time() - begin - due_s))

    async def tick() -> None:
        for _ in range(10_000_000):
            await trio.sleep(1)

    nursery.start_soon(tick)
    for due_s in (0.5, 30.25, 3600, 100_000, 300_000, 500_000, 7 * DAY_S - 30.25, 7 * DAY_S):
        nursery.start_soon(once, due_s)
    await clock.advance(7 * DAY_S, settling.wait)
    assert sum(steps) == pytest.approx(7 * DAY_S)
    assert len(steps) < 2 * (math.log(7 * DAY_S / 2 / GRAIN_MIN_S) / GRAIN)
    assert len(late) == 8
    for due_s, late_s in late:
        assert 0 <= late_s <= 2 * GRAIN * min(due_s, 7 * DAY_S - due_s) + 1.5 * GRAIN_MIN_S, due_s
    nursery.cancel_scope.cancel()


async def test_who_asks_without_a_pause_does_not_hold_it_up(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery
) -> None:
    async def ask() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    woken = trio.Event()

    async def sleep() -> None:
        await trio.sleep(1)
        woken.set()

    nursery.start_soon(ask)
    nursery.start_soon(sleep)
    await clock.advance(1.5, settling.wait)
    assert woken.is_set()
    nursery.cancel_scope.cancel()


async def test_a_machine_without_time_for_it_does_not_make_anything_late(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery
) -> None:
    begin = trio.current_time()
    at: list[float] = []

    async def stand_still() -> None:
        threading.Event().wait(PATIENCE_S + 0.1)

    async def sleep() -> None:
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        await trio.sleep(1)
        at.append(trio.current_time() - begin)

    nursery.start_soon(stand_still)
    nursery.start_soon(sleep)
    await clock.advance(1.5, settling.wait)
    assert at == [1]


async def test_followers_hear_of_a_step_before_anything_runs_in_it(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery
) -> None:
    heard = 0.0

    def follow(seconds: float) -> None:
        nonlocal heard
        heard += seconds

    clock.followers.append(follow)
    begin, at = trio.current_time(), []

    async def sleep() -> None:
        await trio.sleep(5)
        at.append((trio.current_time() - begin, heard))

    nursery.start_soon(sleep)
    await clock.advance(10, settling.wait)
    assert at == [(pytest.approx(at[0][1]), pytest.approx(at[0][0]))]


@pytest.mark.parametrize("seconds", [-1, -1e-9, math.nan, math.inf, ADVANCE_MAX_S * 2])
async def test_it_only_goes_forwards(clock: VirtualClock, settling: Settling, seconds: float) -> None:
    before = trio.current_time()
    with pytest.raises(ValueError, match="advanced by 0 to"):
        await clock.advance(seconds, settling.wait)
    assert trio.current_time() == before
    assert not clock.is_advancing


async def test_cancelled_it_goes_on_from_where_it_is(
    clock: VirtualClock, settling: Settling, nursery: trio.Nursery
) -> None:
    begin = trio.current_time()
    scope = trio.CancelScope()

    async def cancel() -> None:
        await trio.sleep(100)
        scope.cancel()

    nursery.start_soon(cancel)
    with scope:
        await clock.advance(DAY_S, settling.wait)
    assert scope.cancelled_caught
    assert 100 <= trio.current_time() - begin < 102
    assert not clock.is_advancing


async def test_at_rest_no_blocking_work_is_under_way(
    settling: Settling, offload: CountedOffload, nursery: trio.Nursery, clock: VirtualClock
) -> None:
    done: list[int] = []

    async def work() -> None:
        for number in range(3):
            await offload(done.append, number)

    nursery.start_soon(work)
    await settling.at_rest()
    assert done == [0, 1, 2]


async def test_step_by_step(clock: VirtualClock, settling: Settling, real: Real, nursery: trio.Nursery) -> None:
    """As it is moved together with others. It is ahead by the sum of the steps, to the bit."""
    seen: list[float] = []
    jumps: list[float] = []
    clock.followers.append(jumps.append)
    begin, wall = trio.current_time(), clock.wall()

    async def sleep() -> None:
        for _ in range(2):
            await trio.sleep(60)
            seen.append(trio.current_time() - begin)

    nursery.start_soon(sleep)
    clock.hold()
    assert clock.is_advancing
    assert await settling.wait()
    assert settling.has_run
    assert await settling.wait()
    assert not settling.has_run
    assert clock.next_deadline_s == pytest.approx(60)
    clock.step(59)
    assert await settling.wait()
    assert (seen, clock.next_deadline_s) == ([], pytest.approx(1))
    real.pass_by(7)
    assert trio.current_time() - begin == pytest.approx(59)
    clock.step(1)
    assert await settling.wait()
    assert settling.has_run
    assert seen == [pytest.approx(60)]
    clock.step(100)
    assert await settling.wait()
    assert seen == [pytest.approx(60), pytest.approx(160)]
    assert clock.next_deadline_s == math.inf
    clock.release()
    assert not clock.is_advancing
    assert clock.ahead_of_wall_s == 160
    assert jumps == [59, 1, 100]
    # The seconds for which it was held are lost for timers, whoever waits for somebody, and not for the date.
    assert (trio.current_time() - begin, clock.wall() - wall) == (pytest.approx(160), pytest.approx(167))


@pytest.mark.parametrize("seconds", [-1, math.nan, ADVANCE_MAX_S + 1])
async def test_steps_that_cannot_be(seconds: float, clock: VirtualClock) -> None:
    clock.hold()
    with pytest.raises(ValueError, match="the clock can be moved by 0 to"):
        clock.step(seconds)
    clock.release()
    assert clock.ahead_of_wall_s == 0
