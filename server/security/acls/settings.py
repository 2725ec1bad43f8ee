"""The authorizer that the settings ask for. Both classes of Apache Kafka's stand for the one that there is here."""

from __future__ import annotations

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.security.acls.authorizer import Authorizer
from barnabas.server.security.principals import Principal


def authorizer_of(config: BrokerConfig) -> Authorizer | None:
    """A new authorizer without entries, or None where `authorizer.class.name` names none."""
    if not config.get_str("authorizer.class.name"):
        return None
    return Authorizer(
        super_users(config.get_optional_str("super.users") or ""),
        allow_everyone=config.get_bool("allow.everyone.if.no.acl.found"),
    )


def super_users(text: str) -> list[Principal]:
    """The principals of `super.users`, which semicolons separate, as distinguished names have commas. Raises
    ValueError.
    """
    return [Principal.parse(part.strip()) for part in text.split(";") if part.strip()]
