"""The settings of SASL: for each listener its mechanisms and what those need, and this broker's own credentials. Reads
the login file that is named.

The login entry of a mechanism is, the first that there is (`JaasContext.java`, 4.3):

1. `listener.name.<listener>.<mechanism>.sasl.jaas.config`, a single module;
2. in the file `java.security.auth.login.config` the section `<listener in lower case>.KafkaServer`;
3. there the section `KafkaServer`.

Sections may hold the modules of several mechanisms. PLAIN needs an entry, which names its users; SCRAM's are in the
metadata store, and the issuers of tokens are set by `sasl.oauthbearer.…`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.jaas import JaasError, LoginModule, parse_jaas, parse_module
from barnabas.server.config.problems import SettingsRefused, refusal
from barnabas.server.config.values import ListenerConfig, TypedValues
from barnabas.server.settings.sasl import BETWEEN_BROKERS, MECHANISMS, VALIDATORS

LOGIN_FILE: Final = "java.security.auth.login.config"
_SECTION: Final = "KafkaServer"
_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    "OAUTHBEARER": "OAuthBearerLoginModule",
}
_USER: Final = "user_"
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_VALIDATOR: Final = "sasl.server.callback.handler.class"


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """`sasl.oauthbearer.…` of one listener. Times in seconds. `audiences` empty: tokens that name none."""

    jwks_url: str
    refresh_s: float
    backoff_s: float
    backoff_max_s: float
    issuer: str | None
    audiences: frozenset[str]
    subject_claim: str
    scope_claim: str
    skew_s: int


@dataclass(frozen=True, slots=True)
class SaslMechanism:
    """One mechanism of a listener. `max_reauth_ms` 0: sessions last. `users`: passwords of PLAIN by name, never shown.
    `oauth`: of OAUTHBEARER.
    """

    name: str
    max_reauth_ms: int
    users: Mapping[str, str]
    oauth: OAuthSettings | None = None

    def __repr__(self) -> str:
        return f"SaslMechanism({self.name})"


@dataclass(frozen=True, slots=True)
class SaslListener:
    """A listener whose clients log in. `protocol`: SASL_PLAINTEXT or SASL_SSL; `max_receive_bytes`: of one request
    before the log-in.
    """

    name: str
    protocol: str
    mechanisms: tuple[SaslMechanism, ...]
    max_receive_bytes: int


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """This broker's credentials at other brokers. by_token: user and password are a delegation token's."""

    mechanism: str
    user: str
    password: str
    by_token: bool = False

    def __repr__(self) -> str:
        return f"BrokerLogin({self.mechanism}, {self.user})"


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """`listeners`: those with SASL, by name. `between_brokers`: None where the listener between brokers has none, or
    there are no others.
    """

    listeners: Mapping[str, SaslListener]
    between_brokers: BrokerLogin | None

    @property
    def has_scram(self) -> bool:
        """Whether a listener has users in the metadata store."""
        return any(
            mechanism.name.startswith("SCRAM-")
            for listener in self.listeners.values()
            for mechanism in listener.mechanisms
        )


def sasl_settings(config: BrokerConfig, names: Collection[str] | None = None) -> SaslSettings:
    """The settings of SASL. names: of these listeners only. Raises SettingsRefused with all problems."""
    return _Reading(config, names).settings()


class _Reading:
    def __init__(self, config: BrokerConfig, names: Collection[str] | None) -> None:
        self._config = config
        self._names = names
        self._problems: list[str] = []
        self._sections: Mapping[str, tuple[LoginModule, ...]] | None = None

    def settings(self) -> SaslSettings:
        config = self._config
        listeners = {}
        between: BrokerLogin | None = None
        for address in config.listeners:
            if not address.protocol.startswith("SASL_"):
                continue
            if self._names is not None and address.name not in self._names:
                continue
            seen = config.for_listener(address.name)
            mechanisms = tuple(self._mechanism(seen, name) for name in self._enabled(seen))
            listeners[address.name] = SaslListener(
                address.name, address.protocol, mechanisms, seen.get_int("sasl.server.max.receive.size")
            )
            if address.name == config.inter_broker_listener and config.is_clustered:
                between = self._between_brokers(seen)
        if self._problems:
            raise SettingsRefused(self._problems)
        return SaslSettings(listeners, between)

    def _enabled(self, seen: ListenerConfig) -> tuple[str, ...]:
        """The supported mechanisms of a listener; Apache Kafka's default is not among them."""
        key = "sasl.enabled.mechanisms"
        enabled = seen.get_list(key)
        if any(name not in MECHANISMS for name in enabled):
            why = (
                f"listener {seen.name} uses SASL, and GSSAPI (Kerberos) is not available; "
                f"allowed: a list of {', '.join(MECHANISMS)}"
            )
            self._problem(key, ",".join(enabled), why)
        return tuple(name for name in dict.fromkeys(enabled) if name in MECHANISMS)

    def _mechanism(self, seen: ListenerConfig, name: str) -> SaslMechanism:
        values = seen.for_mechanism(name)
        module = self._entry(seen, name, values)
        handler = values.get_optional_str(_VALIDATOR)
        users: Mapping[str, str] = {}
        oauth = None
        if name == "OAUTHBEARER":
            oauth = self._oauth(seen, values, handler)
        elif handler is not None:
            self._problem(_key(seen, name, _VALIDATOR), handler, f"Java classes cannot be loaded for {name}")
        if name == "PLAIN":
            users = {} if module is None else _users(module)
            if not users:
                why = f'it names no users; allowed: {_MODULES[name]} required user_<name>="<password>";'
                self._problem(_key(seen, name, "sasl.jaas.config"), "", why)
        return SaslMechanism(name, values.get_int("connections.max.reauth.ms"), users, oauth)

    def _oauth(self, seen: ListenerConfig, values: TypedValues, handler: str | None) -> OAuthSettings | None:
        if handler is None:
            why = f"without it Apache Kafka accepts tokens that nobody has signed; allowed: {VALIDATORS[0]}"
            self._problem(_key(seen, "OAUTHBEARER", _VALIDATOR), "", why)
        if importlib.util.find_spec("joserfc") is None:
            why = "OAUTHBEARER needs the package joserfc: the extra [oauth]"
            self._problem("sasl.enabled.mechanisms", "OAUTHBEARER", why)
        url = values.get_optional_str(_URL)
        why_not = _why_not_url(url)
        if why_not is not None:
            self._problem(_key(seen, "OAUTHBEARER", _URL), url or "", why_not)
            return None
        audiences = values.get_value("sasl.oauthbearer.expected.audience")
        return OAuthSettings(
            jwks_url=url or "",
            refresh_s=values.get_int("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
            backoff_s=values.get_int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
            backoff_max_s=values.get_int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
            issuer=values.get_optional_str("sasl.oauthbearer.expected.issuer"),
            audiences=frozenset(audiences) if isinstance(audiences, tuple) else frozenset(),
            subject_claim=values.get_str("sasl.oauthbearer.sub.claim.name"),
            scope_claim=values.get_str("sasl.oauthbearer.scope.claim.name"),
            skew_s=values.get_int("sasl.oauthbearer.clock.skew.seconds"),
        )

    def _between_brokers(self, seen: ListenerConfig) -> BrokerLogin | None:
        name = self._config.get_str("sasl.mechanism.inter.broker.protocol")
        if name not in BETWEEN_BROKERS:  # GSSAPI, as the row lets nothing else pass
            allowed = ", ".join(BETWEEN_BROKERS)
            self._problem(
                "sasl.mechanism.inter.broker.protocol", name, f"Kerberos is not available; allowed: {allowed}"
            )
            return None
        module = self._entry(seen, name, seen.for_mechanism(name))
        options: Mapping[str, str] = {} if module is None else module.options
        if not options.get("username") or not options.get("password"):
            why = f'brokers log in to each other with it; allowed: {_MODULES[name]} required username="…" password="…";'
            self._problem(_key(seen, name, "sasl.jaas.config"), "", why)
            return None
        by_token = name.startswith("SCRAM-") and options.get("tokenauth", "").lower() == "true"
        return BrokerLogin(name, options["username"], options["password"], by_token)

    def _entry(self, seen: ListenerConfig, mechanism: str, values: TypedValues) -> LoginModule | None:
        """The login entry of a mechanism, if there is one."""
        key, wanted = _key(seen, mechanism, "sasl.jaas.config"), _MODULES[mechanism]
        text = values.get_optional_str("sasl.jaas.config")
        if text is not None:
            try:
                module = parse_module(text)
            except JaasError as error:
                self._problem(key, text, f"it is no login entry: {error}")
                return None
            if module.name.rpartition(".")[2] != wanted:
                self._problem(key, text, f"it is of {module.name[:100]}; allowed: {wanted}")
                return None
            return module
        sections = self._file()
        modules = sections.get(f"{seen.name.lower()}.{_SECTION}") or sections.get(_SECTION, ())
        return next((module for module in modules if module.name.rpartition(".")[2] == wanted), None)

    def _file(self) -> Mapping[str, tuple[LoginModule, ...]]:
        if self._sections is None:
            self._sections = {}
            name = self._config.get_optional_str(LOGIN_FILE)
            if name is not None:
                try:
                    self._sections = parse_jaas(Path(name).read_text(encoding="utf-8", errors="replace"))
                except OSError as error:
                    self._problem(LOGIN_FILE, name, f"it cannot be read: {error.strerror or error}")
                except JaasError as error:
                    self._problem(LOGIN_FILE, name, f"it is no login configuration: {error}")
        return self._sections

    def _problem(self, key: str, text: str, why: str) -> None:
        problem = refusal(key, text, why)
        if problem not in self._problems:
            self._problems.append(problem)


def _key(seen: ListenerConfig, mechanism: str, key: str) -> str:
    return f"listener.name.{seen.name.lower()}.{mechanism.lower()}.{key}"


def _users(module: LoginModule) -> dict[str, str]:
    """Passwords by user name."""
    return {key[len(_USER) :]: value for key, value in module.options.items() if key.startswith(_USER) and value}


def _why_not_url(url: str | None) -> str | None:
    if url is None:
        return "OAUTHBEARER needs the keys that tokens are signed with; allowed: an http://, https:// or file:// URL"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "file") or (parts.scheme != "file" and not parts.hostname):
        return "it must be an http://, https:// or file:// URL"
    if parts.scheme == "file" and not Path(unquote(parts.path)).is_file():
        return "there is no such file"
    return None
