"""A flag that one task waits for, and any code may set."""

from __future__ import annotations

import trio


class Wakeup:
    """`set` before `wait` is not lost: `wait` returns at the next checkpoint, and clears the flag. Setting it again
    before that has no effect: the task processes everything when it wakes up.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Set the flag: wakes the task, now or when it waits."""
        self._event.set()

    def clear(self) -> None:
        """Clear the flag: its work is done already."""
        if self._event.is_set():
            self._event = trio.Event()

    async def wait(self) -> None:
        """Wait until it is set. For one task at a time."""
        await self._event.wait()
        self._event = trio.Event()
