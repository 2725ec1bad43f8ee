"""`/topics/T/record?partition=0&offset=17`: one record, whole, and its bytes as a file (`part=key|value`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import spans
from barnabas.server.client.reader import Reader, read_all
from barnabas.server.client.reading import Read
from barnabas.server.console.avro.book import Decodings
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.search.shown import FORMS, WHOLE_CHARACTERS, record_row
from barnabas.server.console.web.fields import Fields
from barnabas.server.console.web.view import Refusal, Sent, View, refused
from barnabas.server.console.web.visit import Visit

BYTES: Final = "application/octet-stream"


async def show(visit: Visit) -> View | Sent:
    topic = await topic_of(visit)
    place, offset = place_of(visit.query, topic.name)
    if place[1] not in topic.partitions:
        raise Refusal(404, f"topic {topic.name} has no partition {place[1]}; it has {len(topic.partitions)}, from 0 on")
    found, next_offset = await read_one(visit, place, offset)
    form = visit.query.choice("as", FORMS)
    part = visit.query.text("part")
    if part:
        if found is None:
            raise Refusal(404, f"there is no record at offset {offset:,} of partition {place[1]}")
        content = {"key": found.key, "value": found.value}.get(part)
        if content is None:
            raise Refusal(404, f"the record has no {part[:20]!r}")
        return Sent(BYTES, _whole(content), f"{topic.name}-{place[1]}-{offset}.{part}")
    characters = WHOLE_CHARACTERS
    avro = Decodings()
    if found is not None:
        given = visit.desk.given
        avro = await visit.book.decoded([found], given, form=form, characters_max=characters, is_pretty=True)
    data = {
        "topic": topic.name,
        "partition": place[1],
        "offset": offset,
        "form": form,
        "forms": list(FORMS),
        "record": None if found is None else record_row(found, form, characters, is_pretty=True, avro=avro),
        "next_offset": next_offset,
        "avro": avro.told(),
    }
    return View("record", f"{topic.name}: record {offset}", data, 200 if found is not None else 404)


def place_of(query: Fields, topic: str) -> tuple[TopicPartition, int]:
    """Raises Unclear."""
    return (topic, query.number("partition", 0, most=1 << 31)), query.number("offset", 0)


async def read_one(visit: Visit, place: TopicPartition, offset: int) -> tuple[Read | None, int | None]:
    """The record at this offset, None if there is none; and the offset of the next record, if there is one behind.
    Raises Refusal, ClientError.
    """
    span = (await spans(visit.client, [place]))[place]
    if isinstance(span, Failed):
        raise refused(f"partition {place[1]}", span)
    if not span.start <= offset < span.end:
        return None, span.start if offset < span.start < span.end else None
    async with visit.desk.lane() as lane:
        reader = Reader(visit.client, {place: offset}, {place: span.end}, each_max=2, max_wait_ms=100, lane=lane)
        records = await read_all(reader)
    for why in reader.failed.values():
        raise refused(f"partition {place[1]}", why)
    here = next((record for record in records if record.offset == offset), None)
    behind = next((record.offset for record in records if record.offset > offset), None)
    return here, behind


async def _whole(data: bytes) -> AsyncGenerator[bytes]:
    yield data
