"""What one scrape says: families of series, and their text.

A `Page` is filled by collectors, one family after the other, and rendered as Prometheus' text format 0.0.4 or as
OpenMetrics 1.0. The lines of samples are the same in both; only the names of counters in the lines before them differ.
Each family stands there once, in the order in which it was begun, and its samples in the order in which they were
added: collectors sort theirs, so that two scrapes have the same order.

Sources: prometheus.io/docs/instrumenting/exposition_formats, the OpenMetrics specification 1.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas.server.metrics.histogram import BOUNDS_S, QUANTILES, Histogram, quantile

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

NS: Final = 1e9
MS_NS: Final = 1e6

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
SUMMARY: Final = "summary"

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def escaped(value: str) -> str:
    """A label's value between its quotes."""
    if value.isalnum():
        return value
    # What is no text (a client may send half a pair of surrogates) cannot be written as UTF-8.
    return value.translate(_ESCAPED).encode(errors="replace").decode()


def labels(**values: object) -> str:
    """The labels in braces, `{}` included; names as they are written, values escaped."""
    return "{" + ",".join([f'{name}="{escaped(str(value))}"' for name, value in values.items()]) + "}"


class Family(NamedTuple):
    """One metric: its name (without `_total`, for counters), kind and explanation; `lines`: its samples."""

    name: str
    kind: str
    text: str
    lines: list[str]


class Page:
    """See the module."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def _lines(self, name: str, kind: str, text: str) -> list[str]:
        family = self._families.get(name)
        if family is None:
            family = self._families[name] = Family(name, kind, text, [])
        assert family.kind == kind, f"{name} is a {family.kind}, not a {kind}"
        return family.lines

    def gauges(self, name: str, text: str) -> list[str]:
        """Begin gauges: append lines `name{…} value` to the list."""
        return self._lines(name, GAUGE, text)

    def counters(self, name: str, text: str) -> list[str]:
        """Begin counters: append lines `name_total{…} value` to the list. name: without `_total`."""
        return self._lines(name, COUNTER, text)

    def gauge(self, name: str, text: str, value: float, labels: str = "") -> None:
        """Add one gauge."""
        self._lines(name, GAUGE, text).append(f"{name}{labels} {value}")

    def counter(self, name: str, text: str, value: float, labels: str = "") -> None:
        """Add one counter. name: without `_total`."""
        self._lines(name, COUNTER, text).append(f"{name}_total{labels} {value}")

    def histogram(self, name: str, text: str, inner: str, histogram: Histogram) -> None:
        """Add one histogram, of seconds. inner: its labels without braces, or ""."""
        lines = self._lines(name, HISTOGRAM, text)
        comma = "," if inner else ""
        for bound, count in zip(BOUNDS_S, histogram.up_to(), strict=True):
            lines.append(f'{name}_bucket{{{inner}{comma}le="{bound}"}} {count}')
        count = histogram.count
        braces = f"{{{inner}}}" if inner else ""
        lines.append(f'{name}_bucket{{{inner}{comma}le="+Inf"}} {count}')
        lines.append(f"{name}_sum{braces} {histogram.sum_ns / NS}")
        lines.append(f"{name}_count{braces} {count}")

    def summary_ms(self, name: str, text: str, inner: str, histogram: Histogram, recent: list[int]) -> None:
        """Add one summary, of milliseconds: quantiles of the last minutes' `recent` counts, sum and number of all."""
        lines = self._lines(name, SUMMARY, text)
        for share in QUANTILES:
            value = round(quantile(recent, share) / MS_NS, 3)
            lines.append(f'{name}{{{inner},quantile="{_quantile_text(share)}"}} {value}')
        lines.append(f"{name}_sum{{{inner}}} {histogram.sum_ns / MS_NS}")
        lines.append(f"{name}_count{{{inner}}} {histogram.count}")

    @property
    def names(self) -> Iterable[str]:
        """Of its families."""
        return self._families.keys()

    @property
    def sample_count(self) -> int:
        return sum(len(family.lines) for family in self._families.values())

    def render(self, content_type: str) -> Iterator[tuple[bytes, int]]:
        """The page in one of the two formats, in pieces: a family each, and how many lines it has."""
        is_open = content_type == OPEN_METRICS
        for family in self._families.values():
            if family.lines:
                yield _text_of(family, is_open).encode(), len(family.lines)
        if is_open:
            yield b"# EOF\n", 1


def _quantile_text(share: float) -> str:
    """As jmx_exporter's rules write them: 0.50, not 0.5."""
    return f"{share:.2f}" if round(share, 2) == share else f"{share:.3f}"


def _text_of(family: Family, is_open: bool) -> str:
    name = family.name
    if family.kind == COUNTER and not is_open:
        name += "_total"
    text = family.text.replace("\\", "\\\\").replace("\n", "\\n")
    if is_open:
        text = text.replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n" + "\n".join(family.lines) + "\n"
