"""`/topics/T/export`: the records of a search as `barnabas consume --json` prints them, a line each; the same query as
`/topics/T/records`. At most `RECORDS_MAX` records out of `BYTES_MAX` bytes that are looked at; when it ends before the
log does, the last line says where it would go on: `{"go": "0:120"}`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.offsets import Span
from barnabas.server.client.texts.record_json import json_format
from barnabas.server.console.avro.book import Lens
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.search.asked import COUNT_MAX, Asked, look, spans_of
from barnabas.server.console.search.look import Found
from barnabas.server.console.search.places import written
from barnabas.server.console.web.view import Refusal, Sent
from barnabas.server.console.web.visit import Visit

RECORDS_MAX: Final = 100_000
BYTES_MAX: Final = 1 << 30
STEP_BYTES: Final = 8 * 1024 * 1024


async def show(visit: Visit) -> Sent:
    topic = await topic_of(visit)
    asked = Asked.of(visit.query)
    records_max = visit.query.number("records", RECORDS_MAX, least=1, most=RECORDS_MAX)
    spans, failed = await spans_of(visit.client, asked, topic)
    for (_, index), why in failed.items():
        raise Refusal(502, f"partition {index}: {why}")
    # The first step is made before the answer begins, so that what is wrong with the search can still be said.
    first = await _step(visit, asked, spans, records_max)
    return Sent("application/x-ndjson", _lines(visit, asked, spans, first, records_max), f"{topic.name}.ndjson")


async def _step(visit: Visit, asked: Asked, spans: Mapping[TopicPartition, Span], left: int) -> Found:
    """left: how many records are wanted yet."""
    asked = replace(asked, count=min(COUNT_MAX, left))
    lens = Lens(visit.book, visit.desk.given, asked.form)
    async with visit.desk.lane() as lane:
        return await look(visit.client, asked, spans, visit.now_ms, lane, lens=lens, bytes_max=STEP_BYTES)


async def _lines(
    visit: Visit, asked: Asked, spans: Mapping[TopicPartition, Span], found: Found, records_max: int
) -> AsyncGenerator[bytes]:
    count = size = 0
    while True:
        if found.failed:
            (_, index), why = next(iter(found.failed.items()))
            yield json.dumps({"error": f"partition {index}: {why}"}).encode() + b"\n"
            return
        count += len(found.records)
        size += found.looked_bytes
        yield b"".join(map(json_format, found.records))
        if not found.next:
            return
        if count >= records_max or size >= BYTES_MAX:
            yield json.dumps({"go": written(found.next)}).encode() + b"\n"
            return
        on = {index: offset for (_, index), offset in found.next.items()}
        further = replace(asked, beginning=replace(asked.beginning, go=on))
        found = await _step(visit, further, spans, records_max - count)
