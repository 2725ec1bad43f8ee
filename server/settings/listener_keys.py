"""Settings of one listener alone, by their prefixed names (KIP-103, KIP-226, KIP-86).

| key | counts for |
| --- | --- |
| `listener.name.internal.ssl.client.auth` | the listener INTERNAL; beats `ssl.client.auth` |
| `listener.name.internal.plain.sasl.jaas.config` | the mechanism PLAIN on the listener INTERNAL |

The listener's and the mechanism's names are in lower case; Apache Kafka does not find them otherwise. The table of
settings has no rows for such keys: type, check and support are those of the key behind the prefix.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from barnabas.server.settings import BROKER, Scope, Setting

PREFIX: Final = "listener.name."
MECHANISMS: Final = ("gssapi", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
"""As they stand in keys; on the wire they are in upper case."""

_KEY: Final = re.compile(r"listener\.name\.(?P<listener>[^.]+)\.(?P<rest>.+)")
_BROKER_WIDE: Final = frozenset({"sasl.mechanism.inter.broker.protocol"})
LIMITS: Final = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})
"""Settings that can be changed while the listener is open, of one broker or of all."""
_OTHERS_PER_LISTENER: Final = LIMITS | {"connections.max.reauth.ms", "principal.builder.class"}
PER_LISTENER: Final = frozenset(
    name
    for name in BROKER
    if name in _OTHERS_PER_LISTENER or (name.startswith(("ssl.", "sasl.")) and name not in _BROKER_WIDE)
)
"""What can be set for one listener."""

OWN_OF_MECHANISM: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.server.callback.handler.class",
    }
)
"""What counts for a mechanism only when it is set for that mechanism: the plain key says nothing about it."""

PER_MECHANISM: Final = OWN_OF_MECHANISM | frozenset(
    name
    for name in BROKER
    if name == "connections.max.reauth.ms"
    or name.startswith(("sasl.oauthbearer.", "sasl.login.connect.", "sasl.login.read.", "sasl.login.retry."))
)
"""What can be set for one mechanism of a listener."""

RELOADED: Final = frozenset(
    {"ssl.keystore.location", "ssl.keystore.type", "ssl.truststore.location", "ssl.truststore.type"}
)
"""What can be changed for a listener that is open."""


class ListenerKey(NamedTuple):
    """A prefixed key taken apart. `listener`, `mechanism`: as written; mechanism "" for all. `row`: of the key behind
    the prefix.
    """

    listener: str
    mechanism: str
    row: Setting

    def why_not(self) -> str | None:
        """Why such a key cannot be set at all, as the end of a sentence; None if it can."""
        name = self.row.name
        if not self.mechanism:
            if name in PER_LISTENER:
                return None
            return f"{name} cannot be set for one listener alone; allowed: nothing (leave it out)"
        if name not in PER_MECHANISM:
            return f"{name} cannot be set for one mechanism alone; allowed: nothing (leave it out)"
        if self.mechanism not in MECHANISMS:
            return f"{self.mechanism} is no mechanism; allowed: one of {', '.join(MECHANISMS)}"
        return None


def parse_listener_key(key: str) -> ListenerKey | None:
    """`key` taken apart; None if it has no prefix, or if no setting is known behind it."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    rest = match["rest"]
    row = BROKER.get(rest)
    if row is not None:
        return ListenerKey(match["listener"], "", row)
    mechanism, _, name = rest.partition(".")
    row = BROKER.get(name)
    return None if row is None else ListenerKey(match["listener"], mechanism, row)


def row_of(key: str) -> Setting | None:
    """The row that says how the value of `key` is read: of the key itself, or of the one behind its prefix."""
    row = BROKER.get(key)
    if row is None and key.startswith(PREFIX):
        parsed = parse_listener_key(key)
        return None if parsed is None else parsed.row
    return row


def why_not_dynamic(key: str, row: Setting, *, per_broker: bool) -> str | None:
    """Why a setting cannot be changed while the broker runs, as the end of a sentence; None if it can, perhaps only
    with the listener that it is for. per_broker: of one broker, not of all.
    """
    parsed = None if key == row.name else parse_listener_key(key)
    if row.sensitive and row.name in PER_LISTENER:
        return "passwords and keys cannot be set while the broker runs; set it in server.properties"
    if parsed is None or parsed.why_not() is not None:
        if row.scope is Scope.READ_ONLY:
            return "it cannot be changed while the broker runs; set it in server.properties"
        if row.name in PER_LISTENER and row.name.startswith(("ssl.", "sasl.")):
            return f"it must be set for one listener, as {PREFIX}<name>.{row.name}"
        if row.scope is Scope.PER_BROKER and not per_broker:
            return "it must be set for one broker by its id"
    elif row.name not in LIMITS and not per_broker:
        return "it must be set for one broker by its id"
    return None


def lacks_listener(key: str) -> bool:
    """True for `plain.sasl.jaas.config` and its like, which count for nothing without the name of a listener."""
    mechanism, _, name = key.partition(".")
    return mechanism in MECHANISMS and name in PER_MECHANISM
