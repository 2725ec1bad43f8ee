"""The broker's settings in force: one frozen value made of layers, with typed getters by Kafka's dotted names.

Layers, highest first (KIP-226): set on this broker while it runs (`/config/brokers/N`), set for all brokers
(`/config/brokers/<default>`), static (command line over environment over file), default. A change while the broker runs
makes a new `BrokerConfig` (`with_dynamic`). What one listener sees is `for_listener`.

A static value that is malformed, out of range or not supported prevents the start with one sentence per key, all
together (`SettingsRefused`). Unknown keys and keys without effect here are accepted and reported in `notices`. A
*stored* dynamic value that is bad is left out with a notice instead: it must not keep a broker from starting, as in
Apache Kafka.

Not here: topic settings (server/config/topics.py), the rows (server/settings/), rules over several keys (`rules`,
`listener_rules`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from barnabas.server.config import listener_rules, rules
from barnabas.server.config.draft import NOTHING, Draft
from barnabas.server.config.problems import Notice, SettingsRefused, shown
from barnabas.server.config.values import ListenerConfig, TypedValues
from barnabas.server.settings import BROKER
from barnabas.server.settings.endpoints import ANY_ADDRESS, ListenAddress, split_list

if TYPE_CHECKING:
    from barnabas.replication import InterBrokerProtocol


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BrokerConfig(TypedValues):
    """Settings of one broker; immutable. Made by a `ConfigBuilder` (`from_values` and `load` are short for it).

    `static`, `cluster_defaults`, `broker_overrides`: the texts of the layers. `listeners`: what to listen on.
    `inter_broker_listener`: name of the listener for traffic between brokers; `control_plane_listener`: of the one for
    the controller's requests, None where that is the same. `notices`: what to warn of.
    """

    static: Mapping[str, str]
    cluster_defaults: Mapping[str, str]
    broker_overrides: Mapping[str, str]
    listeners: tuple[ListenAddress, ...]
    inter_broker_listener: str
    control_plane_listener: str | None
    max_connections_per_ip_overrides: Mapping[str, int]
    notices: tuple[Notice, ...]
    _advertised: tuple[ListenAddress, ...]
    _by_listener: Mapping[str, ListenerConfig]
    _origins: Mapping[str, str]
    _generated_id: int | None

    def __repr__(self) -> str:
        pairs = ", ".join(f"{key}={shown(key, text)}" for key, text in sorted(self.static.items()))
        return f"BrokerConfig({pairs})"

    @classmethod
    def from_values(cls, values: Mapping[str, str], origins: Mapping[str, str] = NOTHING) -> BrokerConfig:
        """A configuration from static values. `origins`: where keys come from, for messages. Raises SettingsRefused."""
        return ConfigBuilder(values, origins).build()

    def with_dynamic(
        self, *, cluster: Mapping[str, str] = NOTHING, broker: Mapping[str, str] = NOTHING
    ) -> BrokerConfig:
        """The same static settings under other dynamic ones. Bad dynamic values are left out with a notice."""
        try:
            return self.with_checked(cluster=cluster, broker=broker)
        except SettingsRefused:
            # rules over several keys; find those that break them by adding one at a time, as long as one can be added
            good: tuple[dict[str, str], dict[str, str]] = ({}, {})
            left = [(level, key) for level, layer in enumerate((cluster, broker)) for key in layer]
            texts = (cluster, broker)
            why: dict[tuple[int, str], SettingsRefused] = {}
            while True:
                before, tried, left = len(left), left, []
                for level, key in tried:
                    good[level][key] = texts[level][key]
                    try:
                        self.with_checked(cluster=good[0], broker=good[1])
                    except SettingsRefused as error:
                        del good[level][key]
                        left.append((level, key))
                        why[level, key] = error
                if len(left) in (0, before):
                    break
            bad = [Notice(one[1], f"a dynamic setting is left out: {why[one]}") for one in left]
            config = self.with_checked(cluster=good[0], broker=good[1])
            return replace(config, notices=(*config.notices, *bad))

    def with_checked(self, *, cluster: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """As `with_dynamic`. Raises SettingsRefused where the values together break a rule."""
        return ConfigBuilder(self.static, self._origins).dynamic(cluster, broker).broker_id(self._generated_id).build()

    def with_broker_id(self, broker_id: int) -> BrokerConfig:
        """The same settings for a broker whose id was generated, or found in its data directory."""
        builder = ConfigBuilder(self.static, self._origins).dynamic(self.cluster_defaults, self.broker_overrides)
        return builder.broker_id(broker_id).build()

    def with_static(self, key: str, text: str) -> BrokerConfig:
        """The same settings but for one static value. Raises SettingsRefused."""
        builder = ConfigBuilder({**self.static, key: text}, self._origins)
        return builder.dynamic(self.cluster_defaults, self.broker_overrides).broker_id(self._generated_id).build()

    def for_listener(self, name: str) -> ListenerConfig:
        """Settings as the listener `name` (any case) sees them: `listener.name.<name>.<key>` beats `<key>`, in whatever
        layer either stands. Raises KeyError if there is no such listener.

        The view belongs to this configuration: ask the new one again after a change.
        """
        return self._by_listener[name.upper()]

    def is_set(self, key: str) -> bool:
        """True if a layer above the defaults sets `key` itself (not a synonym)."""
        return key in self.static or key in self.cluster_defaults or key in self.broker_overrides

    def origin(self, key: str) -> str:
        """Where the static value of `key` was written: a file and its line, a variable, `--set`; "" for a default."""
        return self._origins.get(key, "")

    # -- derived from several keys -----------------------------------------------------------------------------------

    @property
    def is_clustered(self) -> bool:
        """Whether its metadata is in a store that brokers share; if not, the broker runs alone."""
        return self.uses_zookeeper or self.store_socket is not None

    @property
    def uses_zookeeper(self) -> bool:
        """Whether that store is ZooKeeper."""
        return self.get_optional_str("zookeeper.connect") is not None

    @property
    def store_socket(self) -> str | None:
        """The Unix socket of the store that the brokers of this machine share."""
        return self.get_optional_str("metadata.store.socket")

    @property
    def broker_id(self) -> int:
        """-1 in a cluster, while the id is to be generated."""
        return self.get_int("broker.id")

    @property
    def rack(self) -> str | None:
        return self.get_optional_str("broker.rack")

    @property
    def log_dirs(self) -> list[str]:
        """The log directories, at least one."""
        return split_list(self.get_optional_str("log.dirs") or self.get_str("log.dir"))

    @property
    def log_dir(self) -> str:
        """The first log directory."""
        return self.log_dirs[0]

    @property
    def controller_listener(self) -> str:
        """Name of the listener on which brokers take the controller's requests."""
        return self.control_plane_listener or self.inter_broker_listener

    @property
    def inter_broker_protocol(self) -> InterBrokerProtocol:
        """`inter.broker.protocol.version`."""
        from barnabas.replication import InterBrokerProtocol  # `barnabas config` is quicker without it

        return InterBrokerProtocol.parse(self.get_str("inter.broker.protocol.version"))

    def advertised(self, bound_ports: Mapping[str, int], host_name: str) -> tuple[ListenAddress, ...]:
        """The addresses that clients get, in the order of the settings.

        `bound_ports`: the ports that the listeners got, by name (used where the settings say 0). `host_name`: this
        machine's name, used where the settings name no address.
        """
        return tuple(
            ListenAddress(
                listener.name,
                listener.protocol,
                host_name if listener.host in ANY_ADDRESS else listener.host,
                listener.port or bound_ports[listener.name],
            )
            for listener in self._advertised
        )


