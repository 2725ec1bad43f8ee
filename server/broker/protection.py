"""TLS and log-ins of a broker's listeners. Their modules are loaded only if some listener has them: that is a twentieth
of a start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.peers import Connect

if TYPE_CHECKING:
    from barnabas.server.config.sasl import SaslSettings
    from barnabas.server.network.tls_listener import TlsListener

_TLS: Final = ("SSL", "SASL_SSL")
_SASL: Final = ("SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Protection:
    """`connect`: to other brokers, with TLS and log-in where their listener has them. `sasl`: None without a listener
    with SASL. `tls`: by listener.
    """

    connect: Connect
    sasl: SaslSettings | None
    tls: Mapping[str, TlsListener]

    @property
    def has_scram(self) -> bool:
        """Whether any listener has SCRAM."""
        return self.sasl is not None and self.sasl.has_scram


def protect(config: BrokerConfig, connect: Connect) -> Protection:
    """connect: without protection. Raises SettingsRefused."""
    protocols = {listener.protocol for listener in config.listeners}
    sasl: SaslSettings | None = None
    tls: Mapping[str, TlsListener] = {}
    if not protocols.isdisjoint(_TLS):
        from barnabas.server.network.peer_tls import encrypted
        from barnabas.server.network.tls_listener import tls_listeners

        tls = tls_listeners(config)
        between = tls.get(config.inter_broker_listener)
        if between is not None and config.is_clustered:
            connect = encrypted(connect, lambda: between.client_context)
    if not protocols.isdisjoint(_SASL):
        from barnabas.server.config.sasl import sasl_settings
        from barnabas.server.network.peer_login import logging_in
        from barnabas.server.security.sasl.client import ClientCredentials

        sasl = sasl_settings(config)
        login = sasl.between_brokers
        if login is not None:
            credentials = ClientCredentials(login.mechanism, login.user, login.password, login.by_token)
            connect = logging_in(connect, credentials)
    return Protection(connect, sasl, tls)
