"""`/topics/T/live`: the newest records, and with a script those that come, at the top. The fields are those of
`/topics/T/records` without places.
"""

from __future__ import annotations

from barnabas.server.console.avro.book import Lens
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.search.asked import Asked, look, spans_of
from barnabas.server.console.search.places import written
from barnabas.server.console.search.shown import JSON_CHARACTERS, LIST_CHARACTERS, record_row
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit

FIELDS = ("text", "key", "header", "json", "partition")
COUNT = 20


def asked_live(query: Fields) -> Asked:
    """Raises Unclear."""
    pairs = [(name, query.text(name)) for name in FIELDS]
    return Asked.of(Fields([*pairs, ("count", str(COUNT))]))


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    data = {
        "topic": topic.name,
        "partitions_count": len(topic.partitions),
        "asked": {name: visit.query.text(name) for name in FIELDS},
        "records": [],
        "from": "",
        "events": None,
        "problems": [],
    }
    try:
        asked = asked_live(visit.query)
        spans, _ = await spans_of(visit.client, asked, topic)
        async with visit.desk.lane() as lane:
            lens = Lens(visit.book, visit.desk.given, "auto")
            found = await look(visit.client, asked, spans, visit.now_ms, lane, lens=lens)
    except Unclear as error:
        return View("live", f"{topic.name}: live", {**data, "problems": [str(error)]}, 400)
    characters = JSON_CHARACTERS if visit.is_json else LIST_CHARACTERS
    avro = await visit.book.decoded(found.records, visit.desk.given, form="auto", characters_max=characters)
    data["records"] = [record_row(record, "auto", characters, avro=avro) for record in found.records]
    data["from"] = written({place: span.end for place, span in spans.items()})
    fields = {name: visit.query.text(name) for name in FIELDS if visit.query.text(name)}
    data["events"] = {**fields, "from": data["from"]}
    return View("live", f"{topic.name}: live", data)
