"""The throttle of moves, for `/moves` and `/topics/T/move`: what there is, whether it was left behind, set, cleared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from barnabas.server.client.client import TopicPartition
from barnabas.server.client.configs import Resource
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.moves import Move
from barnabas.server.client.throttles import (
    Copy,
    Rates,
    Replicas,
    clear,
    throttle,
    throttled_brokers,
    throttled_topics,
)
from barnabas.server.client.topics import list_topics
from barnabas.server.console.web.fields import Unclear
from barnabas.server.console.web.view import Refusal, refused
from barnabas.server.console.web.visit import Visit

TOPICS_MAX: Final = 1000
"""Topics that are looked at; of more, those on their way and the first ones."""
RATE_MAX: Final = (1 << 63) - 1
_SHOWN: Final = 400
_UNITS: Final = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_RATE: Final = re.compile(
    r"((?:[0-9]{1,3}(?:,[0-9]{3}){1,4}|[0-9]{1,15})(?:\.[0-9]{1,3})?)\s*(|b|kb|mb|gb)(?:/s)?", re.IGNORECASE
)
"""A comma stands between thousands only: 1,5 would be taken for 15."""


async def throttle_of(visit: Visit, moves: Mapping[TopicPartition, Move]) -> dict[str, Any]:
    """`is_left`: a throttle that no move needs. `not_told`: why it is not known."""
    try:
        brokers, topics, is_all = await _found(visit, moves)
    except ClientError as error:
        return {"brokers": [], "topics": [], "is_left": False, "is_all": True, "not_told": str(error)}
    moving = {topic for topic, _ in moves}
    rows = [
        {
            "topic": name,
            "leader": each.leader[:_SHOWN],
            "follower": each.follower[:_SHOWN],
            "is_cut": max(map(len, each)) > _SHOWN,
            "is_left": name not in moving,
        }
        for name, each in topics.items()
    ]
    rated = {broker: each for broker, each in brokers.items() if isinstance(each, Rates)}
    silent = [f"broker {broker}: {each}" for broker, each in brokers.items() if isinstance(each, Failed)]
    return {
        "brokers": [
            {"broker": broker, "leader": each.leader, "follower": each.follower} for broker, each in rated.items()
        ],
        "topics": rows,
        "is_left": (bool(rated) and not moves) or any(each["is_left"] for each in rows),
        "is_all": is_all,
        "not_told": "; ".join(silent) or None,
    }


async def _found(
    visit: Visit, moves: Mapping[TopicPartition, Move]
) -> tuple[dict[int, Rates | Failed], dict[str, Replicas], bool]:
    """Topics are looked through only where one may have a list that counts. Raises ClientError."""
    brokers = await throttled_brokers(visit.client, sorted(visit.client.view.brokers))
    moving = dict.fromkeys(topic for topic, _ in moves)
    names = list(moving)
    is_all = True
    if any(isinstance(each, Rates) for each in brokers.values()):
        others = [name for name in await visit.desk.topics() if name not in moving]
        is_all = len(names) + len(others) <= TOPICS_MAX
        names = (names + others)[:TOPICS_MAX]
    return brokers, await throttled_topics(visit.client, names[:TOPICS_MAX]), is_all


async def set_throttle(visit: Visit, rate: int, copies: Mapping[TopicPartition, Copy]) -> None:
    """Raises Refusal, ClientError."""
    before = await throttled_topics(visit.client, dict.fromkeys(topic for topic, _ in copies))
    _all_done(await throttle(visit.client, rate, copies, before), "throttled")


async def clear_throttle(visit: Visit) -> tuple[list[int], list[str]]:
    """The brokers and topics that had one, of all that there are: without rates of brokers no page would show a list
    that was left. Raises Refusal, ClientError.
    """
    names = list(await list_topics(visit.client))
    brokers = await throttled_brokers(visit.client, sorted(visit.client.view.brokers))
    topics: dict[str, Replicas] = {}
    for at in range(0, len(names), TOPICS_MAX):
        topics |= await throttled_topics(visit.client, names[at : at + TOPICS_MAX])
    rated = [broker for broker, each in brokers.items() if isinstance(each, Rates)]
    _all_done(await clear(visit.client, rated, topics), "cleared")
    return rated, list(topics)


def copies_of(moves: Mapping[TopicPartition, Move]) -> dict[TopicPartition, Copy]:
    return {
        place: Copy([broker for broker in each.replicas if broker not in each.adding], each.adding)
        for place, each in moves.items()
    }


def rate_of(text: str) -> int:
    """Bytes a second, out of `10 MB`. Raises Unclear."""
    match = _RATE.fullmatch(text.strip().replace("_", ""))
    rate = 0 if match is None else int(float(match[1].replace(",", "")) * _UNITS[match[2].lower()])
    if not 0 < rate <= RATE_MAX:
        raise Unclear("rate", f"rate: bytes a second are expected, as 10000000 or 10 MB, not {text[:40]!r}")
    return rate


def _all_done(results: Mapping[Resource, Failed | None], done: str) -> None:
    failed = {resource: why for resource, why in results.items() if why is not None}
    if failed:
        resource, why = next(iter(failed.items()))
        refusal = refused(f"{len(failed)} of {len(results)} brokers and topics not {done}", why)
        raise Refusal(refusal.status, f"{refusal}; first of {resource.kind.name.lower()} {resource.name}")
