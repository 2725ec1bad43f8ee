"""Runs blocking work off the event loop.

A hop to a thread costs some 200 us, so appends and cached reads stay in the loop; fsync, recovery and deletion go
through here. Under a mock clock a thread would let virtual time run away, so tests pass `inline`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import trio

T = TypeVar("T")


class Offload(Protocol):
    """Runs `fn(*args)` where blocking is allowed and returns its result."""

    def __call__(self, fn: Callable[..., T], *args: Any) -> Awaitable[T]: ...


async def in_thread(fn: Callable[..., T], *args: Any) -> T:
    """Run in a worker thread of trio; not cancellable once started, so that files are left whole.

    What `fn` raises is brought here in a list that is empty then. Raised through trio, or referred to by a frame below
    `fn`, it would be in a cycle, and all that `fn` and its callers refer to, such as a request of 100 MB, would stay
    in memory until the next garbage collection.
    """
    values: list[T] = []
    errors: list[Exception] = []

    def call() -> None:
        try:
            values.append(fn(*args))
        except Exception as error:
            errors.append(error)

    await trio.to_thread.run_sync(call)
    if errors:
        raise errors.pop()
    return values.pop()


async def inline(fn: Callable[..., T], *args: Any) -> T:
    """Run here: for tests under virtual time."""
    await trio.lowlevel.checkpoint()
    return fn(*args)
