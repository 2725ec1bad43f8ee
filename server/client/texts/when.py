"""Places in a topic as people write them: `earliest`, `latest`, an offset, or a time.

17                          an offset
90s  15m  2h  7d            so long ago
2026-11-25                  the beginning of that day, here
2026-11-25T10:00            that time, here; with Z or +02:00 at the end: there
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
EXPECTED: Final = "earliest, latest, an offset (17), a time (2026-11-25T10:00) or how long ago (90s, 15m, 2h, 7d)"
_MS_SINCE_1970: Final = range(10**12, 10**13)
"""2001 to 2286: numbers that are rather a time than an offset, when there is no such offset."""
NAMED_MAX: Final = 3
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Place(NamedTuple):
    """One of these is set. `end`: EARLIEST or LATEST. `time_ms`: since the epoch."""

    end: str | None = None
    offset: int | None = None
    time_ms: int | None = None


def parse_place(text: str, now_ms: int) -> Place:
    """Raises ValueError with what is expected."""
    if text in (EARLIEST, LATEST):
        return Place(end=text)
    if re.fullmatch("[0-9]{1,18}", text):
        return Place(offset=int(text))
    ago = re.fullmatch("([0-9]{1,9})([smhd])", text)
    if ago is not None:
        return Place(time_ms=max(0, now_ms - int(ago[1]) * _UNITS_S[ago[2]] * 1000))
    try:
        moment = datetime.fromisoformat(text)
        return Place(time_ms=max(0, int(moment.timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text[:60]!r} is no place in a topic; expected is {EXPECTED}") from None


class Log(NamedTuple):
    """A partition's name, and its log's first offset and the one after its last."""

    name: str
    start: int
    end: int


def outside(offset: int, logs: Sequence[Log]) -> str:
    """What is wrong with an offset that is in none of these, at least one: where they begin and end; and how it is
    written if it is rather a time.
    """
    shown = [f"{each.name} begins at {each.start} and ends at {each.end}" for each in logs[:NAMED_MAX]]
    more = f", and {len(logs) - NAMED_MAX} more" if len(logs) > NAMED_MAX else ""
    said = f"offset {offset} is not in the log: {', '.join(shown)}{more}"
    time = time_utc(offset) if offset in _MS_SINCE_1970 else None
    return said if time is None else f"{said}; if these are milliseconds since 1970, write {time}"


def time_here(ms: int) -> str:
    """A record's time as people read it, in the zone of this machine; "" for none."""
    try:
        return "" if ms < 0 else f"{datetime.fromtimestamp(ms / 1000):%Y-%m-%d %H:%M:%S}.{ms % 1000:03}"
    except (ValueError, OverflowError, OSError):  # clients write what they like
        return f"{ms} ms"


def time_utc(ms: int) -> str | None:
    """The same for machines: ISO 8601, UTC."""
    try:
        moment = datetime.fromtimestamp(ms // 1000, UTC)
        return None if ms < 0 else f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"
    except (ValueError, OverflowError, OSError):
        return None


def duration(seconds: float | None) -> str:
    """`5 s`, `2 m 5 s`, `3 h 4 m`, `2 d 3 h`; "-" for none known."""
    if seconds is None:
        return "-"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, name, small_size, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // small_size
            return f"{whole // size} {name} {rest} {small}" if rest else f"{whole // size} {name}"
    raise AssertionError(whole)
