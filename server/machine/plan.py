"""What a cluster on one machine consists of, from what a person has said: settings, ports and directories by broker.

Everybody's settings come from a file, the environment and the command line, as for `barnabas serve`. What must differ
between brokers is derived: the id, the ports (those of the first broker, and N - 1 more for broker N), the directories
(broker-N of each log directory). What suits a cluster of this size is added where nobody has said otherwise.

Pure but for reading the file. Everything is checked here, before anything starts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.server.config.broker import BrokerConfig, ConfigBuilder
from barnabas.server.config.problems import SettingsRefused, refusal
from barnabas.server.machine.store_process import SOCKET

STORE: Final = "store"
SESSION_MS: Final = 6000
CONNECTION_MS: Final = 18_000
"""How long a starting broker waits for the store: as with sessions of the usual length."""
_OURS: Final = ("broker.id", "node.id", "zookeeper.connect", "metadata.store.socket")
_ADDRESSES: Final = ("listeners", "advertised.listeners")
_PORT: Final = re.compile(r":([0-9]+)\s*$")


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker. settings: KEY=VALUE, over everything that the person has said."""

    number: int
    settings: tuple[str, ...]
    config: BrokerConfig

    @property
    def name(self) -> str:
        return f"broker-{self.number}"

    @property
    def ports(self) -> list[int]:
        return [listener.port for listener in self.config.listeners]


@dataclass(frozen=True, slots=True)
class Plan:
    """directory: of the lock; store: the directory of the metadata store."""

    directory: str
    brokers: tuple[BrokerPlan, ...]

    @property
    def store(self) -> str:
        return os.path.join(self.directory, STORE)

    @property
    def socket(self) -> str:
        return os.path.join(self.store, SOCKET)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the person has said. port: None: not said. data: None: what log.dirs says. more: KEY=VALUE of the command's
    other options; they count as said. environ: None: not to be read.
    """

    brokers: int
    file: str | None = None
    environ: Mapping[str, str] | None = None
    overrides: Sequence[str] = ()
    port: int | None = None
    data: str | None = None
    more: Sequence[str] = ()
    listener: str = "PLAINTEXT"


def make_plan(wishes: Wishes, *, temporary: Callable[[], str], free_port: Callable[[], int], port: int) -> Plan:
    """temporary: makes a directory, for who names none; free_port: one that stays free for the brokers. port: of the
    first broker, if nothing is said.

    Raises SettingsRefused, OSError, PropertiesError.
    """
    said = _said(wishes, ())
    problems = [
        refusal(key, said.static[key], "barnabas cluster gives each broker its own")
        for key in _OURS
        if said.static.get(key, "").strip()
    ]
    addressed = [key for key in _ADDRESSES if said.static.get(key, "").strip()]
    if wishes.port is not None and addressed:
        problems.append(refusal(addressed[0], said.static[addressed[0]], "it cannot be combined with --port"))
    directories = _directories(wishes, said)
    if wishes.data is not None and directories:
        problems.append(refusal("log.dirs", ",".join(directories), "it cannot be combined with --data"))
    if problems:
        raise SettingsRefused(problems)
    tops = [os.path.abspath(each) for each in (directories or [wishes.data or temporary()])]
    first = port if wishes.port is None else wishes.port
    brokers = []
    for number in range(1, wishes.brokers + 1):
        settings = {
            "broker.id": str(number),
            "metadata.store.socket": os.path.join(tops[0], STORE, SOCKET),
            "log.dirs": ",".join(os.path.join(top, f"broker-{number}") for top in tops),
            **{key: _counted(said.static[key], number - 1) for key in addressed},
            **_defaults(said.static, wishes),
        }
        if not addressed:
            own = first + number - 1 if first else free_port()
            settings["listeners"] = f"{wishes.listener}://127.0.0.1:{own}"
        texts = tuple(f"{key}={value}" for key, value in settings.items())
        brokers.append(BrokerPlan(number, texts, _said(wishes, texts).build()))
    _check_ports(brokers)
    return Plan(tops[0], tuple(brokers))


def _said(wishes: Wishes, more: Sequence[str]) -> ConfigBuilder:
    builder = ConfigBuilder()
    if wishes.file is not None:
        builder.file(wishes.file)
    return builder.environment(wishes.environ or {}).overrides([*wishes.overrides, *wishes.more, *more])


def _directories(wishes: Wishes, said: ConfigBuilder) -> list[str]:
    text = said.static.get("log.dirs", "").strip() or said.static.get("log.dir", "").strip()
    return [part.strip() for part in text.split(",") if part.strip()]


def _defaults(static: Mapping[str, str], wishes: Wishes) -> dict[str, str]:
    """What suits a cluster of this size, where nothing is said."""
    replicas = min(wishes.brokers, 3)
    in_sync = min(replicas, 2) if replicas > 2 else 1
    values = {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        # All on one machine: the network is no reason for silence.
        "zookeeper.session.timeout.ms": SESSION_MS,
        "zookeeper.connection.timeout.ms": CONNECTION_MS,
    }
    if wishes.file is None:
        values["group.initial.rebalance.delay.ms"] = 0  # as for a broker alone without a file
    return {key: str(value) for key, value in values.items() if key not in static}


def _counted(addresses: str, more: int) -> str:
    """`A://:9092,B://:0` and 2 → `A://:9094,B://:0`."""

    def counted(match: re.Match[str]) -> str:
        port = int(match[1])
        return f":{port + more if port else 0}"

    return ",".join(_PORT.sub(counted, address) for address in addresses.split(","))


def _check_ports(brokers: Sequence[BrokerPlan]) -> None:
    taken: dict[int, int] = {}
    for broker in brokers:
        for port in broker.ports:
            if port and taken.setdefault(port, broker.number) != broker.number:
                why = "ports of one broker must be at least as far apart as there are brokers"
                text = broker.config.static.get("listeners", "")
                raise SettingsRefused([refusal("listeners", text, f"port {port} is of two brokers; {why}")])
