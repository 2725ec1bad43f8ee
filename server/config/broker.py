"""The broker's settings in force: one frozen value made of layers, with typed getters by Kafka's dotted names.

Layers, highest first (KIP-226): set on this broker while it runs (`/config/brokers/N`), set for all brokers
(`/config/brokers/<default>`), static (command line over environment over file), default. A change while the broker runs
makes a new `BrokerConfig` (`with_dynamic`).

A static value that is malformed, out of range or not supported refuses the start with one sentence per key, all at once
(`SettingsRefused`). Unknown keys and keys without effect here are taken and reported in `notices`. A *stored* dynamic
value that is bad is left out with a notice instead: it must not keep a broker from starting, as in Apache Kafka.

Not here: topic settings (server/config/topics.py), the rows (server/settings/). `load` below the class is the only
reader of files and environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from barnabas.server.settings import BROKER, Support, Value, consumer_groups
from barnabas.server.settings.endpoints import (
    ANY_ADDRESS,
    ListenAddress,
    parse_counts,
    parse_listeners,
    parse_protocol_map,
    split_list,
)

if TYPE_CHECKING:
    from barnabas.replication import InterBrokerProtocol

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_LISTENER_KEY = re.compile(r"listener\.name\.[^.]+\.(?P<base>.+)")
_SECRET = re.compile(r"passw|secret|passphrase|jaas|credential|token|private.?key|keystore", re.IGNORECASE)

_DEFAULTS_IN_CLUSTER: Final = {
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}

# Keys that Apache Kafka had once. They would be "unknown", which helps nobody who still has them in a file.
_FORMER = {
    "host.name": "listeners",
    "port": "listeners",
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "log.retention.size": "log.retention.bytes",
    "log.file.size": "log.segment.bytes",
    "quota.producer.default": "",
    "quota.consumer.default": "",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """One warning about a setting, to be logged once the log is set up."""

    key: str
    text: str


class SettingsRefused(ValueError):
    """The settings cannot be used. `problems`: one sentence per key, naming key, value and what is allowed; `keys`: of
    what was refused; `notices`: what else there is to say about the settings.
    """

    def __init__(self, problems: Iterable[str], *, keys: Iterable[str] = (), notices: Iterable[Notice] = ()) -> None:
        self.problems = tuple(problems)
        self.keys = frozenset(keys)
        self.notices = tuple(notices)
        super().__init__("\n".join(self.problems))


def shown(key: str, text: str | None) -> str:
    """A value as it may stand in a log or an error: secrets are never shown."""
    setting = BROKER.get(key)
    if text is None:
        return "null"
    if setting.sensitive if setting else _SECRET.search(key):
        return "[hidden]"
    return text if len(text) <= 200 else text[:200] + "…"


def refusal(key: str, text: str, why: str) -> str:
    return f"{key}={shown(key, text)} is refused: {why}."


class BrokerConfig:
    """Settings of one broker; immutable. Make it with `from_values` or `load`, change it with `with_dynamic`."""

    __slots__ = (
        "_advertised",
        "_generated_id",
        "_origins",
        "_values",
        "broker_overrides",
        "cluster_defaults",
        "listeners",
        "max_connections_per_ip_overrides",
        "notices",
        "static",
    )

    static: Mapping[str, str]
    cluster_defaults: Mapping[str, str]
    broker_overrides: Mapping[str, str]
    notices: tuple[Notice, ...]
    listeners: tuple[ListenAddress, ...]
    _values: dict[str, Value]
    _origins: Mapping[str, str]
    _advertised: tuple[ListenAddress, ...]
    _generated_id: int | None
    max_connections_per_ip_overrides: Mapping[str, int]

    def __init__(
        self,
        static: Mapping[str, str],
        cluster: Mapping[str, str] = _EMPTY,
        broker: Mapping[str, str] = _EMPTY,
        origins: Mapping[str, str] = _EMPTY,
        generated_id: int | None = None,
    ) -> None:
        """Use `from_values`. Raises SettingsRefused."""
        reader = _Reader(origins)
        values: dict[str, Value] = {name: row.default for name, row in BROKER.items()}
        reader.layer(values, static, dynamic=False)
        cluster = reader.layer(values, cluster, dynamic=True)
        broker = reader.layer(values, broker, dynamic=True)
        set_attribute = object.__setattr__
        set_attribute(self, "static", MappingProxyType(dict(static)))
        set_attribute(self, "_origins", origins)
        set_attribute(self, "cluster_defaults", MappingProxyType(cluster))
        set_attribute(self, "broker_overrides", MappingProxyType(broker))
        set_attribute(self, "_values", values)
        listeners, advertised, overrides = reader.cross_check(values, static)
        if reader.problems:
            raise SettingsRefused(reader.problems, keys=reader.refused, notices=reader.notices)
        if generated_id is not None:
            values["broker.id"] = values["node.id"] = generated_id
        set_attribute(self, "_generated_id", generated_id)
        set_attribute(self, "listeners", listeners)
        set_attribute(self, "_advertised", advertised)
        set_attribute(self, "max_connections_per_ip_overrides", MappingProxyType(overrides))
        set_attribute(self, "notices", tuple(reader.notices))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"BrokerConfig is immutable; cannot set {name}")

    def __repr__(self) -> str:
        pairs = ", ".join(f"{key}={shown(key, text)}" for key, text in sorted(self.static.items()))
        return f"BrokerConfig({pairs})"

    @classmethod
    def from_values(cls, values: Mapping[str, str], origins: Mapping[str, str] = _EMPTY) -> Self:
        """A configuration from static values. `origins`: where keys come from, for messages. Raises SettingsRefused."""
        return cls(values, origins=origins)

    def with_dynamic(
        self,
        *,
        cluster: Mapping[str, str] = _EMPTY,
        broker: Mapping[str, str] = _EMPTY,
    ) -> Self:
        """The same static settings under other dynamic ones. Bad dynamic values are left out with a notice."""
        try:
            return type(self)(self.static, cluster, broker, self._origins, self._generated_id)
        except SettingsRefused:
            # rules over several keys; find who breaks them by taking one at a time
            good: tuple[dict[str, str], dict[str, str]] = ({}, {})
            bad: list[Notice] = []
            for level, layer in enumerate((cluster, broker)):
                for key, text in layer.items():
                    good[level][key] = text
                    try:
                        type(self)(self.static, *good, self._origins, self._generated_id)
                    except SettingsRefused as error:
                        del good[level][key]
                        bad.append(Notice(key, f"a dynamic setting is left out: {error}"))
            config = type(self)(self.static, *good, self._origins, self._generated_id)
            object.__setattr__(config, "notices", (*config.notices, *bad))
            return config

    def with_broker_id(self, broker_id: int) -> Self:
        """The same settings for a broker whose id was generated, or found in its data directory."""
        return type(self)(self.static, self.cluster_defaults, self.broker_overrides, self._origins, broker_id)

    # -- getters ----------------------------------------------------------------------------------------------------

    def get_value(self, key: str) -> Value:
        """The value in force. Raises KeyError for a name that is not in the table."""
        return self._values[key]

    def get_int(self, key: str) -> int:
        value = self._values[key]
        if type(value) is not int:
            raise TypeError(f"{key} is {value!r}, not a whole number")
        return value

    def get_optional_int(self, key: str) -> int | None:
        return None if self._values[key] is None else self.get_int(key)

    def get_bool(self, key: str) -> bool:
        value = self._values[key]
        if type(value) is not bool:
            raise TypeError(f"{key} is {value!r}, not true or false")
        return value

    def get_float(self, key: str) -> float:
        value = self._values[key]
        if type(value) is not float:
            raise TypeError(f"{key} is {value!r}, not a number with a fraction")
        return value

    def get_str(self, key: str) -> str:
        value = self._values[key]
        if type(value) is not str:
            raise TypeError(f"{key} is {value!r}, not text")
        return value

    def get_optional_str(self, key: str) -> str | None:
        return None if self._values[key] is None else self.get_str(key)

    def get_list(self, key: str) -> tuple[str, ...]:
        value = self._values[key]
        if type(value) is not tuple:
            raise TypeError(f"{key} is {value!r}, not a list")
        return value

    def is_set(self, key: str) -> bool:
        """True if a layer above the defaults sets `key` itself (not a synonym)."""
        return key in self.static or key in self.cluster_defaults or key in self.broker_overrides

    def origin(self, key: str) -> str:
        """Where the static value of `key` was written: a file and its line, a variable, `--set`; "" for a default."""
        return self._origins.get(key, "")

    # -- what is made of several keys --------------------------------------------------------------------------------

    @property
    def is_clustered(self) -> bool:
        """Its metadata are in ZooKeeper, shared with other brokers; if not, the broker runs alone."""
        return self.get_optional_str("zookeeper.connect") is not None

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
    def inter_broker_listener(self) -> str:
        """Name of the listener for traffic between brokers."""
        name = self.get_optional_str("inter.broker.listener.name")
        return name.upper() if name else self.get_str("security.inter.broker.protocol")

    @property
    def inter_broker_protocol(self) -> InterBrokerProtocol:
        """What brokers of one cluster speak to each other."""
        from barnabas.replication import InterBrokerProtocol  # `barnabas config` is quicker without it

        return InterBrokerProtocol.parse(self.get_str("inter.broker.protocol.version"))

    def advertised(self, bound_ports: Mapping[str, int], host_name: str) -> tuple[ListenAddress, ...]:
        """What clients are told, in the order of the settings.

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


