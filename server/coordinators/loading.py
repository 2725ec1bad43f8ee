"""Reads a slice of a coordinator's log into its machine: batches of format 2 and message sets of formats 0 and 1.

Transactional batches wait in the machine until their control batch. What cannot be read, because its checksum or its
layout is wrong, is reported with its offset and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from typing import Protocol

from barnabas.kproto import DecodeError, KafkaError
from barnabas.kproto.records import (
    ABORT,
    BATCH_OVERHEAD,
    COMMIT,
    BatchHeader,
    Record,
    check_batch,
    iter_records,
    magic_of,
    parse_control_record,
    read_header,
)
from barnabas.kproto.records_legacy import iter_legacy
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.coordinators")

_SIZE = Struct(">i")
_LENGTH_AT, _OVERHEAD = 8, 12


class Replayed(Protocol):
    """What takes the records of a log. Both may raise `barnabas.kproto.DecodeError`; nothing changed then."""

    def replay(
        self,
        key: bytes | memoryview,
        value: bytes | memoryview | None,
        record_offset: int,
        committed_to: int,
        producer_id: int,
    ) -> None:
        """`committed_to`: the high watermark. `producer_id`: of a transactional batch, else -1."""

    def replay_end_of_transaction(
        self, producer_id: int, committed: bool, marker_offset: int, committed_to: int
    ) -> None: ...


class WithoutTransactions:
    """`Replayed` of a topic that no transaction writes to, so it has no control batches. replay(key, value, offset)."""

    __slots__ = ("_replay",)

    def __init__(self, replay: Callable[[bytes | memoryview, bytes | memoryview | None, int], None]) -> None:
        self._replay = replay

    def replay(
        self,
        key: bytes | memoryview,
        value: bytes | memoryview | None,
        record_offset: int,
        committed_to: int,
        producer_id: int,
    ) -> None:
        """Part of `Replayed`."""
        self._replay(key, value, record_offset)

    def replay_end_of_transaction(
        self, producer_id: int, committed: bool, marker_offset: int, committed_to: int
    ) -> None:
        """Part of `Replayed`."""


def replay_slice(shard: Replayed, data: bytes, offset: int, end_offset: int, committed_to: int, topic: str) -> int:
    """Replay the whole batches in `data`, which was read from `offset` on. Returns the offset to continue at.

    `committed_to`: the high watermark. `topic`: for messages. A batch that is incomplete at the end is left for the
    next slice; records from `end_offset` on are not read.
    """
    view = memoryview(data)
    position = 0
    while position + 17 <= len(view):
        size = _OVERHEAD + _SIZE.unpack_from(view, position + _LENGTH_AT)[0]
        if size <= _OVERHEAD or position + size > len(view):
            break
        batch = view[position : position + size]
        try:
            offset = max(offset, _replay_batch(shard, batch, end_offset, committed_to, topic))
        except (KafkaError, DecodeError) as error:
            log.error("a batch of %s near offset %d cannot be read and is skipped: %s", topic, offset, error)
            offset = _behind(batch, offset, end_offset)
        position += size
    return offset


def _behind(batch: memoryview, offset: int, end_offset: int) -> int:
    """Where to continue after an unreadable batch: behind it, if its end is credible."""
    if magic_of(batch) == 2 and len(batch) >= BATCH_OVERHEAD:
        next_offset = read_header(batch).next_offset
        if offset < next_offset <= end_offset:
            return next_offset
    return offset + 1


def _replay_batch(shard: Replayed, batch: memoryview, end_offset: int, committed_to: int, topic: str) -> int:
    """Returns the offset behind the batch."""
    if magic_of(batch) != 2:
        next_offset = 0
        for record in iter_legacy(batch):
            _replay_record(shard, record, committed_to, -1, topic)
            next_offset = record.offset + 1
        return next_offset
    header = check_batch(batch)
    if header.base_offset >= end_offset:
        return header.base_offset
    if header.is_control:
        _replay_control(shard, batch, header, committed_to)
    else:
        producer_id = header.producer_id if header.is_transactional else -1
        for record in iter_records(batch):
            _replay_record(shard, record, committed_to, producer_id, topic)
    return header.next_offset


def _replay_control(shard: Replayed, batch: memoryview, header: BatchHeader, committed_to: int) -> None:
    for record in iter_records(batch):
        kind, _ = parse_control_record(record)
        if kind in (ABORT, COMMIT):
            shard.replay_end_of_transaction(header.producer_id, kind == COMMIT, record.offset, committed_to)


def _replay_record(shard: Replayed, record: Record, committed_to: int, producer_id: int, topic: str) -> None:
    if record.key is None:
        log.error("record %d of %s has no key and is skipped", record.offset, topic)
        return
    try:
        shard.replay(record.key, record.value, record.offset, committed_to, producer_id)
    except DecodeError as error:
        log.error("record %d of %s cannot be read and is skipped: %s", record.offset, topic, error)
    except Exception as error:  # one group's record must not keep the others' from being served
        contain(log, f"replaying record {record.offset} of {topic}, which is skipped,", error)
