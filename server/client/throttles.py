"""The throttle of moves (KIP-73), as `kafka-reassign-partitions.sh --throttle` sets it: how fast each broker may copy,
and for which replicas that counts.

| where | setting | holds |
| --- | --- | --- |
| broker | `leader.replication.throttled.rate`, `follower.replication.throttled.rate` | bytes a second |
| topic | `leader.replication.throttled.replicas` | `partition:broker` of those that are copied from |
| topic | `follower.replication.throttled.replicas` | the same of those that are copied to |

Nothing takes it away by itself: one that is left behind when a move has ended slows the same replicas down whenever
they have to catch up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.configs import Resource, ResourceKind, Setting, Source, alter_configs, describe_configs
from barnabas.server.client.failures import Failed

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
REPLICAS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
ALL: Final = "*"


class Rates(NamedTuple):
    """Bytes a second, of one broker; None: as fast as it can."""

    leader: int | None
    follower: int | None


class Replicas(NamedTuple):
    """Of one topic: lists as they are set, empty: none."""

    leader: str
    follower: str


class Copy(NamedTuple):
    """One partition's move: the brokers that have it, and those that get it."""

    sources: Sequence[int]
    targets: Sequence[int]


async def throttled_brokers(client: Client, brokers: Iterable[int]) -> dict[int, Rates | Failed]:
    """The rates of those brokers that have some; or why one does not tell. Raises ClientError."""
    resources = [Resource(ResourceKind.BROKER, str(each)) for each in brokers]
    found: dict[int, Rates | Failed] = {}
    for resource, settings in (await describe_configs(client, resources, RATES, docs=False)).items():
        if isinstance(settings, Failed):
            found[int(resource.name)] = settings
            continue
        rates = Rates(*(_rate(settings.get(name)) for name in RATES))
        if rates != (None, None):
            found[int(resource.name)] = rates
    return dict(sorted(found.items()))


async def throttled_topics(client: Client, topics: Iterable[str]) -> dict[str, Replicas]:
    """The lists of those topics that have some. Raises ClientError."""
    resources = [Resource(ResourceKind.TOPIC, each) for each in topics]
    if not resources:
        return {}
    found: dict[str, Replicas] = {}
    for resource, settings in (await describe_configs(client, resources, REPLICAS, docs=False)).items():
        if not isinstance(settings, Failed):
            lists = Replicas(*(_list(settings.get(name)) for name in REPLICAS))
            if lists != ("", ""):
                found[resource.name] = lists
    return dict(sorted(found.items()))


async def throttle(
    client: Client, rate: int, copies: Mapping[TopicPartition, Copy], before: Mapping[str, Replicas]
) -> dict[Resource, Failed | None]:
    """Limit these moves to `rate` bytes a second on each broker that takes part. before: the lists as they are, of
    which `*` stays. Raises ClientError.
    """
    changes: dict[Resource, dict[str, str | None]] = {}
    for broker in sorted({each for copy in copies.values() for each in (*copy.sources, *copy.targets)}):
        changes[Resource(ResourceKind.BROKER, str(broker))] = dict.fromkeys(RATES, str(rate))
    by_topic: dict[str, tuple[list[str], list[str]]] = {}
    for (topic, index), copy in sorted(copies.items()):
        leader, follower = by_topic.setdefault(topic, ([], []))
        leader += [f"{index}:{each}" for each in copy.sources]
        follower += [f"{index}:{each}" for each in copy.targets]
    for topic, lists in by_topic.items():
        held = before.get(topic, Replicas("", ""))
        changes[Resource(ResourceKind.TOPIC, topic)] = {
            name: ",".join(added)
            for name, added, old in zip(REPLICAS, lists, held, strict=True)
            if added and old != ALL
        }
    return await alter_configs(client, {resource: each for resource, each in changes.items() if each})


async def clear(client: Client, brokers: Iterable[int], topics: Iterable[str]) -> dict[Resource, Failed | None]:
    """Take the throttle away from these. Raises ClientError."""
    changes: dict[Resource, dict[str, str | None]] = {
        **{Resource(ResourceKind.BROKER, str(each)): dict.fromkeys(RATES) for each in brokers},
        **{Resource(ResourceKind.TOPIC, each): dict.fromkeys(REPLICAS) for each in topics},
    }
    return await alter_configs(client, changes) if changes else {}


def _rate(setting: Setting | None) -> int | None:
    if setting is None or setting.source in (Source.DEFAULT, Source.UNKNOWN):
        return None
    return int(setting.value) if setting.value and setting.value.lstrip("-").isdecimal() else None


def _list(setting: Setting | None) -> str:
    text = "" if setting is None or not setting.is_set else setting.value or ""
    return "" if text == "none" else text
