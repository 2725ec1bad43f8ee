"""A group's offsets set anew: first a plan, which can be shown, then the commit.

As with `kafka-consumer-groups --reset-offsets`: offsets out of the log are moved to its nearer end, which the plan
says, and a time that no record has reached means the end. The group must have no members; those would commit their own
offsets over it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.committed import commit_offsets, committed_offsets
from barnabas.server.client.groups.newer import alter_share_offsets, share_offsets
from barnabas.server.client.groups.values import CONSUMER, SHARE, Committed
from barnabas.server.client.offsets import EARLIEST, LATEST, Span, list_offsets, spans

EMPTY_STATES: Final = ("Empty", "Dead")


@dataclass(frozen=True, slots=True)
class To:
    """Where to: one of these. `time_ms`: the first record of that time or later, or EARLIEST, or LATEST; `offset`: this
    one; `shift`: so many records on (or back) from what is committed.
    """

    time_ms: int | None = None
    offset: int | None = None
    shift: int | None = None


class Reset(NamedTuple):
    """`before` None: nothing was committed. `after` Failed: it cannot be found out. `log`: the whole of it, if the
    offset that was asked for is not in it, and `after` its nearer end.
    """

    before: int | None
    after: int | Failed
    log: Span | None = None


async def plan_reset(
    client: Client, name: str, partitions: Iterable[TopicPartition] | None, to: To, kind: str = CONSUMER
) -> dict[TopicPartition, Reset] | Failed:
    """What `reset` would commit. partitions None: those of which the group has committed offsets. kind: of the group.
    Raises ClientError.
    """
    committed = (await (share_offsets if kind == SHARE else committed_offsets)(client, [name]))[name]
    if isinstance(committed, Failed):
        return committed
    wanted = sorted(committed if partitions is None else set(partitions))
    there = await spans(client, wanted)
    by_time: Mapping[TopicPartition, object] = {}
    if to.time_ms is not None and to.time_ms >= 0:
        by_time = await list_offsets(client, dict.fromkeys(wanted, to.time_ms))
    plan = {}
    for partition in wanted:
        held = committed.get(partition)
        before = held.offset if isinstance(held, Committed) else None
        span = there[partition]
        found = by_time.get(partition)
        if isinstance(span, Failed):
            plan[partition] = Reset(before, span)
        elif isinstance(found, Failed):
            plan[partition] = Reset(before, found)
        else:
            asked = _asked(to, before, span, getattr(found, "offset", -1))
            after = min(max(asked, span.start), span.end)
            plan[partition] = Reset(before, after, None if after == asked else span)
    return plan


def _asked(to: To, before: int | None, span: Span, found: int) -> int:
    if to.offset is not None:
        return to.offset
    if to.shift is not None:
        return (span.start if before is None else before) + to.shift
    if to.time_ms == EARLIEST:
        return span.start
    if to.time_ms == LATEST or found < 0:
        return span.end
    return min(max(found, span.start), span.end)  # the log may have lost it meanwhile


async def reset(
    client: Client, name: str, plan: Mapping[TopicPartition, Reset], kind: str = CONSUMER
) -> dict[TopicPartition, Failed | None]:
    """Commit what was planned, as far as it could be. kind: of the group. Raises ClientError."""
    offsets = {partition: each.after for partition, each in plan.items() if not isinstance(each.after, Failed)}
    return await set_offsets(client, name, offsets, kind) if offsets else {}


async def set_offsets(
    client: Client, name: str, offsets: Mapping[TopicPartition, int], kind: str
) -> dict[TopicPartition, Failed | None]:
    """Let a group without members go on at these. Raises ClientError."""
    return await (alter_share_offsets if kind == SHARE else commit_offsets)(client, name, offsets)
