"""Records of streams groups (KIP-1071), as Apache Kafka 4.3.1 has written them into `__consumer_offsets`.

Their requests and responses are compared with Apache Kafka's own codec, like all others, in
`barnabas.kproto.tests.test_java_codec`.
"""

import pytest

from barnabas.kproto import Message
from barnabas.kproto.stored import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    decode_versioned,
    encode_versioned,
)

STANDBYS = StreamsGroupMetadataValue.LastAssignmentConfig(key="num.standby.replicas", value="1")
Held = StreamsGroupCurrentMemberAssignmentValue.TaskIds
Subtopology = StreamsGroupTopologyValue.Subtopology


@pytest.mark.parametrize(
    ("value", "captured"),
    [
        pytest.param(
            StreamsGroupMetadataValue(epoch=2, metadata_hash=0x66D9CD304D356039, last_assignment_configs=[STANDBYS]),
            "0000 00000002 66d9cd304d356039 01 01 19 02 15 6e756d2e7374616e6462792e7265706c69636173 02 31 00",
            id="not-validated",
        ),
        pytest.param(
            StreamsGroupMetadataValue(
                epoch=3,
                metadata_hash=0x987D3843F01BCFDE - 2**64,
                validated_topology_epoch=0,
                last_assignment_configs=[STANDBYS],
            ),
            "0000 00000003 987d3843f01bcfde 02 00 04 00000000"
            "01 19 02 15 6e756d2e7374616e6462792e7265706c69636173 02 31 00",
            id="validated",
        ),
        pytest.param(
            StreamsGroupMemberMetadataValue(
                instance_id=None,
                rack_id=None,
                client_id="exp",
                client_host="/127.0.0.1",
                rebalance_timeout_ms=5000,
                process_id="P1",
            ),
            "0000 00 00 04657870 0b2f3132372e302e302e31 00001388 00000000 03 5031 ff 01 00",
            id="member",
        ),
        pytest.param(
            StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=0x1A2084A966C),
            "0000 00000002 01 00 08 000001a2084a966c",
            id="target",
        ),
        pytest.param(
            StreamsGroupTargetAssignmentMemberValue(
                active_tasks=[
                    StreamsGroupTargetAssignmentMemberValue.TaskIds(subtopology_id="0", partitions=[0, 1, 2, 3])
                ]
            ),
            "0000 02 0230 05 00000000 00000001 00000002 00000003 00 01 01 00",
            id="target-of-a-member",
        ),
        pytest.param(
            StreamsGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                previous_member_epoch=3,
                state=2,
                active_tasks=[Held(subtopology_id="0", partitions=[0, 1], assignment_epochs=[3, 3])],
                active_tasks_pending_revocation=[Held(subtopology_id="0", partitions=[2, 3], assignment_epochs=[3, 3])],
            ),
            "0000 00000003 00000003 02 02 0230 03 00000000 00000001 01 00 09 03 00000003 00000003 01 01"
            "02 0230 03 00000002 00000003 01 00 09 03 00000003 00000003 01 01 00",
            id="standing",
        ),
        pytest.param(
            StreamsGroupTopologyValue(
                subtopologies=[
                    Subtopology(
                        subtopology_id="0",
                        source_topics=["st4"],
                        state_changelog_topics=[StreamsGroupTopologyValue.TopicInfo(name="wg6644-cl")],
                    )
                ]
            ),
            "0000 00000000 02 0230 02 04737434 01 02 0a7767363634342d636c 00000000 0000 01 00 01 01 01 00 00",
            id="topology",
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
        (StreamsGroupMetadataKey(group_id="g"), 17, "0011 0001 67"),
        (StreamsGroupMemberMetadataKey(group_id="g", member_id="m"), 19, "0013 0001 67 0001 6d"),
        (StreamsGroupTargetAssignmentMetadataKey(group_id="g"), 20, "0014 0001 67"),
        (StreamsGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), 21, "0015 0001 67 0001 6d"),
        (StreamsGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), 22, "0016 0001 67 0001 6d"),
        (StreamsGroupTopologyKey(group_id="g"), 23, "0017 0001 67"),
    ],
)
def test_keys(key: Message, kind: int, captured: str) -> None:
    data = bytes.fromhex(captured)
    assert encode_versioned(key, kind) == data
    assert decode_versioned(type(key), data) == (kind, key)
