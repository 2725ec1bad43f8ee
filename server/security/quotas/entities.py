"""Entities with quotas, and which quotas each may have. Sources: KIP-546, KIP-612, `QuotaConfigs.java`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from barnabas.server.security.quotas.limits import DEFAULT


class QuotaKey(StrEnum):
    """What can be limited. Rates are per second; `REQUEST`: of the time of one thread, in percent."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATIONS = "controller_mutation_rate"
    CONNECTIONS = "connection_creation_rate"


_LARGEST: Final = {QuotaKey.PRODUCE: 2**63 - 1, QuotaKey.FETCH: 2**63 - 1, QuotaKey.CONNECTIONS: 2**31 - 1}
"""Of those that are whole numbers."""
_EPSILON: Final = 1e-6

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of entities, as the protocol spells them."""


class QuotaEntity(NamedTuple):
    """A user, a client id, both, or an address (or host name): each by name, `DEFAULT` for all without limits of their
    own, or None where it is not part of it.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """What it is made of, by type."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return {kind: name for kind, name in named if name is not None}

    @property
    def keys(self) -> tuple[QuotaKey, ...]:
        """What can be limited for it."""
        if self.ip is not None:
            return (QuotaKey.CONNECTIONS,)
        return (QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.REQUEST, QuotaKey.MUTATIONS)

    def __str__(self) -> str:
        return ", ".join(f"{kind} {'<default>' if name == DEFAULT else name}" for kind, name in self.parts.items())


def text_of(key: QuotaKey, value: float) -> str:
    """A limit as it is stored. Raises ValueError with the reason why it cannot be one."""
    if not value > 0:
        raise ValueError(f"{key} must be more than 0")
    largest = _LARGEST.get(key)
    if largest is None:
        if math.isinf(value):
            raise ValueError(f"{key} must be a number")
        return repr(float(value))
    if value > float(largest):
        raise ValueError(f"{key} may be {largest} at most")
    if abs(value - round(value)) > _EPSILON:
        raise ValueError(f"{key} must be a whole number")
    if not round(value):
        raise ValueError(f"{key} must be more than 0")
    return str(min(round(value), largest))


def limits_of(entity: QuotaEntity, config: Mapping[str, str]) -> tuple[dict[QuotaKey, float], list[str]]:
    """The limits that are stored of an entity; and what is wrong with those that cannot be used, a sentence each."""
    limits: dict[QuotaKey, float] = {}
    problems: list[str] = []
    for key in entity.keys:
        text = config.get(key)
        if text is None:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if 0 < value < math.inf:
            limits[key] = value
        else:
            problems.append(f"{key}={text!r} of {entity} is no limit that can be kept; there is none")
    return limits, problems
