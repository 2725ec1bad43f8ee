"""`/topics/T/produce`: write a record, or a line each. With `partition` and `offset` the form holds a copy of that
record, to be sent again or changed first.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any, Final

from barnabas.server.client.batching import ToSend
from barnabas.server.client.failures import Failed
from barnabas.server.client.producer import Placed, Producer
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.view import TopicView
from barnabas.server.console.pages.common import topic_of
from barnabas.server.console.pages.records.record import place_of, read_one
from barnabas.server.console.search.shown import typed
from barnabas.server.console.web.fields import Fields, Unclear
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, View, status_of
from barnabas.server.console.web.visit import Visit

WAYS: Final = ("text", "base64", "null")
LINES_MAX: Final = 10_000
_HEADER: Final = re.compile(r"([^:=]*)[:=](.*)", re.DOTALL)


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    fields: dict[str, str] = {}
    if visit.query.text("offset"):
        place, offset = place_of(visit.query, topic.name)
        record = None if place[1] not in topic.partitions else (await read_one(visit, place, offset))[0]
        if record is not None:
            fields["key_as"], fields["key"] = typed(record.key)
            fields["value_as"], fields["value"] = typed(record.value)
            lines = []
            for name, value in record.headers:
                way, text = typed(value)
                lines.append(f"{name}={text}" if way == "text" and "\n" not in text else f"{name}:{_coded(way, text)}")
            fields["headers"] = "\n".join(lines)
            fields["copied"] = f"{place[1]}:{offset}"
    return _view(topic, fields)


def _coded(way: str, text: str) -> str:
    """A header whose value is no line of text: `name:base64:…`, `name:null`."""
    if way == "text":
        return f"base64:{b64encode(text.encode()).decode()}"
    return "null" if way == "null" else f"base64:{text}"


def _view(topic: TopicView, fields: dict[str, str], problems: list[str] | None = None, status: int = 200) -> View:
    blank = dict.fromkeys(("key", "value", "headers", "partition", "copied", "lines"), "")
    data: dict[str, Any] = {
        "topic": topic.name,
        "partitions_count": len(topic.partitions),
        "fields": {**blank, "key_as": "null", "value_as": "text", **fields},
        "ways": list(WAYS),
        "problems": problems or [],
    }
    return View("produce", f"{topic.name}: produce", data, status)


async def change(visit: Visit) -> Done | View:
    topic = await topic_of(visit)
    form = visit.form
    fields = {name: form.raw(name) for name in ("key", "value", "headers", "partition", "key_as", "value_as", "lines")}
    try:
        records = _records(topic, form)
    except Unclear as error:
        return _view(topic, fields, [str(error)], 422)
    results = await Producer(visit.client, lambda: visit.now_ms).send(records)
    failed = [each for each in results if isinstance(each, Failed)]
    if failed:
        problems = [f"{counted(len(failed), 'record')} of {len(results):,} failed: {failed[0]}"]
        return _view(topic, fields, problems, status_of(failed[0].code))
    placed = [each for each in results if isinstance(each, Placed)]
    last = placed[-1]
    where = f"{last.partition} at offset {last.offset}" if len(placed) == 1 else f"{last.partition} and others"
    what = f"wrote {counted(len(placed), 'record')} to topic {topic.name}, partition {where}"
    path = f"/topics/{segment(topic.name)}/"
    if len(placed) == 1 and last.offset >= 0:
        path += f"record?partition={last.partition}&offset={last.offset}"
    else:
        path += "records"
    return Done(what, "produced", path, {"records": [each._asdict() for each in placed]})


def _records(topic: TopicView, form: Fields) -> list[ToSend]:
    """Raises Unclear."""
    partition: int | None = None
    if form.text("partition"):
        partition = form.number("partition", 0, most=1 << 31)
        if partition not in topic.partitions:
            raise Unclear("partition", f"partition: topic {topic.name} has {len(topic.partitions)}, from 0 on")
    key = _data(form, "key")
    headers = tuple(parse_headers(form.raw("headers")))
    if form.has("lines"):
        lines = [line for line in form.raw("value").split("\n") if line]
        if not 0 < len(lines) <= LINES_MAX:
            raise Unclear("value", f"value: from 1 to {LINES_MAX:,} lines are expected, not {len(lines):,}")
        return [ToSend(topic.name, _bytes(line), key, headers, partition) for line in lines]
    return [ToSend(topic.name, _data(form, "value"), key, headers, partition)]


def _data(form: Fields, name: str) -> bytes | None:
    """Raises Unclear."""
    way = form.choice(f"{name}_as", WAYS)
    text = form.raw(name)
    if way == "null":
        if text.strip():
            raise Unclear(name, f"{name}: there is a text, and null is chosen; which is meant?")
        return None
    return _bytes(text) if way == "text" else _of_base64(name, text)


def _of_base64(name: str, text: str) -> bytes:
    try:
        return b64decode("".join(text.split()), validate=True)
    except ValueError:
        raise Unclear(name, f"{name}: this is no base64") from None


def parse_headers(text: str) -> list[tuple[str, bytes | None]]:
    """Lines of `name=text`; or `name:null`, `name:base64:…`; `name: text` is understood, too. Raises Unclear."""
    found: list[tuple[str, bytes | None]] = []
    for line in text.split("\n"):
        if not line.strip():
            continue
        match = _HEADER.fullmatch(line)
        if match is None:
            raise Unclear("headers", f"headers: lines of name=value are expected, not {line[:60]!r}")
        name, value = match[1].strip(), match[2]
        if line[len(match[1])] == "=":
            found.append((name, _bytes(value)))
        elif value.strip() == "null":
            found.append((name, None))
        elif value.strip().startswith("base64:"):
            found.append((name, _of_base64("headers", value.strip().removeprefix("base64:"))))
        else:
            found.append((name, _bytes(value.strip())))
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
