"""What pages share: the topic or group that a path names, pages of long lists, places as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.groups import describe_groups
from barnabas.server.client.groups.values import Group
from barnabas.server.client.offsets import Span
from barnabas.server.client.topics import describe_topics
from barnabas.server.client.view import TopicView
from barnabas.server.console.web.fields import Fields
from barnabas.server.console.web.view import Refusal, refused
from barnabas.server.console.web.visit import Visit

T = TypeVar("T")

ROWS: Final = 50
"""Of a list, on a page."""
PARTITIONS: Final = 200
"""The same of partitions, whose rows are short."""


async def topic_of(visit: Visit) -> TopicView:
    """The topic in the path. Raises Refusal, ClientError."""
    name = visit.names["topic"]
    found = (await describe_topics(visit.client, [name]))[name]
    if isinstance(found, Failed):
        raise refused(f"topic {name}", found)
    return found


async def group_of(visit: Visit) -> Group:
    """The group in the path. Raises Refusal, ClientError."""
    name = visit.names["group"]
    found = (await describe_groups(visit.client, [name]))[name]
    if isinstance(found, Failed):
        raise refused(f"group {name}", found)
    return found


async def broker_of(visit: Visit) -> int:
    """The broker in the path. Raises Refusal, ClientError."""
    text = visit.names["broker"]
    brokers = (await visit.client.refresh([])).brokers
    if not text.isdecimal() or int(text[:10]) not in brokers:
        raise Refusal(404, f"there is no broker {text[:20]}; there are {', '.join(map(str, sorted(brokers)))}")
    return int(text)


def places(topic: TopicView) -> list[TopicPartition]:
    return [(topic.name, index) for index in topic.partitions]


def cut(rows: Sequence[T], query: Fields, size: int = ROWS) -> tuple[Sequence[T], dict[str, Any]]:
    """The rows of the page that is asked for, and `pages`: which one it is, and how many rows there are. Raises
    Unclear.
    """
    last = max(1, -(-len(rows) // size))
    page = min(query.number("page", 1, least=1), last)
    pages = {"page": page, "last": last, "rows": len(rows), "first_row": (page - 1) * size + 1 if rows else 0}
    return rows[(page - 1) * size : page * size], pages


def rates_of(visit: Visit, places: Sequence[TopicPartition]) -> dict[str, Any]:
    """What is written there: `records_per_s`, `bytes_per_s`, and over how long that was looked at; None: not known."""
    records, size = (ask(visit.now_ms, places) for ask in (visit.history.rates.records, visit.history.rates.bytes))
    return {
        "records_per_s": None if records is None else round(records.per_s, 3),
        "bytes_per_s": None if size is None else round(size.per_s, 1),
        "rate_seconds": None if records is None else records.seconds,
    }


def saw(visit: Visit, found: Mapping[TopicPartition, Span | Failed], held: Mapping[TopicPartition, int] | None) -> None:
    """A page has looked at these partitions, so their rates are wanted."""
    ends = {place: span.end for place, span in found.items() if isinstance(span, Span)}
    visit.history.rates.look(visit.now_ms, ends, held)
    visit.history.rates.want(visit.now_ms, ends)


def is_under_replicated(topic: TopicView) -> int:
    """How many partitions have fewer replicas in sync than they have replicas."""
    return sum(len(each.in_sync) < len(each.replicas) for each in topic.partitions.values())


def without_leader(topic: TopicView) -> int:
    return sum(each.leader < 0 for each in topic.partitions.values())
