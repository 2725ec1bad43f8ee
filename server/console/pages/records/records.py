"""`/topics/T/records`: the newest, or from a place on, filtered. A step of a search is bounded by records and bytes;
the page says how far it came, and has a link that goes on there.
"""

from __future__ import annotations

from typing import Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.console.avro.book import Decodings, Lens
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.search.asked import Asked, look, spans_of
from barnabas.server.console.search.look import Found
from barnabas.server.console.search.places import WAYS, written
from barnabas.server.console.search.shown import FORMS, JSON_CHARACTERS, LIST_CHARACTERS, record_row
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit

FIELDS: Final = ("from", "at", "text", "key", "header", "json", "partition", "count", "as", "committed", "go")


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    found, failed, held, problems = Found(), dict[TopicPartition, Failed](), 0, list[str]()
    form, on, export = "auto", dict[str, object](), dict[str, object]()
    lens: Lens | None = None
    try:
        asked = Asked.of(visit.query)
        spans, failed = await spans_of(visit.client, asked, topic)
        async with visit.desk.lane() as lane:
            lens = Lens(visit.book, visit.desk.given, asked.form)
            found = await look(visit.client, asked, spans, visit.now_ms, lane, lens=lens)
        held = sum(span.end - span.start for span in spans.values())
        form, export = asked.form, asked.fields()
        if found.next:
            on = {**asked.fields(), "go": written(found.next)}
    except Unclear as error:
        problems = [str(error)]  # the form stays as it was typed
    characters = JSON_CHARACTERS if visit.is_json else LIST_CHARACTERS
    avro = await visit.book.decoded(found.records, visit.desk.given, form=form, characters_max=characters)
    data = {
        "topic": topic.name,
        "partitions_count": len(topic.partitions),
        "asked": {name: visit.query.text(name) for name in FIELDS},
        "ways": list(WAYS),
        "forms": list(FORMS),
        "records": [record_row(record, form, characters, avro=avro) for record in found.records],
        "held": held,
        "looked_records": found.looked_records,
        "looked_bytes": found.looked_bytes,
        "is_short": found.is_short,
        "searched_to": {str(index): offset for (_, index), offset in sorted(found.next.items())},
        "next": {name: value for name, value in on.items() if value not in (None, "")} or None,
        "export": {name: value for name, value in export.items() if value not in (None, "")},
        "failed": {str(index): str(why) for (_, index), why in sorted((failed | found.failed).items())},
        "skipped": {
            str(index): {"start": span.start, "end": span.end} for (_, index), span in sorted(found.skipped.items())
        },
        "avro": avro.told(),
        "not_looked_into": Decodings().told() if lens is None else lens.seen.told(),
        "problems": problems,
    }
    return View("records", f"{topic.name}: records", data, 400 if problems else 200)
