"""Routes about the broker itself."""

from __future__ import annotations

from typing import Final

from barnabas.server.control.controlled import Controlled
from barnabas.server.control.routing import Call, Json, Route


async def broker(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    served = controlled.broker
    image = served.services.image
    return {
        "version": controlled.version,
        "bootstrap": served.bootstrap,
        "broker_id": served.config.broker_id,
        "cluster_id": image.cluster_id,
    }


ROUTES: Final = (Route("GET", "/v1/broker", broker, "who the broker is, and where its clients connect to"),)
