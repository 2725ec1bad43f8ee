"""A flag that one task waits for, and anybody may set."""

from __future__ import annotations

import trio


class Wakeup:
    """`set` before `wait` is not lost: `wait` returns at the next checkpoint, and has the flag taken down. Setting it
    again before that is the same as once: whoever wakes up looks at all that there is to do.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake whoever waits, or will."""
        self._event.set()

    def clear(self) -> None:
        """Take the flag down: what it was set for is done already."""
        if self._event.is_set():
            self._event = trio.Event()

    async def wait(self) -> None:
        """Until it is set. For one task at a time."""
        await self._event.wait()
        self._event = trio.Event()
