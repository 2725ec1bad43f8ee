"""The last values that clients have pushed, by client instance (KIP-714), as `/metrics` shows them.

Names are those of OpenTelemetry's exporter for Prometheus: `org.apache.kafka.consumer.fetch.manager.fetch.latency.avg`
becomes `org_apache_kafka_consumer_fetch_manager_fetch_latency_avg`, counters end in `_total`. So dashboards for a
collector behind Apache Kafka find them here. A name that does not begin with `org.apache.kafka.` gets `client_pushed_`
before it: no client can speak in the broker's name. Labels are `client_instance_id`, `client_id` and the attributes of
the point; what the client says of all its metrics (its group, its rack) is on `barnabas_client_info` alone.

Values of a client are kept until it was silent for as long as its instance may be (`instances`), or for two minutes
after it said that it ends. A gauge that three pushes did not mention – of a partition that is consumed no more – is
dropped before that. Counters of Java come as differences, and are added up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import inf, isfinite
from typing import Final, NamedTuple, TypeAlias

from barnabas.server.telemetry.otlp import Attributes, Point, Pushed

ENDED_MS: Final = 120_000
GAUGE_PUSHES: Final = 3
STANDARD: Final = "org.apache.kafka."
OTHERS: Final = "client_pushed_"
OURS: Final = frozenset({"client_instance_id", "client_id"})

_LOOK_MS: Final = 1000
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]+")


class Key(NamedTuple):
    """A series of one client. name: of the sample, `_total` included. labels: the attributes, sorted by name."""

    name: str
    is_counter: bool
    labels: tuple[tuple[str, str], ...]


Keyed: TypeAlias = tuple[Key, Point]


class Ready(NamedTuple):
    """What was pushed, with the series of each point. Made off the loop: names take time."""

    resource: Attributes
    points: list[Keyed]
    left_out: int


def ready(pushed: Pushed) -> Ready:
    """What was pushed, to be kept."""
    resource = {label(name): value for name, value in pushed.resource.items()}
    return Ready(resource, [(_key(point), point) for point in pushed.points], pushed.left_out)


class _Value:
    __slots__ = ("push", "value")

    def __init__(self, value: float, push: int) -> None:
        self.value = value
        self.push = push


class ClientSeries:
    """What one client instance pushes. `info`: what is known of it, label by label."""

    __slots__ = ("_push", "expires_ms", "info", "names", "values")

    def __init__(self) -> None:
        self.info: Attributes = {}
        self.values: dict[Key, _Value] = {}
        self.names: dict[str, str] = {}  # of the samples, the client's own
        self.expires_ms = 0.0
        self._push = 0

    def take(self, points: Sequence[Keyed], room: int) -> int:
        """Keep what was pushed, as far as there is room for new series. Returns how many points were not kept."""
        self._push += 1
        left_out = 0
        for key, point in points:
            held = self.values.get(key)
            if not _is_value(point) or (held is None and len(self.values) >= room):
                left_out += 1
                continue
            if held is None:
                held = self.values[key] = _Value(0.0, 0)
                self.names[key.name] = point.name
            held.value = held.value + point.value if point.is_delta else point.value
            held.push = self._push
        oldest = self._push - GAUGE_PUSHES
        gone = [key for key, held in self.values.items() if not key.is_counter and held.push <= oldest]
        for key in gone:
            del self.values[key]
        if gone:
            self.names = {key.name: self.names[key.name] for key in self.values}
        return left_out


class PushedSeries:
    """Of all clients. Milliseconds of any clock that does not go back. dropped: points that were not kept, for want of
    room or of a value.
    """

    def __init__(self) -> None:
        self._clients: dict[bytes, ClientSeries] = {}
        self._count = 0
        self._looked_ms = -inf
        self.dropped = 0

    def take(
        self,
        instance_id: bytes,
        info: Attributes,
        pushed: Ready,
        now_ms: float,
        *,
        kept_ms: float,
        series_max: int,
        client_series_max: int,
    ) -> None:
        """A client has pushed. info: what the broker knows of it; it beats what the client says. kept_ms: how long."""
        if now_ms - self._looked_ms >= _LOOK_MS:
            self._expire(now_ms)
        client = self._clients.get(instance_id)
        if client is None:
            client = self._clients[instance_id] = ClientSeries()
        before = len(client.values)
        client.info = {**pushed.resource, **info}
        room = min(client_series_max, before + max(0, series_max - self._count))
        self.dropped += pushed.left_out + client.take(pushed.points, room)
        self._count += len(client.values) - before
        client.expires_ms = now_ms + kept_ms
        if not client.values:
            del self._clients[instance_id]

    def ended(self, instance_id: bytes, now_ms: float) -> None:
        """A client has pushed for the last time."""
        client = self._clients.get(instance_id)
        if client is not None:
            client.expires_ms = min(client.expires_ms, now_ms + ENDED_MS)

    def clients(self, now_ms: float) -> list[tuple[bytes, ClientSeries]]:
        """The clients whose values are not too old, a new list."""
        self._expire(now_ms)
        return list(self._clients.items())

    def __len__(self) -> int:
        """How many series there are."""
        return self._count

    def _expire(self, now_ms: float) -> None:
        self._looked_ms = now_ms
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._count -= len(self._clients.pop(instance_id).values)


def sample_name(name: str, is_counter: bool) -> str:
    """The name of a sample, from a metric's name as clients give it."""
    plain = _NOT_IN_NAMES.sub("_", name).strip("_") or "unnamed"
    if not name.startswith(STANDARD):
        plain = OTHERS + plain
    return plain if not is_counter or plain.endswith("_total") else f"{plain}_total"


def label(name: str) -> str:
    """The name of a label, from an attribute's."""
    plain = _NOT_IN_NAMES.sub("_", name).strip("_") or "unnamed"
    return f"_{plain}" if plain[0].isdigit() else plain


def _key(point: Point) -> Key:
    named = {label(name): value for name, value in point.attributes.items()}
    labels = tuple(sorted((name, value) for name, value in named.items() if name not in OURS))
    return Key(sample_name(point.name, point.is_counter), point.is_counter, labels)


def _is_value(point: Point) -> bool:
    """Counters do not shrink, and cannot be added up to what is no number."""
    return not point.is_counter or (isfinite(point.value) and point.value >= 0)
