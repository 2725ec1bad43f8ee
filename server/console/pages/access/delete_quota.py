"""`/delete-quota?user=…`: the limits of an entity and what counts without them, then those that were chosen go.

What counts afterwards is by the order in which brokers look (KIP-55, KIP-546): a user with a client id, with the
default client id, alone; the default user likewise; a client id; the default one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from barnabas.server.client.access.quotas import Entity, Quota, alter_quota, describe_quotas
from barnabas.server.client.texts.amounts import counted
from barnabas.server.console.pages.access.quotas import KINDS, entity_of, entity_row, whose
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import Done, Refusal, View, refused, status_of
from barnabas.server.console.web.visit import Visit

SHOWN: Final = 5


async def show(visit: Visit) -> View:
    return await _view(visit, visit.query)


async def _view(visit: Visit, fields: Fields, problems: list[str] | None = None, status: int = 200) -> View:
    named = any(fields.text(kind) or fields.has(f"{kind}-default") for kind in KINDS)
    entity = entity_of(fields) if named else ()
    chosen = fields.many("limit")
    every = await describe_quotas(visit.client)
    limits = next((each.limits for each in every if named and sorted(each.entity) == sorted(entity)), {})
    rows = []
    for name, value in sorted(limits.items()):
        then = falls_back(entity, name, every)
        rows.append(
            {
                "limit": name,
                "value": value,
                "chosen": not chosen or name in chosen,
                "then": [
                    {
                        "entity": entity_row(each.entity),
                        "value": each.limits[name],
                        "is_partly": _is_partly(each, entity),
                    }
                    for each in then[:SHOWN]
                ],
            }
        )
    data: dict[str, Any] = {"entity": entity_row(entity), "limits": rows, "problems": problems or []}
    return View("delete_quota", "Take limits away", data, status)


async def change(visit: Visit) -> Done | View:
    try:
        entity = entity_of(visit.form)
    except Unclear as error:
        return await _view(visit, Fields(), [str(error)], 422)
    chosen = list(dict.fromkeys(visit.form.many("limit")))
    if not chosen:
        return await _view(visit, visit.form, ["limit: at least one is expected; nothing was changed"], 422)
    for each in await describe_quotas(visit.client):
        if sorted(each.entity) == sorted(entity) and set(chosen) <= each.limits.keys():
            break
    else:
        raise Refusal(404, f"{whose(entity)} has no such limit of its own; it may be gone already")
    failed = await alter_quota(visit.client, entity, dict.fromkeys(chosen))
    if failed is not None:
        if status_of(failed.code) == 422:
            return await _view(visit, visit.form, [str(failed)], 422)
        raise refused("quota", failed)
    what = f"took {', '.join(chosen)} away from {whose(entity)}"
    data = {"entity": entity_row(entity), "limits": chosen, "removed": counted(len(chosen), "limit")}
    return Done(what, "quota-deleted", "/quotas", data)


def falls_back(entity: Entity, limit: str, every: Iterable[Quota]) -> list[Quota]:
    """Who else's limit of this name counts for clients of `entity` when its own is gone: the one that counts first
    first. Such that name a part of them only are among them, if they would count after `entity`'s own.
    """
    found = [
        each
        for each in every
        if limit in each.limits and _rank(each.entity) > _rank(entity) and _may_meet(each.entity, entity)
    ]
    return sorted(found, key=lambda each: _rank(each.entity))


def _rank(entity: Entity) -> tuple[int, ...]:
    kinds = dict(entity)
    return tuple(2 if kind not in kinds else int(kinds[kind] is None) for kind in KINDS)


def _may_meet(other: Entity, entity: Entity) -> bool:
    kinds = dict(entity)
    if ("ip" in kinds) != any(kind == "ip" for kind, _ in other):
        return False
    return all(name is None or kinds.get(kind) in (None, name) for kind, name in other)


def _is_partly(other: Quota, entity: Entity) -> bool:
    """Whether it names clients more closely than `entity` does, so that it counts for some of them."""
    kinds = dict(entity)
    return any(name is not None and kinds.get(kind) is None for kind, name in other.entity)
