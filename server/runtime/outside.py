"""What this process waits for from others, where the clock can be moved (`virtual_clock.py`).

When the clock jumps, no time has passed for another process: its answer is no more overdue than before. So who waits
for one says so, by `answer_within` in place of `trio.fail_after`, and the deadline moves along. And a clock should not
be moved while an answer is on its way that comes by itself, in no time: `prompt` counts those.

Without such a clock, in a broker that serves, `answer_within` is `trio.fail_after`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import trio


class Outside:
    """See the module. Of a clock."""

    def __init__(self) -> None:
        self._waits: dict[trio.CancelScope, bool] = {}

    @property
    def prompt(self) -> int:
        """How many answers are on their way that do not wait for time to pass."""
        return sum(self._waits.values())

    def begin(self, scope: trio.CancelScope, *, is_prompt: bool) -> None:
        """A wait that `scope` bounds. is_prompt: the peer does not wait for anything in turn."""
        self._waits[scope] = is_prompt

    def end(self, scope: trio.CancelScope) -> None:
        """It is over."""
        del self._waits[scope]

    def time_jumped(self, seconds: float) -> None:
        """The clock was moved by so much."""
        for scope in self._waits:
            scope.deadline += seconds


def outside_of_this_loop() -> Outside | None:
    """None unless the loop's clock can be moved."""
    found: Outside | None = getattr(trio.lowlevel.current_clock(), "outside", None)
    return found


@contextmanager
def answer_within(seconds: float, *, is_prompt: bool) -> Iterator[trio.CancelScope]:
    """Bound a wait for another process. Raises trio.TooSlowError."""
    outside = outside_of_this_loop()
    with trio.fail_after(seconds) as scope:
        if outside is None:
            yield scope
            return
        outside.begin(scope, is_prompt=is_prompt)
        try:
            yield scope
        finally:
            outside.end(scope)
