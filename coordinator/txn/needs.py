"""What the machine asks of the world besides markers: producer ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.coordinator.machine import Now, Result
from barnabas.kproto import ErrorCode


class NeedProducerId(NamedTuple):
    """An effect: fetch a producer id that no other producer has. The runtime calls exactly one of the two, at any later
    time, and applies the result: `given(producer id, now)` handles the request again; `refused(code, now)` if there is
    no id.
    """

    given: Callable[[int, Now], Result]
    refused: Callable[[ErrorCode, Now], Result]


def need_id(given: Callable[[int, Now], Result], refused: Callable[[ErrorCode, Now], Result]) -> Result:
    """Nothing but that effect."""
    return Result(effects=(NeedProducerId(given, refused),))
