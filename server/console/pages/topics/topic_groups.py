"""`/topics/T/groups`: who reads this topic, and how far each is behind in it."""

from __future__ import annotations

from barnabas.server.client.groups.lag import GroupLag
from barnabas.server.console.pages.common import cut, topic_of
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    groups = await visit.desk.groups()
    rows = []
    readers = sorted(groups.readers(topic.name).items(), key=lambda each: (-each[1], each[0]))
    shown, pages = cut(readers, visit.query)
    for name, lag in shown:
        whole = groups.behind[name]
        assert isinstance(whole, GroupLag)
        parts = [each for each in whole.partitions if each.topic == topic.name]
        rows.append(
            {
                "group": name,
                "kind": whole.group.kind,
                "state": whole.group.state,
                "members": len({each.member.member_id for each in parts if each.member is not None}),
                "partitions": len(parts),
                "lag": lag,
            }
        )
    data = {
        "topic": topic.name,
        "groups": rows,
        "groups_looked_at": len(groups.behind),
        "groups_all": len(groups.listed),
        "silent": {str(key): str(why) for key, why in groups.silent.items()},
        **pages,
    }
    return View("topic_groups", f"{topic.name}: groups", data)
