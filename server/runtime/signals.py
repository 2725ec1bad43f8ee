"""SIGINT and SIGTERM around a broker's life: while the program still loads, and while it cleans up.

A broker hears signals itself (`barnabas.server.broker.process`) and stops in order, with exit code 0. Before it can,
Python would end with a traceback, or leave a throw-away broker's directory behind; so a process that is stopped before
the broker is there just goes, with the same exit code. Other commands end with 128 and the signal's number, as by a
shell's custom.

This imports next to nothing: it is to be there first. What nothing can be done about are the first hundredths of a
second, in which Python itself starts.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM)
BROKERS = ("serve", "dev")
"""The commands that run until a signal stops them."""


def leave_at_once(clean_up: Callable[[], object] | None = None) -> None:
    """From now on, a signal ends the process: without a word, and after `clean_up`."""

    def leave(number: int, frame: FrameType | None) -> None:
        # No exception: it could come up in the middle of anything, also where it would be swallowed.
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
    """Signals that arrive meanwhile count afterwards."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
