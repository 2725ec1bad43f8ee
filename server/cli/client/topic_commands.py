"""`barnabas topic list|describe|create|alter|delete`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from barnabas.kproto import ErrorCode
from barnabas.server.cli.client.client_results import OK, Command, Unclear, complain_of, note, print_json, report
from barnabas.server.cli.client.tables import print_table, printable
from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.configs import Resource, ResourceKind, Setting, Source, alter_configs, describe_configs
from barnabas.server.client.failures import ClientError, Failed
from barnabas.server.client.log_dirs import describe_log_dirs
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.texts.amounts import counted, size
from barnabas.server.client.topics import (
    NewTopic,
    add_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    list_topics,
)
from barnabas.server.client.view import TopicView


async def _list(chosen: argparse.Namespace, client: Client) -> int:
    topics = [
        topic
        for name, topic in (await list_topics(client)).items()
        if (chosen.internal or not topic.is_internal) and (not chosen.pattern or fnmatchcase(name, chosen.pattern))
    ]
    held, sizes = await _contents(client, topics) if chosen.long else ({}, {})
    if chosen.json:
        print_json([_row(topic, held, sizes, chosen.long) for topic in topics])
        return OK
    heads = ["TOPIC", ">PARTITIONS", ">REPLICAS", *([">RECORDS", ">SIZE"] if chosen.long else []), "STATE"]
    rows = []
    for topic in topics:
        more = [_records(topic, held), _size(topic, sizes)] if chosen.long else []
        rows.append([topic.name, len(topic.partitions), _replicas(topic), *more, _state(topic)])
    if rows:
        if not any(row[-1] for row in rows):  # nothing to say
            heads, rows = heads[:-1], [row[:-1] for row in rows]
        print_table(heads, rows)
    else:
        note("no topics" if not chosen.pattern else f"no topic is called {chosen.pattern}")
    return OK


def _row(
    topic: TopicView, held: Mapping[TopicPartition, Span], sizes: Mapping[TopicPartition, int], long: bool
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": topic.name, "internal": topic.is_internal, "partitions": len(topic.partitions)}
    row |= {"replicas": max((len(each.replicas) for each in topic.partitions.values()), default=0)}
    row["under_replicated"] = len(_under_replicated(topic))
    row["without_leader"] = len(_without_leader(topic))
    if long:
        row["records"] = sum(held[place].end - held[place].start for place in _places(topic) if place in held)
        row["bytes"] = sum(sizes.get(place, 0) for place in _places(topic)) if sizes else None
    return row


async def _describe(chosen: argparse.Namespace, client: Client) -> int:
    found = await describe_topics(client, chosen.names)
    topics = [topic for topic in found.values() if not isinstance(topic, Failed)]
    held, sizes = await _contents(client, topics)
    resources = {topic.name: Resource(ResourceKind.TOPIC, topic.name) for topic in topics}
    settings = await describe_configs(client, resources.values()) if topics else {}
    if chosen.json:
        print_json([_whole(topic, held, sizes, settings[resources[topic.name]]) for topic in topics])
    else:
        for number, topic in enumerate(topics):
            if number:
                print()
            _print_topic(topic, held, sizes, settings[resources[topic.name]], chosen.all)
    return complain_of((f"topic {name}", each) for name, each in found.items() if isinstance(each, Failed))


def _print_topic(
    topic: TopicView,
    held: Mapping[TopicPartition, Span],
    sizes: Mapping[TopicPartition, int],
    settings: Mapping[str, Setting] | Failed,
    everything: bool,
) -> None:
    facts = [counted(len(topic.partitions), "partition"), counted(int(_replicas(topic)), "replica")]
    facts += [counted(_records(topic, held) or 0, "record"), _size(topic, sizes)]
    print(f"{topic.name}: {', '.join(facts)}{'  (internal)' if topic.is_internal else ''}")
    print()
    rows = []
    for index, each in topic.partitions.items():
        span = held.get((topic.name, index))
        start, end = (span.start, span.end) if span is not None else (None, None)
        leader = str(each.leader) if each.leader >= 0 else "none"
        records = span.end - span.start if span is not None else None
        room = size(sizes[topic.name, index]) if (topic.name, index) in sizes else None
        rows.append([index, leader, _ids(each.replicas), _ids(each.in_sync), start, end, records, room])
    print_table([">PARTITION", ">LEADER", "REPLICAS", "IN SYNC", ">START", ">END", ">RECORDS", ">SIZE"], rows)
    if isinstance(settings, Failed):
        print(f"\nsettings: {settings}")
        return
    shown = [setting for setting in settings.values() if everything or setting.source is Source.TOPIC]
    if shown:
        print()
        for setting in shown:
            origin = "" if setting.source is Source.TOPIC else f"  # {_origin(setting)}"
            print(f"{setting.name}={_value(setting)}{origin}")


def _whole(
    topic: TopicView,
    held: Mapping[TopicPartition, Span],
    sizes: Mapping[TopicPartition, int],
    settings: Mapping[str, Setting] | Failed,
) -> dict[str, Any]:
    partitions = []
    for index, each in topic.partitions.items():
        span = held.get((topic.name, index))
        partitions.append(
            {
                "partition": index,
                "leader": each.leader if each.leader >= 0 else None,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "in_sync": list(each.in_sync),
                "start_offset": span.start if span is not None else None,
                "end_offset": span.end if span is not None else None,
                "bytes": sizes.get((topic.name, index)),
            }
        )
    document: dict[str, Any] = {"name": topic.name, "internal": topic.is_internal, "partitions": partitions}
    if not isinstance(settings, Failed):
        document["settings"] = {
            name: {"value": each.value, "source": _origin(each), "documentation": each.doc}
            for name, each in settings.items()
        }
    return document


async def _contents(
    client: Client, topics: Iterable[TopicView]
) -> tuple[dict[TopicPartition, Span], dict[TopicPartition, int]]:
    """Offsets, and bytes of all replicas, by partition, as far as they can be had."""
    every = list(topics)
    places = [
        (topic.name, index)
        for topic in every
        for index, each in topic.partitions.items()
        if each.leader in client.view.brokers  # who has no leader is not waited for
    ]
    held = {place: span for place, span in (await spans(client, places)).items() if isinstance(span, Span)}
    sizes: dict[TopicPartition, int] = {}
    try:
        by_broker = await describe_log_dirs(client, [place for topic in every for place in _places(topic)])
    except ClientError:  # before 1.0
        return held, {}
    for directories in by_broker.values():
        for directory in [] if isinstance(directories, Failed) else directories:
            for place, replica in directory.replicas.items():
                if not replica.is_future:
                    sizes[place] = sizes.get(place, 0) + replica.size
    return held, sizes


def _places(topic: TopicView) -> list[TopicPartition]:
    return [(topic.name, index) for index in topic.partitions]


def _replicas(topic: TopicView) -> str:
    counts = sorted({len(each.replicas) for each in topic.partitions.values()})
    return str(counts[-1]) if counts else "0"


def _records(topic: TopicView, held: Mapping[TopicPartition, Span]) -> int | None:
    known = [held[place] for place in _places(topic) if place in held]
    return sum(span.end - span.start for span in known) if known else None


def _size(topic: TopicView, sizes: Mapping[TopicPartition, int]) -> str:
    known = [sizes[place] for place in _places(topic) if place in sizes]
    return size(sum(known)) if known else "-"


def _under_replicated(topic: TopicView) -> list[int]:
    return [index for index, each in topic.partitions.items() if len(each.in_sync) < len(each.replicas)]


def _without_leader(topic: TopicView) -> list[int]:
    return [index for index, each in topic.partitions.items() if each.leader < 0]


def _state(topic: TopicView) -> str:
    parts = []
    if topic.code:
        parts.append(str(Failed(topic.code)))
    if missing := _without_leader(topic):
        parts.append(f"{len(missing)} without leader")
    if behind := _under_replicated(topic):
        parts.append(f"{len(behind)} under-replicated")
    return ", ".join(parts)


def _ids(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers)) or "none"


def _value(setting: Setting) -> str:
    return "(hidden)" if setting.is_sensitive else printable(setting.value or "")


_ORIGINS: Final = {
    Source.TOPIC: "topic",
    Source.DYNAMIC_BROKER: "broker, at run time",
    Source.DYNAMIC_DEFAULT_BROKER: "all brokers, at run time",
    Source.STATIC_BROKER: "broker's file",
    Source.DEFAULT: "default",
}


def _origin(setting: Setting) -> str:
    return _ORIGINS.get(setting.source, setting.source.name.lower())


async def _create(chosen: argparse.Namespace, client: Client) -> int:
    wanted = [NewTopic(name, chosen.partitions, chosen.replicas, dict(chosen.set)) for name in chosen.names]
    made = await create_topics(client, wanted)
    if chosen.if_not_exists:
        for name, result in made.items():
            if isinstance(result, Failed) and result.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                made[name] = 0

    def created(name: str, partitions: int) -> str:
        if partitions < 0:
            return f"topic {name} was created"
        if not partitions:
            return f"topic {name} exists already"
        return f"topic {name} was created with {counted(partitions, 'partition')}"

    return report(made, created, lambda name: f"topic {name} was not created")


async def _alter(chosen: argparse.Namespace, client: Client) -> int:
    changes: dict[str, str | None] = {**dict.fromkeys(chosen.unset), **dict(chosen.set)}
    if both := set(chosen.unset) & dict(chosen.set).keys():
        raise Unclear(f"{', '.join(sorted(both))}: in --set and in --unset; which is meant?")
    if not changes and chosen.partitions is None:
        raise Unclear("nothing is to be changed: say what with --set, --unset or --partitions")
    code = await _known(chosen.unset, chosen.names, client)
    if code:
        return code
    if chosen.partitions is not None:
        added = await add_partitions(client, dict.fromkeys(chosen.names, chosen.partitions))
        code = max(
            code,
            report(
                added,
                lambda name, _: f"topic {name} has {counted(chosen.partitions, 'partition')}",
                lambda name: f"topic {name} got no partitions",
            ),
        )
    if changes:
        resources = {Resource(ResourceKind.TOPIC, name): changes for name in chosen.names}
        altered = {resource.name: result for resource, result in (await alter_configs(client, resources)).items()}
        code = max(
            code,
            report(altered, lambda name, _: f"topic {name} was changed", lambda name: f"topic {name} was not changed"),
        )
    return code


async def _known(keys: Sequence[str], names: Sequence[str], client: Client) -> int:
    """Brokers take an unknown setting back without a word: the exit code, with what they would say to --set. Where they
    do not show settings it is not known.
    """
    if not keys:
        return OK
    resources = [Resource(ResourceKind.TOPIC, name) for name in names]
    refused: dict[str, Failed] = {}
    for resource, settings in (await describe_configs(client, resources, keys, docs=False)).items():
        unknown = [key for key in dict.fromkeys(keys) if not isinstance(settings, Failed) and key not in settings]
        if unknown:
            why = f"Unknown topic setting: {', '.join(unknown)}"
            refused[resource.name] = Failed(ErrorCode.INVALID_CONFIG, why)
    return complain_of((f"topic {name} was not changed", why) for name, why in refused.items())


async def _delete(chosen: argparse.Namespace, client: Client) -> int:
    gone = await delete_topics(client, chosen.names)
    return report(gone, lambda name, _: f"topic {name} was deleted", lambda name: f"topic {name} was not deleted")


ACTIONS: Final[dict[str, Command]] = {
    "list": _list,
    "describe": _describe,
    "create": _create,
    "alter": _alter,
    "delete": _delete,
}
