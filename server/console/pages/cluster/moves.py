"""`/moves`: partitions that are on their way to other brokers, how far they are, how fast they may be; calling a move
off, setting and clearing the throttle.
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.server.client.client import TopicPartition
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.moves import Move, list_moves, move
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.topics import describe_topics
from barnabas.server.client.view import TopicView
from barnabas.server.console.pages.cluster.throttling import (
    clear_throttle,
    copies_of,
    rate_of,
    set_throttle,
    throttle_of,
)
from barnabas.server.console.pages.common import cut
from barnabas.server.console.pages.topics.move_topic import all_done, moves_or_why
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.view import Done, Refusal, View
from barnabas.server.console.web.visit import Visit


async def show(visit: Visit) -> View:
    return await _view(visit)


async def _view(visit: Visit, problems: list[str] | None = None, status: int = 200) -> View:
    moves, why = await moves_or_why(visit)
    shown, pages = cut(list(moves.items()), visit.query)
    topics = await describe_topics(visit.client, {topic for (topic, _), _ in shown}) if shown else {}
    held = await _held(visit, [place for place, _ in shown]) if shown else {}
    data: dict[str, Any] = {
        "not_offered": why,
        "moves": [_row(place, each, topics.get(place[0]), held) for place, each in shown],
        "throttle": await throttle_of(visit, moves),
        "rate": visit.form.text("rate"),
        "problems": problems or [],
        **pages,
    }
    return View("moves", "Moves", data, status)


def _row(
    place: TopicPartition, each: Move, topic: TopicView | Failed | None, held: dict[TopicPartition, dict[int, int]]
) -> dict[str, Any]:
    """`copied`: bytes that are there on brokers that are added; `to_copy`: what they will have then, about."""
    known = topic.partitions.get(place[1]) if isinstance(topic, TopicView) else None
    sizes = held.get(place, {})
    whole = max((size for broker, size in sizes.items() if broker not in each.adding), default=0)
    return {
        "topic": place[0],
        "partition": place[1],
        "target": list(each.target),
        "adding": list(each.adding),
        "removing": list(each.removing),
        "in_sync": [] if known is None else [broker for broker in each.adding if broker in known.in_sync],
        "copied": sum(min(sizes.get(broker, 0), whole) for broker in each.adding) if sizes else None,
        "to_copy": whole * len(each.adding) if sizes else None,
    }


async def _held(visit: Visit, wanted: list[TopicPartition]) -> dict[TopicPartition, dict[int, int]]:
    """Bytes by partition and broker, as far as they are told."""
    found: dict[TopicPartition, dict[int, int]] = {}
    try:
        dirs = await describe_log_dirs(visit.client, wanted)
    except ClientError:
        return found
    for broker, rows in dirs.items():
        for each in () if isinstance(rows, Failed) else rows:
            for place, replica in each.replicas.items():
                found.setdefault(place, {})[broker] = replica.size
    return found


async def change(visit: Visit) -> Done | View:
    """Call a move off: the partition goes back to where it was. Or with `do`: throttle, clear."""
    do = visit.form.choice("do", ("call-off", "throttle", "clear"))
    if do == "clear":
        brokers, topics = await clear_throttle(visit)
        where = f"brokers {', '.join(map(str, brokers))}" if brokers else "no broker"
        what = f"cleared the throttle of moves on {where}; topics: {', '.join(topics) or 'none'}"
        return Done(what[:2000], "throttle-cleared", "/moves", {"brokers": brokers, "topics": topics})
    if do == "throttle":
        return await _throttled(visit)
    topic, index = visit.form.text("topic"), visit.form.number("partition", -1, most=1 << 31)
    results = await move(visit.client, {(topic, index): None})
    if any(each is not None and each.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS for each in results.values()):
        raise Refusal(409, f"{topic}, partition {index} is not on its way; it may have arrived")
    all_done(f"topic {topic}", results, "called off")
    what = f"called off the move of topic {topic}, partition {index}"
    return Done(what, "called-off", "/moves", {"topic": topic, "partition": index})


async def _throttled(visit: Visit) -> Done | View:
    try:
        rate = rate_of(visit.form.text("rate"))
    except Unclear as error:
        return await _view(visit, [str(error)], 422)
    moves = await list_moves(visit.client)
    if not moves:
        raise Refusal(409, "no partition is on its way; a throttle would slow nothing down but what comes later")
    await set_throttle(visit, rate, copies_of(moves))
    what = f"throttled {counted(len(moves), 'move')} to {rate:,} bytes a second"
    return Done(what, "throttled", "/moves", {"rate": rate, "partitions": len(moves)})
