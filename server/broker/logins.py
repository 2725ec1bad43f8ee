"""Log-ins of a broker, made from its settings: for each listener with SASL its mechanisms, and their sources of users.

Modules that only some mechanisms need are loaded on demand: a broker without OAUTHBEARER never loads the package for
signatures.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.server.config.sasl import OAuthSettings, SaslListener, SaslMechanism, SaslSettings
from barnabas.server.security.sasl.authenticator import ListenerRules, MechanismRules
from barnabas.server.security.sasl.exchange import Exchange, NewExchange
from barnabas.server.security.sasl.plain import PlainExchange, PlainUsers
from barnabas.server.security.sasl.scram import NONCE_BYTES, ScramExchange
from barnabas.server.security.sasl.scram_credentials import ScramLogin, ScramMechanism
from barnabas.server.security.sasl.users import ScramUsers
from barnabas.server.security.tokens.known import KnownTokens

if TYPE_CHECKING:
    from barnabas.server.security.sasl.jwks import Jwks


@dataclass(frozen=True, slots=True)
class Logins:
    """`rules`: by listener. `jwks`: sets of keys to be fetched, with their URL, by listener."""

    rules: Mapping[str, ListenerRules]
    jwks: Mapping[str, Sequence[tuple[Jwks, str]]]


def make_logins(
    settings: SaslSettings, users: ScramUsers, tokens: KnownTokens | None, now: Callable[[], float]
) -> Logins:
    """`tokens` None: there are no log-ins with tokens. `now()`: seconds of the clock for fetching keys."""
    jwks: dict[str, list[tuple[Jwks, str]]] = {name: [] for name in settings.listeners}

    def begin(listener: SaslListener, mechanism: SaslMechanism) -> NewExchange:
        scram = ScramMechanism.of_name(mechanism.name)
        if scram is not None:
            return _scram(scram, users, tokens)
        if mechanism.oauth is not None:
            return _oauth(mechanism.oauth, jwks[listener.name], now)
        known = PlainUsers(mechanism.users)
        return lambda: PlainExchange(known)

    def rules(listener: SaslListener) -> ListenerRules:
        mechanisms = {one.name: MechanismRules(begin(listener, one), one.max_reauth_ms) for one in listener.mechanisms}
        return ListenerRules(listener.name, listener.protocol, mechanisms)

    return Logins({name: rules(listener) for name, listener in settings.listeners.items()}, jwks)


def _scram(mechanism: ScramMechanism, users: ScramUsers, tokens: KnownTokens | None) -> NewExchange:
    def find(name: str, by_token: bool, now_ms: int) -> ScramLogin | None:
        if not by_token:
            return users.find(mechanism, name)
        return None if tokens is None else tokens.find(mechanism, name, now_ms)

    def begin() -> Exchange:
        return ScramExchange(
            mechanism,
            find,
            lambda name: users.stand_in(mechanism, name),
            lambda: b64encode(secrets.token_bytes(NONCE_BYTES)),
        )

    return begin


def _oauth(settings: OAuthSettings, jwks: list[tuple[Jwks, str]], now: Callable[[], float]) -> NewExchange:
    from barnabas.server.security.sasl.jwks import Jwks, RefreshRules
    from barnabas.server.security.sasl.jwt import TokenReader, TokenRules
    from barnabas.server.security.sasl.oauthbearer import OAuthBearerExchange

    keys = Jwks(RefreshRules(settings.refresh_s, settings.backoff_s, settings.backoff_max_s))
    jwks.append((keys, settings.jwks_url))
    rules = TokenRules(
        settings.issuer, settings.audiences, settings.subject_claim, settings.scope_claim, settings.skew_s
    )
    reader = TokenReader(rules, keys)
    return lambda: OAuthBearerExchange(lambda token, now_ms: reader.read(token, now_ms, now()))
