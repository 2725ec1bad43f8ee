"""`/topics/T/live-events`: what comes, as server-sent events.

    id: 0:120,1:97
    event: records
    data: {"records": […], "left_out": 0}

The id is where the stream goes on; a browser that has lost it sends it back (`Last-Event-ID`), so nothing is missed.
Without one it begins at `from`, or at the end. An event has `EACH_MAX` records at most, the newest, and says how many
it left out; there is one each `PAUSE_S` at most. Where more comes than can be read the stream jumps to the end of the
log, and counts that too. `event: failed` says why a partition is not followed any more.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final

import trio

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import ClientError
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.reader import Reader
from barnabas.server.client.reading import Read, in_time
from barnabas.server.console.avro.book import Lens
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.pages.records.live import asked_live
from barnabas.server.console.search.asked import spans_of
from barnabas.server.console.search.places import parse_positions, written
from barnabas.server.console.search.shown import LIST_CHARACTERS, record_row
from barnabas.server.console.web.view import Refusal, Sent
from barnabas.server.console.web.visit import Visit

EACH_MAX: Final = 50
PAUSE_S: Final = 0.5
MANY: Final = 5000
"""Records in one round; after so many it jumps to the end."""
TOO_MANY: Final = "too many live tails are open; close one"
SILENCE_S: Final = 15.0
"""After that a comment is sent, so that a connection that is gone is noticed."""


async def show(visit: Visit) -> Sent:
    topic = await topic_of(visit)
    asked = asked_live(visit.query)
    lens = Lens(visit.book, visit.desk.given, "auto", None) if asked.filter.path else None
    wanted = asked.filter.predicate(None if lens is None else lambda: lens.values)
    held, _ = await spans_of(visit.client, asked, topic)
    given = parse_positions(visit.resume or visit.query.text("from")) or {}
    starts = {place: min(max(given.get(place[1], span.end), span.start), span.end) for place, span in held.items()}
    if not visit.desk.has_tail:
        raise Refusal(503, TOO_MANY)
    return Sent("text/event-stream", _events(visit, starts, wanted, lens))


async def _events(
    visit: Visit, starts: Mapping[TopicPartition, int], wanted: Callable[[Read], bool] | None, lens: Lens | None
) -> AsyncGenerator[bytes]:
    # Taken here, not before: what was never begun is never ended either.
    tail = visit.desk.take_tail()
    if tail is None:
        yield _event("failed", {"partition": None, "why": TOO_MANY}, {})
        return
    try:
        reader = _reader(visit, starts, tail)
        told: set[TopicPartition] = set()
        spoke = trio.current_time()
        yield b": begins\n\n"
        while not reader.is_done:
            records = await reader.read()
            if lens is not None:
                await lens.look(records)
            left_out = 0
            if len(records) >= MANY:
                positions = reader.positions
                ends = await spans(visit.client, positions)
                now = {place: span.end for place, span in ends.items() if isinstance(span, Span)}
                left_out = sum(max(0, now.get(place, at) - at) for place, at in positions.items())
                reader = _reader(visit, {place: max(at, now.get(place, at)) for place, at in positions.items()}, tail)
            by_partition: dict[int, list[Read]] = {}
            for record in records:
                if wanted is None or wanted(record):
                    by_partition.setdefault(record.partition, []).append(record)
            chosen = in_time(by_partition.values())
            left_out += max(0, len(chosen) - EACH_MAX)
            shown = await _shown(visit, chosen[-EACH_MAX:])
            if shown or left_out:
                yield _event("records", {"records": shown, "left_out": left_out}, reader.positions)
                spoke = trio.current_time()
            for place, why in reader.failed.items():
                if place not in told:
                    told.add(place)
                    yield _event("failed", {"partition": place[1], "why": str(why)}, reader.positions)
            if trio.current_time() - spoke > SILENCE_S:
                yield b": still here\n\n"
                spoke = trio.current_time()
            await trio.sleep(PAUSE_S)
    except ClientError as error:
        yield _event("failed", {"partition": None, "why": str(error)}, {})
    finally:
        visit.desk.give_back(tail)


async def _shown(visit: Visit, records: Sequence[Read]) -> list[dict[str, Any]]:
    avro = await visit.book.decoded(records, visit.desk.given, form="auto", characters_max=LIST_CHARACTERS)
    return [record_row(record, "auto", LIST_CHARACTERS, avro=avro) for record in records]


def _reader(visit: Visit, starts: Mapping[TopicPartition, int], tail: str) -> Reader:
    return Reader(visit.client, starts, max_wait_ms=1000, partition_bytes_max=256 * 1024, lane=tail)


def _event(kind: str, data: Mapping[str, Any], positions: Mapping[TopicPartition, int]) -> bytes:
    """JSON has no ends of lines in it."""
    at = f"id: {written(positions)}\n" if positions else ""
    return f"{at}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
