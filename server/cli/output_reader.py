"""Whether somebody still reads our output: `barnabas consume T -f | head -2`.

A process that writes learns of it by SIGPIPE or EPIPE; one that waits for something to write does not. The operating
system knows: a pipe without a reader has an error (POLLERR; POLLHUP for sockets, terminals, and elsewhere than Linux),
which is asked for now and then, as trio waits for reading and writing only. Files and terminals have readers always.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

V = TypeVar("V")

PERIOD_S: Final = 0.25


async def until_unread(fd: int | None = None) -> None:
    """Return when nobody reads what is written to this (None: standard output) any more."""
    if fd is None:
        try:
            fd = sys.stdout.fileno()
        except (OSError, ValueError):  # not a file
            await trio.sleep_forever()
    poll = select.poll()
    poll.register(fd, 0)  # errors are told without being asked for
    while True:
        if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
            return
        await trio.sleep(PERIOD_S)


async def while_read(work: Callable[[], Awaitable[V]], fd: int | None = None) -> V:
    """What `work` gives or raises. Raises BrokenPipeError when nobody reads the output any more."""
    done: list[V] = []
    raised: list[Exception] = []

    async def watch() -> None:
        await until_unread(fd)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        try:
            done.append(await work())
        except Exception as error:
            raised.append(error)  # as it is, not in a group
        nursery.cancel_scope.cancel()
    if raised:
        raise raised[0]
    if not done:
        raise BrokenPipeError
    return done[0]
