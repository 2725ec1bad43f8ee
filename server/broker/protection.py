"""TLS and authentication of a broker's listeners and of its connections to other brokers."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.network.listener_security import ListenerSecurity, load_security
from barnabas.server.network.peers import Connect

if TYPE_CHECKING:
    from barnabas.server.network.tls_listener import TlsListener

log = logging.getLogger("barnabas.broker")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Protection:
    """`connect`: to other brokers, with TLS and log-in where their listener has them. `listeners`: those of this broker
    without those in `without`, which cannot be opened.
    """

    connect: Connect
    listeners: ListenerSecurity
    without: frozenset[str] = frozenset()


def protect(config: BrokerConfig, connect: Connect, *, may_fail: Collection[str] = ()) -> Protection:
    """connect: without protection. may_fail: listeners whose problems are logged, and the broker starts without them.
    Raises SettingsRefused for others.
    """
    without = set()
    for name in may_fail:
        try:
            load_security(config, [name])
        except SettingsRefused as refused:
            log.error("listener %s is not opened: %s", name, refused)
            without.add(name)
    listeners = load_security(config, [each.name for each in config.listeners if each.name not in without])
    if config.is_clustered:
        connect = _between_brokers(config, listeners, connect)
    return Protection(connect, listeners, frozenset(without))


def _between_brokers(config: BrokerConfig, listeners: ListenerSecurity, connect: Connect) -> Connect:
    between: TlsListener | None = listeners.tls.get(config.inter_broker_listener)
    if between is not None:
        from barnabas.server.network.peer_tls import encrypted

        connect = encrypted(connect, lambda: between.client_context)
    login = None if listeners.sasl is None else listeners.sasl.between_brokers
    if login is not None:
        from barnabas.server.network.peer_login import logging_in
        from barnabas.server.security.sasl.client import ClientCredentials

        connect = logging_in(connect, ClientCredentials(login.mechanism, login.user, login.password, login.by_token))
    return connect
