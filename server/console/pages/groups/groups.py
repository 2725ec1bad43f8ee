"""`/groups`: all of them, those that are behind first."""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.lag import GroupLag, lags
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
        known = _known(groups.behind.get(name))
        topics = _topics(known)
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
                **_found(known),
                "coordinator": listed.coordinator,
            }
        )
    rows.sort(key=lambda row: _order(row, sort))
    without_lag = sum(row["lag"] is None for row in rows)
    shown, pages = cut(rows, visit.query)
    # With very many groups not all are looked at for every page; what it shows is.
    unasked = [row["group"] for row in shown if row["group"] not in groups.behind]
    found = await lags(visit.client, unasked, times=False) if unasked else {}
    shown = [{**row, **_found(_known(found[row["group"]]))} if row["group"] in found else row for row in shown]
    data = {
        "q": text,
        "state": state,
        "states": sorted({each.state for each in groups.listed.values() if each.state}),
        "sort": sort,
        "groups": shown,
        "all": len(groups.listed),
        "without_lag": without_lag,
        "silent": {str(broker_id): str(why) for broker_id, why in groups.silent.items()},
        **pages,
    }
    return View("groups", "Groups", data)


def _known(lag: GroupLag | Failed | None) -> GroupLag | None:
    return lag if isinstance(lag, GroupLag) else None


def _topics(known: GroupLag | None) -> list[str]:
    return [] if known is None else sorted({each.topic for each in known.partitions})


def _found(known: GroupLag | None) -> dict[str, Any]:
    """What a row has of a group that was looked at; None: it was not."""
    topics = _topics(known)
    return {
        "members": None if known is None else len(known.group.members),
        "topics": topics[:3],
        "topics_count": len(topics),
        "lag": None if known is None else known.lag,
    }


def _order(row: dict[str, Any], sort: str) -> tuple[Any, ...]:
    if sort == "lag":
        return (-1 if row["lag"] is None else -row["lag"] - 2, row["group"])
    if sort == "members":
        return (-(row["members"] or 0), row["group"])
    return (row["state"] or "", row["group"]) if sort == "state" else (row["group"],)
