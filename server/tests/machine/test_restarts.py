"""When a process that has ended by itself is started again."""

from __future__ import annotations

from barnabas.server.machine.restarts import FIRST_S, LASTED_S, LONGEST_S, MOST, Restarts


def test_later_and_later_and_in_the_end_never() -> None:
    restarts = Restarts()
    pauses = [restarts.ended(1, was_ready=False) for _ in range(MOST + 1)]
    assert pauses[0] == FIRST_S
    assert pauses[1] == 2 * FIRST_S
    assert pauses[-2] == LONGEST_S
    assert pauses[-1] is None
    rising = [pause for pause in pauses if pause is not None]
    assert rising == sorted(rising)


def test_what_has_lasted_begins_anew() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.ended(1, was_ready=True)
    assert restarts.ended(LASTED_S, was_ready=False) == 32 * FIRST_S, "it never came so far: that is no lasting"
    assert restarts.ended(LASTED_S, was_ready=True) == FIRST_S
    for _ in range(100):
        assert restarts.ended(LASTED_S + 1, was_ready=True) == FIRST_S
