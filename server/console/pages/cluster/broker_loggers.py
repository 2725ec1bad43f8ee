"""`/brokers/N/loggers`: how much each part of a broker logs, changed while it runs (KIP-412)."""

from __future__ import annotations

from barnabas.server.client.configs import Resource, ResourceKind
from barnabas.server.console.pages.common import broker_of
from barnabas.server.console.pages.settings_view import changed, view
from barnabas.server.console.web.view import Done, View
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    return await _view(visit, await broker_of(visit))


async def _view(visit: Visit, number: int, problems: list[str] | None = None, status: int = 200) -> View:
    resource = Resource(ResourceKind.BROKER_LOGGER, str(number))
    return await view(
        visit, resource, f"broker {number} loggers", "broker_loggers", {"broker": number}, problems, status
    )


async def change(visit: Visit) -> Done | View:
    number = await broker_of(visit)
    resource = Resource(ResourceKind.BROKER_LOGGER, str(number))
    location = f"/brokers/{number}/loggers"
    answer = await changed(visit, resource, f"broker {number} loggers", location, {"broker": number})
    return answer if isinstance(answer, Done) else await _view(visit, number, answer, 422)
