"""Versions in front of stored records, and the consumer protocol against kafka-python's."""

import warnings

import pytest

from barnabas.kproto import DecodeError, EncodeError, encode, stored
from barnabas.kproto.stored import (
    ConsumerGroupMemberMetadataValue,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ControlRecordType,
    ControlRecordTypeSchema,
    EndTxnMarker,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_versioned,
    encode_versioned,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as TheirAssignment
    from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription


def test_kinds_of_keys_do_not_pass_for_each_other() -> None:
    data = encode_versioned(GroupMetadataKey(group="g"), 2)
    assert data == b"\x00\x02\x00\x01g"
    assert decode_versioned(GroupMetadataKey, data) == (2, GroupMetadataKey(group="g"))
    with pytest.raises(DecodeError, match="0 to 1, not 2"):
        decode_versioned(OffsetCommitKey, data)


def test_versions_unknown_here_are_refused() -> None:
    data = encode_versioned(OffsetCommitValue(offset=3), 4)
    assert decode_versioned(OffsetCommitValue, data)[1].offset == 3
    for first in (b"\x00\x05", b"\xff\xff"):
        with pytest.raises(DecodeError, match="versions 0 to 4"):
            decode_versioned(OffsetCommitValue, first + data[2:])
    for short in (b"", b"\x00"):
        with pytest.raises(DecodeError, match="no version"):
            decode_versioned(OffsetCommitValue, short)
    with pytest.raises(ValueError, match="versions 0 to 4"):
        encode_versioned(OffsetCommitValue(), 5)


def test_control_records() -> None:
    key = encode_versioned(ControlRecordTypeSchema(type=ControlRecordType.COMMIT), 0)
    assert key == b"\x00\x00\x00\x01"
    assert ControlRecordType(decode_versioned(ControlRecordTypeSchema, key)[1].type) is ControlRecordType.COMMIT
    assert encode_versioned(EndTxnMarker(coordinator_epoch=7), 0) == b"\x00\x00\x00\x00\x00\x07"


def test_tagged_structure_that_may_be_null() -> None:
    """Unlike others it has a uvarint in front instead of an int8; left out means an empty one, null is written."""
    data = encode_versioned(ConsumerGroupMemberMetadataValue(), 0)
    assert decode_versioned(ConsumerGroupMemberMetadataValue, data)[1].classic_member_metadata is not None
    without = encode_versioned(ConsumerGroupMemberMetadataValue(classic_member_metadata=None), 0)
    assert without == data[:-1] + b"\x01\x00\x01\x00"
    assert decode_versioned(ConsumerGroupMemberMetadataValue, without)[1].classic_member_metadata is None
    classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(session_timeout_ms=5)
    given = encode_versioned(ConsumerGroupMemberMetadataValue(classic_member_metadata=classic), 0)
    assert given == data[:-1] + b"\x01\x00\x07\x01\x00\x00\x00\x05\x01\x00"
    assert decode_versioned(ConsumerGroupMemberMetadataValue, given)[1].classic_member_metadata == classic


def test_a_default_with_lists_is_not_shared() -> None:
    one = ConsumerGroupMemberMetadataValue().classic_member_metadata
    two = ConsumerGroupMemberMetadataValue().classic_member_metadata
    assert one is not None
    assert one == two
    assert one is not two
    one.supported_protocols.append(ConsumerGroupMemberMetadataValue.ClassicProtocol(name="range"))
    assert one != two


@pytest.mark.parametrize("version", range(4))
def test_consumer_protocol(version: int) -> None:
    ours = ConsumerProtocolSubscription(topics=["a", "b"], user_data=b"u")
    theirs = TheirSubscription(version=version, topics=["a", "b"], user_data=b"u")
    if version >= 1:
        ours.owned_partitions = [ConsumerProtocolSubscription.TopicPartition(topic="a", partitions=[0, 1])]
        theirs.owned_partitions = [TheirSubscription.TopicPartition(version=version, topic="a", partitions=[0, 1])]
    if version >= 2:
        ours.generation_id = theirs.generation_id = 7
    if version >= 3:
        ours.rack_id = theirs.rack_id = "r"
    data = encode_versioned(ours, version)
    assert data[2:] == encode(ours, version)
    assert data == theirs.encode(version=version)
    assert decode_versioned(ConsumerProtocolSubscription, data) == (version, ours)
    assigned = ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[3])
    assignment = ConsumerProtocolAssignment(assigned_partitions=[assigned], user_data=None)
    their_assigned = TheirAssignment.TopicPartition(version=version, topic="t", partitions=[3])
    their_assignment = TheirAssignment(version=version, assigned_partitions=[their_assigned], user_data=None)
    assert encode_versioned(assignment, version) == their_assignment.encode(version=version)


def test_unknown_names() -> None:
    for name in ("NoSuchRecord", "offset_commit", "OffsetCommit", "FetchRequest"):
        with pytest.raises(AttributeError):
            getattr(stored, name)


def test_values_that_do_not_fit() -> None:
    with pytest.raises(EncodeError):
        encode_versioned(OffsetCommitValue(leader_epoch=2**31), 3)
