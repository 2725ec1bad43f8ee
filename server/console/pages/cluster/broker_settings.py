"""`/brokers/N/settings`: what this broker runs with; what can be changed while it runs is changed for this broker."""

from __future__ import annotations

from barnabas.server.client.configs import Resource, ResourceKind
from barnabas.server.console.pages.common import broker_of
from barnabas.server.console.pages.settings_view import changed, view
from barnabas.server.console.web.view import Done, View
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    return await _view(visit, await broker_of(visit))


async def _view(visit: Visit, number: int, problems: list[str] | None = None, status: int = 200) -> View:
    resource = Resource(ResourceKind.BROKER, str(number))
    return await view(visit, resource, f"broker {number}", "broker_settings", {"broker": number}, problems, status)


async def change(visit: Visit) -> Done | View:
    number = await broker_of(visit)
    resource = Resource(ResourceKind.BROKER, str(number))
    answer = await changed(visit, resource, f"broker {number}", f"/brokers/{number}/settings", {"broker": number})
    return answer if isinstance(answer, Done) else await _view(visit, number, answer, 422)
