"""Ranges of offsets with what a group has made of them, as they are stored and sent: `StateBatch`, and how two lists of
them become one.

The rule of merging: for each offset the larger (delivery count, state) wins, what lies below the start is dropped, and
neighbours that are equal become one. So merging is commutative and idempotent, and it does not matter which of two
writes comes first. Source: `PersisterStateBatchCombiner` of Apache Kafka 4.3, which leaves a few neighbours apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

from barnabas.coordinator.share.states import SETTLED


class StateBatch(NamedTuple):
    """Offsets `first_offset` to `last_offset`, both included. `state`: a number of `RecordState`; what a log holds may
    be another.
    """

    first_offset: int
    last_offset: int
    state: int
    deliveries: int

    @property
    def size(self) -> int:
        return self.last_offset - self.first_offset + 1


MadeT = TypeVar("MadeT")


def listed_batches(make: Callable[..., MadeT], batches: Iterable[StateBatch]) -> list[MadeT]:
    """The batches for a request, an answer or a record, each of which has a class of its own for them."""
    return [
        make(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def read_batches(stored: Iterable[Any]) -> tuple[StateBatch, ...]:
    """The batches of one of these."""
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in stored
    )


def merge(start_offset: int, batches: Iterable[StateBatch]) -> tuple[StateBatch, ...]:
    """All of `batches`, which may overlap and come in any order, as sorted, disjoint ones from `start_offset` on."""
    pending = sorted(
        (max(batch.first_offset, start_offset), batch.last_offset, batch.state, batch.deliveries)
        for batch in batches
        if batch.last_offset >= start_offset and batch.last_offset >= batch.first_offset
    )
    edges = sorted({edge for first, last, _, _ in pending for edge in (first, last + 1)})
    merged: list[StateBatch] = []
    best: list[tuple[int, int, int]] = []
    taken = 0
    for first, after in pairwise(edges):
        while taken < len(pending) and pending[taken][0] == first:
            _, last, state, count = pending[taken]
            heappush(best, (-count, -state, last))
            taken += 1
        while best and best[0][2] < first:
            heappop(best)
        if best:
            add(merged, StateBatch(first, after - 1, -best[0][1], -best[0][0]))
    return tuple(merged)


def add(batches: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch that lies behind the last one, or lengthen that one."""
    if batches:
        before = batches[-1]
        if before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
            batches[-1] = before._replace(last_offset=batch.last_offset)
            return
    batches.append(batch)


def settled_count(batches: Iterable[StateBatch]) -> int:
    """How many offsets nobody will get any more."""
    return sum(batch.size for batch in batches if batch.state in SETTLED)


def are_in_order(batches: Iterable[StateBatch], start_offset: int) -> bool:
    """Whether they are sorted and disjoint, and none lies below `start_offset`."""
    next_offset = start_offset
    for batch in batches:
        if batch.first_offset < next_offset or batch.last_offset < batch.first_offset:
            return False
        next_offset = batch.last_offset + 1
    return True
