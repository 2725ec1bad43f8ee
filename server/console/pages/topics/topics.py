"""`/topics`: search, sort, page. What is asked of the cluster beyond metadata and groups concerns the page's rows only,
so 10,000 topics cost what 50 do; sorting by size asks for all sizes, at most every 15 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import ClientError
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.view import TopicView
from barnabas.server.console.desk import summed
from barnabas.server.console.pages.common import cut, is_under_replicated, places, rates_of, saw, without_leader
from barnabas.server.console.web.view import View
from barnabas.server.console.web.visit import Visit

SORTS: Final = ("name", "partitions", "size", "lag")
GROUPS_SHOWN: Final = 3


async def show(visit: Visit) -> View:
    text, sort = visit.query.text("q"), visit.query.choice("sort", SORTS)
    with_internal = visit.query.has("internal")
    every = await visit.desk.topics()
    groups = await visit.desk.groups_or_none()
    readers = {} if groups is None else groups.by_topic()
    wanted = [
        topic
        for name, topic in every.items()
        if text.lower() in name.lower() and (with_internal or not topic.is_internal)
    ]
    if sort == "partitions":
        wanted.sort(key=lambda topic: -len(topic.partitions))
    elif sort == "lag":
        wanted.sort(key=lambda topic: -sum(readers.get(topic.name, {}).values()))
    elif sort == "size":
        sizes = await visit.desk.sizes()
        wanted.sort(key=lambda topic: -sum(sizes.get(place, 0) for place in places(topic)))
    rows, pages = cut(wanted, visit.query)
    partitions = [place for topic in rows for place in places(topic)]
    found = await spans(visit.client, [each for each in partitions if visit.client.leader_of(each) is not None])
    held: Mapping[TopicPartition, int] | None
    try:
        held = summed(await describe_log_dirs(visit.client, partitions)) if partitions else {}
    except ClientError:
        held = None  # not allowed, or a broker that is too old; the list is worth it without
    saw(visit, found, held)
    data = {
        "q": text,
        "sort": sort,
        "internal": with_internal,
        "hidden": 0 if with_internal else sum(topic.is_internal for topic in every.values()),
        "topics": [
            {**_row(topic, found, held, readers.get(topic.name, {})), **rates_of(visit, places(topic))}
            for topic in rows
        ],
        **pages,
    }
    return View("topics", "Topics", data)


def _row(
    topic: TopicView,
    found: Mapping[TopicPartition, Any],
    held: Mapping[TopicPartition, int] | None,
    readers: Mapping[str, int],
) -> dict[str, Any]:
    known = [span for place in places(topic) if isinstance(span := found.get(place), Span)]
    by_lag = sorted(readers.items(), key=lambda each: (-each[1], each[0]))
    return {
        "name": topic.name,
        "is_internal": topic.is_internal,
        "trouble": topic.code.name if topic.code else None,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0),
        "offline": without_leader(topic),
        "under_replicated": is_under_replicated(topic),
        "records": sum(span.end - span.start for span in known) if len(known) == len(topic.partitions) else None,
        "bytes": None if held is None else sum(held.get(place, 0) for place in places(topic)),
        "lag": sum(readers.values()) if readers else None,
        "groups": [{"group": name, "lag": lag} for name, lag in by_lag[:GROUPS_SHOWN]],
        "groups_count": len(readers),
    }
