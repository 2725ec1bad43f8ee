"""Settings of metrics: where they are served, and how many series there may be. They are ours: Apache Kafka's metrics
are read through a Java agent.
"""

from __future__ import annotations

from barnabas.server.settings.endpoints import parse_http
from barnabas.server.settings.model import Check, Setting, Type, Value, at_least, works

_OURS = "not a setting of Apache Kafka"


def _is_http(value: Value) -> bool:
    try:
        parse_http(str(value))
    except ValueError:
        return False
    return True


SETTINGS: tuple[Setting, ...] = (
    works(
        "metrics.listener",
        Type.STRING,
        None,
        "Where metrics are served, as http://host:port: /metrics for Prometheus, /health/live, /health/ready. Without "
        "a host on the loopback addresses, 0.0.0.0 means every interface, port 0 any free one. Whoever can connect can "
        "read; nothing can be changed. Without it there are no metrics.",
        Check("http://host:port, with a port from 0 to 65535", _is_http),
        note=_OURS,
    ),
    works(
        "metrics.partitions.max",
        Type.INT,
        10_000,
        "How many partitions of this broker have series of their own. With more, there are none of partitions and "
        "topics, but those of the whole broker.",
        at_least(0),
        note=_OURS,
    ),
    works(
        "metrics.groups.max",
        Type.INT,
        1_000,
        "How many of the groups that this broker coordinates have series of their own, the first by name.",
        at_least(0),
        note=_OURS,
    ),
    works(
        "metrics.clients.max",
        Type.INT,
        100,
        'How many client ids have series of their own; the requests of others count as client_id="other".',
        at_least(0),
        note=_OURS,
    ),
    works(
        "metrics.telemetry.series.max",
        Type.INT,
        10_000,
        "How many series clients can push in all (KIP-714). 0: no client is asked to push.",
        at_least(0),
        note=_OURS,
    ),
    works(
        "metrics.telemetry.client.series.max",
        Type.INT,
        1_000,
        "How many series one client can push, the first that it sends.",
        at_least(0),
        note=_OURS,
    ),
)
