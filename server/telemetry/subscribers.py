"""What client-metrics subscriptions come to for one client (KIP-714).

A client gets the prefixes of all subscriptions that match it, `*` alone if one of them wants everything, and the
shortest of their intervals. The subscription id changes when any of that changes, and with it a client that pushes with
the old one learns that it has to ask again. It is Apache Kafka's number: CRC-32C of the prefixes as Java prints a list,
and the interval, XOR the hash of the instance id. Java takes the prefixes in the order of a hash table, here they are
sorted: with several of them the numbers differ, which nobody can see. Source: `ClientMetricsManager.java`,
`ClientMetricsInstanceMetadata.java` (4.3.1).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas.kproto import KafkaError, uuid_to_text
from barnabas.kproto.crc32c import crc32c
from barnabas.server.config.client_metrics import Subscription, read
from barnabas.server.settings.client_metrics import ALL_METRICS, INTERVAL_MS_DEFAULT

log = logging.getLogger("barnabas.telemetry")

NAME_LENGTH_MAX: Final = 1000
"""Of what a client says of itself. What is longer is cut, and matches no expression but by its beginning."""


class Caller(NamedTuple):
    """A client as a request shows it. software: name and version, "" where it has not said. port: 0: not known."""

    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int

    def cut(self) -> Caller:
        """With texts of bounded length: it is kept as long as the client is."""
        return self._replace(
            client_id=None if self.client_id is None else self.client_id[:NAME_LENGTH_MAX],
            software_name=self.software_name[:NAME_LENGTH_MAX],
            software_version=self.software_version[:NAME_LENGTH_MAX],
        )


class Subscribed(NamedTuple):
    """What one client pushes. metrics: prefixes, sorted; none: nothing."""

    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int


def subscriptions_of(stored: Mapping[str, Mapping[str, str]]) -> list[Subscription]:
    """The stored subscriptions, in order of name. One that cannot be read – another broker has written it – is logged
    and left out.
    """
    found = []
    for name, settings in sorted(stored.items()):
        try:
            found.append(read(settings))
        except KafkaError as error:
            log.error("client metrics subscription %r is ignored: %s", name[:NAME_LENGTH_MAX], error.message)
    return found


def subscribed(subscriptions: Iterable[Subscription], instance_id: bytes, caller: Caller) -> Subscribed:
    """What a client instance pushes."""
    attributes = {
        "client_instance_id": uuid_to_text(instance_id),
        "client_id": caller.client_id,
        "client_software_name": caller.software_name or "unknown",
        "client_software_version": caller.software_version or "unknown",
        "client_source_address": caller.host,
        "client_source_port": str(caller.port) if caller.port else None,
    }
    metrics: set[str] = set()
    interval_ms = INTERVAL_MS_DEFAULT
    for each in subscriptions:
        if all((value := attributes[name]) is not None and matches(value) for name, matches in each.match.items()):
            metrics.update(each.metrics)
            interval_ms = min(interval_ms, each.interval_ms)
    if ALL_METRICS in metrics:
        metrics = {ALL_METRICS}
    named = tuple(sorted(metrics))
    return Subscribed(named, interval_ms, subscription_id(named, interval_ms, instance_id))


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: bytes) -> int:
    """See the module; a signed number of 32 bits."""
    most, least = _HALVES.unpack(instance_id)
    halves: int = most ^ least
    value: int = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode(errors="replace")) ^ (halves >> 32) ^ halves
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


_HALVES: Final = struct.Struct(">QQ")
