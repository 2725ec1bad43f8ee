"""What stands in the records that brokers write for themselves, as plain values fit for JSON.

`__consumer_offsets` holds committed offsets and groups, `__transaction_state` transactional ids; control batches the
ends of transactions and, in KRaft's log, elections. Layouts are those of `barnabas.kproto.stored`: fields have the
names of Apache Kafka in snake_case, those that the stored version lacks are left out. Topic ids are shown as Kafka
shows them; bytes as text where they are UTF-8, else in base64.

Not here: KRaft's metadata records, and groups of kinds that came after 4.1 (`unknown`, with the number of the key).
"""

from __future__ import annotations

from base64 import b64encode
from struct import error as StructError
from typing import Any, Final

from barnabas.kproto import DecodeError, Message, decode, stored, uuid_to_text
from barnabas.kproto import Record as Structure
from barnabas.kproto.records import CorruptRecords, Record, parse_control_record
from barnabas.kproto.stored import ControlRecordType, decode_versioned

OFFSETS: Final = "offsets"
TRANSACTIONS: Final = "transactions"
TOPICS: Final = {"__consumer_offsets": OFFSETS, "__transaction_state": TRANSACTIONS}
"""How the records of which topic are decoded."""

_GROUP_KINDS: Final = {
    0: ("offset_commit", "OffsetCommit"),
    1: ("offset_commit", "OffsetCommit"),
    2: ("group_metadata", "GroupMetadata"),
    3: ("consumer_group_metadata", "ConsumerGroupMetadata"),
    4: ("consumer_group_partition_metadata", "ConsumerGroupPartitionMetadata"),
    5: ("consumer_group_member_metadata", "ConsumerGroupMemberMetadata"),
    6: ("consumer_group_target_assignment_metadata", "ConsumerGroupTargetAssignmentMetadata"),
    7: ("consumer_group_target_assignment_member", "ConsumerGroupTargetAssignmentMember"),
    8: ("consumer_group_current_member_assignment", "ConsumerGroupCurrentMemberAssignment"),
    16: ("consumer_group_regular_expression", "ConsumerGroupRegularExpression"),
}
_STATES: Final = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort"),
    *("CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"),
)
_CONTROL: Final = {
    ControlRecordType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlRecordType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlRecordType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlRecordType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlRecordType.KRAFT_VOTERS: "VotersRecord",
}


def decode_record(how: str, key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """`kind`, `key` and `value` (None for a tombstone) of a record of such a topic; with `error` in place of what is
    not what it should be. `how`: OFFSETS or TRANSACTIONS.
    """
    try:
        if how == TRANSACTIONS:
            return _decode_transaction(key, value)
        return _decode_group(key, value)
    except (DecodeError, ValueError, IndexError, StructError) as error:
        return {"kind": "unknown", "error": str(error)}


def decode_control(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """`kind` of a control record, and what it says."""
    try:
        number, coordinator_epoch = parse_control_record(Record(key=key, value=value))
    except CorruptRecords as error:
        return {"kind": "unknown", "error": error.message}
    try:
        kind = ControlRecordType(number)
    except ValueError:
        return {"kind": "unknown", "number": number}
    if coordinator_epoch is not None:
        return {"kind": kind.name.lower(), "coordinator_epoch": coordinator_epoch}
    name = _CONTROL[kind]
    try:
        cls: type[Message] = getattr(stored, name)
        data = value or b""
        version = min(int.from_bytes(data[:2], "big", signed=True), cls.__description__.versions.last)
        return {"kind": kind.name.lower(), "value": plain(decode(cls, max(version, 0), data), version)}
    except (DecodeError, ValueError, IndexError, StructError) as error:
        return {"kind": kind.name.lower(), "error": str(error)}


def _decode_transaction(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    version, found = decode_versioned(stored.TransactionLogKey, key or b"")
    shown: dict[str, Any] = {"kind": "transaction", "key": plain(found, version), "value": None}
    if value is not None:
        version, state = decode_versioned(stored.TransactionLogValue, value)
        fields = plain(state, version)
        status = fields["transaction_status"]
        fields["transaction_status"] = _STATES[status] if 0 <= status < len(_STATES) else status
        shown["value"] = {"version": version, **fields}
    return shown


def _decode_group(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    if key is None or len(key) < 2:
        raise DecodeError("no key")
    number = int.from_bytes(key[:2], "big", signed=True)
    if number not in _GROUP_KINDS:
        return {"kind": "unknown", "number": number}
    kind, stem = _GROUP_KINDS[number]
    version, found = decode_versioned(getattr(stored, f"{stem}Key"), key)
    shown: dict[str, Any] = {"kind": kind, "key": plain(found, version), "value": None}
    if value is not None:
        version, content = decode_versioned(getattr(stored, f"{stem}Value"), value)
        fields = plain(content, version)
        if kind == "group_metadata" and fields["protocol_type"] == "consumer":
            for member, described in zip(content.members, fields["members"], strict=True):
                described["subscription"] = _inner("ConsumerProtocolSubscription", member.subscription)
                described["assignment"] = _inner("ConsumerProtocolAssignment", member.assignment)
        shown["value"] = {"version": version, **fields}
    return shown


def _inner(name: str, data: bytes) -> Any:
    """A member's subscription or assignment, if it is one of the consumer protocol."""
    if not data:
        return None
    try:
        version, found = decode_versioned(getattr(stored, name), data)
    except (DecodeError, ValueError, IndexError, StructError):
        return show_bytes(data)
    return plain(found, version)


def plain(message: Structure, version: int) -> dict[str, Any]:
    """A structure as a dictionary of plain values."""
    return {
        field.name: _plain_value(getattr(message, field.name), field.type, version)
        for field in message.__struct__.fields
        if field.versions.has(version)
    }


def _plain_value(value: Any, kind: str, version: int) -> Any:
    if isinstance(value, list):
        return [_plain_value(one, kind, version) for one in value]
    if isinstance(value, Structure):
        return plain(value, version)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return uuid_to_text(bytes(value)) if kind == "uuid" else show_bytes(bytes(value))
    return value


def show_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Text where it is UTF-8, else `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}
