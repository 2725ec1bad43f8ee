"""Routes of the broker's clock.

    GET  /v1/clock            {"now_ms": 1750000000000}
    POST /v1/clock/advance    {"by": "7d"}, or a number of seconds; answers as GET when everything that was due is done

For brokers in a cluster, whose clocks are moved in step:

    POST /v1/clock/hold       lets it stand still; answers as GET
    POST /v1/clock/step       {"by": 1.5}, 0 to look only; answers when everything that was due is done, or waits for
                              others: {"at_rest": false, "next_s": 0.5}. Once all brokers are at rest it may go on.
                              next_s: what follows is due so much later; null: nothing is
    POST /v1/clock/release    lets it go on; answers as GET

Times are read by `durations`.
"""

from __future__ import annotations

import math
from typing import Final

from barnabas.server.control.controlled import Controlled
from barnabas.server.control.durations import seconds_of
from barnabas.server.control.fields import WrongField
from barnabas.server.control.routing import Call, Json, Refusal, Route
from barnabas.server.runtime.virtual_clock import Held, InACluster


async def now(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    return {"now_ms": controlled.broker.now_ms()}


async def advance(controlled: Controlled, call: Call) -> Json:
    by = seconds_of(call.fields.take("by"))
    call.fields.end()
    try:
        await controlled.broker.advance(by)
    except ValueError as error:
        raise WrongField(f"by: {error}") from None
    except (InACluster, Held) as error:
        raise Refusal(str(error), 409) from None
    return {"now_ms": controlled.broker.now_ms()}


async def hold(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    try:
        await controlled.broker.hold()
    except Held as error:
        raise Refusal(str(error), 409) from None
    return {"now_ms": controlled.broker.now_ms()}


async def step(controlled: Controlled, call: Call) -> Json:
    by = seconds_of(call.fields.take("by"))
    call.fields.end()
    try:
        stood = await controlled.broker.step(by)
    except ValueError as error:
        raise WrongField(f"by: {error}") from None
    except Held as error:
        raise Refusal(str(error), 409) from None
    return {"at_rest": stood.is_at_rest, "next_s": stood.next_s if math.isfinite(stood.next_s) else None}


async def release(controlled: Controlled, call: Call) -> Json:
    call.fields.end()
    try:
        await controlled.broker.release()
    except Held as error:
        raise Refusal(str(error), 409) from None
    return {"now_ms": controlled.broker.now_ms()}


ROUTES: Final = (
    Route("GET", "/v1/clock", now, "tells what time it is for the broker"),
    Route("POST", "/v1/clock/advance", advance, "lets time pass at once, and with it all that is due"),
    Route("POST", "/v1/clock/hold", hold, "lets the clock stand still, to be moved in step with other brokers'"),
    Route("POST", "/v1/clock/step", step, "moves a clock that is held, and says whether all that was due is done"),
    Route("POST", "/v1/clock/release", release, "lets the clock go on"),
)
