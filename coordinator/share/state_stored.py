"""Records of `__share_group_state` ↔ values.

A key starts with an int16, the type of the record; then come group id, topic id (16 bytes) and partition. Values are of
version 0.

- 0, ShareSnapshot → all that is known of the partition. A null value is a tombstone.
- 1, ShareUpdate → what changed since the snapshot of that epoch. Start offset −1: as before.

Times are milliseconds since the epoch. Source: `ShareSnapshotKey/Value.json`, `ShareUpdateKey/Value.json` of Apache
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from barnabas.coordinator.machine import Record
from barnabas.coordinator.share.batches import StateBatch, listed_batches, read_batches
from barnabas.kproto import DecodeError
from barnabas.kproto.stored import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_versioned,
    encode_versioned,
)

_INT16 = Struct(">h")
_SNAPSHOT: Final = 0
_UPDATE: Final = 1
NOT_KNOWN: Final = -1
"""A start offset that no member has settled yet, or a count that the writer did not know."""


class ShareKey(NamedTuple):
    """A partition of a topic, as one share group has it. `topic_id`: 16 bytes."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareState(NamedTuple):
    """What is stored of a share partition. `snapshot_epoch`: rises with each snapshot. `state_epoch`: of the group when
    it last began anew, to fence what comes from before. `leader_epoch`: the highest of a leader that has asked.
    `create_ms`, `write_ms`: when the last snapshot was written that a change led to; when it was last written again.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    write_ms: int
    batches: tuple[StateBatch, ...] = ()


class ShareChange(NamedTuple):
    """What one write changes. `start_offset` −1: nothing of the start."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: Sequence[StateBatch] = ()


class Snapshot(NamedTuple):
    """`state` None: the partition was removed."""

    key: ShareKey
    state: ShareState | None


class Update(NamedTuple):
    key: ShareKey
    change: ShareChange


def snapshot_record(key: ShareKey, state: ShareState | None) -> Record:
    """The record of all that is known of a partition; of its removal with None."""
    stored = encode_versioned(
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), _SNAPSHOT
    )
    if state is None:
        return Record(stored, None)
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=listed_batches(ShareSnapshotValue.StateBatch, state.batches),
    )
    return Record(stored, encode_versioned(value, 0))


def update_record(key: ShareKey, change: ShareChange) -> Record:
    """The record of what one write changes."""
    stored = encode_versioned(
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), _UPDATE
    )
    value = ShareUpdateValue(
        snapshot_epoch=change.snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=listed_batches(ShareUpdateValue.StateBatch, change.batches),
    )
    return Record(stored, encode_versioned(value, 0))


def parse_share(key: bytes | memoryview, value: bytes | memoryview | None) -> Snapshot | Update | None:
    """The meaning of one record; None for a kind that is unknown here, or a tombstone of an update, which nobody
    writes. Raises `barnabas.kproto.DecodeError` on what cannot be read.
    """
    if len(key) < 2:
        raise DecodeError("the key of a record in __share_group_state is shorter than its version")
    kind = _INT16.unpack_from(key)[0]
    if kind == _SNAPSHOT:
        of = decode_versioned(ShareSnapshotKey, key)[1]
        return Snapshot(ShareKey(of.group_id, of.topic_id, of.partition), None if value is None else _state(value))
    if kind == _UPDATE and value is not None:
        changed = decode_versioned(ShareUpdateKey, key)[1]
        return Update(ShareKey(changed.group_id, changed.topic_id, changed.partition), _change(value))
    return None


def _state(value: bytes | memoryview) -> ShareState:
    decoded = decode_versioned(ShareSnapshotValue, value)[1]
    return ShareState(
        decoded.snapshot_epoch,
        decoded.state_epoch,
        decoded.leader_epoch,
        decoded.start_offset,
        decoded.delivery_complete_count,
        decoded.create_timestamp,
        decoded.write_timestamp,
        read_batches(decoded.state_batches),
    )


def _change(value: bytes | memoryview) -> ShareChange:
    decoded = decode_versioned(ShareUpdateValue, value)[1]
    return ShareChange(
        decoded.snapshot_epoch,
        decoded.leader_epoch,
        decoded.start_offset,
        decoded.delivery_complete_count,
        read_batches(decoded.state_batches),
    )
