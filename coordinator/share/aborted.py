"""Which offsets of a read belong to aborted transactions, for groups that read committed data only (KIP-932:
`share.isolation.level`). Brokers leave such records out of what members acquire; consumers of other groups do the same
at their end. Source: KIP-98, KIP-932.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class ReadBatch(NamedTuple):
    """A batch of the log; both offsets are included. `is_abort`: it is a marker that aborts a transaction."""

    base_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    is_control: bool
    is_abort: bool


def aborted_ranges(batches: Iterable[ReadBatch], aborted: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges, in order and both ends included. batches: in order. aborted: (producer id, first offset) of the
    transactions that were aborted in this part of the log, as in an answer to Fetch.

    Markers are not in them: they are acquired, and acknowledged as gaps.
    """
    begins = sorted(((first_offset, producer_id) for producer_id, first_offset in aborted), reverse=True)
    open_ids: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for batch in batches:
        while begins and begins[-1][0] <= batch.last_offset:
            open_ids.add(begins.pop()[1])
        if batch.is_control:
            if batch.is_abort:
                open_ids.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_ids:
            if ranges and ranges[-1][1] + 1 == batch.base_offset:
                ranges[-1] = (ranges[-1][0], batch.last_offset)
            else:
                ranges.append((batch.base_offset, batch.last_offset))
    return ranges