class _Reader:
    """Turns layers of texts into values; collects what is wrong with them."""

    def __init__(self, origins: Mapping[str, str]) -> None:
        self.origins = origins
        self._told_origins = origins
        self.problems: list[str] = []
        self.refused: set[str] = set()
        self.notices: list[Notice] = []

    def layer(self, values: dict[str, Value], texts: Mapping[str, str], *, dynamic: bool) -> dict[str, str]:
        """Put one layer over `values`. Returns the texts that were taken."""
        self._told_origins = {} if dynamic else self.origins
        taken: dict[str, str] = {}
        for key, text in texts.items():
            row = BROKER.get(key)
            if row is None:
                self._unknown(key, text, dynamic=dynamic)
                taken[key] = text
                continue
            if row.default is None and not text.strip():  # `KEY=` in a container's environment: not set
                values[key] = None
                taken[key] = text
                continue
            why = row.why_not(text)
            if why is None:
                values[key] = row.parse(text)
                taken[key] = text
                if row.support is Support.NO_EFFECT or (row.support is Support.ONLY and values[key] != row.default):
                    self.notice(key, text, f"has no effect here: {row.note}")
            elif dynamic:
                self.notice(key, text, f"is stored as a dynamic setting but left out: {why}")
            else:
                self.problem(key, text, why)
        return taken

    def _unknown(self, key: str, text: str, *, dynamic: bool) -> None:
        match = _LISTENER_KEY.fullmatch(key)
        if match and not dynamic:
            base = match["base"]
            row = BROKER.get(base) or next((BROKER[name] for name in BROKER if base.endswith("." + name)), None)
            if row is not None:
                self.problem(
                    key, text, f"{row.name} cannot be set for one listener alone; allowed: nothing (leave it out)"
                )
                return
        if key in _FORMER:
            better = _FORMER[key]
            hint = f"; use {better}" if better else ""
            self.notice(key, text, f"is no setting of Apache Kafka any more and is ignored{hint}")
            return
        hint = ""
        if not dynamic:
            from difflib import get_close_matches

            close = get_close_matches(key, BROKER, n=1, cutoff=0.85)
            hint = f" (is {close[0]} meant?)" if close else ""
        self.notice(key, text, f"is not known and is ignored{hint}")

    def problem(self, key: str, text: str, why: str) -> None:
        self.refused.add(key)
        self.problems.append(refusal(key, text, why + self._origin(key)))

    def notice(self, key: str, text: str, what: str) -> None:
        self.notices.append(Notice(key, f"{key}={shown(key, text)} {what}{self._origin(key)}"))

    def _origin(self, key: str) -> str:
        return f" ({self._told_origins[key]})" if key in self._told_origins else ""

    # -- rules over several keys ------------------------------------------------------------------------------------

    def cross_check(
        self, values: dict[str, Value], static: Mapping[str, str]
    ) -> tuple[tuple[ListenAddress, ...], tuple[ListenAddress, ...], dict[str, int]]:
        self._told_origins = self.origins
        self._broker_id(values, static)
        if values["zookeeper.connect"] is not None:
            for key, value in _DEFAULTS_IN_CLUSTER.items():
                if key not in static:
                    values[key] = value
        self._data_directory(values, static)
        self._times(values, static)
        self._cleaners(values, static)
        self._alone(values, static)
        for key, why in consumer_groups.faults(values):
            self.problem(key, self._text(key, static), why)
        overrides = self._connection_limits(values, static)
        listeners, advertised = self._listeners(values, static)
        return listeners, advertised, overrides

    def _alone(self, values: dict[str, Value], static: Mapping[str, str]) -> None:
        """What only other brokers could give: no fault, as Apache Kafka starts with it too, but nothing will work."""
        if values["zookeeper.connect"] is not None:
            return
        for key, what in (
            ("offsets.topic.replication.factor", "groups"),
            ("transaction.state.log.replication.factor", "transactions"),
            ("transaction.state.log.min.isr", "transactions"),
        ):
            wanted = values[key]
            if isinstance(wanted, int) and wanted > 1:
                self.notice(
                    key, self._text(key, static), f"lets {what} wait for ever: this broker runs alone; set it to 1"
                )

    def _text(self, key: str, static: Mapping[str, str]) -> str:
        return static.get(key) or BROKER[key].default_text or ""

    def _broker_id(self, values: dict[str, Value], static: Mapping[str, str]) -> None:
        key = "node.id" if "node.id" in static and "broker.id" not in static else "broker.id"
        if "broker.id" in static and "node.id" in static and values["broker.id"] != values["node.id"]:
            self.problem("node.id", static["node.id"], f"it must equal broker.id={static['broker.id']}")
            return
        clustered = values["zookeeper.connect"] is not None
        generates = clustered and values["broker.id.generation.enable"] is True
        chosen = values[key] if key in static else -1 if clustered else values[key]
        assert isinstance(chosen, int)
        most = values["reserved.broker.max.id"]
        if chosen < 0 and not generates:
            why = "it must be at least 0" + (" while broker.id.generation.enable is false" if clustered else "")
            self.problem(key, static.get(key, str(chosen)), why)
        elif generates and isinstance(most, int) and chosen > most:
            why = f"it must not be above reserved.broker.max.id={most} while broker.id.generation.enable is true"
            self.problem(key, static[key], why)
        values["broker.id"] = values["node.id"] = chosen

    def _data_directory(self, values: dict[str, Value], static: Mapping[str, str]) -> None:
        key = "log.dirs" if values["log.dirs"] is not None else "log.dir"
        directories = split_list(str(values[key]))
        if not directories:
            self.problem(key, self._text(key, static), "it must name a directory")
        elif len({os.path.abspath(directory) for directory in directories}) < len(directories):
            self.problem(key, self._text(key, static), "it must name each directory once")

    def _times(self, values: dict[str, Value], static: Mapping[str, str]) -> None:
        for least, most in (
            ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
            ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        ):
            low_value, high_value = values[least], values[most]
            if isinstance(low_value, int) and isinstance(high_value, int) and low_value > high_value:
                self.problem(least, self._text(least, static), f"it must not be above {most}={high_value}")

    def _cleaners(self, values: dict[str, Value], static: Mapping[str, str]) -> None:
        key = "log.cleaner.dedupe.buffer.size"
        size, cleaners = values[key], values["log.cleaner.threads"]
        if isinstance(size, int) and isinstance(cleaners, int) and cleaners and size // cleaners <= 1 << 20:
            why = f"it must be above 1 MiB (1048576) for each of log.cleaner.threads={cleaners}"
            self.problem(key, self._text(key, static), why)

    def _connection_limits(self, values: dict[str, Value], static: Mapping[str, str]) -> dict[str, int]:
        key = "max.connections.per.ip.overrides"
        overrides = parse_counts(str(values[key]))
        if values["max.connections.per.ip"] == 0 and not overrides:
            self.problem("max.connections.per.ip", "0", f"0 needs {key}")
        return overrides

    def _listeners(
        self, values: dict[str, Value], static: Mapping[str, str]
    ) -> tuple[tuple[ListenAddress, ...], tuple[ListenAddress, ...]]:
        """Parse and check what is listened on and advertised. Listeners of a KRaft controller are left out."""
        key = "listener.security.protocol.map"
        nothing: tuple[ListenAddress, ...] = ()
        controllers = [name.upper() for name in split_list(str(values["controller.listener.names"] or ""))]
        try:
            protocols = parse_protocol_map(str(values[key]))
        except ValueError as error:
            self.problem(key, str(values[key]), str(error))
            return nothing, nothing
        if key not in static:
            protocols |= {name: "PLAINTEXT" for name in controllers if name not in protocols}
        key = "advertised.listeners"
        listeners = self._addresses("listeners", values, protocols, controllers)
        advertised = listeners if values[key] is None else self._addresses(key, values, protocols, controllers)
        if not listeners or not advertised:
            return nothing, nothing
        try:
            if values[key] is not None:
                self._check_advertised(advertised, {listener.name for listener in listeners})
            names = [listener.name for listener in advertised]
            if values["inter.broker.listener.name"] is not None:
                key = "inter.broker.listener.name"
                self._inter_broker(str(values[key]).upper(), static, names)
            elif "PLAINTEXT" not in names:
                key = "listeners" if values[key] is None else key
                raise ValueError(
                    f"none is called PLAINTEXT, so inter.broker.listener.name must name one of {', '.join(names)}"
                )
        except ValueError as error:
            self.problem(key, str(values[key]), str(error))
        return listeners, advertised

    def _addresses(
        self, key: str, values: dict[str, Value], protocols: dict[str, str], controllers: Sequence[str]
    ) -> tuple[ListenAddress, ...]:
        """The addresses in a list of listeners, without those for a KRaft controller; none if they are refused."""
        try:
            every = parse_listeners(str(values[key]), protocols, distinct_ports=key == "listeners")
            usable = tuple(listener for listener in every if listener.name not in controllers)
            if not usable:
                raise ValueError("it must name a listener")
            secured = [f"listener {each.name} uses {each.protocol}" for each in usable if each.protocol != "PLAINTEXT"]
            if secured:
                raise ValueError(f"{', '.join(secured)}, and TLS and SASL are not available yet; allowed: PLAINTEXT")
        except ValueError as error:
            self.problem(key, str(values[key]), str(error))
            return ()
        return usable

    @staticmethod
    def _check_advertised(advertised: tuple[ListenAddress, ...], listening: set[str]) -> None:
        for listener in advertised:
            if listener.host in ("0.0.0.0", "::"):
                raise ValueError(f"clients cannot connect to {listener.host}; name an address that they can reach")
            if listener.name not in listening:
                raise ValueError(f"{listener.name} must be one of the listeners: {', '.join(sorted(listening))}")

    def _inter_broker(self, name: str, static: Mapping[str, str], advertised: list[str]) -> None:
        if "security.inter.broker.protocol" in static:
            raise ValueError("only one of it and security.inter.broker.protocol may be set")
        if name not in advertised:
            raise ValueError(f"it must be one of the advertised listeners: {', '.join(advertised)}")


