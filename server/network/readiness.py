"""Which sockets are ready, on systems without epoll: poll(2) with epoll's face, for the reactor.

While the reactor waits, a thread waits in poll; registering or changing a descriptor wakes it, and then the reactor
polls itself. So a wake-up costs a switch of threads, and a poll is linear in the connections: good enough for
development and tests on macOS, its purpose. `HALF_CLOSED` is not reported: reading notices that the peer sends no more.
"""

from __future__ import annotations

import errno
import math
import os
import select
import socket
import threading
from typing import Final

import trio

__all__ = ["FAILED", "HALF_CLOSED", "HUNG_UP", "READABLE", "WRITABLE", "PolledSockets"]

# The numbers are those of epoll, and of every poll.
READABLE: Final = 1
WRITABLE: Final = 4
FAILED: Final = 8
HUNG_UP: Final = 16
HALF_CLOSED: Final = 0x2000
"""epoll only: the peer will send no more."""


class PolledSockets:
    """See the module. Beside `wait`, the methods of `select.epoll` that the reactor uses, with the same arguments,
    results and errors.
    """

    def __init__(self) -> None:
        self.closed = False
        self._poll = select.poll()
        self._registered: set[int] = set()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._poll.register(self._wake, READABLE)
        self._is_waiting = False
        self._limiter = trio.CapacityLimiter(1)

    def fileno(self) -> int:
        """Some descriptor of ours."""
        return self._wake.fileno()

    async def wait(self) -> None:
        """Returns when something is ready or has changed. Nothing else may poll meanwhile."""
        polling = threading.Lock()
        is_wanted = True

        def block() -> None:
            with polling:
                if is_wanted:
                    self._poll.poll()

        self._is_waiting = True
        try:
            await trio.to_thread.run_sync(block, abandon_on_cancel=True, limiter=self._limiter)
        except BaseException:
            # The thread must have left poll before the sockets are closed. It may not even have entered it.
            is_wanted = False
            self._look_again()
            with polling:
                raise
        finally:
            self._is_waiting = False
            try:
                while self._wake.recv(4096):
                    pass
            except BlockingIOError:
                pass

    def register(self, fd: int, mask: int) -> None:
        if fd in self._registered:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        self._registered.add(fd)
        self._poll.register(fd, mask & ~HALF_CLOSED)
        self._look_again()

    def modify(self, fd: int, mask: int) -> None:
        if fd not in self._registered:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._poll.modify(fd, mask & ~HALF_CLOSED)
        self._look_again()

    def unregister(self, fd: int) -> None:
        if fd not in self._registered:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._registered.remove(fd)
        self._poll.unregister(fd)
        self._look_again()

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """(descriptor, mask) of ready ones, up to a maximum; waits for `timeout` seconds for the first."""
        wake = self._wake.fileno()
        return [event for event in self._poll.poll(math.ceil(timeout * 1000)) if event[0] != wake][:maxevents]

    def close(self) -> None:
        self.closed = True
        self._wake.close()
        self._waker.close()

    def _look_again(self) -> None:
        if self._is_waiting:
            try:
                self._waker.send(b"x")
            except BlockingIOError:
                pass  # it will
