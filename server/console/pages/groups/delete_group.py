"""`/groups/G/delete`: a group without members, with all that it has committed; or only what is of one topic."""

from __future__ import annotations

from typing import Any

from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.committed import committed_offsets, delete_offsets
from barnabas.server.client.groups.groups import delete_groups
from barnabas.server.client.groups.values import Committed
from barnabas.server.client.texts.amounts import counted
from barnabas.server.console.pages.common import group_of
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, View, refused
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200) -> View:
    group = await group_of(visit)
    committed = (await committed_offsets(visit.client, [group.group_id]))[group.group_id]
    rows: dict[str, int] = {}
    if not isinstance(committed, Failed):
        for (topic, _), each in committed.items():
            rows[topic] = rows.get(topic, 0) + isinstance(each, Committed)
    data: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "members": [{"client_id": each.client_id, "host": each.host} for each in group.members],
        "topics": [{"topic": topic, "offsets": count} for topic, count in sorted(rows.items())],
        "problems": problems or [],
    }
    return View("delete_group", f"Delete {group.group_id}", data, status)


async def change(visit: Visit) -> Done | View:
    name = visit.names["group"]
    if visit.form.raw("confirm").strip() != name:
        return await _view(visit, ["The name that was typed is another one; nothing was deleted."], 422)
    topic = visit.form.text("topic")
    if topic:
        return await _forget(visit, name, topic)
    failed = (await delete_groups(visit.client, [name]))[name]
    if failed is not None:
        raise refused(f"group {name}", failed)
    return Done(f"deleted group {name}", "group-deleted", "/groups", {"group": name})


async def _forget(visit: Visit, name: str, topic: str) -> Done | View:
    committed = (await committed_offsets(visit.client, [name]))[name]
    if isinstance(committed, Failed):
        raise refused(f"group {name}", committed)
    wanted = [place for place in committed if place[0] == topic]
    if not wanted:
        return await _view(visit, [f"The group has committed nothing for topic {topic}."], 422)
    for place, failed in (await delete_offsets(visit.client, name, wanted)).items():
        if failed is not None:
            raise refused(f"group {name}, {topic} partition {place[1]}", failed)
    what = f"deleted {counted(len(wanted), 'offset')} of group {name} for topic {topic}"
    return Done(what, "forgotten", f"/groups/{segment(name)}/lag", {"group": name, "topic": topic})
