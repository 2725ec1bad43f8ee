"""`/groups`: all of them, those that are behind first."""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.lag import GroupLag
from barnabas.server.console.pages.common import cut
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit

SORTS: Final = ("lag", "name", "members", "state")


async def show(visit: Visit) -> View:
    text, state = visit.query.text("q"), visit.query.text("state")
    sort = visit.query.choice("sort", SORTS)
    groups = await visit.desk.groups()
    rows = []
    for name, listed in groups.listed.items():
        lag = groups.behind.get(name)
        known = lag if isinstance(lag, GroupLag) else None
        topics = sorted({each.topic for each in known.partitions}) if known is not None else []
        if text.lower() not in name.lower() and not any(text.lower() in topic.lower() for topic in topics):
            continue
        now = known.group.state if known is not None else listed.state
        if state and now != state:
            continue
        rows.append(
            {
                "group": name,
                "kind": listed.kind,
                "protocol_type": listed.protocol_type,
                "state": now or None,
                "members": None if known is None else len(known.group.members),
                "topics": topics[:3],
                "topics_count": len(topics),
                "lag": None if known is None else known.lag,
                "coordinator": listed.coordinator,
            }
        )
    rows.sort(key=lambda row: _order(row, sort))
    shown, pages = cut(rows, visit.query)
    data = {
        "q": text,
        "state": state,
        "states": sorted({each.state for each in groups.listed.values() if each.state}),
        "sort": sort,
        "groups": shown,
        "all": len(groups.listed),
        "without_lag": sum(row["lag"] is None for row in rows),
        "silent": {str(broker_id): str(why) for broker_id, why in groups.silent.items()},
        **pages,
    }
    return View("groups", "Groups", data)


def _order(row: dict[str, Any], sort: str) -> tuple[Any, ...]:
    if sort == "lag":
        return (-1 if row["lag"] is None else -row["lag"] - 2, row["group"])
    if sort == "members":
        return (-(row["members"] or 0), row["group"])
    return (row["state"] or "", row["group"]) if sort == "state" else (row["group"],)
