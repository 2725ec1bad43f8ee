"""The settings of one group (resource type GROUP): values, checks, and what the group machine needs of them.

A group's setting overrides the broker setting behind it (`barnabas.server.settings.share_groups` and others), and must
lie within the bounds that the broker sets for that. Any group id may have some, also of a group that does not exist.
They are kept in the metadata store, under `/config/groups` (`barnabas.replication.tree.paths`). Milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.coordinator import GroupSettings
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.describe import ConfigEntry, Source, Synonym, documentation
from barnabas.server.config.problems import refusal
from barnabas.server.settings import BROKER, GROUP, BadValue, Value, render

_KINDS = ("consumer", "share", "streams")


def _default(config: BrokerConfig, name: str) -> Value:
    row = GROUP[name]
    return config.get_value(row.broker_key) if row.broker_key else row.setting.default


def value_of(config: BrokerConfig, stored: Mapping[str, str], name: str) -> Value:
    """The value in force. Invalid stored values (another broker may have written them) are ignored."""
    text = stored.get(name)
    if text is not None:
        try:
            return GROUP[name].setting.parse(text)
        except BadValue:
            pass
    return _default(config, name)


def bounded(config: BrokerConfig, stored: Mapping[str, str], name: str) -> int:
    """A number in force. The group's own is brought within the broker's bounds, which may have moved since."""
    value = value_of(config, stored, name)
    assert isinstance(value, int)
    if name in stored:
        _, low, _, high = _bounds(config, name)
        value = value if low is None else max(value, low)
        value = value if high is None else min(value, high)
    return value


def settings_of(config: BrokerConfig, stored: Mapping[str, str]) -> GroupSettings:
    """The values for the group machine, of a next-generation group with these settings of its own."""
    return GroupSettings(
        session_timeout_ms=bounded(config, stored, "consumer.session.timeout.ms"),
        heartbeat_interval_ms=bounded(config, stored, "consumer.heartbeat.interval.ms"),
        assignment_interval_ms=bounded(config, stored, "consumer.assignment.interval.ms"),
    )


def check(config: BrokerConfig, after: Mapping[str, str]) -> None:
    """Whether a group may be given exactly these settings. Raises KafkaError INVALID_CONFIG naming key and value."""
    for name, text in after.items():
        row = GROUP.get(name)
        if row is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group setting: {name}")
        why = row.setting.why_not(text) or _out_of_bounds(config, name, row.setting.parse(text))
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, refusal(name, text, why))
    for kind in _KINDS:
        session, beat = (value_of(config, after, f"{kind}.{which}") for which in _SESSION_AND_BEAT)
        if isinstance(session, int) and isinstance(beat, int) and session <= beat:
            names = [f"{kind}.{which}={value}" for which, value in zip(_SESSION_AND_BEAT, (session, beat), strict=True)]
            raise KafkaError(ErrorCode.INVALID_CONFIG, " must be above ".join(names))


_SESSION_AND_BEAT = ("session.timeout.ms", "heartbeat.interval.ms")


def _bounds(config: BrokerConfig, name: str) -> tuple[str, int | None, str, int | None]:
    """The broker's settings that bound one of a group, and their values: the least and the most."""
    kind, _, rest = name.replace(".num.", ".").partition(".")
    least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    low = config.get_int(least) if least in BROKER else None
    high = config.get_int(most) if most in BROKER else None
    return least, low, most, high


def _out_of_bounds(config: BrokerConfig, name: str, value: Value) -> str | None:
    """Why the broker's settings forbid this value, as the end of a sentence."""
    if not isinstance(value, int):
        return None
    least, low, most, high = _bounds(config, name)
    if low is not None and value < low:
        return f"it must be at least {least}={low}"
    if high is not None and value > high:
        return f"it must be at most {most}={high}"
    return None


def entries(config: BrokerConfig, stored: Mapping[str, str], names: Collection[str] = ()) -> list[ConfigEntry]:
    """A group's settings as DescribeConfigs shows them. `names`: only these; none: all."""
    found = []
    for name, row in sorted(GROUP.items()):
        setting = row.setting
        if names and name not in names:
            continue
        text = render(setting.type, value_of(config, stored, name))
        default = render(setting.type, _default(config, name))
        behind = [Synonym(row.broker_key or name, default, _source(config, row.broker_key))]
        if name in stored:
            behind.insert(0, Synonym(name, text, Source.GROUP))
        found.append(
            ConfigEntry(name, text, behind[0].source, False, False, setting.type, documentation(setting), tuple(behind))
        )
    return found


def _source(config: BrokerConfig, key: str) -> Source:
    """Which layer the broker setting behind one is set in."""
    layers = (
        (config.broker_overrides, Source.DYNAMIC_BROKER),
        (config.cluster_defaults, Source.DYNAMIC_DEFAULT_BROKER),
        (config.static, Source.STATIC_BROKER),
    )
    return next((source for layer, source in layers if key in layer), Source.DEFAULT)
