"""Values of settings behind typed getters, by Kafka's dotted names: of a broker, of a listener, of a mechanism.

All are frozen. A getter is one look-up in a dict and one comparison of types: cheap enough for every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.server.settings import Value
from barnabas.server.settings.listener_keys import MECHANISMS, OWN_OF_MECHANISM


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypedValues:
    """The value in force of every setting in the table.

    Getters raise KeyError for a name that is not in the table, and TypeError when the value has another type: both are
    errors of the caller, never of a configuration.
    """

    _values: Mapping[str, Value]

    def get_value(self, key: str) -> Value:
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListenerConfig(TypedValues):
    """Settings as one listener sees them: `listener.name.<name>.<key>` where it is set, else `<key>`.

    The same getters as the broker's, with the plain keys: `config.for_listener("INTERNAL").get_str("ssl.client.auth")`.
    `name`: in upper case. `own`: the keys that are set for this listener itself (`ssl.client.auth` of a SASL_SSL
    listener counts only then: KIP-684).
    """

    name: str
    own: frozenset[str]
    _mechanisms: Mapping[str, Mapping[str, Value]]

    def for_mechanism(self, mechanism: str) -> TypedValues:
        """Settings as `mechanism` (any case) sees them on this listener: `listener.name.<name>.<mechanism>.<key>`.

        `sasl.jaas.config`, the login classes and the server's callback handler are None unless they are set for the
        mechanism itself; what else can be set for one mechanism (`connections.max.reauth.ms`, `sasl.oauthbearer.*`)
        falls back to the listener's value. Raises KeyError for a name that is no SASL mechanism.
        """
        name = mechanism.lower()
        if name not in MECHANISMS:
            raise KeyError(mechanism)
        return TypedValues({**self._values, **dict.fromkeys(OWN_OF_MECHANISM), **self._mechanisms.get(name, {})})
