"""Records of `__transaction_state` ↔ values.

Key: int16 0, then the transactional id. Value: int16 version, then the fields of `TransactionLogValue`; version 0 until
transaction.version 1 is finalised, then version 1, whose tagged fields hold previous and next producer id and the
client's transaction version. The partitions are null while the state is Empty, and an empty array once complete. A null
value is a tombstone.

Apache Kafka's readers know these fields only; the epoch before the present one is not stored. Tag 3 (next producer
epoch) is never written, and ignored. Sources: `TransactionLogKey/Value.json`, `TransactionLog` of Apache Kafka.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from barnabas.coordinator.machine import Record
from barnabas.coordinator.txn.states import STORED, State
from barnabas.coordinator.txn.transaction import NO_EPOCH, NO_ID, TopicPartition, Txn
from barnabas.kproto import DecodeError
from barnabas.kproto.stored import TransactionLogKey, TransactionLogValue, decode_versioned, encode_versioned

_INT16 = Struct(">h")
_KEY_VERSION = 0
_STATES: Final = {number: state for state, number in STORED.items()}


class TxnRecord(NamedTuple):
    """A transactional id changed, or (None) was removed."""

    transactional_id: str
    txn: Txn | None


def value_version(transaction_version: int) -> int:
    """The layout in which values are written at this level of the feature."""
    return 1 if transaction_version >= 1 else 0


def txn_record(transactional_id: str, txn: Txn | None, version: int) -> Record:
    """The record of a change; of the id's removal with None. `version`: of the value's layout."""
    key = encode_versioned(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)
    if txn is None:
        return Record(key, None)
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(txn.partitions):
        topics.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id if version >= 1 else NO_ID,
        next_producer_id=txn.next_producer_id if version >= 1 else NO_ID,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=STORED[txn.state],
        transaction_partitions=None
        if txn.state is State.EMPTY
        else [TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()],
        transaction_last_update_timestamp_ms=txn.update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
        client_transaction_version=txn.client_version if version >= 1 else 0,
    )
    return Record(key, encode_versioned(value, version))


def parse_txn(key: bytes | memoryview, value: bytes | memoryview | None) -> TxnRecord | None:
    """The meaning of one record; None for a key of a layout unknown here, which may be left from a newer release.
    Raises `barnabas.kproto.DecodeError` on what cannot be read.
    """
    if len(key) < 2:
        raise DecodeError("the key of a record in __transaction_state is shorter than its version")
    if _INT16.unpack_from(key)[0] != _KEY_VERSION:
        return None
    transactional_id = decode_versioned(TransactionLogKey, key)[1].transactional_id
    return TxnRecord(transactional_id, None if value is None else _txn(transactional_id, value))


def _txn(transactional_id: str, value: bytes | memoryview) -> Txn:
    version, decoded = decode_versioned(TransactionLogValue, value)
    state = _STATES.get(decoded.transaction_status)
    if state is None:
        raise DecodeError(f"transactional id {transactional_id!r} has the unknown state {decoded.transaction_status}")
    partitions: frozenset[TopicPartition] = frozenset()
    if state is not State.EMPTY:
        partitions = frozenset(
            (topic.topic, partition)
            for topic in decoded.transaction_partitions or ()
            for partition in topic.partition_ids
        )
    return Txn(
        decoded.producer_id,
        decoded.producer_epoch,
        decoded.transaction_timeout_ms,
        state,
        partitions,
        decoded.transaction_start_timestamp_ms,
        decoded.transaction_last_update_timestamp_ms,
        NO_EPOCH,
        decoded.previous_producer_id if version >= 1 else NO_ID,
        decoded.next_producer_id if version >= 1 else NO_ID,
        decoded.client_transaction_version if version >= 1 else 0,
    )
