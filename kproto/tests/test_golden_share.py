"""Records of share groups, as Apache Kafka 4.3.1 has written them into `__consumer_offsets` and `__share_group_state`.

Requests and responses of share groups are compared with Apache Kafka's own codec, like all others, in
`barnabas.kproto.tests.test_java_codec`.
"""

import pytest

from barnabas.kproto import Message
from barnabas.kproto.stored import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_versioned,
    encode_versioned,
)

TOPIC_ID = bytes.fromhex("17cc317c752a46788da044f644f5367c")
TOPIC = ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo(topic_id=TOPIC_ID, topic_name="sa", partitions=[0, 1])


@pytest.mark.parametrize(
    ("value", "captured"),
    [
        pytest.param(
            ShareGroupMemberMetadataValue(
                rack_id=None, client_id="exp", client_host="/127.0.0.1", subscribed_topic_names=["sa"]
            ),
            "0000 00 04657870 0b2f3132372e302e302e31 02 037361 00",
            id="member",
        ),
        pytest.param(
            ShareGroupMetadataValue(epoch=2, metadata_hash=0x61CA5B9659DF6AD3),
            "0000 00000002 61ca5b9659df6ad3 00",
            id="group",
        ),
        pytest.param(
            ShareGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=0x1A2084A966C),
            "0000 00000002 01 00 08 000001a2084a966c",
            id="target",
        ),
        pytest.param(
            ShareGroupCurrentMemberAssignmentValue(member_epoch=2),
            "0000 00000002 00000000 00 01 00",
            id="nothing-assigned",
        ),
        pytest.param(
            ShareGroupStatePartitionMetadataValue(initializing_topics=[TOPIC]),
            "0000 02 17cc317c752a46788da044f644f5367c 037361 03 00000000 00000001 00 01 01 00",
            id="initializing",
        ),
        pytest.param(
            ShareSnapshotValue(
                state_epoch=2, start_offset=-1, create_timestamp=0x1A2084A9738, write_timestamp=0x1A2084A9738
            ),
            "0000 00000000 00000002 00000000 ffffffffffffffff 000001a2084a9738 000001a2084a9738 01 00",
            id="snapshot",
        ),
        pytest.param(
            ShareUpdateValue(
                delivery_complete_count=0,
                state_batches=[ShareUpdateValue.StateBatch(first_offset=0, last_offset=39, delivery_count=1)],
            ),
            "0000 00000000 00000000 0000000000000000 02 0000000000000000 0000000000000027 00 0001 00 01 00 04 00000000",
            id="update",
        ),
        pytest.param(
            ShareGroupStatePartitionMetadataValue(initialized_topics=[TOPIC]),
            "0000 01 02 17cc317c752a46788da044f644f5367c 037361 03 00000000 00000001 00 01 00",
            id="initialized",
        ),
    ],
)
def test_values(value: Message, captured: str) -> None:
    data = bytes.fromhex(captured)
    assert encode_versioned(value, 0) == data
    assert decode_versioned(type(value), data) == (0, value)


@pytest.mark.parametrize(
    ("key", "kind", "captured"),
    [
        (ShareGroupMemberMetadataKey(group_id="g", member_id="m"), 10, "000a 0001 67 0001 6d"),
        (ShareGroupMetadataKey(group_id="g"), 11, "000b 0001 67"),
        (ShareGroupTargetAssignmentMetadataKey(group_id="g"), 12, "000c 0001 67"),
        (ShareGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), 13, "000d 0001 67 0001 6d"),
        (ShareGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 14, "000e 0001 67 0001 6d"),
        (ShareGroupStatePartitionMetadataKey(group_id="g"), 15, "000f 0001 67"),
        (
            ShareSnapshotKey(group_id="sg1", topic_id=TOPIC_ID, partition=0),
            0,
            "0000 0003 736731 17cc317c752a46788da044f644f5367c 00000000",
        ),
        (
            ShareUpdateKey(group_id="sg1", topic_id=TOPIC_ID, partition=0),
            1,
            "0001 0003 736731 17cc317c752a46788da044f644f5367c 00000000",
        ),
    ],
)
def test_keys(key: Message, kind: int, captured: str) -> None:
    data = bytes.fromhex(captured)
    assert encode_versioned(key, kind) == data
    assert decode_versioned(type(key), data) == (kind, key)
