"""Requests by API and by client, connections, log-ins, quotas, and what waits: what clients make a broker do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from barnabas.server.metrics.meter import PHASES
from barnabas.server.metrics.page import Page, escaped, labels
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources

_REQUESTS: Final = "kafka_network_requestmetrics"
_AS_KAFKA: Final = (
    ("requestqueuetimems", "queue", "from the start of the round that received it to its handler"),
    ("localtimems", "handling", "in the handler"),
    ("remotetimems", "waiting", "between handler and answer: for the write, replicas, records, members"),
    ("responsesendtimems", "sending", "from the answer to its last byte"),
    ("totaltimems", "total", "in all"),
)
_SOFTWARE_MAX: Final = 50
"""Clients by name and version of their software; more are counted as `other`."""
_UNITS: Final = 30
"""The cost of an API's lines."""


def add_requests(page: Page, sources: Sources, now: float) -> Steps[None]:
    """By API: numbers, errors, times."""
    meter = sources.counted.meter
    apis = sorted((usage for usage in meter.apis.values() if usage.requests), key=lambda usage: usage.name)
    lines = page.counters(
        f"{_REQUESTS}_requests", "Requests by API and version. Of Fetch those of followers are apart."
    )
    for usage in apis:
        for version, count in usage.requests.items():
            lines.append(f'{_REQUESTS}_requests_total{{request="{usage.name}",version="{version}"}} {count}')
    lines = page.counters(f"{_REQUESTS}_errors", "Errors in answers, one for each topic, partition or group with one.")
    for name, error, count in meter.errors.items():
        lines.append(f'{_REQUESTS}_errors_total{{request="{name}",error="{error}"}} {count}')
    for usage in apis:
        yield _UNITS
        phases = dict(zip(PHASES, zip(usage.phases, usage.recent, strict=True), strict=True))
        for name, phase, text in _AS_KAFKA:
            histogram, recent = phases[phase]
            page.summary_ms(
                f"{_REQUESTS}_{name}",
                f"Milliseconds of a request {text}; quantiles of the last one or two minutes.",
                f'request="{usage.name}"',
                histogram,
                recent.counts(now),
            )
    for usage in apis:
        yield _UNITS
        for phase, histogram in zip(PHASES, usage.phases, strict=True):
            page.histogram(
                "barnabas_request_duration_seconds",
                "Seconds of requests: queue, handling, waiting and sending follow one another; total is all of them.",
                f'request="{usage.name}",phase="{phase}"',
                histogram,
            )


def add_clients(page: Page, sources: Sources) -> Steps[None]:
    """By client id; connections."""
    clients = sources.counted.meter.clients(sources.reactor.connections)
    families = (
        ("requests", "Requests by client id; as `other` those of ids beyond metrics.clients.max."),
        ("bytes_in", "Bytes of requests by client id."),
        ("bytes_out", "Bytes of responses by client id."),
    )
    lists = [page.counters(f"barnabas_client_{name}", text) for name, text in families]
    for client_id, usage in sorted(clients.items()):
        yield 1
        label = f'{{client_id="{escaped(client_id)}"}}'
        for (name, _), lines, value in zip(
            families, lists, (usage.requests, usage.bytes_in, usage.bytes_out), strict=True
        ):
            lines.append(f"barnabas_client_{name}_total{label} {value}")


def add_connections(page: Page, sources: Sources) -> Steps[None]:
    """Connections by listener and by the software of clients, and the memory that they hold."""
    services = sources.services
    prefix = "kafka_server_socket_server_metrics"
    limits = sources.admission.limits
    names = sorted({*(address.name for address in services.config.listeners), *limits.accepted_by_listener})
    for name, text, counts in (
        ("connection_count", "Open connections by listener.", limits.by_listener),
        ("connection_creation", "Connections that were accepted, by listener.", limits.accepted_by_listener),
    ):
        for listener in names:
            braces = labels(listener=listener, networkProcessor="0")
            if name == "connection_count":
                page.gauge(f"{prefix}_{name}", text, counts.get(listener, 0), braces)
            else:
                page.counter(f"{prefix}_{name}", text, counts.get(listener, 0), braces)
    software: Counter[tuple[str, str]] = Counter()
    received = unsent = waiting = answered = 0
    for connection in sources.reactor.connections:
        yield 1
        received += connection.backlog_bytes
        unsent += connection.out_bytes
        waiting += connection.has_request
        answered += connection.out_bytes > 0
        name, _, version = (connection.software or "unknown").rpartition(" ")
        key = (name, version) if name else (version, "unknown")
        if key not in software and len(software) >= _SOFTWARE_MAX:
            key = "other", "other"
        software[key] += 1
    lines = page.gauges(f"{prefix}_connections_software", "Open connections by the software that clients name.")
    for (name, version), count in sorted(software.items()):
        braces = labels(clientSoftwareName=name, clientSoftwareVersion=version)
        lines.append(f"{prefix}_connections_software{braces} {count}")
    channel = "kafka_network_requestchannel"
    page.gauge(f"{channel}_requestqueuesize", "Connections with a request that is not taken up yet.", waiting)
    page.gauge(f"{channel}_responsequeuesize", "Connections whose response is not sent completely.", answered)
    memory = page.gauges("barnabas_memory_bytes", "Memory by owner, as far as it is counted.")
    for owner, size in (
        ("requests that arrive", received),
        ("responses that are not sent", unsent),
        ("indexes", sum(each.loaded_index_bytes for each in services.partitions.log_dirs.online)),
    ):
        memory.append(f"barnabas_memory_bytes{labels(owner=owner)} {size}")


def add_waiting(page: Page, sources: Sources) -> None:
    """What waits, and for what; the loop's idle share."""
    services = sources.services
    idle = round(sources.counted.loop.idle_share(), 4)
    text = "The share of time in which the event loop's thread is idle, from 0 to 1."
    page.gauge("kafka_network_socketserver_networkprocessoravgidle_percent", text, idle)
    page.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", text, idle)
    sessions = services.fetch_sessions
    page.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Incremental fetch sessions (KIP-227).",
        len(sessions),
    )
    page.gauge(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions in incremental fetch sessions.",
        sessions.size,
    )
    page.counter(
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
        "Incremental fetch sessions that were closed to make room for others, or were idle for two minutes.",
        sessions.evictions,
    )
