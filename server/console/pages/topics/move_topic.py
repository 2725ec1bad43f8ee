"""`/topics/T/move`: on which brokers a topic's partitions are. The query says which brokers and how many replicas, and
the page shows where each partition would be and how much is copied. What was shown is what POST asks for.

The plan moves as little as it can: a replica on a chosen broker stays, in its place; what is missing goes to the chosen
broker that has fewest of this topic.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import ClientError, Failed, Unsupported
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.moves import Moves, list_moves, move
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.throttles import Copy
from barnabas.server.client.view import TopicView
from barnabas.server.console.pages.cluster.throttling import copies_of, rate_of, set_throttle
from barnabas.server.console.pages.common import PARTITIONS, cut, places, topic_of
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.view import Done, Refusal, View, refused
from barnabas.server.console.web.visit import Visit

_ASSIGNMENT: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,9}(?:,[0-9]{1,9})*)")
PLANNED_MAX: Final = 10_000
"""Partitions; their plan stands in the page's form."""


async def show(visit: Visit) -> View:
    topic = await topic_of(visit)
    brokers = sorted(visit.client.view.brokers)
    moves, why = await moves_or_why(visit)
    under_way = {index: each for (name, index), each in moves.items() if name == topic.name}
    present = max((len(each.replicas) for each in topic.partitions.values()), default=1)
    chosen, replicas = brokers, present
    problems: list[str] = []
    plan: dict[int, tuple[int, ...]] | None = None
    if visit.query.has("brokers") and why is None:
        try:
            chosen, replicas = _asked(visit, brokers, present)
            plan = planned({index: each.replicas for index, each in topic.partitions.items()}, chosen, replicas)
        except Unclear as error:
            problems = [str(error)]
    changes = {} if plan is None else {index: to for index, to in plan.items() if to != _now(topic, index)}
    sizes = await _sizes(visit, topic) if changes else {}
    rows = [_row(topic, index, to, sizes, index in under_way) for index, to in changes.items()]
    shown, pages = cut(rows, visit.query, PARTITIONS)
    data: dict[str, Any] = {
        "topic": topic.name,
        "is_internal": topic.is_internal,
        "brokers": [{"id": each, "chosen": each in chosen} for each in brokers],
        "replicas": replicas,
        "present": present,
        "not_offered": why,
        "moving": len(under_way),
        "plan": None if plan is None else shown,
        "bytes": None if sizes is None else sum(row["bytes"] or 0 for row in rows),
        "assignment": [f"{index}:{','.join(map(str, to))}" for index, to in changes.items()],
        "problems": problems,
        **pages,
    }
    return View("move_topic", f"Move {topic.name}", data, 400 if problems else 200)


def _row(
    topic: TopicView,
    index: int,
    to: Sequence[int],
    sizes: Mapping[TopicPartition, int] | None,
    is_moving: bool,
) -> dict[str, Any]:
    now = _now(topic, index)
    adding = sorted(set(to) - set(now))
    return {
        "partition": index,
        "replicas": list(now),
        "new": list(to),
        "adding": adding,
        "removing": sorted(set(now) - set(to)),
        "bytes": None if sizes is None else sizes.get((topic.name, index), 0) * len(adding),
        "is_moving": is_moving,
    }


def planned(now: Mapping[int, Sequence[int]], chosen: Sequence[int], replicas: int) -> dict[int, tuple[int, ...]]:
    """By partition, the brokers of each: see the module."""
    kept = {index: [each for each in brokers if each in chosen][:replicas] for index, brokers in now.items()}
    load = dict.fromkeys(chosen, 0)
    for brokers in kept.values():
        for each in brokers:
            load[each] += 1
    for brokers in kept.values():
        while len(brokers) < replicas:
            added = min((each for each in chosen if each not in brokers), key=lambda each: (load[each], each))
            brokers.append(added)
            load[added] += 1
    return {index: tuple(brokers) for index, brokers in kept.items()}


