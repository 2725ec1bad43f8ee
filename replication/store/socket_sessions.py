"""The sessions of the store of one machine, and when they expire: a machine with the time as an argument.

A session expires when nothing was heard of it for its time-out. `expired` is asked every `TICK_S`, so it may last up to
that much longer, as ZooKeeper's sessions do.

Time in which the store itself stood still is no silence of the others: when `expired` is asked late (the process was
stopped, or the machine had no time for it), what the sessions have sent meanwhile lies unread, so all get that much
more time. So does the time between two runs of the store, as each run begins with a full time-out for all that it
finds; ZooKeeper does the same.

Times are seconds of any steady clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

TICK_S: Final = 0.1
LATE_S: Final = 0.2
"""So much later than after a tick, and the store has stood still."""


class Sessions:
    """known: time-outs of the sessions that the last run left, in milliseconds."""

    def __init__(self, known: Mapping[int, int], now: float) -> None:
        self._timeouts_s = {session: timeout_ms / 1000 for session, timeout_ms in known.items()}
        self._deadlines = {session: now + timeout_s for session, timeout_s in self._timeouts_s.items()}
        self._asked = now

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, session: int) -> bool:
        return session in self._deadlines

    def __iter__(self) -> Iterator[int]:
        return iter(list(self._deadlines))

    def open(self, session: int, timeout_ms: int, now: float) -> None:
        """A session begins."""
        self._timeouts_s[session] = timeout_ms / 1000
        self.heard(session, now)

    def heard(self, session: int, now: float) -> None:
        """Something came from a session. One that is over stays so."""
        timeout_s = self._timeouts_s.get(session)
        if timeout_s is not None:
            self._deadlines[session] = now + timeout_s

    def end(self, session: int) -> None:
        """A session is over."""
        self._timeouts_s.pop(session, None)
        self._deadlines.pop(session, None)

    def expired(self, now: float) -> list[int]:
        """Those that are to end now; the caller ends them. To be asked every `TICK_S`."""
        stood_still_s = now - self._asked - TICK_S
        self._asked = now
        if stood_still_s > LATE_S:
            for session in self._deadlines:
                self._deadlines[session] += stood_still_s
        return [session for session, deadline in self._deadlines.items() if deadline <= now]
