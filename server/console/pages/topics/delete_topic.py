"""`/topics/T/delete`: first what would be lost and who reads it, then, when the name was typed, it is done. Or only the
records: those before an offset of one partition, or all.
"""

from __future__ import annotations

from typing import Any

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import Span, delete_records, spans
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.topics import delete_topics
from barnabas.server.console.desk import summed
from barnabas.server.console.pages.common import places, topic_of
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, Refusal, View, refused
from barnabas.server.console.web.visit import Visit

EVERYTHING = -1


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200) -> View:
    topic = await topic_of(visit)
    found = await spans(visit.client, places(topic))
    known = [span for span in found.values() if isinstance(span, Span)]
    try:
        held = sum(summed(await describe_log_dirs(visit.client, places(topic))).values())
    except ClientError:
        held = None
    groups = await visit.desk.groups_or_none()
    readers = {} if groups is None else groups.readers(topic.name)
    data: dict[str, Any] = {
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "records": sum(span.end - span.start for span in known),
        "unknown": len(found) - len(known),
        "bytes": held,
        "groups": [{"group": name, "lag": lag} for name, lag in sorted(readers.items())],
        "problems": problems or [],
    }
    return View("delete_topic", f"Delete {topic.name}", data, status)


async def change(visit: Visit) -> Done | View:
    name = visit.names["topic"]
    if visit.form.raw("confirm").strip() != name:
        return await _view(visit, ["The name that was typed is another one; nothing was deleted."], 422)
    if visit.form.choice("what", ("topic", "records")) == "records":
        return await _empty(visit)
    failed = (await delete_topics(visit.client, [name]))[name]
    if failed is not None:
        raise refused(f"topic {name}", failed)
    return Done(f"deleted topic {name}", "deleted", "/topics", {"topic": name})


async def _empty(visit: Visit) -> Done:
    topic = await topic_of(visit)
    wanted = _wanted(visit, topic.name, list(topic.partitions))
    failed = [
        f"partition {index}: {result}"
        for (_, index), result in (await delete_records(visit.client, wanted)).items()
        if isinstance(result, Failed)
    ]
    if failed:
        raise Refusal(502, f"topic {topic.name}: not all records were deleted: {'; '.join(failed[:5])}")
    which = "all records" if EVERYTHING in wanted.values() else f"the records before offset {max(wanted.values()):,}"
    what = f"deleted {which} of topic {topic.name}, {counted(len(wanted), 'partition')}"
    return Done(what, "emptied", f"/topics/{segment(topic.name)}/partitions", {"topic": topic.name})


def _wanted(visit: Visit, topic: str, indexes: list[int]) -> dict[TopicPartition, int]:
    """Before which offset, by partition. Raises Unclear."""
    offset = visit.form.number("before", EVERYTHING)
    if visit.form.text("partition"):
        return {(topic, visit.form.number("partition", 0, most=1 << 31)): offset}
    return {(topic, index): offset for index in indexes}
