"""The limit of a client, and which clients share it. Source: KIP-124, `ClientQuotaManager.java`.

An `Entity` is what a limit is set for: a user, a client id, or both; each by name, or all that have none of their own,
which is `DEFAULT`. Of the limits that fit a request the most specific one counts, in the order of `_fitting`.

A client without a client id is one that has none of its own. (In Apache Kafka it escapes the limits of client ids.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

DEFAULT: Final = ""
"""In place of a name. No limit can be set for an empty name."""

KEPT_ANSWERS: Final = 10_000


class Entity(NamedTuple):
    """user, client_id: a name, `DEFAULT`, or None where the limit does not ask for it."""

    user: str | None = None
    client_id: str | None = None

    def __str__(self) -> str:
        named = (("user", self.user), ("client-id", self.client_id))
        return ", ".join(f"{what} {name or '<default>'}" for what, name in named if name is not None)


class Share(NamedTuple):
    """One bucket. user, client_id: whose; None: all of them together."""

    user: str | None
    client_id: str | None


class Limit(NamedTuple):
    """value: units per second, above 0. share: the bucket that this limit is for."""

    value: float
    share: Share


class Limits:
    """The limits of one kind. `Limits()` has none, and is false."""

    def __init__(self, values: Mapping[Entity, float] | None = None) -> None:
        self._values = dict(values or {})
        self._found: dict[tuple[str, str], Limit | None] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def put(self, entity: Entity, value: float | None) -> bool:
        """The limit of an entity is now `value`, or gone. Whether that is new."""
        if self._values.get(entity) == value:
            return False
        if value is None:
            del self._values[entity]
        else:
            self._values[entity] = value
        self._found = {}
        return True

    def entities(self) -> Mapping[Entity, float]:
        """All that are set."""
        return self._values

    def find(self, user: str, client_id: str) -> Limit | None:
        """The limit for requests of a user's client; client_id: empty for one that does not say."""
        try:
            return self._found[user, client_id]
        except KeyError:
            pass
        limit = None
        for entity, share in _fitting(user, client_id):
            value = self._values.get(entity)
            if value is not None:
                limit = Limit(value, share)
                break
        if len(self._found) >= KEPT_ANSWERS:  # client ids are made up by clients
            self._found = {}
        self._found[user, client_id] = limit
        return limit


def _fitting(user: str, client_id: str) -> Iterator[tuple[Entity, Share]]:
    """Every entity that a request belongs to, the most specific first, with the bucket of its limit."""
    for of_user in (user, DEFAULT):
        for of_client in (client_id, DEFAULT):
            yield Entity(of_user, of_client), Share(user, client_id)
        yield Entity(of_user), Share(user, None)
    for of_client in (client_id, DEFAULT):
        yield Entity(None, of_client), Share(None, client_id)
