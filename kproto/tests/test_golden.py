"""Bytes captured from Apache Kafka 3.9.1 in ZooKeeper mode, for which no other codec is at hand: controller requests
and what is in its logs.

The requests are shown from the byte behind the client id, that is with the empty tagged fields of their header in
front.
"""

import pytest

from barnabas import kproto
from barnabas.kproto.classes import Message
from barnabas.kproto.messages import FetchRequest, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from barnabas.kproto.stored import (
    EndTxnMarker,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    decode_versioned,
    encode_versioned,
)

TOPIC_ID = kproto.uuid_from_text("5DhbiGy7QOiaWg31HDs8Ig")


def broker(node_id: int, port: int) -> UpdateMetadataRequest.UpdateMetadataBroker:
    endpoint = UpdateMetadataRequest.UpdateMetadataEndpoint(
        port=port, host="127.0.0.1", listener="PLAINTEXT", security_protocol=0
    )
    return UpdateMetadataRequest.UpdateMetadataBroker(id=node_id, endpoints=[endpoint], rack=None)


def stop_replica(delete: bool) -> StopReplicaRequest:
    state = StopReplicaRequest.StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=delete)
    topic = StopReplicaRequest.StopReplicaTopicState(topic_name="two", partition_states=[state])
    return StopReplicaRequest(controller_id=1, controller_epoch=1, broker_epoch=0x1F, topic_states=[topic])


UPDATE_METADATA = UpdateMetadataRequest(
    controller_id=1,
    controller_epoch=1,
    broker_epoch=0x1F,
    live_brokers=[broker(1, 0x72D0), broker(99, 0x72D1)],
)
LEADER_AND_ISR = LeaderAndIsrRequest(
    controller_id=1,
    controller_epoch=1,
    broker_epoch=0x1F,
    topic_states=[
        LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name="two",
            topic_id=TOPIC_ID,
            partition_states=[
                LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                    partition_index=0,
                    controller_epoch=1,
                    leader=1,
                    leader_epoch=0,
                    isr=[1, 99],
                    partition_epoch=0,
                    replicas=[1, 99],
                    is_new=True,
                )
            ],
        )
    ],
    live_leaders=[LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=1, host_name="127.0.0.1", port=0x72D0)],
)
FETCH = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=0xA00000,
    session_epoch=0,
    replica_state=FetchRequest.ReplicaState(replica_id=1, replica_epoch=0x19),
    topics=[
        FetchRequest.FetchTopic(
            topic_id=bytes.fromhex("00000000000000010000000000000002"),
            partitions=[
                FetchRequest.FetchPartition(
                    partition=0,
                    current_leader_epoch=0,
                    fetch_offset=0,
                    log_start_offset=0,
                    partition_max_bytes=0x100000,
                )
            ],
        )
    ],
)


@pytest.mark.parametrize(
    ("message", "version", "captured"),
    [
        pytest.param(
            UPDATE_METADATA,
            8,
            "00 00000001 00 00000001 000000000000001f 01 03 00000001 02 000072d0 0a3132372e302e302e31"
            "0a504c41494e54455854 0000 00 00 00 00000063 02 000072d1 0a3132372e302e302e31"
            "0a504c41494e54455854 0000 00 00 00 00",
            id="UpdateMetadata-v8",
        ),
        pytest.param(
            LEADER_AND_ISR,
            7,
            "00 00000001 00 00000001 000000000000001f 00 02 0474776f e4385b886cbb40e89a5a0df51c3b3c22 02"
            "00000000 00000001 00000001 00000000 03 00000001 00000063 00000000 03 00000001 00000063"
            "01 01 01 00 00 00 02 00000001 0a3132372e302e302e31 000072d0 00 00",
            id="LeaderAndIsr-v7",
        ),
        pytest.param(
            stop_replica(False),
            4,
            "00 00000001 00 00000001 000000000000001f 02 0474776f 02 00000000 fffffffe 00 00 00 00",
            id="StopReplica-v4",
        ),
        pytest.param(
            stop_replica(True),
            4,
            "00 00000001 00 00000001 000000000000001f 02 0474776f 02 00000000 fffffffe 01 00 00 00",
            id="StopReplica-v4-delete",
        ),
        pytest.param(
            FETCH,
            17,
            "00 000001f4 00000001 00a00000 00 00000000 00000000 02 00000000000000010000000000000002 02"
            "00000000 00000000 0000000000000000 ffffffff 0000000000000000 00100000 00 00"
            "01 01 01 01 0d 00000001 0000000000000019 00",
            id="Fetch-v17",
        ),
    ],
)
def test_requests_of_a_broker_and_a_controller(message: Message, version: int, captured: str) -> None:
    data = bytes.fromhex(captured)
    assert kproto.encode(message, version) == data[1:]
    assert kproto.decoder(type(message), version)(data, 1) == (message, len(data))


def transaction(status: int, start: int, partitions: list[TransactionLogValue.PartitionsSchema] | None) -> Message:
    return TransactionLogValue(
        producer_id=0,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=0x1A1FC0D9930,
        transaction_start_timestamp_ms=start,
    )


@pytest.mark.parametrize(
    ("message", "version", "captured"),
    [
        pytest.param(
            OffsetCommitKey(group="g1", topic="tt", partition=0), 1, "0001 0002 6731 0002 7474 00000000", id="key"
        ),
        pytest.param(
            OffsetCommitValue(offset=1, leader_epoch=0, commit_timestamp=0x1A1FC0DA376),
            3,
            "0003 0000000000000001 00000000 0000 000001a1fc0da376",
            id="value",
        ),
        pytest.param(TransactionLogKey(transactional_id="tx1"), 0, "0000 0003 747831", id="transaction-key"),
        pytest.param(
            transaction(0, -1, None),
            0,
            "0000 0000000000000000 0000 0000ea60 00 ffffffff 000001a1fc0d9930 ffffffffffffffff",
            id="transaction-empty",
        ),
        pytest.param(
            transaction(1, 5, [TransactionLogValue.PartitionsSchema(topic="tt", partition_ids=[0])]),
            0,
            "0000 0000000000000000 0000 0000ea60 01 00000001 0002 7474 00000001 00000000"
            "000001a1fc0d9930 0000000000000005",
            id="transaction-ongoing",
        ),
        pytest.param(EndTxnMarker(coordinator_epoch=0), 0, "0000 00000000", id="marker"),
    ],
)
def test_stored_records(message: Message, version: int, captured: str) -> None:
    data = bytes.fromhex(captured)
    assert encode_versioned(message, version) == data
    assert decode_versioned(type(message), data) == (version, message)
