"""Changes of settings while the broker runs: what AlterConfigs and IncrementalAlterConfigs may change, and the result.

Pure: from the stored settings and a request to the new settings, or a `KafkaError` that names key and value. Error
codes are Apache Kafka's: INVALID_REQUEST for requests that make no sense and for broker settings, INVALID_CONFIG for
settings of topics, groups and client-metrics subscriptions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import is_internal
from barnabas.server.config import groups as group_config
from barnabas.server.config import topics as topic_config
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.listener_changes import why_not_now
from barnabas.server.config.problems import SettingsRefused, refusal
from barnabas.server.settings import CLIENT_METRICS, GROUP, TOPIC, Setting, Type, listener_keys

log = logging.getLogger("barnabas.config")


VALUE_BYTES_MAX = 32_767
"""Of one value, in UTF-8. A longer one could not be described (DescribeConfigs); only APPEND could come to it."""


_SOME = frozenset({"max.connections", "max.connection.creation.rate"})
"""Without any connection, the limit could not be changed again."""

CHANGES_MAX = 10_000
"""Of one resource in one request; there are some hundred settings."""


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with one key. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """`operation` is the number as sent, perhaps an unknown one."""

    name: str
    operation: int
    value: str | None


def check_count(count: int) -> None:
    """Whether a request may change so many settings of one resource. Raises KafkaError INVALID_REQUEST."""
    if count > CHANGES_MAX:
        why = f"{count} settings of one resource in a request, {CHANGES_MAX} are allowed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def check_request(changes: Sequence[Change]) -> None:
    """Rules of both APIs: no key twice, and a value for everything but DELETE. Raises KafkaError INVALID_REQUEST."""
    times = Counter(change.name for change in changes)
    twice = sorted(name for name, count in times.items() if count > 1)
    if twice:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a setting may be named only once in a request: {', '.join(twice)}"
        )
    empty = [change.name for change in changes if change.value is None and change.operation != Operation.DELETE]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"a value is missing for: {', '.join(empty)}")


def apply(
    stored: Mapping[str, str], changes: Sequence[Change], row_of: Callable[[str], Setting | None]
) -> dict[str, str]:
    """What shall be stored after `changes`. Of the values only lengths are checked. Raises KafkaError."""
    after = dict(stored)
    for change in changes:
        try:
            operation = Operation(change.operation)
        except ValueError:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"unknown operation {change.operation} on {change.name}"
            ) from None
        if operation is Operation.DELETE:
            after.pop(change.name, None)
            continue
        assert change.value is not None
        if operation is Operation.SET:
            after[change.name] = change.value
            continue
        row = row_of(change.name)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown setting: {change.name}")
        if row.type is not Type.LIST:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{operation.name} is for lists, and {change.name} is not one")
        before = _items(after.get(change.name, row.default_text or ""))
        given = _items(change.value)
        if operation is Operation.APPEND:
            known = set(before)
            items = before + [item for item in given if item not in known]
        else:
            doomed = set(given)
            items = [item for item in before if item not in doomed]
        value = ",".join(items)
        if len(value.encode()) > VALUE_BYTES_MAX:
            why = f"its value would have more than {VALUE_BYTES_MAX} bytes"
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{change.name} cannot grow further: {why}")
        after[change.name] = value
    return after


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def topic_row(name: str) -> Setting | None:
    row = TOPIC.get(name)
    return row.setting if row is not None else None


def group_row(name: str) -> Setting | None:
    row = GROUP.get(name)
    return row.setting if row is not None else None


def client_metrics_row(name: str) -> Setting | None:
    return CLIENT_METRICS.get(name)


def broker_row(name: str) -> Setting | None:
    """Of a broker's setting, also of one with a listener's prefix."""
    return listener_keys.row_of(name)


def check_topic(config: BrokerConfig, topic: str, after: Mapping[str, str]) -> None:
    """Whether `topic` may have exactly these settings. Raises KafkaError INVALID_CONFIG. Logs what has no effect."""
    topic_config.check(config, after)
    if not is_internal(topic):
        for text in topic_config.remarks(after):
            log.warning("topic %s: %s", topic, text)


def check_group(config: BrokerConfig, group_id: str, after: Mapping[str, str]) -> None:
    """Whether the group may have exactly these settings. Raises KafkaError INVALID_CONFIG."""
    group_config.check(config, after)


def check_broker(config: BrokerConfig, after: Mapping[str, str], *, per_broker: bool) -> BrokerConfig:
    """Whether exactly these may be the dynamic settings of this broker, or of all brokers; returns the result.

    Raises KafkaError INVALID_REQUEST. Unknown keys are accepted with a warning, as Apache Kafka does for its plug-ins;
    known keys without effect are accepted and logged when the new configuration is made.
    """
    for name, text in after.items():
        row = broker_row(name)
        if row is None:
            continue
        why = listener_keys.why_not_dynamic(name, row, per_broker=per_broker) or row.why_not(text)
        if why is None and row.name in _SOME and int(text) < 1:
            why = "while the broker runs it must be at least 1"
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, refusal(name, text, why))
    try:
        if per_broker:
            changed = config.with_checked(cluster=config.cluster_defaults, broker=after)
        else:
            changed = config.with_checked(cluster=after, broker=config.broker_overrides)
    except SettingsRefused as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    why = why_not_now(config, changed)
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    _check_cleaners(config.get_int("log.cleaner.threads"), changed.get_int("log.cleaner.threads"))
    return changed


def _check_cleaners(before: int, after: int) -> None:
    """Apache Kafka lets their number grow to the double and shrink to the half in one step. Raises KafkaError."""
    least, most = max(before // 2, 1), before * 2
    if after != before and not least <= after <= most:
        why = f"while the broker runs with {before} it can be changed to {least} at least and {most} at most"
        raise KafkaError(ErrorCode.INVALID_REQUEST, refusal("log.cleaner.threads", str(after), why))
