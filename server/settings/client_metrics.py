"""Settings of client-metrics subscriptions (KIP-714, resource type CLIENT_METRICS): which clients push which of their
metrics, and how often.

Names, types and defaults are Apache Kafka's (`ClientMetricsConfigs.java`, 4.3.1). 3.9.1 has them under KRaft alone.
What `match` may contain is checked by `barnabas.server.config.client_metrics`.
"""

from __future__ import annotations

from typing import Final

from barnabas.server.settings.model import Setting, Type, between, works

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000

SETTINGS: tuple[Setting, ...] = (
    works(
        "metrics",
        Type.LIST,
        (),
        "What the names of the metrics begin with that matching clients push; * for all. Without any, they push none.",
    ),
    works(
        "interval.ms",
        Type.INT,
        INTERVAL_MS_DEFAULT,
        "How often matching clients push. The shortest interval of all subscriptions that match a client counts.",
        between(100, 3_600_000),
    ),
    works(
        "match",
        Type.LIST,
        (),
        "Which clients: selectors key=expression, of which all must match in full; without any, all clients. Keys are "
        "client_instance_id, client_id, client_software_name, client_software_version, client_source_address and "
        "client_source_port.",
        note="expressions are RE2's (extra `regex`), which match in linear time; text, `.`, a last `.*` need no extra",
    ),
)
