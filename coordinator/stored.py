"""Records of `__consumer_offsets` ↔ values.

A key starts with an int16, the type of the record, a value with an int16 version of its layout:

- key 0 or 1, `group, topic, int32 partition` → an offset commit. Written as key 1 with value 3 (`offset, leader
  epoch, metadata, commit time`), or value 1 when the commit brought its own expiry (OffsetCommit v2–4), as Apache
  Kafka does; values 0–4 are read.
- key 2, `group` → the group's metadata: the last generation that was assigned. Written as value 3; values 0–4 are read.
- keys 3 to 8 and 16 are groups of the next generation (`barnabas.coordinator.group.consumer.stored`), 10 to 15 share
  groups, 17 and 19 to 23 streams groups (`stored.py` in their rooms): `parse` returns None.

A null value is a tombstone. Times are milliseconds since the epoch, time-outs milliseconds; -1 where a layout lacks
the field. Source: `OffsetCommitKey/Value.json`, `GroupMetadataKey/Value.json` of Apache Kafka.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from barnabas.coordinator.machine import Record
from barnabas.kproto import DecodeError
from barnabas.kproto.stored import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_versioned,
    encode_versioned,
)

_INT16 = Struct(">h")
_KIND_AND_LENGTH = Struct(">hh")
_PARTITION = Struct(">i")
_VALUE_HEAD = Struct(">hqih")
_PLAIN_VALUE = Struct(">hqihq")
_TIME = Struct(">q")
_LENGTH_MAX = 32767
"""Bytes of a string, in records and in most answers."""
_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2


class CommittedOffset(NamedTuple):
    """What a group committed for one partition. `leader_epoch` -1: not known. `expire_time_ms` -1: the broker's
    retention decides.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_time_ms: int
    expire_time_ms: int = -1


