"""How many connections there may be, and how fast they may come: of the broker, of each listener, of each address.

A machine without clock or socket: `now` is in seconds of a clock that does not go back. Sources: KIP-402, KIP-612,
`SocketServer.scala` (`ConnectionQuotas`, 4.3).

| limit | of | a connection over it |
| --- | --- | --- |
| `max.connections` | the broker, a listener | waits, not accepted, until another has left |
| `max.connection.creation.rate` | the broker, a listener | is served later; the listener accepts no others meanwhile |
| `connection_creation_rate` (KIP-612) | an address | is not served, and closed later |
| `max.connections.per.ip` and its overrides | an address | is closed at once |

Not obvious:

- A listener without limits of its own has those of the broker, for itself alone.
- The listener between brokers, unless it is the only one, is spared: limits of the broker do not hold it up. Its
  connections count all the same, so that there may be more than allowed (`excess`), as when the limit is lowered: then
  those of other listeners are closed that have been silent for longest.
- A connection that is closed because of its address' rate counts for nothing; one that is closed because the address
  has too many counts for the rates.
- No delay is longer than one sample of the window, however small the limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.server.security.quotas.rates import Rate, Window
from barnabas.server.security.quotas.shares import ConnectionRates

UNLIMITED: Final = 2**31 - 1


class Ceiling(NamedTuple):
    """connections: at once. rate: new ones in a second; `UNLIMITED`: as many as come."""

    connections: int = UNLIMITED
    rate: int = UNLIMITED


@dataclass(frozen=True, slots=True)
class Taken:
    """It counts from now on, and is served after `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """It is not served, does not count, and is to be closed after `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Refused:
    """It is to be closed at once: its address has `limit` connections."""

    limit: int


class ConnectionLimits:
    """See the module. listeners: their names. between_brokers: the one of other brokers. hosts: rates of addresses."""

    def __init__(
        self, listeners: Collection[str], between_brokers: str, window: Window, hosts: ConnectionRates | None = None
    ) -> None:
        self._between_brokers = between_brokers
        self._spared: str | None = None
        self._window = window
        self._hosts = hosts or ConnectionRates(window)
        self._broker = Ceiling()
        self._of_listeners: Mapping[str, Ceiling] = {}
        self._host_max = UNLIMITED
        self._of_hosts: Mapping[str, int] = {}
        self._per_host: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._total = 0
        self._rates: dict[str | None, Rate] = {}
        self._closed_until: dict[str, float] = {}
        self.listen_on(listeners)

    def __len__(self) -> int:
        return self._total

    def listen_on(self, listeners: Collection[str]) -> None:
        """From now on there are these listeners. Connections of others count until they are gone; nothing else is left
        of them.
        """
        self._spared = self._between_brokers if len(set(listeners)) > 1 else None
        for name in [name for name in self._rates if name is not None and name not in listeners]:
            del self._rates[name]
        for name in [name for name in self._closed_until if name not in listeners]:
            del self._closed_until[name]

    def limit(self, broker: Ceiling, listeners: Mapping[str, Ceiling]) -> None:
        """From now on these hold."""
        self._broker = broker
        self._of_listeners = listeners

    def limit_each_host(self, limit: int) -> None:
        """So many connections any address may have."""
        self._host_max = limit

    def limit_hosts(self, limits: Mapping[str, int]) -> None:
        """So many these addresses may have instead."""
        self._of_hosts = limits

    @property
    def by_listener(self) -> Mapping[str, int]:
        """How many connections each listener has."""
        return self._per_listener

    @property
    def accepted_by_listener(self) -> Mapping[str, int]:
        """How many connections each listener has had."""
        return self._accepted

    # -- coming and going --------------------------------------------------------------------------------------------

    def may_accept(self, listener: str, now: float) -> bool:
        """Whether one more connection may be accepted there."""
        if now < self._closed_until.get(listener, now):
            return False
        if self._per_listener[listener] >= self._ceiling(listener).connections:
            return False
        return listener == self._spared or self._total < self._broker.connections

    def accepted(self, listener: str, host: str, now: float) -> Taken | Held | Refused:
        """One more has been accepted, from the address `host`: what becomes of it."""
        delay_ms = self._record(listener, 1, now)
        if delay_ms:
            self._closed_until[listener] = now + delay_ms / 1000
        held_ms = self._hosts.record(host, now)
        if held_ms:
            self._record(listener, -1, now)
            return Held(held_ms)
        limit = self._of_hosts.get(host, self._host_max)
        if self._per_host[host] >= limit:
            return Refused(limit)
        self._per_host[host] += 1
        self._per_listener[listener] += 1
        self._accepted[listener] += 1
        self._total += 1
        return Taken(delay_ms)

    def left(self, listener: str, host: str) -> None:
        """One that was taken is gone."""
        self._total -= 1
        self._per_listener[listener] -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    # -- too many ----------------------------------------------------------------------------------------------------

    @property
    def excess(self) -> int:
        """How many connections of listeners that are not spared are to be closed."""
        return max(self._total - self._broker.connections, 0)

    def spares(self, listener: str) -> bool:
        """Whether no connection of this listener is closed for that."""
        return listener == self._spared

    # -- rates -------------------------------------------------------------------------------------------------------

    def _ceiling(self, listener: str) -> Ceiling:
        return self._of_listeners.get(listener, self._broker)

    def _record(self, listener: str, count: int, now: float) -> int:
        """In the rates of the listener and, unless it is spared, of the broker; the longer of the two delays."""
        delay_ms = self._record_one(listener, self._ceiling(listener).rate, count, now)
        if listener == self._spared:
            return delay_ms
        return max(delay_ms, self._record_one(None, self._broker.rate, count, now))

    def _record_one(self, whose: str | None, limit: int, count: int, now: float) -> int:
        if limit == UNLIMITED:
            self._rates.pop(whose, None)
            return 0
        rate = self._rates.get(whose)
        if rate is None:
            rate = self._rates[whose] = Rate(self._window, now)
        rate.record(count, now)
        longest_ms = round(self._window.sample_s * 1000)
        return min(rate.delay_ms(limit, now), longest_ms) if limit > 0 else longest_ms
