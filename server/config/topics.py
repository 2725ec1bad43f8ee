"""A topic's settings: what is set on it over the broker's defaults, as values, as a `LogConfig`, and checked.

Precedence is Kafka's: the topic's own setting, then the broker settings behind it (`barnabas.server.settings.topic`) in
their layers, then the default. One exception: the bounds of timestamps fall back to
`message.timestamp.difference.max.ms` while they are not set (KIP-937).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import refusal, shown
from barnabas.server.settings import TOPIC, BadValue, Support, Value

if TYPE_CHECKING:
    from barnabas.logdir import LogConfig

LONG_MAX = 2**63 - 1
REMEMBERED_MAX = 1000
_TIMESTAMP_BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
NOT_OF_THE_LOG = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.format.version",
        "message.timestamp.difference.max.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
"""Topic settings that `LogConfig` has no field for: they concern other parts, or are folded into another field."""


def default_value(config: BrokerConfig, name: str) -> Value:
    """The value for a topic that does not set `name`. Raises KeyError for an unknown name."""
    row = TOPIC[name]
    for broker_key in row.broker_keys:
        value = config.get_value(broker_key.name)
        if value is not None:
            if broker_key.factor != 1 and isinstance(value, int):
                value *= broker_key.factor
            if name == "retention.ms" and isinstance(value, int) and value < 0:
                return -1
            if name in _TIMESTAMP_BOUNDS and value == LONG_MAX:
                return config.get_value("log.message.timestamp.difference.max.ms")
            return value
    return row.setting.default


def values_of(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Every topic setting's value. Unknown or invalid overrides (they may come from a store) are ignored."""
    values = {name: default_value(config, name) for name in TOPIC}
    for name, text in overrides.items():
        if name in TOPIC:
            try:
                values[name] = TOPIC[name].setting.parse(text)
            except BadValue:
                continue
    return values


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """The settings of the log. Never raises for invalid `overrides` (see `values_of`)."""
    from barnabas.logdir import LogConfig  # here, so that showing settings does not load the log code

    values = values_of(config, overrides)
    difference = values["message.timestamp.difference.max.ms"]
    for name in _TIMESTAMP_BOUNDS:
        if values[name] == LONG_MAX:
            values[name] = difference
    fields: dict[str, object] = {
        name.replace(".", "_"): value for name, value in values.items() if name not in NOT_OF_THE_LOG
    }
    fields["cleanup_policy"] = frozenset(cast("tuple[str, ...]", values["cleanup.policy"]))
    return LogConfig(**fields)  # type: ignore[arg-type]  # names and types are held together by a test


class LogConfigs:
    """`log_config` for many partitions: equal settings share one value. A start with 2,000 partitions needs 4,000, at
    0.15 ms each.
    """

    def __init__(self, current_config: Callable[[], BrokerConfig]) -> None:
        self._current_config = current_config
        self._made_of: BrokerConfig | None = None
        self._made: dict[tuple[tuple[str, str], ...], LogConfig] = {}

    def __call__(self, overrides: Mapping[str, str]) -> LogConfig:
        """The log settings of a topic with these settings, with the broker's settings in force."""
        config = self._current_config()
        if config is not self._made_of or len(self._made) > REMEMBERED_MAX:
            self._made_of = config
            self._made = {}
        key = tuple(sorted(overrides.items()))
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = log_config(config, overrides)
        return made


def check(config: BrokerConfig, overrides: Mapping[str, str | None]) -> None:
    """Whether a topic may be given exactly these settings. Raises KafkaError INVALID_CONFIG naming key and value."""
    nulls = sorted(name for name, text in overrides.items() if text is None)
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"a topic setting needs a value: {', '.join(nulls)}")
    values = {name: default_value(config, name) for name in TOPIC}
    for name, text in overrides.items():
        row = TOPIC.get(name)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic setting: {name}")
        assert text is not None
        why = row.setting.why_not(text)
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(name, text, why))
        values[name] = row.setting.parse(text)
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(least, int) and isinstance(most, int) and least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"min.compaction.lag.ms={least} must not be above max.compaction.lag.ms={most}"
        )


def remarks(overrides: Mapping[str, str]) -> list[str]:
    """Warnings about settings stored on a topic: unknown, invalid, or without effect here."""
    lines = []
    for name, text in overrides.items():
        row = TOPIC.get(name)
        if row is None:
            lines.append(f"{name}={shown(name, text)} is unknown and is ignored")
            continue
        why = row.setting.why_not(text)
        if why is not None:
            lines.append(f"{name}={text} is ignored: {why}")
        elif row.setting.support is Support.NO_EFFECT:
            lines.append(f"{name}={text} has no effect here: {row.setting.note}")
    return lines
