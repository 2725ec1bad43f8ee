"""The controller's messages on the wire: round trips in every version, and bytes captured from Apache Kafka 3.9.1."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from barnabas.kproto import ZERO_UUID, ErrorCode, decode, encode, uuid_from_text
from barnabas.kproto.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from barnabas.replication.messages import wire
from barnabas.replication.messages.effects import (
    LeaderAndIsr,
    PartitionChange,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from barnabas.replication.values.image import BrokerImage, Endpoint, PartitionImage

TOPIC_ID = uuid_from_text("5DhbiGy7QOiaWg31HDs8Ig")
BROKERS = tuple(BrokerImage(each, (Endpoint("PLAINTEXT", "127.0.0.1", 29391 + at),)) for at, each in ((1, 1), (2, 99)))


def random_partition(rng: Random, index: int) -> PartitionImage:
    replicas = tuple(rng.sample(range(1, 9), rng.randint(1, 5)))
    return PartitionImage(
        index,
        rng.choice((-1, *replicas)),
        rng.randint(0, 2**31 - 1),
        rng.randint(0, 2**31 - 1),
        replicas,
        tuple(rng.sample(replicas, rng.randint(1, len(replicas)))),
        tuple(rng.sample(replicas, rng.randint(0, len(replicas)))),
        tuple(rng.sample(replicas, rng.randint(0, len(replicas)))),
        rng.random() < 0.5,
        offline_replicas=tuple(rng.sample(replicas, rng.randint(0, len(replicas)))),
    )


def random_changes(rng: Random) -> tuple[PartitionChange, ...]:
    return tuple(
        PartitionChange(f"t{topic}", rng.randbytes(16), random_partition(rng, index), rng.random() < 0.5)
        for topic in range(rng.randint(0, 3))
        for index in rng.sample(range(50), rng.randint(1, 4))
    )


def one_id_per_topic(changes: tuple[PartitionChange, ...]) -> tuple[PartitionChange, ...]:
    ids = {change.topic: change.topic_id for change in changes}
    return tuple(replace(change, topic_id=ids[change.topic]) for change in changes)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr(version: int, seed: int) -> None:
    rng = Random(seed)
    leaders = tuple(BrokerImage(each, (Endpoint("IN", f"h{each}", each + 9000, "SSL"),)) for each in range(3))
    sent = LeaderAndIsr(1, rng.randint(0, 99), rng.randint(0, 2**40), one_id_per_topic(random_changes(rng)), leaders)
    request = wire.leader_and_isr_request(sent, version, "IN")
    again = decode(LeaderAndIsrRequest, version, encode(request, version))

    def seen(change: PartitionChange) -> PartitionChange:
        partition = replace(change.partition, offline_replicas=())
        if version < 3:
            partition = replace(partition, adding_replicas=(), removing_replicas=())
        if version < 6:
            partition = replace(partition, recovering=False)
        topic_id = change.topic_id if version >= 5 else ZERO_UUID
        return PartitionChange(change.topic, topic_id, partition, change.is_new and version >= 1)

    assert wire.leader_and_isr(again, "IN", "SSL") == LeaderAndIsr(
        1,
        sent.controller_epoch,
        sent.broker_epoch if version >= 2 else -1,
        tuple(map(seen, sent.partitions)),
        leaders,
    )


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_answer(version: int) -> None:
    ids = {"a": b"a" * 16, "b": b"b" * 16}
    changes = [
        PartitionChange(topic, ids[topic], PartitionImage(index, 1, 0, 0, (1,), (1,)))
        for topic in ids
        for index in (0, 5)
    ]
    message = LeaderAndIsr(1, 1, 1, tuple(changes))
    codes = {
        ("a", 0): ErrorCode.NONE,
        ("b", 5): ErrorCode.STALE_CONTROLLER_EPOCH,
        ("a", 5): ErrorCode.INCONSISTENT_TOPIC_ID,
        ("b", 0): ErrorCode.KAFKA_STORAGE_ERROR,
    }
    answer = encode(wire.leader_and_isr_response(message, codes, version), version)
    assert wire.leader_and_isr_codes(message, decode(LeaderAndIsrResponse, version, answer)) == codes


def test_a_leader_without_the_listener_between_brokers_is_left_out() -> None:
    request = wire.leader_and_isr_request(LeaderAndIsr(1, 1, 1, (), BROKERS), 7, "OTHER")
    assert request.live_leaders == []


@pytest.mark.parametrize("version", range(5))
def test_stop_replica(version: int) -> None:
    stopped = [StoppedPartition(topic, index, index + 7, index % 2 == 0) for topic in "ab" for index in range(3)]
    sent = StopReplica(1, 2, 3, tuple(stopped))
    requests = wire.stop_replica_requests(sent, version)
    again = [wire.stop_replica(decode(StopReplicaRequest, version, encode(request, version))) for request in requests]
    assert len(again) == (1 if version >= 3 else 2)
    assert {(each.controller_id, each.controller_epoch) for each in again} == {(1, 2)}
    assert {each.broker_epoch for each in again} == {3 if version >= 1 else -1}
    seen = [one for each in again for one in each.partitions]
    expected = stopped if version >= 3 else [replace(one, leader_epoch=-1) for one in stopped]
    assert sorted(seen, key=repr) == sorted(expected, key=repr)
    if version < 3:
        assert [{one.delete for one in each.partitions} for each in again] == [{True}, {False}]


@pytest.mark.parametrize("version", range(5))
def test_stop_replica_answer(version: int) -> None:
    codes = {("a", 0): ErrorCode.NONE, ("b", 1): ErrorCode.FENCED_LEADER_EPOCH}
    answer = encode(wire.stop_replica_response(codes), version)
    assert wire.stop_replica_codes(decode(StopReplicaResponse, version, answer)) == codes


def test_unknown_error_codes() -> None:
    row = StopReplicaResponse.StopReplicaPartitionError(topic_name="a", partition_index=0, error_code=9999)
    response = StopReplicaResponse(partition_errors=[row])
    assert wire.stop_replica_codes(response) == {("a", 0): ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("version", range(9))
def test_update_metadata(version: int, seed: int) -> None:
    rng = Random(seed)
    brokers = tuple(
        BrokerImage(
            each,
            tuple(
                Endpoint(name, f"h{each}", 9000 + at, protocol)
                for at, (name, protocol) in enumerate(
                    (("PLAINTEXT", "PLAINTEXT"), ("SSL", "SSL"), ("IN", "SASL_PLAINTEXT"), ("OUT", "SASL_SSL"))
                )
            ),
            rng.choice((None, "r1")),
        )
        for each in range(3)
    )
    sent = UpdateMetadata(1, rng.randint(0, 99), rng.randint(0, 2**40), brokers, one_id_per_topic(random_changes(rng)))
    request = wire.update_metadata_request(sent, version)
    again = decode(UpdateMetadataRequest, version, encode(request, version))

    def seen(change: PartitionChange) -> PartitionChange:
        partition = replace(change.partition, adding_replicas=(), removing_replicas=(), recovering=False)
        if version < 4:
            partition = replace(partition, offline_replicas=())
        return PartitionChange(change.topic, change.topic_id if version >= 7 else ZERO_UUID, partition)

    kept = {0: 1, 1: 2, 2: 2}.get(version, 4)
    assert wire.update_metadata(again, version) == UpdateMetadata(
        1,
        sent.controller_epoch,
        sent.broker_epoch if version >= 5 else -1,
        tuple(BrokerImage(b.id, b.endpoints[:kept], b.rack if version >= 2 else None) for b in brokers),
        tuple(map(seen, sent.partitions)),
    )


def test_an_endpoint_of_an_unknown_security_protocol_is_left_out() -> None:
    request = wire.update_metadata_request(UpdateMetadata(1, 1, 1, BROKERS), 8)
    request.live_brokers[0].endpoints[0].security_protocol = 7
    assert [len(broker.endpoints) for broker in wire.update_metadata(request, 8).brokers] == [0, 1]


# -- captured: controller 1 in its first epoch to broker 99, whose epoch is 0x1f; topic `two` on both ----------------


def test_update_metadata_as_apache_kafka_sends_it() -> None:
    captured = bytes.fromhex(
        "00000001 00 00000001 000000000000001f 01 03 00000001 02 000072d0 0a3132372e302e302e31"
        "0a504c41494e54455854 0000 00 00 00 00000063 02 000072d1 0a3132372e302e302e31 0a504c41494e54455854 0000"
        "00 00 00 00"
    )
    assert encode(wire.update_metadata_request(UpdateMetadata(1, 1, 0x1F, BROKERS), 8), 8) == captured
    assert wire.update_metadata(decode(UpdateMetadataRequest, 8, captured), 8).brokers == BROKERS


def test_leader_and_isr_as_apache_kafka_sends_it() -> None:
    captured = bytes.fromhex(
        "00000001 00 00000001 000000000000001f 00 02 0474776f e4385b886cbb40e89a5a0df51c3b3c22 02 00000000 00000001"
        "00000001 00000000 03 00000001 00000063 00000000 03 00000001 00000063 01 01 01 00 00 00 02 00000001"
        "0a3132372e302e302e31 000072d0 00 00"
    )
    change = PartitionChange("two", TOPIC_ID, PartitionImage(0, 1, 0, 0, (1, 99), (1, 99)), is_new=True)
    message = LeaderAndIsr(1, 1, 0x1F, (change,), BROKERS[:1])
    assert encode(wire.leader_and_isr_request(message, 7, "PLAINTEXT"), 7) == captured
    assert wire.leader_and_isr(decode(LeaderAndIsrRequest, 7, captured), "PLAINTEXT", "PLAINTEXT") == message


def test_stop_replica_as_apache_kafka_sends_it() -> None:
    for delete, flag in ((False, "00"), (True, "01")):
        captured = bytes.fromhex(
            f"00000001 00 00000001 000000000000001f 02 0474776f 02 00000000 fffffffe {flag} 00 00 00"
        )
        message = StopReplica(1, 1, 0x1F, (StoppedPartition("two", 0, -2, delete),))
        [request] = wire.stop_replica_requests(message, 4)
        assert encode(request, 4) == captured
        assert wire.stop_replica(decode(StopReplicaRequest, 4, captured)) == message
