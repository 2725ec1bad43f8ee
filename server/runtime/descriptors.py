"""Descriptors: how many the process may have (`ulimit -n`), and who gets them.

Each connection takes one, and so does each open log segment. Half of them, but no more than some thousand, are the
logs' (`barnabas.logdir.half_of_the_limit`); `RESERVE` are kept for what must not fail however many clients come:
checkpoints, the metadata journal, new segments, connections to other brokers, code that is read when it is first
needed. The rest is for clients: at that number further ones wait in the backlog.
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
    """Up to what the system allows this process, as servers do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("limit of open files and connections: %d, raising it to %d failed: %s", soft, hard, error)
    else:
        log.info("limit of open files and connections: %d, raised from %d", hard, soft)


def reserve() -> int:
    """So many stay free of connections."""
    return min(RESERVE, limit() // 4)


class Allowance:
    """How many connections there may be: so many as leave the logs and the reserve theirs, and none while something
    else has taken more than it should (answers on their way hold segments open too).

    False when it is reached; the log says it once, and again when there was room meanwhile.
    """

    def __init__(self) -> None:
        self._limit = limit()
        self.connections_max = max(self._limit - half_of_the_limit() - reserve(), 1)
        self._free_below = self._limit - reserve()
        self._reached_at = 0

    def admits(self, connections: int, any_fd: int) -> bool:
        """May one be taken in beside `connections`? any_fd: one that is open."""
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
        """The reserve is being used up."""
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
    """Say so when not all partitions can keep one segment open: reading and writing opens and closes files then."""
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
