"""Routes of snapshots: what is in the broker now, to be restored later.

POST   /v1/snapshots               {"id": "0f…"}
GET    /v1/snapshots               {"snapshots": ["0f…"]}
POST   /v1/snapshots/{id}/restore  answers when clients are answered again
DELETE /v1/snapshots/{id}
"""

from __future__ import annotations

from typing import Final

from barnabas.logdir import StorageError
from barnabas.logdir.dirs.snapshot import SnapshotDamaged
from barnabas.server.control.controlled import Controlled
from barnabas.server.control.routing import Call, Json, Refusal, Route
from barnabas.server.runtime.virtual_clock import Held, InACluster
from barnabas.server.storage.snapshots import UnknownSnapshot


async def take(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    try:
        return {"id": await controlled.broker.snapshot()}
    except (InACluster, StorageError) as error:
        raise Refusal(str(error), 409) from None


async def every(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    return {"snapshots": controlled.broker.snapshots()}


async def restore(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    try:
        await controlled.broker.restore(call.arguments["id"])
    except UnknownSnapshot as error:
        raise Refusal(str(error), 404) from None
    except (InACluster, Held) as error:
        raise Refusal(str(error), 409) from None
    except SnapshotDamaged as error:
        raise Refusal(f"the snapshot cannot be restored: {error}", 409) from None
    return {"id": call.arguments["id"]}


async def remove(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    try:
        await controlled.broker.remove_snapshot(call.arguments["id"])
    except UnknownSnapshot as error:
        raise Refusal(str(error), 404) from None
    return {"id": call.arguments["id"]}


ROUTES: Final = (
    Route("POST", "/v1/snapshots", take, "remembers what is in the broker now"),
    Route("GET", "/v1/snapshots", every, "lists the snapshots"),
    Route("POST", "/v1/snapshots/{id}/restore", restore, "puts back what was in the broker at a snapshot"),
    Route("DELETE", "/v1/snapshots/{id}", remove, "forgets a snapshot"),
)
