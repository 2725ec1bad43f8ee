"""The settings of one client-metrics subscription (KIP-714, resource type CLIENT_METRICS): checked, read, and shown.

They are kept in the metadata store, under `/config/client-metrics` (`barnabas.replication.tree.paths`), and are gone
with their last setting. What they come to is `barnabas.server.telemetry`'s to know. Source:
`ClientMetricsConfigs.java`, `ConfigHelper.scala` (4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config.describe import ConfigEntry, Source, Synonym, documentation
from barnabas.server.config.problems import refusal
from barnabas.server.runtime.patterns import NoExpressions, compile_pattern
from barnabas.server.settings import CLIENT_METRICS, BadValue, parse, render

SELECTORS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""What `match` may ask for."""

Matches = Callable[[str], bool]

_SIMPLE: Final = r"(?:[\w:@/ ,;%&~#!<>-]|\\\.|\.(?![*+?{]))*(?:\.\*)?"
"""Text with `.` for any character and `.*` at the end: what Python's own expressions, too, match in linear time."""


class Subscription(NamedTuple):
    """The settings of one, read. metrics: prefixes of names, or `*`. match: by selector, whether a client's value
    matches.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Matches]


def check(after: Mapping[str, str]) -> None:
    """Whether a subscription may have exactly these settings; no settings, that it be removed. Raises KafkaError:
    INVALID_REQUEST for unknown settings and an interval out of bounds, INVALID_CONFIG for all else.
    """
    for name, text in after.items():
        row = CLIENT_METRICS.get(name)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics setting: {name}")
        try:
            parse(row.type, text)
        except BadValue as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(name, text, f"it {error}")) from None
        why = row.why_not(text)
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, refusal(name, text, why))
    read(after)


def read(stored: Mapping[str, str]) -> Subscription:
    """A subscription with these settings. Raises KafkaError INVALID_CONFIG for those that mean nothing, and for
    expressions that this installation cannot match.
    """
    values = {}
    for name, row in CLIENT_METRICS.items():
        text = stored.get(name)
        try:
            values[name] = row.default if text is None else row.parse(text)
        except BadValue as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(name, str(text), f"it {error}")) from None
    metrics, interval_ms, match = values["metrics"], values["interval.ms"], values["match"]
    assert isinstance(metrics, tuple)
    assert isinstance(interval_ms, int)
    assert isinstance(match, tuple)
    return Subscription(metrics, interval_ms, _selectors(match))


def _selectors(items: Sequence[str]) -> dict[str, Matches]:
    found = {}
    for item in items:
        parts = item.split("=")
        while parts and not parts[-1]:  # Java's split leaves out what is empty at the end
            del parts[-1]
        name = parts[0].strip() if parts else ""
        if len(parts) != 2 or name not in SELECTORS:
            known = ", ".join(sorted(SELECTORS))
            why = f"{item!r} is not key=expression, with one of the keys {known}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal("match", ",".join(items), why))
        expression = parts[1].strip()
        try:
            found[name] = _matcher(expression)
        except NoExpressions as error:
            why = f"{expression!r} is more than plain text, and {error.message}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal("match", ",".join(items), why)) from None
        except KafkaError as error:
            why = f"{expression!r} is no expression of RE2: {error.message}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal("match", ",".join(items), why)) from None
    return found


def _matcher(expression: str) -> Matches:
    """What is as good as plain text needs no library."""
    if re.fullmatch(_SIMPLE, expression) is None:
        return compile_pattern(expression)
    compiled = re.compile(expression)
    return lambda text: compiled.fullmatch(text) is not None


def entries(stored: Mapping[str, str], names: Collection[str] = ()) -> list[ConfigEntry]:
    """A subscription's settings as DescribeConfigs shows them. `names`: only these; none: all."""
    found = []
    for name, row in sorted(CLIENT_METRICS.items()):
        if names and name not in names:
            continue
        text = stored.get(name)
        value = row.default_text
        source = Source.DEFAULT
        behind: tuple[Synonym, ...] = ()
        if text is not None:
            try:
                value = render(row.type, row.parse(text))
            except BadValue:  # of another broker
                value = text
            source, behind = Source.CLIENT_METRICS, (Synonym(name, value, Source.CLIENT_METRICS),)
        found.append(ConfigEntry(name, value, source, False, False, row.type, documentation(row), behind))
    return found
