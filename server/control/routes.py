"""All routes. A new file of them is one import and one row."""

from __future__ import annotations

from typing import Final

from barnabas.server.control import broker_routes, clock_routes, fault_routes, snapshot_routes
from barnabas.server.control.routing import Route

ROUTES: Final[tuple[Route, ...]] = (
    *broker_routes.ROUTES,
    *clock_routes.ROUTES,
    *fault_routes.ROUTES,
    *snapshot_routes.ROUTES,
)
