"""The settings used without a settings file: a few that suit a first try.

Apache Kafka starts with the `server.properties` that comes with it, not with the bare defaults; a user who starts a
broker without a file expects that one, too: reachable from this machine, under a name that always works, and without a
wait for the first member of a group. A broker of a cluster gets none of this: others must reach
it. Environment and command line come first, as usual.
"""

from __future__ import annotations

import socket
from typing import Final, Protocol

from barnabas.server.settings import BROKER

ORIGIN: Final = "default without a file"

_LISTENERS: Final = "listeners"
_DELAY: Final = "group.initial.rebalance.delay.ms"
_LOOPBACK: Final = "PLAINTEXT://localhost:9092"


def fill(values: dict[str, str], origins: dict[str, str]) -> None:
    """Add to the settings that environment and command line gave."""
    if any(values.get(key, "").strip() for key in ("zookeeper.connect", "metadata.store.socket")):
        return
    settings = {_DELAY: "0"}
    if "advertised.listeners" not in values:  # an advertised address means that others are to reach the broker
        settings[_LISTENERS] = _LOOPBACK
    for key, text in settings.items():
        if key not in values:
            values[key] = text
            origins[key] = ORIGIN


class Origins(Protocol):
    """The settings in force (`server.config.broker.BrokerConfig`)."""

    def origin(self, key: str) -> str: ...


def explain(config: Origins) -> list[str]:
    """What to log of the settings that came from here: how to have it otherwise."""
    lines = []
    if config.origin(_LISTENERS) == ORIGIN:
        lines.append(
            f"no settings file: listening for clients on this machine only ({_LISTENERS}={_LOOPBACK}); for others add "
            f"--set {_LISTENERS}=PLAINTEXT://:9092, and --set advertised.listeners=PLAINTEXT://NAME:9092 where they do "
            f"not reach this machine as {socket.gethostname()}"
        )
    if config.origin(_DELAY) == ORIGIN:
        usual = BROKER[_DELAY].default_text
        lines.append(
            f"no settings file: new groups do not wait for more members ({_DELAY}=0; with a file it is {usual})"
        )
    return lines
