"""`/topics/T/settings`."""

from __future__ import annotations

from barnabas.server.client.configs import Resource, ResourceKind
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.pages.settings_view import changed, view
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, View
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    return await _view(visit, topic.name)


async def _view(visit: Visit, name: str, problems: list[str] | None = None, status: int = 200) -> View:
    resource = Resource(ResourceKind.TOPIC, name)
    return await view(visit, resource, f"topic {name}", "topic_settings", {"topic": name}, problems, status)


async def change(visit: Visit) -> Done | View:
    name = visit.names["topic"]
    resource = Resource(ResourceKind.TOPIC, name)
    location = f"/topics/{segment(name)}/settings"
    answer = await changed(visit, resource, f"topic {name}", location, {"topic": name})
    return answer if isinstance(answer, Done) else await _view(visit, name, answer, 422)
