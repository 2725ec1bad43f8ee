"""The TLS of one listener: its context in force, what carries a connection through it, and who the peer is then.

The context is replaced when the key store or the trust store is set again while the broker runs, and another file is
named or a file has changed (Apache Kafka does so, too: certificate and key may lie in two files, and in between they do
not belong together). Connections keep the context that they began with. A store that cannot be used, or that has
another subject, is rejected: changed settings with an error to the caller (`why_not`), changed files under the same
settings with a line in the log; the old ones stay in use.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Collection, Mapping

import trio

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused, refusal
from barnabas.server.config.values import ListenerConfig
from barnabas.server.network.connection import Connection
from barnabas.server.network.tls_carrier import TlsCarrier
from barnabas.server.security.principals import ANONYMOUS, USER, Principal
from barnabas.server.security.session import Session
from barnabas.server.security.tls.channel import TlsChannel, TlsError
from barnabas.server.security.tls.contexts import TlsSettings, client_context, server_context, without_effect
from barnabas.server.security.tls.names import alternative_names, subject_of
from barnabas.server.security.tls.settings import PROTOCOLS, principal_mapping, tls_settings
from barnabas.server.security.tls.stores import BadStore, files, read_identity

log = logging.getLogger("barnabas.network")

_RULES = "ssl.principal.mapping.rules"


class TlsListener:
    """config: the settings as this listener sees them. protocol: SSL or SASL_SSL. connects: other brokers are connected
    to through it, too. Raises SettingsRefused.
    """

    def __init__(self, config: ListenerConfig, protocol: str, *, connects: bool) -> None:
        self._name = config.name
        self._protocol = protocol
        self._connects = connects
        self._tried: object = None
        settings = tls_settings(config, protocol)
        try:
            self._mapping = principal_mapping(config)
        except ValueError as error:
            raise SettingsRefused([_refused(config, _RULES, str(error))], keys=[_RULES]) from None
        self._use(config, settings)
        for suite in without_effect(settings.cipher_suites):
            log.warning("listener %s: ssl.cipher.suites: %s is not known here, and not used", self._name, suite)

    @property
    def client_context(self) -> ssl.SSLContext:
        """For connections to other brokers."""
        assert self._client is not None
        return self._client

    def carrier(self) -> TlsCarrier:
        """What carries a new connection."""
        return TlsCarrier(TlsChannel(self._context), self._opened, trio.current_time())

    def why_not(self, config: ListenerConfig) -> str | None:
        """Why other settings of stores cannot be used; None: they can, or are those that are there."""
        settings = tls_settings(config, self._protocol)
        if dict(settings.stores) == self._stores:
            return None
        try:
            why = self._why_not(config, settings)
            if why is None:
                self._made(config, settings)
        except SettingsRefused as refused:
            return str(refused)
        return why

    def refresh(self, config: ListenerConfig) -> None:
        """Settings of brokers were set, perhaps those of this listener's stores."""
        settings = tls_settings(config, self._protocol)
        state = _state(settings)
        if state == self._tried:
            return
        self._tried = state
        try:
            why = self._why_not(config, settings)
            if why is None:
                self._use(config, settings)
                log.info("listener %s: uses its key store and trust store as they are now", self._name)
                return
        except SettingsRefused as refused:
            why = str(refused)
        log.error("listener %s: goes on with the key store and the trust store that it has: %s", self._name, why)

    def _use(self, config: ListenerConfig, settings: TlsSettings) -> None:
        self._tried = _state(settings)
        self._context, self._client, self._certificate = self._made(config, settings)
        self._stores = dict(settings.stores)

    def _made(
        self, config: ListenerConfig, settings: TlsSettings
    ) -> tuple[ssl.SSLContext, ssl.SSLContext | None, bytes]:
        """What the settings come to: for clients, for other brokers, the certificate. Raises SettingsRefused."""
        try:
            context = server_context(settings)
            client = client_context(settings) if self._connects else None
            identity = read_identity(settings.stores)
        except BadStore as bad:
            raise SettingsRefused([_refused(config, bad.key, str(bad))], keys=[bad.key]) from None
        assert identity is not None
        return context, client, identity.certificate

    def _why_not(self, config: ListenerConfig, settings: TlsSettings) -> str | None:
        """Why another key store is rejected: its certificate names another subject; None: it is accepted."""
        try:
            identity = read_identity(settings.stores)
        except BadStore as bad:
            return _refused(config, bad.key, str(bad))
        if identity is None:
            return "a key store cannot be taken away"
        before, after = self._certificate, identity.certificate
        if subject_of(before) != subject_of(after) and not config.get_bool("ssl.allow.dn.changes"):
            return f"the certificate is of {subject_of(after)}, not of {subject_of(before)} (ssl.allow.dn.changes)"
        if not alternative_names(before) <= alternative_names(after) and not config.get_bool("ssl.allow.san.changes"):
            return "the certificate lacks alternative names that the one before has (ssl.allow.san.changes)"
        return None

    def _opened(self, connection: Connection, channel: TlsChannel) -> None:
        """Without SASL the client's certificate names its principal; without a certificate it is ANONYMOUS."""
        if self._protocol != "SSL":
            return
        connection.session = Session(
            self._principal(channel.peer_certificate), connection.client_host, self._name, self._protocol
        )

    def _principal(self, certificate: bytes | None) -> Principal:
        if certificate is None:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except ValueError as error:
            raise TlsError(f"the peer's certificate has a subject that cannot be read: {error}") from None
        name = self._mapping.name(subject)
        if name is None:
            raise TlsError(f"none of {_RULES} matches the peer's certificate, of {subject}")
        return Principal(USER, name)


def tls_listeners(config: BrokerConfig, names: Collection[str] | None = None) -> Mapping[str, TlsListener]:
    """The listeners with TLS, by name; only those in `names`. Reads files. Raises SettingsRefused with all problems."""
    listeners = {}
    problems: list[str] = []
    for address in config.listeners:
        if address.protocol in PROTOCOLS and (names is None or address.name in names):
            connects = config.is_clustered and address.name == config.inter_broker_listener
            try:
                listeners[address.name] = TlsListener(
                    config.for_listener(address.name), address.protocol, connects=connects
                )
            except SettingsRefused as refused:
                problems += refused.problems
    if problems:
        raise SettingsRefused(problems)
    return listeners


def _state(settings: TlsSettings) -> object:
    """Differs when the stores do."""
    changed_ns = []
    for path in files(settings.stores):
        try:
            changed_ns.append(path.stat().st_mtime_ns)
        except OSError:
            changed_ns.append(-1)
    return dict(settings.stores), changed_ns


def _refused(config: ListenerConfig, key: str, why: str) -> str:
    own = f"listener.name.{config.name.lower()}.{key}" if key in config.own else key
    value = config.get_value(key)
    return refusal(own, "" if value is None else str(value), f"for listener {config.name}: {why}")
