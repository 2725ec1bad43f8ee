"""The clock of a broker under test, and its snapshots: `broker.clock`, `broker.snapshot()`. Imports nothing of the
broker; everything is asked of its control channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from barnabas.child import BrokerError

if TYPE_CHECKING:
    from barnabas.control import Control

__all__ = ["Clock", "Snapshot"]

ADVANCE_S = 600.0
"""How long an advance may take, in real time: with logs to be compacted, as long as that takes."""


def __tracebackhide__(excinfo: Any) -> bool:
    """pytest asks: a report of a BrokerError ends where the test used the broker, and shows nothing of this file."""
    return bool(excinfo.errisinstance(BrokerError))


class Clock:
    """What time it is for the broker. It goes as fast as any clock, and from where it was advanced to."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def __repr__(self) -> str:
        return "<barnabas clock>"

    def now(self) -> datetime:
        """In UTC. For the timestamps of records, which clients otherwise take from their own clock."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return int(self._control.ask("GET", "/v1/clock")["now_ms"])

    def advance(self, by: str | float | timedelta) -> None:
        """Let so much time pass at once; returns when everything that was due is done: retention, session time-outs,
        transactions that are out of time, requests that waited, compaction, offsets and producers that expire.

        by: seconds, or a text such as "7d", "90m" or "1d12h". Raises ValueError for what is neither, or negative, and
        for a broker in a cluster.
        """
        value = by.total_seconds() if isinstance(by, timedelta) else by
        self._control.ask("POST", "/v1/clock/advance", {"by": value}, timeout_s=ADVANCE_S)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was in a broker, for `Broker.restore`. It lasts as long as the `Broker`."""

    id: str
