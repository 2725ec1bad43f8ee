"""What clients push (KIP-714), and how many do: see `barnabas.server.telemetry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.server.metrics.page import Page, escaped
from barnabas.server.runtime.turns import Steps

if TYPE_CHECKING:
    from barnabas.server.metrics.sources import Sources
    from barnabas.server.telemetry.pushed import ClientSeries
    from barnabas.server.telemetry.telemetry import Telemetry

_MANAGER: Final = "kafka_server_client_metrics"
_AT_ONCE: Final = 50
"""Series of a client in one step, of `_UNITS`."""
_UNITS: Final = 20


def add_pushed(page: Page, sources: Sources) -> Steps[None]:
    """The series of clients, if they may push."""
    telemetry = sources.services.telemetry
    if telemetry is None:
        return
    now_ms = sources.services.now() * 1000
    _add_sums(page, telemetry, now_ms)
    kinds: dict[str, bool] = {}
    for _, client in telemetry.clients(now_ms):
        yield from _add_client(page, client, kinds)


def _add_client(page: Page, client: ClientSeries, kinds: dict[str, bool]) -> Steps[None]:
    caller = ",".join(f'{name}="{escaped(client.info[name])}"' for name in ("client_instance_id", "client_id"))
    inner = ",".join(f'{name}="{escaped(value)}"' for name, value in client.info.items())
    page.gauge(
        "barnabas_client_info",
        "Always 1: a client that pushes metrics, and what it says of itself (KIP-714).",
        1,
        f"{{{inner}}}",
    )
    names = client.names
    # A copy: the client may push between two steps.
    for number_of, ((name, is_counter, labels), held) in enumerate(list(client.values.items())):
        if number_of % _AT_ONCE == 0:
            yield _UNITS
        # Of a name that clients use for both, the first one's kind counts. A counter `x` is `x_total`.
        if kinds.setdefault(name.removesuffix("_total"), is_counter) is not is_counter:
            continue
        text = f"Pushed by clients (KIP-714) as {names[name]}."
        lines = page.counters(name.removesuffix("_total"), text) if is_counter else page.gauges(name, text)
        own = "".join(f',{label}="{escaped(value)}"' for label, value in labels)
        lines.append(f"{name}{{{caller}{own}}} {number(held.value)}")


def number(value: float) -> str:
    """A value as Prometheus reads it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(value)


def _add_sums(page: Page, telemetry: Telemetry, now_ms: float) -> None:
    instances = telemetry.instances
    page.gauge(f"{_MANAGER}_instance_count", "Clients that push metrics, or have asked which.", instances.count(now_ms))
    for name, text, value in (
        ("unknown_subscription_request", "Pushes by a subscription that has changed.", instances.unknown_subscriptions),
        ("throttle", "Requests of clients that push metrics or ask which, sooner than they may.", instances.throttled),
        ("plugin_export", "Pushes of metrics that were taken.", telemetry.pushes),
        ("plugin_error", "Pushes of metrics that could not be read.", telemetry.errors),
    ):
        page.counter(f"{_MANAGER}_{name}", text, value)
    page.gauge("barnabas_client_series", "Series that clients push.", telemetry.series_count)
    page.counter(
        "barnabas_client_samples_left_out",
        "Values that clients have pushed and that are not shown: beyond metrics.telemetry.series.max, "
        "metrics.telemetry.client.series.max, or no value of a counter.",
        telemetry.dropped,
    )
