"""`/groups/G/lag`: who reads what, and how far each partition is behind, in records and in seconds.

Seconds are the age of the first record that is not read, by its timestamp: a partition with old records and a group
that stands still show how long it has stood.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.lag import GroupLag, PartitionLag, lags
from barnabas.server.client.groups.values import STREAMS, Committed, Member
from barnabas.server.client.offsets import Span
from barnabas.server.client.texts.amounts import counted
from barnabas.server.client.texts.when import time_utc
from barnabas.server.console.history import trend
from barnabas.server.console.pages.common import PARTITIONS, cut
from barnabas.server.console.web.view import View, refused
from barnabas.server.console.web.visit import Visit

MOSTLY: Final = 0.8
"""The part of the lag from which on it is said to be in one partition."""
SORTS: Final = ("lag", "topic", "member")


async def show(visit: Visit) -> View:
    name = visit.names["group"]
    found = (await lags(visit.client, [name]))[name]
    if isinstance(found, Failed):
        raise refused(f"group {name}", found)
    group = found.group
    samples = visit.history.of(name)
    sort = visit.query.choice("sort", SORTS)
    rows = [_row(each, visit.now_ms) for each in found.partitions]
    if sort == "lag":
        rows.sort(key=lambda row: -(row["lag"] or 0))
    elif sort == "member":
        rows.sort(key=lambda row: row["member_id"] or "")
    shown, pages = cut(rows, visit.query, PARTITIONS)
    by_member: dict[str, int] = {}
    for each in found.partitions:
        if each.member is not None:
            by_member[each.member.member_id] = by_member.get(each.member.member_id, 0) + (each.lag or 0)
    data = {
        "group": name,
        "kind": group.kind,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "epoch": group.epoch if group.epoch >= 0 else None,
        "coordinator": group.coordinator if group.coordinator >= 0 else None,
        "lag": found.lag,
        "lag_seconds": found.lag_s(visit.now_ms),
        "sort": sort,
        "members": [_member(each, by_member.get(each.member_id, 0)) for each in group.members],
        "partitions": shown,
        "unassigned": sum(each.member is None for each in found.partitions) if group.members else 0,
        "findings": list(findings(found, trend(samples))),
        "history": [
            {"time": time_utc(each.time_ms), "time_ms": each.time_ms, "lag": each.lag, "lag_seconds": each.lag_s}
            for each in samples
        ],
        "trend": trend(samples),
        "lost": sum(each.lost for each in found.partitions),
        **pages,
    }
    return View("group", name, data)


def findings(found: GroupLag, growth: float | None) -> Iterator[str]:
    """Why it is behind, as far as it shows. growth: records a minute."""
    if not found.lag:
        return
    group = found.group
    if not group.members:
        yield "Nobody reads: the group has no members."
    elif group.state not in ("Stable", "Empty"):
        yield f"The group is in the state {group.state}: its members do not read while partitions are assigned anew."
    behind = [each for each in found.partitions if each.lag]
    most = max(behind, key=lambda each: each.lag or 0)
    if len(found.partitions) > 1 and (most.lag or 0) >= MOSTLY * found.lag:
        whose = f", which {most.member.client_id} at {most.member.host} reads" if most.member is not None else ""
        share = "All" if len(behind) == 1 else f"{(most.lag or 0) / found.lag:.0%}"
        yield f"{share} of the lag is in {most.topic}, partition {most.partition}{whose}."
    idle = sum(not member.partitions for member in group.members)
    if idle and group.kind != STREAMS:  # a member may have standby tasks, or wait for some
        many = counted(len(group.members), "member")
        yield f"{idle} of {many} have no partition: more members than partitions are no use."
    if growth is not None and growth > 0 and group.members and group.state == "Stable":
        yield "More is written than its members read."


def _row(each: PartitionLag, now_ms: int) -> dict[str, Any]:
    held = each.committed if isinstance(each.committed, Committed) else None
    span = each.span if isinstance(each.span, Span) else None
    troubles = [str(what) for what in (each.committed, each.span) if isinstance(what, Failed)]
    return {
        "topic": each.topic,
        "partition": each.partition,
        "committed": None if held is None else held.offset,
        "metadata": None if held is None else held.metadata or None,
        "start": None if span is None else span.start,
        "end": None if span is None else span.end,
        "lag": each.lag,
        "lag_seconds": each.lag_s(now_ms),
        "first_unread_ms": each.unread_ms,
        "lost": each.lost,
        "member_id": None if each.member is None else each.member.member_id,
        "client_id": None if each.member is None else each.member.client_id,
        "host": None if each.member is None else each.member.host,
        "readers": each.readers,
        "trouble": "; ".join(troubles) or None,
    }


def _member(member: Member, lag: int) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "subscribed": list(member.topics),
        "partitions": len(member.partitions),
        "lag": lag,
    }
