"""`/groups/G/reset`: where a group goes on reading. The query says where to, and the page shows what that means for
each partition. What was shown is what POST commits, offset by offset, so nothing moves between look and deed.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.lag import lags
from barnabas.server.client.groups.resets import Reset, To, plan_reset, set_offsets
from barnabas.server.client.groups.values import Group
from barnabas.server.client.offsets import EARLIEST, LATEST
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.texts.when import EXPECTED, parse_place
from barnabas.server.client.topics import describe_topics
from barnabas.server.console.pages.common import group_of, places
from barnabas.server.console.search.places import parse_positions, written
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.segments import segment
from barnabas.server.console.web.view import Done, Refusal, View, refused
from barnabas.server.console.web.visit import Visit

WAYS: Final = ("earliest", "latest", "time", "offset", "shift")


async def show(visit: Visit) -> View:
    group = await group_of(visit)
    problems = []
    plan: dict[TopicPartition, Reset] | None = None
    if visit.query.text("to"):
        try:
            plan = await _plan(visit, group)
        except Unclear as error:
            problems = [str(error)]
    found = (await lags(visit.client, [group.group_id], times=False))[group.group_id]
    topics = sorted({each.topic for each in found.partitions}) if not isinstance(found, Failed) else []
    wanted = visit.query.text("topic")
    data: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "members": [{"client_id": each.client_id, "host": each.host} for each in group.members],
        "topics": sorted({*topics, *filter(None, [wanted])}),
        "ways": list(WAYS),
        "asked": {name: visit.query.text(name) for name in ("topic", "partition", "to", "at")},
        "plan": None if plan is None else [_row(place, each) for place, each in plan.items()],
        "offsets": [] if plan is None else _by_topic(plan),
        "problems": problems,
    }
    return View("group_reset", f"Reset {group.group_id}", data, 400 if problems else 200)


async def _plan(visit: Visit, group: Group) -> dict[TopicPartition, Reset]:
    """Raises Unclear, Refusal, ClientError."""
    to = _to(visit)
    topic = visit.query.text("topic")
    partitions: list[TopicPartition] | None = None
    if topic:
        found = (await describe_topics(visit.client, [topic]))[topic]
        if isinstance(found, Failed):
            raise Unclear("topic", f"topic: {found}")
        partitions = places(found)
        if visit.query.text("partition"):
            chosen = (topic, visit.query.number("partition", 0, most=1 << 31))
            if chosen not in partitions:
                raise Unclear("partition", f"partition: topic {topic} has {len(partitions)}, from 0 on")
            partitions = [chosen]
    elif visit.query.text("partition"):
        raise Unclear("partition", "partition: of which topic?")
    name = group.group_id
    plan = await plan_reset(visit.client, name, partitions, to, group.kind)
    if isinstance(plan, Failed):
        raise refused(f"group {name}", plan)
    if not plan:
        raise Unclear("topic", f"topic: group {name} has read nothing yet, so a topic must be named")
    return plan


def _to(visit: Visit) -> To:
    way, at = visit.query.choice("to", WAYS), visit.query.text("at")
    if way in ("earliest", "latest"):
        return To(time_ms=EARLIEST if way == "earliest" else LATEST)
    if way == "shift":
        if not at:
            raise Unclear("at", "at: how many records on, or back with a minus?")
        return To(shift=visit.query.number("at", 0, least=-(1 << 62)))
    if way == "offset":
        if not at:
            raise Unclear("at", "at: an offset is expected")
        return To(offset=visit.query.number("at", 0))
    try:
        place = parse_place(at, visit.now_ms)
    except ValueError as error:
        raise Unclear("at", f"at: {error}") from None
    if place.time_ms is None:
        raise Unclear("at", f"at: {at[:60]!r} is no time; expected is {EXPECTED.partition('(17), ')[2]}")
    return To(time_ms=place.time_ms)


def _row(place: TopicPartition, plan: Reset) -> dict[str, Any]:
    after = plan.after if isinstance(plan.after, int) else None
    moved = None if after is None or plan.before is None else after - plan.before
    return {
        "topic": place[0],
        "partition": place[1],
        "committed": plan.before,
        "new": after,
        "change": moved,
        "trouble": str(plan.after) if isinstance(plan.after, Failed) else None,
    }


def _by_topic(plan: dict[TopicPartition, Reset]) -> list[dict[str, str]]:
    """As the fields of the form that does it."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for place, each in plan.items():
        if isinstance(each.after, int):
            found.setdefault(place[0], {})[place] = each.after
    return [{"topic": topic, "positions": written(positions)} for topic, positions in found.items()]


async def change(visit: Visit) -> Done:
    name = visit.names["group"]
    topics, positions = visit.form.many("topic"), visit.form.many("positions")
    if not topics or len(topics) != len(positions):
        raise Unclear("positions", "positions: offsets to set are expected, as 0:120,3:7 for each topic")
    offsets: dict[TopicPartition, int] = {}
    for topic, text in zip(topics, positions, strict=True):
        for index, offset in (parse_positions(text) or {}).items():
            offsets[topic, index] = offset
    group = await group_of(visit)
    _must_be_empty(group)
    failed = {
        place: why
        for place, why in (await set_offsets(visit.client, name, offsets, group.kind)).items()
        if why is not None
    }
    if failed:
        (topic, index), why = next(iter(failed.items()))
        refusal = refused(f"group {name}: {counted(len(failed), 'offset')} of {len(offsets)} not set", why)
        raise Refusal(refusal.status, f"{refusal}; first of {topic}, partition {index}")
    what = f"set {counted(len(offsets), 'offset')} of group {name}: " + "; ".join(
        f"{topic} {text}" for topic, text in zip(topics, positions, strict=True)
    )
    return Done(what[:2000], "reset", f"/groups/{segment(name)}/lag", {"group": name, "offsets": len(offsets)})


def _must_be_empty(group: Group) -> None:
    """Members would commit their own offsets over those that are set here. Raises Refusal."""
    if group.members:
        who = ", ".join(f"{each.client_id} at {each.host}" for each in group.members[:3])
        more = ", …" if len(group.members) > 3 else ""
        many = counted(len(group.members), "member")
        raise Refusal(409, f"group {group.group_id} has {many}: {who}{more}; stop them first")
