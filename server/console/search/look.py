"""One step of a search: at most so many records, at most so many bytes looked at, and where it ended.

Nothing ends in silence. A step that ends before the log does says how far it came, partition by partition, and the next
one goes on there: `Found.next`. Records are in order of their times; those of a partition stay in the order of their
offsets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from barnabas.server.client.client import Client, TopicPartition
from barnabas.server.client.failures import Failed
from barnabas.server.client.offsets import Span
from barnabas.server.client.reader import PARTITION_BYTES_MAX, SEARCH_BYTES_MAX, Reader, newest
from barnabas.server.client.reading import Read, in_time

FEW_BYTES: Final = 128 * 1024
"""Asked of a partition at a time where every record is wanted."""
EMPTY_ROUNDS_MAX: Final = 20
"""How often nothing may come although there are offsets left: aborted transactions, brokers in trouble."""


@dataclass(slots=True)
class Found:
    """`next`: where to go on, by partition; of those that are not through. `looked_bytes`: of keys, values and headers.
    `skipped`: offsets that were asked for and are no longer in the log. `is_short`: it ended because enough was looked
    at, not because enough was found.
    """

    records: list[Read] = field(default_factory=list)
    next: dict[TopicPartition, int] = field(default_factory=dict)
    failed: dict[TopicPartition, Failed] = field(default_factory=dict)
    skipped: dict[TopicPartition, Span] = field(default_factory=dict)
    looked_records: int = 0
    looked_bytes: int = 0
    is_short: bool = False


async def backward(
    client: Client,
    spans: Mapping[TopicPartition, Span],
    count: int,
    *,
    wanted: Callable[[Read], bool] | None,
    committed: bool,
    lane: str,
    prepare: Callable[[Sequence[Read]], Awaitable[None]] | None = None,
    bytes_max: int = SEARCH_BYTES_MAX,
) -> Found:
    """The newest `count` records before the spans' ends that are wanted, newest first. prepare(records): called
    with what was read before `wanted` is. Raises ClientError.
    """
    found = Found()

    open_ = {each: span for each, span in spans.items() if span.end > span.start}
    search, found.failed = await newest(
        client, open_, count, wanted=wanted, committed=committed, bytes_max=bytes_max, lane=lane, prepare=prepare
    )
    found.records = search.result()[::-1]
    found.looked_records, found.looked_bytes = search.looked_records, search.looked_bytes
    older = search.older()
    found.next = {
        each: offset for each, offset in older.items() if offset > open_[each].start and each not in found.failed
    }
    found.is_short = len(found.records) < count and bool(found.next)
    return found


async def forward(
    client: Client,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    count: int,
    *,
    wanted: Callable[[Read], bool] | None,
    committed: bool,
    lane: str,
    prepare: Callable[[Sequence[Read]], Awaitable[None]] | None = None,
    bytes_max: int = SEARCH_BYTES_MAX,
) -> Found:
    """The first `count` records from the starts on and below the ends that are wanted, oldest first.
    prepare(records): called with what was read before `wanted` is. Raises ClientError.
    """
    found = Found()
    there = {each: start for each, start in starts.items() if start < ends[each]}
    stops = {each: ends[each] for each in there}
    size = FEW_BYTES if wanted is None else PARTITION_BYTES_MAX
    reader = Reader(client, there, stops, committed=committed, partition_bytes_max=size, max_wait_ms=100, lane=lane)
    positions = dict(there)
    empty = 0
    while not reader.is_done:
        records = await reader.read()
        if prepare is not None:
            await prepare(records)
        by_partition: dict[TopicPartition, list[Read]] = {}
        for record in records:
            by_partition.setdefault((record.topic, record.partition), []).append(record)
        positions |= reader.positions
        for number, record in enumerate(merged := in_time(by_partition.values())):
            if len(found.records) >= count or found.looked_bytes >= bytes_max:
                for rest in reversed(merged[number:]):
                    positions[rest.topic, rest.partition] = rest.offset
                break
            found.looked_records += 1
            found.looked_bytes += record.size
            if wanted is None or wanted(record):
                found.records.append(record)
            if number % 1000 == 999:
                await trio.lowlevel.checkpoint()
        empty = 0 if records else empty + 1
        if len(found.records) >= count or found.looked_bytes >= bytes_max or empty >= EMPTY_ROUNDS_MAX:
            break
    found.failed = reader.failed
    found.skipped = reader.skipped
    found.next = {
        each: offset for each, offset in positions.items() if offset < stops[each] and each not in found.failed
    }
    found.is_short = len(found.records) < count and bool(found.next)
    return found
