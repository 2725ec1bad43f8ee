"""What the records of groups with epochs say, whatever kind a group is of, and the frame of these records.

A key starts with an int16, the type of the record; all values are of version 0. A null value is a tombstone. Source:
`…Key/Value.json` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar

from barnabas.coordinator.machine import Record
from barnabas.kproto import DecodeError, Message
from barnabas.kproto.stored import decode_versioned, encode_versioned

_INT16 = Struct(">h")

FIRST_EPOCH: Final = 1
"""The epoch of a group, and of its target, before they are written: no member has anything."""
LAST_EPOCH: Final = 2**31 - 1
"""No group lives to see it, but a log may say so."""
LEFT: Final = -1
"""Epoch of a member that is gone."""
AWAY: Final = -2
"""Epoch of a static member that left and means to come back."""

Bytes = bytes | memoryview
MetadataT = TypeVar("MetadataT")
StandingT = TypeVar("StandingT")
TargetT = TypeVar("TargetT")
MeaningT = TypeVar("MeaningT")


class GroupEpoch(NamedTuple):
    """`epoch` None: the group was removed."""

    group_id: str
    epoch: int | None
    metadata_hash: int = 0


class Member(NamedTuple, Generic[MetadataT]):
    """What a member said of itself. `metadata` None: the member is gone."""

    group_id: str
    member_id: str
    metadata: MetadataT | None


class TargetEpoch(NamedTuple):
    """`epoch` None: the group was removed. `assigned_at_ms` 0: a release before 4.3 wrote it."""

    group_id: str
    epoch: int | None
    assigned_at_ms: int = 0


class TargetMember(NamedTuple, Generic[TargetT]):
    """A member's part of the target. `part` None: the member is gone."""

    group_id: str
    member_id: str
    part: TargetT | None


class MemberStanding(NamedTuple, Generic[StandingT]):
    """Where a member stands. `standing` None: the member is gone."""

    group_id: str
    member_id: str
    standing: StandingT | None


def is_tombstone(record: tuple[Any, ...]) -> bool:
    """Whether a record, of these or of a kind's own with its value last, takes something away."""
    if isinstance(record, GroupEpoch | TargetEpoch):
        return record.epoch is None
    return record[-1] is None or record[-1] is False


def framed(key: Message, value: Message | None) -> Record:
    """The record with this key and value."""
    return Record(
        encode_versioned(key, key.__description__.versions[0]), None if value is None else encode_versioned(value, 0)
    )


Messages = tuple[Message, Message | None]
"""Key and value of a record; without a value it is a tombstone."""


def group_epoch_messages(what: GroupEpoch, key: Callable[..., Message], value: Callable[..., Message]) -> Messages:
    """As messages of these classes, which each kind of group has of its own, all alike."""
    made = None if what.epoch is None else value(epoch=what.epoch, metadata_hash=what.metadata_hash)
    return key(group_id=what.group_id), made


def target_epoch_messages(what: TargetEpoch, key: Callable[..., Message], value: Callable[..., Message]) -> Messages:
    """As messages of these classes."""
    made = None
    if what.epoch is not None:
        made = value(assignment_epoch=what.epoch, assignment_timestamp=what.assigned_at_ms)
    return key(group_id=what.group_id), made


def group_epoch_reader(key_class: type[Any], value_class: type[Any]) -> Callable[[Bytes, Bytes | None], GroupEpoch]:
    """Reads what `group_epoch_messages` makes."""

    def read_one(key: Bytes, value: Bytes | None) -> GroupEpoch:
        group_id = decode_versioned(key_class, key)[1].group_id
        if value is None:
            return GroupEpoch(group_id, None)
        decoded = decode_versioned(value_class, value)[1]
        return GroupEpoch(group_id, decoded.epoch, decoded.metadata_hash)

    return read_one


def target_epoch_reader(key_class: type[Any], value_class: type[Any]) -> Callable[[Bytes, Bytes | None], TargetEpoch]:
    """Reads what `target_epoch_messages` makes."""

    def read_one(key: Bytes, value: Bytes | None) -> TargetEpoch:
        group_id = decode_versioned(key_class, key)[1].group_id
        if value is None:
            return TargetEpoch(group_id, None)
        decoded = decode_versioned(value_class, value)[1]
        return TargetEpoch(group_id, decoded.assignment_epoch, decoded.assignment_timestamp)

    return read_one


def read(
    readers: Mapping[int, Callable[[Bytes, Bytes | None], MeaningT]], key: Bytes, value: Bytes | None
) -> MeaningT | None:
    """What a record means by the reader of its type; None if there is none. Raises `barnabas.kproto.DecodeError` on
    what cannot be read.
    """
    if len(key) < 2:
        raise DecodeError("the key of a record in __consumer_offsets is shorter than its version")
    reader = readers.get(_INT16.unpack_from(key)[0])
    return None if reader is None else reader(key, value)
