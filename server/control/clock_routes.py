"""Routes of the broker's clock.

    GET  /v1/clock            {"now_ms": 1750000000000}
    POST /v1/clock/advance    {"by": "7d"}, or a number of seconds; answers as GET when everything that was due is done

A text is a row of numbers with units, `ms`, `s`, `m`, `h`, `d` or `w`: "90m", "1d12h", "1.5h".
"""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas.server.control.controlled import Controlled
from barnabas.server.control.fields import WrongField
from barnabas.server.control.routing import Call, Json, Refusal, Route
from barnabas.server.runtime.virtual_clock import ADVANCE_MAX_S, InACluster

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PART: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)")
_TEXT: Final = re.compile(rf"(?:{_PART.pattern})+")


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
    except InACluster as error:
        raise Refusal(str(error), 409) from None
    return {"now_ms": controlled.broker.now_ms()}


def seconds_of(by: Any) -> float:
    """The seconds that a JSON value stands for. Raises WrongField."""
    if isinstance(by, int | float) and not isinstance(by, bool):
        if not 0 <= by <= ADVANCE_MAX_S:  # before it is a float, which not all whole numbers can be
            raise WrongField(f"by must be from 0 to {ADVANCE_MAX_S:.0f} seconds")
        return float(by)
    if not isinstance(by, str) or _TEXT.fullmatch(by) is None:
        raise WrongField(f'by must be a number of seconds, or a text such as "7d", "90m" or "1d12h", not {by!r:.40}')
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(by))


ROUTES: Final = (
    Route("GET", "/v1/clock", now, "tells what time it is for the broker"),
    Route("POST", "/v1/clock/advance", advance, "lets time pass at once, and with it all that is due"),
)
