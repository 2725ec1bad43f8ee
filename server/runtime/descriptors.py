"""Descriptors: how many the process may have (`ulimit -n`), and how they are budgeted.

Each connection takes one, and so does each open log segment. Half of them, but no more than some thousand, are the
logs' (`barnabas.logdir.half_of_the_limit`); `RESERVE` are kept for what must not fail however many clients connect:
checkpoints, the metadata journal, new segments, connections to other brokers, code that is read on
demand. The rest is for clients: beyond that number they wait in the backlog.
"""

from __future__ import annotations

import logging
import os
import resource

from barnabas.logdir import half_of_the_limit

log = logging.getLogger("barnabas.broker")

RESERVE = 64
UNLIMITED = 1 << 30


def limit() -> int:
    """How many the process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raise the limit to what the system allows this process, as servers do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning(
            "limit of open files and connections (ulimit -n) is %d, cannot raise it to %d: %s", soft, hard, error
        )
    else:
        log.info("raised the limit of open files and connections (ulimit -n) to %d from %d", hard, soft)


def reserve() -> int:
    """Descriptors that connections must leave free."""
    return min(RESERVE, limit() // 4)


class Allowance:
    """Limits connections so that the logs and the reserve have theirs; none is admitted while something else exceeds
    its share (responses in flight hold segments open too).

    Reaching the limit is logged once, and again after there was room meanwhile.
    """

    def __init__(self) -> None:
        self._limit = limit()
        self.connections_max = max(self._limit - half_of_the_limit() - reserve(), 1)
        self._free_below = self._limit - reserve()
        self._reached_at = 0

    def admits(self, connections: int, any_fd: int) -> bool:
        """Whether another connection may be accepted beside `connections`. any_fd: one that is open."""
        if connections < self.connections_max and not self.is_short(any_fd):
            if connections < self._reached_at // 2:
                self._reached_at = 0
            return True
        if not self._reached_at:
            self._reached_at = max(connections, 1)
            log.warning(
                "%d connections are open: further ones wait until others are closed, for the process may have %d files "
                "and connections open (ulimit -n), and some are kept for the logs",
                connections,
                self._limit,
            )
        return False

    def is_short(self, any_fd: int) -> bool:
        """Whether the reserve is in use."""
        return self._next_fd(any_fd) >= self._free_below

    def _next_fd(self, any_fd: int) -> int:
        """The kernel gives the lowest number that is free, so as many are in use at least."""
        try:
            fd = os.dup(any_fd)
        except OSError:
            return self._limit
        os.close(fd)
        return fd


def warn_if_too_few(partitions: int) -> None:
    """Log a warning if not all partitions can keep one segment open: reads and writes then open and close files."""
    files = half_of_the_limit()
    if partitions > files:
        log.warning(
            "%d partitions share %d open files, so that they are opened and closed again and again: raise the limit of "
            "open files (ulimit -n, now %d) to %d at least",
            partitions,
            files,
            limit(),
            2 * partitions + RESERVE,
        )
