"""Lengths of time, as tests write them: a number of seconds, or a row of numbers with units, `ms`, `s`, `m`, `h`, `d`
or `w`: "90m", "1d12h", "1.5h".
"""

from __future__ import annotations

import re
from typing import Any, Final

from barnabas.server.control.fields import WrongField
from barnabas.server.runtime.virtual_clock import ADVANCE_MAX_S

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PART: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)")
_TEXT: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds_of(by: Any) -> float:
    """The seconds that a JSON value stands for. Raises WrongField."""
    if isinstance(by, int | float) and not isinstance(by, bool):
        if not 0 <= by <= ADVANCE_MAX_S:  # before it is a float, which not all whole numbers can be
            raise WrongField(f"by must be from 0 to {ADVANCE_MAX_S:.0f} seconds")
        return float(by)
    if not isinstance(by, str) or _TEXT.fullmatch(by) is None:
        raise WrongField(f'by must be a number of seconds, or a text such as "7d", "90m" or "1d12h", not {by!r:.40}')
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(by))
