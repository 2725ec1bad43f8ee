"""`/topics/T/partitions`: where each partition is and what it holds. Changes: more partitions."""

from __future__ import annotations

from typing import Any

from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.topics import add_partitions
from barnabas.server.client.view import PartitionView
from barnabas.server.console.desk import summed
from barnabas.server.console.pages.common import PARTITIONS, cut, rates_of, saw, topic_of, without_leader
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, View, refused
from barnabas.server.console.web.visit import Visit

PARTITIONS_MAX = 100_000


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    rows, pages = cut(list(topic.partitions.values()), visit.query, PARTITIONS)
    shown = [(topic.name, each.index) for each in rows]
    found = await spans(visit.client, [place for place in shown if visit.client.leader_of(place) is not None])
    try:
        held = summed(await describe_log_dirs(visit.client, shown)) if shown else {}
    except ClientError:
        held = None
    saw(visit, found, held)
    data = {
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "partitions_count": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0),
        "offline": without_leader(topic),
        "partitions": [
            {**_row(each, found.get(place), None if held is None else held.get(place, 0)), **rates_of(visit, [place])}
            for place, each in zip(shown, rows, strict=True)
        ],
        **rates_of(visit, shown),
        **pages,
    }
    return View("topic", topic.name, data)


def _row(partition: PartitionView, span: Span | Failed | None, held: int | None) -> dict[str, Any]:
    known = span if isinstance(span, Span) else None
    return {
        "partition": partition.index,
        "leader": partition.leader if partition.leader >= 0 else None,
        "epoch": partition.leader_epoch if partition.leader_epoch >= 0 else None,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync),
        "out_of_sync": [each for each in partition.replicas if each not in partition.in_sync],
        "start": None if known is None else known.start,
        "end": None if known is None else known.end,
        "records": None if known is None else known.end - known.start,
        "bytes": held,
        "trouble": str(span) if isinstance(span, Failed) else None,
    }


async def change(visit: Visit) -> Done:
    name = visit.names["topic"]
    count = visit.form.number("partitions", 0, least=1, most=PARTITIONS_MAX)
    failed = (await add_partitions(visit.client, {name: count}))[name]
    if failed is not None:
        raise refused(f"topic {name}", failed)
    what = f"topic {name} has {counted(count, 'partition')} now"
    return Done(what, "grown", f"/topics/{segment(name)}/partitions", {"topic": name, "partitions": count})
