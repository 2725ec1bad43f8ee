"""`/quotas`: how much whom: limits of users, client ids and addresses; set one."""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final

from barnabas.server.client.access.quotas import Entity, alter_quota, describe_quotas
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import Done, View, refused, status_of
from barnabas.server.console.web.visit import Visit

LIMITS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
KINDS: Final = ("user", "client-id", "ip")
_NUMBER: Final = re.compile(r"[0-9]{1,15}(\.[0-9]{1,6})?")


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200) -> View:
    rows = [
        {
            "entity": entity_row(quota.entity),
            "limits": dict(sorted(quota.limits.items())),
        }
        for quota in await describe_quotas(visit.client)
    ]
    names = ("user", "client-id", "ip", "limit", "value")
    data: dict[str, Any] = {
        "quotas": rows,
        "limits": list(LIMITS),
        "fields": {name: visit.form.text(name) for name in names},
        "problems": problems or [],
    }
    return View("quotas", "Quotas", data, status)


async def change(visit: Visit) -> Done | View:
    try:
        entity = entity_of(visit.form)
        limit = visit.form.choice("limit", LIMITS)
        value = _value(visit.form)
    except Unclear as error:
        return await _view(visit, [str(error)], 422)
    failed = await alter_quota(visit.client, entity, {limit: value})
    if failed is not None:
        if status_of(failed.code) == 422:
            return await _view(visit, [str(failed)], 422)
        raise refused("quota", failed)
    data = {"entity": entity_row(entity), "limit": limit, "value": value}
    return Done(f"set {limit}={value:.15g} for {whose(entity)}", "quota-set", "/quotas", data)


def entity_row(entity: Entity) -> list[dict[str, str | None]]:
    return [{"kind": kind, "name": name} for kind, name in entity]


def whose(entity: Entity) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)


def entity_of(form: Fields) -> Entity:
    """A kind counts if its field has a name, or its box `…-default` is ticked. Raises Unclear."""
    found: list[tuple[str, str | None]] = []
    for kind in KINDS:
        if form.has(f"{kind}-default"):
            found.append((kind, None))
        elif form.text(kind):
            found.append((kind, form.text(kind)))
    if not found:
        raise Unclear("user", "user: a user, a client id or an address is expected, or the default of one")
    return tuple(found)


def _value(form: Fields) -> float:
    """Raises Unclear."""
    text = form.text("value").replace(",", "").replace("_", "")
    if _NUMBER.fullmatch(text) is None or not isfinite(float(text)) or not float(text):
        raise Unclear("value", f"value: a number above 0 is expected, not {text[:40]!r}")
    return float(text)