class StoredMember(NamedTuple):
    """A member of a stored generation. `subscription`: its metadata for the protocol that was chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A generation as the log holds it. `protocol` and `leader` are None when it has no members; `state_time_ms` -1:
    unknown.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_time_ms: int
    members: tuple[StoredMember, ...]


class OffsetRecord(NamedTuple):
    """An offset was committed, or (None) removed."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """A generation was assigned or the group became empty, or (None) the group was removed."""

    group_id: str
    stored: StoredGroup | None


class OffsetRecords:
    """Makes the records of commits of one group, which are many: one for every partition of each commit. So what keys
    of one topic begin with is made once, and the layouts of nearly all are made by hand.
    """

    __slots__ = ("_group_id", "_prefix", "_topic")

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._topic: str | None = None
        self._prefix = b""

    def record(self, topic: str, partition: int, committed: CommittedOffset | None) -> Record:
        """The record of a commit; of its removal with None."""
        if topic != self._topic:
            self._topic, self._prefix = topic, key_prefix(self._group_id, topic)
        key = self._prefix + _PARTITION.pack(partition)
        if committed is None:
            return Record(key, None, OffsetRecord(self._group_id, topic, partition, None))
        if committed.expire_time_ms != -1:
            return Record(key, _value_with_expiry(committed))
        return Record(key, _value(committed), OffsetRecord(self._group_id, topic, partition, committed))


def fits(*texts: str | None) -> bool:
    """Whether each of these can stand in a record, and in an answer: in 32,767 bytes of UTF-8."""
    try:
        return all(text is None or len(text.encode()) <= _LENGTH_MAX for text in texts)
    except UnicodeEncodeError:
        return False


def made_id(name: str, unique: str) -> str:
    """An id for something that has a name, as Apache Kafka makes it: name, "-", `unique`. Of a name with which that
    would not fit (there the answer then cannot be sent), only the beginning is taken.
    """
    if fits(made := f"{name}-{unique}"):
        return made
    room = _LENGTH_MAX - len(f"-{unique}".encode())
    return f"{name.encode(errors='replace')[:room].decode(errors='ignore')}-{unique}"


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> Record:
    """A single one of `OffsetRecords`."""
    return OffsetRecords(group_id).record(topic, partition, committed)


def key_prefix(group_id: str, topic: str) -> bytes:
    """What is in front of the partition, in the key of a commit's record. Raises `barnabas.kproto.EncodeError` for
    names that are too long.
    """
    group, name = group_id.encode(), topic.encode()
    if len(group) > _LENGTH_MAX or len(name) > _LENGTH_MAX:
        return encode_versioned(OffsetCommitKey(group=group_id, topic=topic), 1)[: -_PARTITION.size]
    return b"".join((_KIND_AND_LENGTH.pack(1, len(group)), group, _INT16.pack(len(name)), name))


def _value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, text, commit_time_ms, _ = committed
    if not text:
        return _PLAIN_VALUE.pack(3, offset, leader_epoch, 0, commit_time_ms)
    metadata = text.encode()
    if len(metadata) <= _LENGTH_MAX:
        head = _VALUE_HEAD.pack(3, offset, leader_epoch, len(metadata))
        return b"".join((head, metadata, _TIME.pack(commit_time_ms)))
    value = OffsetCommitValue(offset=offset, leader_epoch=leader_epoch, metadata=text, commit_timestamp=commit_time_ms)
    return encode_versioned(value, 3)


def _value_with_expiry(committed: CommittedOffset) -> bytes:
    """The layout that has a place for it has none for the leader epoch."""
    value = OffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_time_ms,
        expire_timestamp=committed.expire_time_ms,
    )
    return encode_versioned(value, 1)


def group_record(group_id: str, stored: StoredGroup | None) -> Record:
    """The record of a group's generation; of the group's removal with None."""
    key = encode_versioned(GroupMetadataKey(group=group_id), _GROUP_KEY)
    if stored is None:
        return Record(key, None)
    value = GroupMetadataValue(
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol,
        leader=stored.leader,
        current_state_timestamp=stored.state_time_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in stored.members
        ],
    )
    return Record(key, encode_versioned(value, 3))


def parse(key: bytes | memoryview, value: bytes | memoryview | None) -> OffsetRecord | GroupRecord | None:
    """The meaning of one record, None when it belongs to another kind of group. Raises `barnabas.kproto.DecodeError` on
    what cannot be read.
    """
    if len(key) < 2:
        raise DecodeError("the key of a record in __consumer_offsets is shorter than its version")
    kind = _INT16.unpack_from(key)[0]
    if kind in _OFFSET_KEYS:
        found = _plain_offset(key, value)
        if found is not None:
            return found
        of = decode_versioned(OffsetCommitKey, key)[1]
        return OffsetRecord(of.group, of.topic, of.partition, None if value is None else _committed(value))
    if kind == _GROUP_KEY:
        group_id = decode_versioned(GroupMetadataKey, key)[1].group
        return GroupRecord(group_id, None if value is None else _stored_group(value))
    return None


def _plain_offset(key: bytes | memoryview, value: bytes | memoryview | None) -> OffsetRecord | None:
    """A record as `offset_record` writes nearly all: read by hand. None if it is another, or damaged."""
    try:
        group_end = 4 + _INT16.unpack_from(key, 2)[0]
        topic_end = group_end + 2 + _INT16.unpack_from(key, group_end)[0]
        (partition,) = _PARTITION.unpack_from(key, topic_end)
        if not 4 <= group_end <= topic_end - 2:
            return None
        group_id, topic = str(key[4:group_end], "utf-8"), str(key[group_end + 2 : topic_end], "utf-8")
        if value is None:
            return OffsetRecord(group_id, topic, partition, None)
        version, offset, leader_epoch, length = _VALUE_HEAD.unpack_from(value)
        if version != 3 or length < 0:
            return None
        end = _VALUE_HEAD.size + length
        (commit_time_ms,) = _TIME.unpack_from(value, end)
        metadata = str(value[_VALUE_HEAD.size : end], "utf-8") if length else ""
    except (StructError, UnicodeDecodeError):
        return None
    return OffsetRecord(group_id, topic, partition, CommittedOffset(offset, leader_epoch, metadata, commit_time_ms))


def _committed(value: bytes | memoryview) -> CommittedOffset:
    version, decoded = decode_versioned(OffsetCommitValue, value)
    return CommittedOffset(
        decoded.offset,
        decoded.leader_epoch if version >= 3 else -1,
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp if version == 1 else -1,
    )


def _stored_group(value: bytes | memoryview) -> StoredGroup:
    version, decoded = decode_versioned(GroupMetadataValue, value)
    return StoredGroup(
        decoded.protocol_type,
        decoded.generation,
        decoded.protocol,
        decoded.leader,
        decoded.current_state_timestamp if version >= 2 else -1,
        tuple(
            StoredMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout if version >= 1 else member.session_timeout,
                member.session_timeout,
                bytes(member.subscription),
                bytes(member.assignment),
            )
            for member in decoded.members
        ),
    )