# -- reading ----------------------------------------------------------------------------------------------------------


def load(
    file: str | Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> BrokerConfig:
    """Settings from a server.properties file, `KAFKA_*` variables of `environ` and `key=value` texts, later ones first.
    Without a file `barnabas.server.config.default_file` stands in for it.

    Raises SettingsRefused (also for a `key=value` without `=`), OSError when the file cannot be read, and
    `barnabas.server.config.properties.PropertiesError` when it is not in the format.
    """
    return BrokerConfig.from_values(*read(file, environ=environ, overrides=overrides))


def read(
    file: str | Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
) -> tuple[dict[str, str], dict[str, str]]:
    """The texts that `load` makes settings of, and where each comes from, by key. Raises as `load`."""
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    if file is not None:
        from barnabas.server.config.properties import decode_properties, parse_properties

        name = os.path.basename(file)
        for entry in parse_properties(decode_properties(Path(file).read_bytes())):
            values[entry.key] = entry.value
            origins[entry.key] = f"{name} line {entry.line}"
    if environ:
        from barnabas.server.config.environment import settings_from

        for key, value, variable in settings_from(environ, BROKER):
            values[key] = value
            origins[key] = f"environment variable {variable}"
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise SettingsRefused([f"--set {text} is refused: it must be written as key=value."])
        values[key.strip()] = value
        origins[key.strip()] = "--set"
    if file is None:
        from barnabas.server.config import default_file

        default_file.fill(values, origins)
    return values, origins
