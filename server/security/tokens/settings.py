"""What the settings say about delegation tokens: `delegation.token.…`."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.security.tokens.rules import TokenRules


@dataclass(frozen=True, slots=True, repr=False)
class TokenSettings:
    """`check_interval_s`: how often expired tokens are looked for."""

    secret_key: str
    rules: TokenRules
    check_interval_s: float


def token_settings(config: BrokerConfig) -> TokenSettings | None:
    """None: without a secret key there are no tokens."""
    secret_key = config.get_optional_str("delegation.token.secret.key") or config.get_optional_str(
        "delegation.token.master.key"
    )
    if not secret_key:
        return None
    rules = TokenRules(
        config.get_int("delegation.token.max.lifetime.ms"), config.get_int("delegation.token.expiry.time.ms")
    )
    return TokenSettings(secret_key, rules, config.get_int("delegation.token.expiry.check.interval.ms") / 1000)
