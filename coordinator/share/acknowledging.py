"""What a member says about records that it has acquired: the checks, and which pieces of the window they are about.

All batches for a partition in one request are one unit: the first error refuses them all. Errors:

- INVALID_REQUEST: no batch, as its offsets, their order or its types are wrong; or it reaches behind the window.
- INVALID_RECORD_STATE: an offset is not acquired by this member (any more), was named before, or what was said about it
  earlier is still being stored; or the group may not renew.

What lies below the start of the window is settled, or gone from the log, and ignored. Source: `SharePartition` of
Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from barnabas.coordinator.share.states import AcknowledgeType, RecordState, ShareSettings
from barnabas.coordinator.share.window import Window
from barnabas.kproto import ErrorCode, KafkaError

_TYPES = frozenset(AcknowledgeType)


class Acknowledgement(NamedTuple):
    """As it is in a request: offsets, both included, and one type for all or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Said(NamedTuple):
    """One type about neighbouring offsets, both included."""

    first_offset: int
    last_offset: int
    type: AcknowledgeType


def check_batches(batches: Iterable[Acknowledgement], is_renew: bool) -> None:
    """What can be said without the partition. is_renew: whether the request allows RENEW.

    Raises KafkaError INVALID_REQUEST.
    """
    last_offset = -1
    for batch in batches:
        if batch.first_offset > batch.last_offset or batch.first_offset < last_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Batches must be in the order of their offsets.")
        if not batch.types or len(batch.types) not in (1, batch.last_offset - batch.first_offset + 1):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A batch needs one type, or one for each of its offsets.")
        if not _TYPES.issuperset(batch.types) or (not is_renew and AcknowledgeType.RENEW in batch.types):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A batch has a type that this request cannot have.")
        last_offset = batch.last_offset


def check_state(
    window: Window, member_id: str, batches: Iterable[Acknowledgement], settings: ShareSettings
) -> list[Said]:
    """What the batches say about offsets in the window, in order. Nothing changes.

    Raises KafkaError INVALID_REQUEST and INVALID_RECORD_STATE.
    """
    said: list[Said] = []
    named_to = -1
    for batch in batches:
        if batch.last_offset < window.start_offset:
            continue
        if batch.first_offset <= named_to:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"Offset {batch.first_offset} is named twice.")
        named_to = batch.last_offset
        _check_held(window, member_id, max(batch.first_offset, window.start_offset), batch.last_offset)
        for each in _runs(batch):
            if each.type is AcknowledgeType.RENEW and not settings.may_renew:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Members of this group cannot renew their locks.")
            if each.last_offset >= window.start_offset:
                said.append(each._replace(first_offset=max(each.first_offset, window.start_offset)))
    return said


def _check_held(window: Window, member_id: str, first: int, last: int) -> None:
    index = window.index(first)
    if index == len(window.pieces) or window.pieces[index].first > first:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"Offset {first} is not acquired.")
    if last >= window.end_offset:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Offset {last} was never acquired.")
    offset = first
    while offset <= last:
        piece = window.pieces[index]
        if piece.first > offset or not piece.is_held or piece.member != member_id:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, f"Offset {offset} is not acquired by the member.")
        offset = piece.last + 1
        index += 1


def _runs(batch: Acknowledgement) -> Iterable[Said]:
    if len(batch.types) == 1:
        yield Said(batch.first_offset, batch.last_offset, AcknowledgeType(batch.types[0]))
        return
    first = batch.first_offset
    for number, same in groupby(batch.types):
        after = first + sum(1 for _ in same)
        yield Said(first, after - 1, AcknowledgeType(number))
        first = after


def outcome(said: AcknowledgeType, count: int, limit: int) -> RecordState:
    """What a record becomes after so many deliveries (RENEW aside). limit: of deliveries."""
    if said is AcknowledgeType.ACCEPT:
        return RecordState.ACKNOWLEDGED
    if said is AcknowledgeType.RELEASE:
        return given_back(count, limit)
    return RecordState.ARCHIVED


def given_back(count: int, limit: int) -> RecordState:
    """What a record becomes that a member gives back, or has for too long."""
    return RecordState.AVAILABLE if count < limit else RecordState.ARCHIVED