class ConfigBuilder:
    """Collects the texts of all layers, and makes one `BrokerConfig` of them or reports all problems.

    Sources are given lowest first: `file`, `environment`, `overrides`; a later one beats an earlier one, key by key.
    """

    def __init__(self, static: Mapping[str, str] = NOTHING, origins: Mapping[str, str] = NOTHING) -> None:
        self.static = dict(static)
        self.origins = dict(origins)
        self._malformed: list[str] = []
        self._cluster = NOTHING
        self._broker = NOTHING
        self._generated_id: int | None = None

    def file(self, path: str | Path) -> Self:
        """A server.properties file. Raises OSError when it cannot be read, and
        `barnabas.server.config.properties.PropertiesError` when it is not in the format.
        """
        from barnabas.server.config.properties import decode_properties, parse_properties

        name = os.path.basename(path)
        for entry in parse_properties(decode_properties(Path(path).read_bytes())):
            self._set(entry.key, entry.value, f"{name} line {entry.line}")
        return self

    def environment(self, environ: Mapping[str, str]) -> Self:
        """`KAFKA_*` variables."""
        from barnabas.server.config.environment import settings_from

        for key, value, variable in settings_from(environ, BROKER):
            self._set(key, value, f"environment variable {variable}")
        return self

    def overrides(self, texts: Iterable[str]) -> Self:
        """`key=value` texts of the command line; `build` refuses what is none."""
        for text in texts:
            key, equals, value = text.partition("=")
            if equals and key.strip():
                self._set(key.strip(), value, "--set")
            else:
                self._malformed.append(f"--set {text} is refused: it must be written as key=value.")
        return self

    def defaults_without_file(self) -> Self:
        """What `barnabas.server.config.default_file` puts in the place of a file, where nothing else is set."""
        from barnabas.server.config import default_file

        default_file.fill(self.static, self.origins)
        return self

    def dynamic(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> Self:
        """What is set while the broker runs: for all brokers, and over it for this one."""
        self._cluster, self._broker = cluster, broker
        return self

    def broker_id(self, generated: int | None) -> Self:
        """The id that was generated or found, instead of the settings'. None: there is none."""
        self._generated_id = generated
        return self

    def build(self) -> BrokerConfig:
        """Raises SettingsRefused with one sentence for each problem."""
        draft = Draft(self.static, self.origins)
        cluster = draft.layer(self._cluster, dynamic=True)
        broker = draft.layer(self._broker, dynamic=True)
        rules.apply(draft)
        listeners = listener_rules.listeners_of(draft)
        by_listener: Mapping[str, ListenerConfig] = {}
        if self._generated_id is not None:
            draft.values["broker.id"] = draft.values["node.id"] = self._generated_id
        if listeners is not None:
            by_listener = draft.listener_configs(tuple(one.name for one in listeners.listening))
            listener_rules.check_mechanism_between_brokers(draft, listeners, by_listener)
        if listeners is None or draft.problems or self._malformed:
            raise SettingsRefused((*self._malformed, *draft.problems), keys=draft.refused, notices=draft.notices)
        return BrokerConfig(
            draft.values,
            MappingProxyType(self.static),
            MappingProxyType(cluster),
            MappingProxyType(broker),
            listeners.listening,
            listeners.inter_broker,
            listeners.control_plane,
            MappingProxyType(rules.connection_overrides(draft)),
            tuple(draft.notices),
            listeners.advertised,
            by_listener,
            self.origins,
            self._generated_id,
        )

    def _set(self, key: str, value: str, origin: str) -> None:
        self.static[key] = value
        self.origins[key] = origin


def load(
    file: str | Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> BrokerConfig:
    """Settings from a server.properties file, `KAFKA_*` variables of `environ` and `key=value` texts, later ones first.
    Without a file `barnabas.server.config.default_file` stands in for it.

    Raises SettingsRefused, and as `ConfigBuilder.file`.
    """
    builder = ConfigBuilder()
    if file is not None:
        builder.file(file)
    builder.environment(environ or NOTHING).overrides(overrides)
    return (builder.defaults_without_file() if file is None else builder).build()
