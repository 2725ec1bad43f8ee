"""When nothing runs any more: no task of trio's is runnable, and no blocking work is under way.

For a broker under test, whose clock may then be moved, or whose files may be copied: what was begun is done, and what
is not done waits for time to pass, or for a client. A broker that serves has none of this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.server.runtime.counted_offload import CountedOffload

PATIENCE_S: Final = 0.25
"""Of this thread's CPU. Clients that ask without a pause keep some task runnable all the time, and would hold up the
clock. While the machine has no time for this thread, nothing has its turn, and nobody loses patience.
"""
CROWDED_S: Final = 0.002
"""The same, once that has happened."""


class Settling:
    """See the module. cpu_time: seconds that this thread has had."""

    def __init__(self, offload: CountedOffload, cpu_time: Callable[[], float] = time.thread_time) -> None:
        self._offload = offload
        self._cpu_time = cpu_time
        self._patience_s = PATIENCE_S
        self.has_run = False
        """Whether any task but the one that waited has run during the last `wait`."""

    async def wait(self) -> bool:
        """Returns when nothing runs any more: True, and nothing has begun since. False: clients ask so much that this
        may never be, and at least all that was to be run has had its turn.
        """
        self.has_run = False
        while True:
            if not await self._all_blocked():
                return False
            if not self._offload.is_busy:
                return True
            self.has_run = True
            await self._offload.idle()

    async def at_rest(self) -> None:
        """Returns when nothing runs any more, or at least no blocking work is under way."""
        while not await self.wait() and self._offload.is_busy:
            await self._offload.idle()

    async def _all_blocked(self) -> bool:
        watch = _Watch(self._cpu_time, self._cpu_time() + self._patience_s)
        trio.lowlevel.add_instrument(watch)
        try:
            with watch.scope:
                await wait_all_tasks_blocked()
        finally:
            trio.lowlevel.remove_instrument(watch)
            self.has_run |= watch.has_run
        self._patience_s = CROWDED_S if watch.scope.cancelled_caught else PATIENCE_S
        return not watch.scope.cancelled_caught


class _Watch(trio.abc.Instrument):
    """Ends a wait by CPU time. Deadlines are of trio's clock, which may stand still; this is called in each pass of the
    loop.
    """

    def __init__(self, cpu_time: Callable[[], float], until: float) -> None:
        self.scope = trio.CancelScope()
        self._cpu_time = cpu_time
        self._until = until
        self._waiter = trio.lowlevel.current_task()
        self.has_run = False

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self._waiter:
            self.has_run = True

    def after_io_wait(self, timeout: float) -> None:
        if self._cpu_time() > self._until:
            self.scope.cancel()