def _asked(visit: Visit, brokers: Sequence[int], present: int) -> tuple[list[int], int]:
    """Raises Unclear."""
    texts = [part.strip() for text in visit.query.many("brokers") for part in text.split(",")]
    wrong = [text for text in texts if not text.isdecimal() or int(text[:10]) not in brokers]
    if wrong or not texts:
        there = ", ".join(map(str, brokers))
        raise Unclear("brokers", f"brokers: there are {there}{f', and no {wrong[0][:20]}' if wrong else ''}")
    chosen = sorted({int(text) for text in texts})
    return chosen, visit.query.number("replicas", min(present, len(chosen)), least=1, most=len(chosen))


def _now(topic: TopicView, index: int) -> tuple[int, ...]:
    return tuple(topic.partitions[index].replicas)


async def moves_or_why(visit: Visit) -> tuple[Moves, str | None]:
    """The moves under way; or why these brokers cannot say."""
    try:
        return await list_moves(visit.client), None
    except Unsupported as error:
        return {}, str(error)


async def _sizes(visit: Visit, topic: TopicView) -> dict[TopicPartition, int] | None:
    """Of one replica of each, the largest; None: not to be had."""
    try:
        dirs = await describe_log_dirs(visit.client, places(topic))
    except ClientError:
        return None
    found: dict[TopicPartition, int] = {}
    for rows in dirs.values():
        for each in () if isinstance(rows, Failed) else rows:
            for place, replica in each.replicas.items():
                found[place] = max(found.get(place, 0), replica.size)
    return found


async def change(visit: Visit) -> Done:
    topic = await topic_of(visit)
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    for text in visit.form.many("assignment"):
        match = _ASSIGNMENT.fullmatch(text.strip())
        if match is None:
            raise Unclear("assignment", f"assignment: PARTITION:BROKER,BROKER is expected, not {text[:40]!r}")
        wanted[topic.name, int(match[1])] = [int(each) for each in match[2].split(",")]
    if not wanted or len(wanted) > PLANNED_MAX:
        raise Unclear("assignment", f"assignment: 1 to {PLANNED_MAX:,} partitions are expected")
    many = counted(len(wanted), "partition")
    slowly = ""
    if visit.form.text("rate"):  # before it begins, so that nothing is copied at full speed
        rate = rate_of(visit.form.text("rate"))
        under_way = {place: each for place, each in (await list_moves(visit.client)).items() if place[0] == topic.name}
        await set_throttle(visit, rate, copies_of(under_way) | _copies(topic, wanted))  # a topic has one list for all
        slowly = f", {rate:,} bytes a second"
    try:
        all_done(f"topic {topic.name}", await move(visit.client, wanted), "moved")
    except Refusal as refusal:
        if not slowly:
            raise
        raise Refusal(refusal.status, f"{refusal}; the throttle was set, see the page Moves") from None
    where = "; ".join(f"{index}:{','.join(map(str, to or ()))}" for (_, index), to in wanted.items())
    what = f"began to move {many} of topic {topic.name}{slowly}: {where}"
    return Done(what[:2000], "moving", "/moves", {"topic": topic.name, "partitions": len(wanted)})


def _copies(topic: TopicView, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, Copy]:
    found = {}
    for (name, index), to in wanted.items():
        now = _now(topic, index) if index in topic.partitions else ()
        found[name, index] = Copy(now, [each for each in to or () if each not in now])
    return found


def all_done(what: str, results: Mapping[TopicPartition, Failed | None], done: str) -> None:
    """Raises Refusal, which says how many were not."""
    failed = {place: why for place, why in results.items() if why is not None}
    if failed:
        (name, index), why = next(iter(failed.items()))
        refusal = refused(f"{what}: {counted(len(failed), 'partition')} of {len(results)} not {done}", why)
        raise Refusal(refusal.status, f"{refusal}; first of {name}, partition {index}")
