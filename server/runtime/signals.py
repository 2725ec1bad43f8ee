"""SIGINT and SIGTERM around a broker's life: while the program still loads, and while it cleans up.

A broker handles signals itself (`barnabas.server.broker.process`) and stops in order, with exit code 0. Before that,
Python would end with a traceback, or leave a throw-away broker's directory behind; so a process that is stopped before
the broker exists exits silently, with the same exit code. Other commands end with 128 and the signal's number, as
shells do.

This imports next to nothing, to be ready first. The first hundredths of a second, in which Python itself starts, cannot
be covered.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
BROKERS = ("serve", "dev", "cluster", "store")
"""The commands that run until a signal stops them."""


def leave_at_once(clean_up: Callable[[], object] | None = None) -> None:
    """From now on, a signal ends the process: silently, and after `clean_up`."""

    def leave(number: int, frame: FrameType | None) -> None:
        # No exception: it could be raised anywhere, also where it would be swallowed.
        ignore()
        if clean_up is not None:
            clean_up()
        os._exit(0 if sys.argv[1:2] and sys.argv[1] in BROKERS else 128 + number)

    for number in STOPPING:
        signal.signal(number, leave)


def as_python_does() -> None:
    """SIGINT raises KeyboardInterrupt, SIGTERM ends the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def ignore() -> None:
    """The process is about to end by itself."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """Signals that arrive meanwhile are delivered afterwards."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
