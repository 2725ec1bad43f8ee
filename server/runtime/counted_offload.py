"""An `Offload` that knows whether any of its work is under way; for a broker under test (`settling`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import trio

from barnabas.server.runtime.offload import Offload, in_thread

T = TypeVar("T")


class CountedOffload:
    """See the module."""

    def __init__(self, offload: Offload = in_thread) -> None:
        self._offload = offload
        self._count = 0
        self._is_idle = trio.Event()

    @property
    def is_busy(self) -> bool:
        return self._count > 0

    async def __call__(self, fn: Callable[..., T], *args: Any) -> T:
        self._count += 1
        try:
            return await self._offload(fn, *args)
        finally:
            # This is the task that wanted it: what it does next has begun before another one can look.
            self._count -= 1
            if not self._count:
                self._is_idle.set()
                self._is_idle = trio.Event()

    async def idle(self) -> None:
        """Returns when nothing is under way."""
        while self._count:
            await self._is_idle.wait()
