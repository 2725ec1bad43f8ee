"""What clients with quotas have used, and for how long they were held back: as jmx_exporter's rules spell the beans
`kafka.server:type=Produce,user=…,client-id=…` and their like.

A series is that of a share: of a user, of a client id, or of a user's client, whichever the quota in force is for. A
client without a quota has none, as what it uses is not measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.server.metrics.page import Page, labels
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources
    from barnabas.server.security.quotas.limits import Share

_PREFIX: Final = "kafka_server_quota"
_VALUES: Final = {
    "byte_rate": "Bytes per second in the quota's window, of who has a quota of them.",
    "request_time": "Percents of the event loop's thread in the quota's window, of who has a quota of them.",
    "tokens": "How many partitions may be created, added and deleted at once, of who has a quota of them.",
}
_DELAY: Final = "The mean delay in milliseconds of those who were held back within the quota's window, 0 without any."


def add_quotas(page: Page, sources: Sources) -> Steps[None]:
    """By resource, user and client id."""
    quotas, now = sources.services.quotas, sources.services.now()
    shown = sources.config.get_int("metrics.clients.max")
    left_out = 0
    for resource, quota, value in (
        ("Produce", quotas.produce, "byte_rate"),
        ("Fetch", quotas.fetch, "byte_rate"),
        ("Request", quotas.request, "request_time"),
        ("ControllerMutation", quotas.mutations, "tokens"),
    ):
        used = sorted(quota.usage(now), key=lambda usage: _names(usage.share))
        yield 1 + len(used) // 2
        values = page.gauges(f"{_PREFIX}_{value}", _VALUES[value])
        delays = page.gauges(f"{_PREFIX}_throttle_time", _DELAY)
        for usage in used[:shown]:
            braces = _labels(resource, usage.share)
            values.append(f"{_PREFIX}_{value}{braces} {round(usage.value, 3)}")
            delays.append(f"{_PREFIX}_throttle_time{braces} {round(usage.delay_ms, 3)}")
        left_out += max(0, len(used) - shown)
    page.gauge(
        "barnabas_metrics_quotas_left_out",
        "Users and client ids with quotas that have no series, beyond metrics.clients.max of each kind.",
        left_out,
    )


def _names(share: Share) -> tuple[str, str]:
    return share.user or "", share.client_id or ""


def _labels(resource: str, share: Share) -> str:
    named = {"user": share.user, "clientId": share.client_id}
    return labels(resource=resource, **{name: value for name, value in named.items() if value is not None})
