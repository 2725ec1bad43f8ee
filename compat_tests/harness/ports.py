"""Ports for programs that must be told theirs beforehand, and that come back on it after a restart.

The system gives ports of its own range (`ip_local_port_range`) to connections that go out. One that a test finds free
there can be a client's a moment later, or while a broker is down; so these lie outside of it, where only a listener can
be. Test processes run side by side: each port is claimed, by the name of a socket that nobody connects to, until this
process ends.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

LOWEST, HIGHEST = 10_000, 65_535
OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
OUTGOING_DEFAULT = (32_768, 60_999)


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens, and that no other call, here or in another test process, has returned."""
    found: list[int] = []
    for port in _candidates(_outgoing()):
        if len(found) == count:
            return found
        if _claimed(port) and _is_free(port):
            found.append(port)
    raise AssertionError(f"there are no {count} free ports")


def _outgoing() -> tuple[int, int]:
    try:
        first, last = map(int, OUTGOING.read_text().split())
    except OSError:
        return OUTGOING_DEFAULT
    return first, last


def _candidates(outgoing: tuple[int, int]) -> Iterator[int]:
    first, last = outgoing
    outside = [*range(LOWEST, min(first, HIGHEST)), *range(max(last + 1, LOWEST), HIGHEST + 1)]
    # Where a machine leaves none, one from among the others is better than none.
    ports = outside or list(range(LOWEST, HIGHEST + 1))
    yield from random.SystemRandom().sample(ports, len(ports))


def _claimed(port: int) -> bool:
    """Whether it is this process's now. The claim lasts as long as the process: nothing closes the socket."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        claim.bind(f"\0barnabas-tests-port-{port}")
    except OSError:
        claim.close()
        return False
    claim.detach()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("", port))
        except OSError:
            return False
        return True
