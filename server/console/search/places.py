"""Where a search begins, and how it goes on: fields of a query, and positions of partitions in a link.

| `from` | begins with | `at` |
| --- | --- | --- |
| `newest` | the newest, backwards | – |
| `earliest` | the oldest there is | – |
| `offset` | this offset, in each partition | `1200` |
| `time` | the first record of that time or later | `2026-11-25T10:00`, `15m` |
| `group` | what the group has not read | the group's id |

`go` is a position: `0:120,3:7`, by partition. For `newest` the search goes on below it, otherwise from it on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.committed import committed_offsets
from barnabas.server.client.groups.values import Committed
from barnabas.server.client.offsets import Span, list_offsets
from barnabas.server.client.texts.when import EXPECTED, parse_place
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import refused

WAYS: Final = ("newest", "earliest", "offset", "time", "group")
_POSITION: Final = re.compile("[0-9]{1,9}:[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Beginning:
    """`way`: one of WAYS. `at`: as it was typed. `go`: where the last answer ended; None: at the beginning."""

    way: str = "newest"
    at: str = ""
    go: Mapping[int, int] | None = None

    @classmethod
    def of(cls, query: Fields) -> Beginning:
        """Raises Unclear."""
        way, at = query.choice("from", WAYS), query.text("at")
        if way in ("offset", "time", "group") and not at:
            expected = {"offset": "an offset", "time": "a time", "group": "the id of a group"}[way]
            raise Unclear("at", f"at: {expected} is expected")
        return cls(way, at, parse_positions(query.text("go")))

    @property
    def is_backward(self) -> bool:
        return self.way == "newest"


def parse_positions(text: str) -> dict[int, int] | None:
    """`0:120,3:7`. Raises Unclear."""
    if not text:
        return None
    found = {}
    for part in text.split(","):
        if _POSITION.fullmatch(part) is None:
            raise Unclear("go", f"go: positions are expected, as 0:120,3:7, not {part[:40]!r}")
        index, offset = part.split(":")
        found[int(index)] = int(offset)
    return found


def written(positions: Mapping[TopicPartition, int]) -> str:
    """As `parse_positions` reads them."""
    return ",".join(f"{index}:{offset}" for (_, index), offset in sorted(positions.items()))


async def starts(
    client: Client, beginning: Beginning, spans: Mapping[TopicPartition, Span], now_ms: int
) -> dict[TopicPartition, int]:
    """The first offset to look at in each partition, of a search forward. Raises Unclear, Refusal, ClientError."""
    if beginning.go is not None:
        return {each: _within(beginning.go.get(each[1], span.end), span) for each, span in spans.items()}
    if beginning.way == "offset":
        text = beginning.at.replace(",", "").replace("_", "")
        if re.fullmatch("[0-9]{1,18}", text) is None:
            raise Unclear("at", f"at: an offset is expected, not {beginning.at[:40]!r}")
        return {each: _within(int(text), span) for each, span in spans.items()}
    if beginning.way == "time":
        return await _by_time(client, beginning.at, spans, now_ms)
    if beginning.way == "group":
        return await _of_group(client, beginning.at, spans)
    return {each: span.start for each, span in spans.items()}


async def _by_time(
    client: Client, text: str, spans: Mapping[TopicPartition, Span], now_ms: int
) -> dict[TopicPartition, int]:
    try:
        place = parse_place(text, now_ms)
    except ValueError as error:
        raise Unclear("at", f"at: {error}") from None
    if place.time_ms is None:
        raise Unclear("at", f"at: {text[:60]!r} is no time; expected is {EXPECTED.partition('(17), ')[2]}")
    found = await list_offsets(client, dict.fromkeys(spans, place.time_ms))
    starts = {}
    for each, span in spans.items():
        offset = found[each]
        if isinstance(offset, Failed):
            raise refused(f"partition {each[1]}", offset)
        starts[each] = span.end if offset.offset < 0 else _within(offset.offset, span)
    return starts


async def _of_group(client: Client, name: str, spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
    offsets = (await committed_offsets(client, [name]))[name]
    if isinstance(offsets, Failed):
        raise refused(f"group {name}", offsets)
    if not any(isinstance(offsets.get(each), Committed) for each in spans):
        raise Unclear("at", f"at: group {name} has committed nothing for these partitions")
    starts = {}
    for each, span in spans.items():
        held = offsets.get(each)
        starts[each] = _within(held.offset, span) if isinstance(held, Committed) else span.start
    return starts


def _within(offset: int, span: Span) -> int:
    return min(max(offset, span.start), span.end)
