"""Settings as the config APIs show them: value, where it comes from, and what else would count (KIP-226, KIP-569).

Used by DescribeConfigs, by CreateTopics (version 5 answers with the new topic's settings) and by `barnabas config`.

Broker resources list every setting that works here or has one allowed value, and all others that are set. Settings
without effect are left out unless they are set: a list that shows `num.io.threads` would claim that there are such
threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.topics import values_of
from barnabas.server.settings import BROKER, TOPIC, Scope, Setting, Support, render, synonyms
from barnabas.server.settings.listener_keys import row_of


class Source(IntEnum):
    """Where a value comes from: DescribeConfigsResponse.config_source."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


UNKNOWN_TYPE = 0


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class ConfigEntry(NamedTuple):
    """One line of a described resource. `value`: None for unset and sensitive settings. `type`: Kafka's number."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    type: int
    doc: str | None
    synonyms: tuple[Synonym, ...] = ()


def documentation(row: Setting) -> str:
    """The row's text with what is particular here."""
    parts = [row.doc] if row.doc else []
    if row.support is Support.NO_EFFECT:
        parts.append(f"No effect here: {row.note}.")
    elif row.support is Support.ONLY:
        parts.append(f"Only {row.allowed_text} is allowed: {row.note}.")
    elif row.note:
        parts.append(f"{row.note[0].upper()}{row.note[1:]}.")
    return " ".join(parts)


def topic_entries(
    config: BrokerConfig, overrides: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """A topic's settings. `names`: only these; None or empty for all."""
    entries = []
    values = values_of(config, overrides)
    for name, topic_row in sorted(TOPIC.items()):
        if names and name not in names:
            continue
        row = topic_row.setting
        text = render(row.type, values[name])
        behind: tuple[Synonym, ...] = ()
        if topic_row.broker_keys:
            key = topic_row.broker_keys[0].name
            behind = tuple(_layers(config, key))
        if name in overrides:
            behind = (Synonym(name, text, Source.TOPIC), *behind)
        source = behind[0].source if behind else Source.DEFAULT
        entries.append(ConfigEntry(name, text, source, False, False, row.type, documentation(row), behind))
    for name in sorted(overrides):
        if name not in TOPIC and (not names or name in names):
            only = (Synonym(name, None, Source.TOPIC),)
            entries.append(ConfigEntry(name, None, Source.TOPIC, False, True, UNKNOWN_TYPE, None, only))
    return entries


def broker_entries(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """This broker's settings in force. `names`: only these, whatever they are; None or empty for the usual list."""
    entries = []
    for name, row in sorted(BROKER.items()):
        if names:
            wanted = name in names
        else:
            wanted = row.support is not Support.NO_EFFECT or any(config.is_set(other) for other in synonyms(name))
        if not wanted or (row.dynamic_only and not config.is_set(name)):
            continue
        behind = tuple(_layers(config, name))
        source = behind[0].source if behind else Source.DEFAULT
        text = None if row.sensitive else render(row.type, config.get_value(name))
        entries.append(_broker_entry(row, text, source, behind))
    entries += [entry for entry in _unknown_entries(config) if not names or entry.name in names]
    return entries


def cluster_entries(config: BrokerConfig, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """What is set for all brokers of the cluster while they run."""
    entries = []
    for name, text in sorted(config.cluster_defaults.items()):
        if names and name not in names:
            continue
        row = row_of(name)
        shown = None if row is None or row.sensitive else text
        only = (Synonym(name, shown, Source.DYNAMIC_DEFAULT_BROKER),)
        if row is None:
            entries.append(ConfigEntry(name, None, Source.DYNAMIC_DEFAULT_BROKER, True, True, UNKNOWN_TYPE, None, only))
        else:
            entries.append(_broker_entry(row, shown, Source.DYNAMIC_DEFAULT_BROKER, only, name))
    return entries


def _broker_entry(
    row: Setting, text: str | None, source: Source, behind: tuple[Synonym, ...], name: str = ""
) -> ConfigEntry:
    """`name`: where it is not the row's own, for the key of a listener."""
    read_only = row.scope is Scope.READ_ONLY
    return ConfigEntry(name or row.name, text, source, read_only, row.sensitive, row.type, documentation(row), behind)


def _unknown_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Keys that are set but have no row. Those of one listener are read by the row behind their prefix; others are not
    known, and shown without value, since it might be a secret (as Apache Kafka does).
    """
    layers = (
        (config.broker_overrides, Source.DYNAMIC_BROKER),
        (config.cluster_defaults, Source.DYNAMIC_DEFAULT_BROKER),
        (config.static, Source.STATIC_BROKER),
    )
    seen: set[str] = set()
    for layer, source in layers:
        for name in sorted(layer):
            if name in BROKER or name in seen:
                continue
            seen.add(name)
            row = row_of(name)
            if row is None:
                yield ConfigEntry(name, None, source, True, True, UNKNOWN_TYPE, None, (Synonym(name, None, source),))
            else:
                behind = (*_own_layers(config, name, row), *_layers(config, row.name))
                yield _broker_entry(row, behind[0].value, source, behind, name)


def _own_layers(config: BrokerConfig, name: str, row: Setting) -> Iterator[Synonym]:
    """Where a listener's key is set, highest first."""
    for layer, source in (
        (config.broker_overrides, Source.DYNAMIC_BROKER),
        (config.cluster_defaults, Source.DYNAMIC_DEFAULT_BROKER),
        (config.static, Source.STATIC_BROKER),
    ):
        if name in layer:
            yield Synonym(name, None if row.sensitive else layer[name], source)


def _layers(config: BrokerConfig, name: str) -> Iterator[Synonym]:
    """What decides a broker setting, highest first.

    As in Apache Kafka nothing is listed before the first entry of `name` itself: with log.retention.hours set and
    log.retention.ms not, log.retention.ms has no source but the default.
    """
    reached = False
    for layer, source in (
        (config.broker_overrides, Source.DYNAMIC_BROKER),
        (config.cluster_defaults, Source.DYNAMIC_DEFAULT_BROKER),
        (config.static, Source.STATIC_BROKER),
        (None, Source.DEFAULT),
    ):
        for key in synonyms(name):
            row = BROKER[key]
            text = row.default_text if layer is None else layer.get(key)
            if text is None or (row.default is None and not text.strip()):
                continue
            reached = reached or key == name
            if reached:
                yield Synonym(key, None if row.sensitive else text, source)
