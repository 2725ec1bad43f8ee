"""`barnabas group list|describe|reset|delete`."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from barnabas.kproto import ErrorCode
from barnabas.server.cli.client.client_results import (
    FAILED,
    Command,
    Unclear,
    complain,
    complain_of,
    note,
    print_json,
    report,
)
from barnabas.server.cli.client.tables import print_table, printable
from barnabas.server.client.client import Client, TopicPartition, raise_failed
from barnabas.server.client.failures import Failed, Refused
from barnabas.server.client.groups.groups import delete_groups, describe_groups, list_groups
from barnabas.server.client.groups.lag import GroupLag, PartitionLag, lags
from barnabas.server.client.groups.resets import Reset, To, plan_reset, reset
from barnabas.server.client.groups.values import CONSUMER, Committed, Group, ListedGroup
from barnabas.server.client.offsets import EARLIEST, LATEST, Span
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.texts.when import LATEST as LATEST_WORD
from barnabas.server.client.texts.when import Log, duration, outside, parse_place, time_utc
from barnabas.server.client.topics import describe_topics


def _now_ms() -> int:
    return int(time.time() * 1000)


# -- list --------------------------------------------------------------------------------------------------------------


async def _list(chosen: argparse.Namespace, client: Client) -> int:
    groups, failed = await list_groups(client)
    wanted = [each for name, each in groups.items() if not chosen.pattern or fnmatchcase(name, chosen.pattern)]
    behind: dict[str, GroupLag | Failed] = {}
    if chosen.long:
        behind = await lags(client, [each.group_id for each in wanted])
    now_ms = _now_ms()
    if chosen.json:
        print_json([_listed(each, behind.get(each.group_id), now_ms, chosen.long) for each in wanted])
    elif wanted:
        heads = ["GROUP", "KIND", "STATE", *([">MEMBERS", ">LAG", ">BEHIND"] if chosen.long else [">COORDINATOR"])]
        rows = []
        for each in wanted:
            more: list[Any] = [str(each.coordinator)]
            if chosen.long:
                lag = behind.get(each.group_id)
                more = [None, None, None]
                if isinstance(lag, GroupLag):
                    more = [len(lag.group.members), lag.lag, duration(lag.lag_s(now_ms))]
            rows.append([each.group_id, each.kind, each.state or "-", *more])
        print_table(heads, rows)
    elif not failed:
        note("no groups" if not chosen.pattern else f"no group is called {chosen.pattern}")
    return complain_of((f"broker {broker_id} does not list its groups", why) for broker_id, why in failed.items())


def _listed(group: ListedGroup, lag: GroupLag | Failed | None, now_ms: int, long: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "group": group.group_id,
        "kind": group.kind,
        "protocol_type": group.protocol_type,
        "state": group.state or None,
        "coordinator": group.coordinator,
    }
    if long:
        known = lag if isinstance(lag, GroupLag) else None
        row["members"] = len(known.group.members) if known is not None else None
        row["lag"] = known.lag if known is not None else None
        row["lag_seconds"] = known.lag_s(now_ms) if known is not None else None
    return row


# -- describe ----------------------------------------------------------------------------------------------------------


async def _describe(chosen: argparse.Namespace, client: Client) -> int:
    found = await lags(client, chosen.names)
    now_ms = _now_ms()
    there = [each for each in found.values() if not isinstance(each, Failed)]
    if chosen.json:
        print_json([_whole(each, now_ms) for each in there])
    else:
        for number, each in enumerate(there):
            if number:
                print()
            _print_group(each, now_ms)
    return complain_of((f"group {name}", each) for name, each in found.items() if isinstance(each, Failed))


def _print_group(lag: GroupLag, now_ms: int) -> None:
    group = lag.group
    facts = [group.kind, group.state, counted(len(group.members), "member")]
    if group.assignor:
        facts.append(f"assigned by {group.assignor}")
    facts.append(f"coordinator {group.coordinator}")
    print(f"{printable(group.group_id)}: {', '.join(facts)}")
    print(f"lag {counted(lag.lag, 'record')}, behind by {duration(lag.lag_s(now_ms))}")
    if lag.partitions:
        print()
        rows = []
        for each in lag.partitions:
            end = each.span.end if isinstance(each.span, Span) else None
            client_id, host = (each.member.client_id, each.member.host) if each.member is not None else ("-", "-")
            if each.readers > 1:
                client_id, host = counted(each.readers, "member"), "-"
            rows.append(
                [
                    each.topic,
                    each.partition,
                    _committed(each),
                    end,
                    each.lag,
                    duration(each.lag_s(now_ms)),
                    client_id,
                    host,
                ]
            )
        heads = ["TOPIC", ">PARTITION", ">COMMITTED", ">END", ">LAG", ">BEHIND", "CLIENT", "HOST"]
        print_table(heads, rows)
    idle = [member for member in group.members if not member.partitions]
    if idle:
        print()
        print(f"{counted(len(idle), 'member')} without partitions: {_members(idle)}")
    for each in lag.partitions:
        if each.lost:
            print(f"\n{each.topic}-{each.partition}: {counted(each.lost, 'record')} were deleted before they were read")
        if isinstance(each.span, Failed):
            print(f"\n{each.topic}-{each.partition}: {each.span}")


def _members(members: Iterable[Any]) -> str:
    return ", ".join(printable(f"{each.client_id} at {each.host}") for each in members)


def _committed(row: PartitionLag) -> int | str | None:
    if row.committed is None:
        return None
    return row.committed.offset if isinstance(row.committed, Committed) else str(row.committed)


def _whole(lag: GroupLag, now_ms: int) -> dict[str, Any]:
    group = lag.group
    return {
        "group": group.group_id,
        "kind": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "epoch": group.epoch if group.epoch >= 0 else None,
        "coordinator": group.coordinator,
        "lag": lag.lag,
        "lag_seconds": lag.lag_s(now_ms),
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "subscribed": list(each.topics),
                "partitions": [{"topic": topic, "partition": index} for topic, index in each.partitions],
            }
            for each in group.members
        ],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed.offset if isinstance(each.committed, Committed) else None,
                "metadata": each.committed.metadata if isinstance(each.committed, Committed) else None,
                "start_offset": each.span.start if isinstance(each.span, Span) else None,
                "end_offset": each.span.end if isinstance(each.span, Span) else None,
                "lag": each.lag,
                "lag_seconds": each.lag_s(now_ms),
                "first_unread": time_utc(each.unread_ms) if each.unread_ms is not None else None,
                "member_id": each.member.member_id if each.member is not None else None,
            }
            for each in lag.partitions
        ],
    }


# -- reset -------------------------------------------------------------------------------------------------------------


async def _reset(chosen: argparse.Namespace, client: Client) -> int:
    to = _to(chosen)
    partitions = None if chosen.topic is None else await _partitions(chosen.topic, client)
    group = (await describe_groups(client, [chosen.name]))[chosen.name]
    kind = group.kind if isinstance(group, Group) else CONSUMER  # there need be none yet
    plan = raise_failed(f"group {chosen.name}", await plan_reset(client, chosen.name, partitions, to, kind))
    if not plan:
        complain(f"group {chosen.name} has read nothing yet; name what it shall read with --topic")
        return FAILED
    _within_the_logs(to, plan)
    if not chosen.json:
        rows = []
        for (topic, index), each in plan.items():
            after = each.after if isinstance(each.after, int) else str(each.after)
            rows.append([topic, index, each.before, after, _change(each)])
        print_table(["TOPIC", ">PARTITION", ">COMMITTED", ">NEW", ">CHANGE"], rows)
    code = complain_of(
        (f"{topic}-{i}", each.after) for (topic, i), each in plan.items() if isinstance(each.after, Failed)
    )
    if not chosen.yes:
        if chosen.json:
            _print_plan(plan, ())
        else:
            print("\nNothing was changed. With --yes it is done.")
        return code
    await _without_members(chosen.name, client)
    done = await reset(client, chosen.name, plan, kind)
    code = max(code, complain_of((f"{place[0]}-{place[1]}", why) for place, why in done.items() if why is not None))
    changed = [place for place, why in done.items() if why is None]
    if chosen.json:
        _print_plan(plan, changed)
    else:
        print(f"\n{counted(len(changed), 'partition')} of group {printable(chosen.name)} changed.")
    return code


def _within_the_logs(to: To, plan: Mapping[TopicPartition, Reset]) -> None:
    """An offset that no log has reached is rather a mistake than a wish to skip all: raises Unclear. One that is no
    longer there means the beginning, and a shift ends at the log's end; that is said.
    """
    moved = [(f"{topic}-{index}", each.log) for (topic, index), each in plan.items() if each.log is not None]
    beyond = [Log(name, *log) for name, log in moved if to.offset is not None and to.offset > log.end]
    if to.offset is not None and beyond:
        raise Unclear(f"--to: {outside(to.offset, beyond)}")
    for name, log in moved:
        if to.offset is not None:
            note(f"{name}: offset {to.offset:,} is no longer in the log, which begins at {log.start:,}")
        else:
            note(f"{name}: {to.shift:+,} would leave the log, which begins at {log.start:,} and ends at {log.end:,}")


async def _without_members(name: str, client: Client) -> None:
    """Raises Refused: it would commit over what is set here."""
    group = (await describe_groups(client, [name]))[name]
    if isinstance(group, Group) and group.members:
        many = counted(len(group.members), "member")
        which = f"{_members(group.members[:3])}{', …' if len(group.members) > 3 else ''}"
        raise Refused(ErrorCode.NON_EMPTY_GROUP, f"group {name} has {many}: {which}; stop them first")


def _to(chosen: argparse.Namespace) -> To:
    if chosen.to is None:
        return To(shift=chosen.shift)
    try:
        place = parse_place(chosen.to, _now_ms())
    except ValueError as error:
        raise Unclear(f"--to: {error}") from None
    if place.end is not None:
        return To(time_ms=LATEST if place.end == LATEST_WORD else EARLIEST)
    return To(time_ms=place.time_ms, offset=place.offset)


async def _partitions(texts: Iterable[str], client: Client) -> list[TopicPartition]:
    """TOPIC, or TOPIC:0,2. Raises Unclear, ClientError."""
    asked: dict[str, set[int] | None] = {}
    for text in texts:
        topic, colon, indexes = text.partition(":")
        if colon and re.fullmatch("[0-9]{1,9}(,[0-9]{1,9})*", indexes) is None:
            raise Unclear(f"--topic {text}: expected is TOPIC, or TOPIC:0,1,2")
        some = {int(each) for each in indexes.split(",")} if colon else None
        before = asked.get(topic, set())
        asked[topic] = None if some is None or before is None else before | some
    found: list[TopicPartition] = []
    for name, result in (await describe_topics(client, asked)).items():
        view = raise_failed(f"topic {name}", result)
        wanted = asked[name]
        found += [(name, index) for index in (sorted(view.partitions) if wanted is None else sorted(wanted))]
    return found


def _change(plan: Reset) -> str:
    if plan.before is None or not isinstance(plan.after, int):
        return "-"
    return f"{plan.after - plan.before:+,}" if plan.after != plan.before else "0"


def _print_plan(plan: Mapping[TopicPartition, Reset], done: Collection[TopicPartition]) -> None:
    """For machines. done: where it was carried out."""
    print_json(
        [
            {
                "topic": place[0],
                "partition": place[1],
                "committed": each.before,
                "new": each.after if isinstance(each.after, int) else None,
                "done": place in done,
            }
            for place, each in plan.items()
        ]
    )


# -- delete ------------------------------------------------------------------------------------------------------------


async def _delete(chosen: argparse.Namespace, client: Client) -> int:
    gone = await delete_groups(client, chosen.names)
    return report(gone, lambda name, _: f"group {name} was deleted", lambda name: f"group {name} was not deleted")


ACTIONS: Final[dict[str, Command]] = {"list": _list, "describe": _describe, "reset": _reset, "delete": _delete}
