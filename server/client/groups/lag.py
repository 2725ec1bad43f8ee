"""How far groups are behind: in records, and in seconds by the timestamp of the first record that is not read.

The log's end is that of `kafka-consumer-groups`: the high watermark, whatever transactions are open. Records that were
compacted away or aborted count as its difference of offsets does. A share group counts its records itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.groups.committed import committed_offsets
from barnabas.server.client.groups.groups import describe_groups
from barnabas.server.client.groups.newer import share_offsets
from barnabas.server.client.groups.values import SHARE, Committed, Group, Member
from barnabas.server.client.offsets import Span, spans
from barnabas.server.client.reader import first_of_each
from barnabas.server.client.reading import Read


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group. `committed` None: nothing. `span`: of the log. `unread_ms`: the time of the first
    record that is not read, ms; None: all are read, or it has no time, or was not asked for. `member`: one of the
    `readers`, so many.
    """

    topic: str
    partition: int
    committed: Committed | Failed | None
    span: Span | Failed
    unread_ms: int | None = None
    member: Member | None = None
    readers: int = 0

    @property
    def lag(self) -> int | None:
        """Records; None: not known. A group that is not behind although its offset is behind the log's end has 0."""
        if not isinstance(self.committed, Committed) or isinstance(self.span, Failed):
            return None
        if self.committed.lag is not None:
            return self.committed.lag
        return max(0, self.span.end - self.committed.offset)

    def lag_s(self, now_ms: int) -> float | None:
        """Seconds: how long the first unread record has been waiting; None: not known."""
        if self.lag == 0:
            return 0.0
        return None if self.unread_ms is None else max(0, now_ms - self.unread_ms) / 1000

    @property
    def lost(self) -> int:
        """Records that were deleted before the group has read them."""
        if not isinstance(self.committed, Committed) or isinstance(self.span, Failed):
            return 0
        return max(0, self.span.start - self.committed.offset)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """`partitions`: what it has committed offsets of, or is assigned; by topic and number."""

    group: Group
    partitions: tuple[PartitionLag, ...]

    @property
    def lag(self) -> int:
        """Records, of all partitions of which it is known."""
        return sum(each.lag or 0 for each in self.partitions)

    def lag_s(self, now_ms: int) -> float | None:
        """Seconds: the longest of its partitions."""
        known = [each.lag_s(now_ms) for each in self.partitions]
        return max((each for each in known if each is not None), default=None)


async def lags(client: Client, names: Iterable[str], *, times: bool = True) -> dict[str, GroupLag | Failed]:
    """How far each group is behind. times: find out since when, which reads a record of each partition. Raises
    ClientError.
    """
    described = await describe_groups(client, names)
    there = {name: group for name, group in described.items() if not isinstance(group, Failed)}
    shares = [name for name, group in there.items() if group.kind == SHARE]
    others = [name for name in there if name not in shares]
    committed = {
        **(await committed_offsets(client, others) if others else {}),
        **(await share_offsets(client, shares) if shares else {}),
    }
    wanted: set[TopicPartition] = set()
    for name, group in there.items():
        offsets = committed[name]
        wanted.update(group.holders, () if isinstance(offsets, Failed) else offsets)
    ends = await spans(client, sorted(wanted)) if wanted else {}
    found: dict[str, GroupLag | Failed] = {}
    for name, result in described.items():
        if isinstance(result, Failed):
            found[name] = result
            continue
        offsets = committed[name]
        found[name] = offsets if isinstance(offsets, Failed) else _of_group(result, offsets, ends)
    return with_times(found, await times_of(client, unread(found))) if times else found


def _of_group(
    group: Group, offsets: Mapping[TopicPartition, Committed | Failed], ends: Mapping[TopicPartition, Span | Failed]
) -> GroupLag:
    holders = group.holders
    readers = Counter(place for member in group.members for place in member.partitions)
    partitions = sorted({*offsets, *holders})
    return GroupLag(
        group,
        tuple(
            PartitionLag(*each, offsets.get(each), ends[each], None, holders.get(each), readers[each])
            for each in partitions
        ),
    )


Unread = tuple[TopicPartition, int]
"""A partition, and the offset of the first record there that a group has not read."""


def unread(found: Mapping[str, GroupLag | Failed]) -> dict[Unread, int]:
    """Where groups that are behind go on, and where the log ends there."""
    behind: dict[Unread, int] = {}
    for each in found.values():
        for row in () if isinstance(each, Failed) else each.partitions:
            if row.lag and isinstance(row.committed, Committed) and isinstance(row.span, Span):
                place = (row.topic, row.partition), max(row.committed.offset, row.span.start)
                behind[place] = row.span.end
    return behind


async def times_of(client: Client, behind: Mapping[Unread, int]) -> dict[Unread, int]:
    """The time of each of these records, ms; what has none is left out. Groups share reads only where they stand at the
    same offset; where not, each has its own. Raises ClientError.
    """
    left = dict(behind)
    times: dict[Unread, int] = {}
    while left:
        start: dict[TopicPartition, int] = {}
        stop: dict[TopicPartition, int] = {}
        for (partition, offset), end in list(left.items()):
            if partition not in start:
                start[partition], stop[partition] = offset, end
                del left[partition, offset]
        for partition, record in (await first_of_each(client, start, stop)).items():
            if isinstance(record, Read) and record.timestamp >= 0:
                times[partition, start[partition]] = record.timestamp
    return times


def with_times(found: Mapping[str, GroupLag | Failed], times: Mapping[Unread, int]) -> dict[str, GroupLag | Failed]:
    return {
        name: each if isinstance(each, Failed) else replace(each, partitions=tuple(_timed(each.partitions, times)))
        for name, each in found.items()
    }


def _timed(rows: Iterable[PartitionLag], times: Mapping[Unread, int]) -> Iterable[PartitionLag]:
    for row in rows:
        if isinstance(row.committed, Committed) and isinstance(row.span, Span):
            place = (row.topic, row.partition), max(row.committed.offset, row.span.start)
            yield replace(row, unread_ms=times.get(place)) if row.lag else row
        else:
            yield row
