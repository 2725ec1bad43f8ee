"""`/topics/T/avro`: by which Avro schemas keys and values of a topic are shown; give one, or take it back."""

from __future__ import annotations

from typing import Any

from barnabas.server.client.view import TopicView
from barnabas.server.console.avro.book import NO_PACKAGE, PARTS, SCHEMA_BYTES_MAX
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, Refusal, View
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    return _view(visit, await topic_of(visit))


def _view(visit: Visit, topic: TopicView, problems: list[str] | None = None, status: int = 200) -> View:
    book, given = visit.book, visit.desk.given
    data: dict[str, Any] = {
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "why_not": None if book.can_decode else NO_PACKAGE,
        "registry": book.registry,
        "parts_of": [
            {"part": each, "given": given.get(topic.name, each), "file": book.file(topic.name, each)} for each in PARTS
        ],
        "fields": {"part": visit.form.text("part") or PARTS[1], "schema": visit.form.raw("schema")},
        "problems": problems or [],
    }
    return View("avro", f"{topic.name}: Avro", data, status)


async def change(visit: Visit) -> Done | View:
    """Nothing of the cluster's: what this console, or this visitor's log-in, remembers."""
    topic = await topic_of(visit)
    part = visit.form.choice("part", PARTS)
    location = f"/topics/{segment(topic.name)}/"
    data = {"topic": topic.name, "part": part}
    if visit.form.has("forget"):
        visit.desk.given.put(topic.name, part, None)
        what = f"forgot the Avro schema of topic {topic.name}, {part}s"
        return Done(what, "schema-forgotten", f"{location}avro", data)
    text = visit.form.raw("schema").strip()
    if not text or len(text.encode("utf-8", "surrogateescape")) > SCHEMA_BYTES_MAX:
        why = f"schema: the text of a schema is expected, of at most {SCHEMA_BYTES_MAX // 1024} KiB"
        return _view(visit, topic, [why], 422)
    why_not = await visit.book.check(text)
    if why_not is not None:
        return _view(visit, topic, [f"schema: {why_not}"], 422)
    if not visit.desk.given.put(topic.name, part, text):
        raise Refusal(409, "too many or too long schemas were given here; take some back, or put them into files")
    what = f"gave an Avro schema for topic {topic.name}, {part}s"
    return Done(what, "schema-given", f"{location}records", data)
