"""Recorded requests for another broker: ids and epochs that it has given out take the place of the old ones."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto import DecodeError, ErrorCode, decode, request_class
from barnabas.kproto.frame import parse_request_header
from barnabas.kproto.messages import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
    ProduceResponse,
)
from barnabas.kproto.records import check_batch, iter_records
from barnabas.server.tests.wire.rig import answers, asks, batch
from barnabas.server.wire.replaying import Prepared, Replaying

OLD, NEW = b"old topic id".ljust(16), b"new topic id".ljust(16)


def body(prepared: Prepared) -> Any:
    header = parse_request_header(prepared.frame)
    return decode(request_class(prepared.key), prepared.version, prepared.frame, header.body_offset)


@pytest.fixture
def replaying() -> Replaying:
    return Replaying()


def exchange(replaying: Replaying, request: Any, version: int, then: Any, now: Any) -> list[str]:
    prepared = replaying.prepare(asks(request, version))
    return replaying.compare(prepared, answers(then, version), answers(now, version)).differences


def metadata(*topics: tuple[str, bytes]) -> MetadataResponse:
    return MetadataResponse(
        topics=[MetadataResponse.MetadataResponseTopic(name=name, topic_id=topic_id) for name, topic_id in topics]
    )


def test_topic_ids_by_name(replaying: Replaying) -> None:
    then, now = metadata(("a", OLD), ("b", b"b" * 16)), metadata(("b", b"B" * 16), ("a", NEW))
    assert exchange(replaying, MetadataRequest(), 12, then, now) == []
    fetch = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=OLD), FetchRequest.FetchTopic(topic_id=b"?" * 16)])
    prepared = replaying.prepare(asks(fetch, 13))
    assert [each.topic_id for each in body(prepared).topics] == [NEW, b"?" * 16]
    assert prepared.replaced == {"topic id": 1}
    assert prepared.as_recorded == ["a topic id that no recorded answer has given"]


def test_member_ids_and_generations(replaying: Replaying) -> None:
    then = JoinGroupResponse(generation_id=3, member_id="m-old", leader="m-old", protocol_name="range")
    now = JoinGroupResponse(generation_id=9, member_id="m-new", leader="m-new", protocol_name="range")
    exchange(replaying, JoinGroupRequest(group_id="g"), 5, then, now)
    beat = replaying.prepare(asks(HeartbeatRequest(group_id="g", generation_id=3, member_id="m-old"), 4))
    assert (body(beat).generation_id, body(beat).member_id) == (9, "m-new")
    commit = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=3, member_id="m-old")
    prepared = replaying.prepare(asks(commit, 8))
    assert (body(prepared).generation_id_or_member_epoch, body(prepared).member_id) == (9, "m-new")
    assert prepared.replaced == {"generation or member epoch": 1, "member id": 1}
    of_another = replaying.prepare(asks(HeartbeatRequest(group_id="h", generation_id=3, member_id="x"), 4))
    assert body(of_another).generation_id == 3


def test_producer_ids_in_batches_too(replaying: Replaying) -> None:
    then = InitProducerIdResponse(producer_id=7, producer_epoch=1)
    now = InitProducerIdResponse(producer_id=4000, producer_epoch=0)
    exchange(replaying, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4, then, now)
    records = batch(b"a", producer_id=7, producer_epoch=1, base_sequence=5) + batch(b"b")
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    prepared = replaying.prepare(asks(ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic]), 9))
    data = bytes(body(prepared).topic_data[0].partition_data[0].records)
    header = check_batch(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 0, 5)
    assert [record.value for record in iter_records(data)] == [b"a"]
    assert check_batch(data, header.size).producer_id == -1
    assert prepared.replaced == {"producer id": 1}


def test_fetch_sessions(replaying: Replaying) -> None:
    exchange(replaying, FetchRequest(), 12, FetchResponse(session_id=111), FetchResponse(session_id=222))
    assert body(replaying.prepare(asks(FetchRequest(session_id=111, session_epoch=1), 12))).session_id == 222


def test_what_is_not_replaced_is_the_same_bytes(replaying: Replaying) -> None:
    fetch = FetchRequest.FetchPartition(partition=0, fetch_offset=5, current_leader_epoch=3, partition_max_bytes=1)
    frame = asks(FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=[fetch])]), 12) + b"tail"
    prepared = replaying.prepare(frame)
    assert prepared.frame == frame
    assert prepared.as_recorded == ["leader epochs"]
    assert replaying.prepare(asks(ProduceRequest(acks=0), 9)).answered is False
    with pytest.raises(DecodeError):
        replaying.prepare(frame[:-30])
    unknown = bytearray(frame)
    unknown[3] = 99
    assert replaying.prepare(bytes(unknown)).frame == bytes(unknown)


def test_bytes_behind_the_end_stay_there(replaying: Replaying) -> None:
    exchange(replaying, MetadataRequest(), 12, metadata(("a", OLD)), metadata(("a", NEW)))
    frame = asks(FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=OLD)]), 13) + b"tail"
    assert replaying.prepare(frame).frame == frame.replace(OLD, NEW)


def test_differences(replaying: Replaying) -> None:
    def produced(code: int) -> ProduceResponse:
        partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=code, base_offset=7)
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])]
        )

    request = ProduceRequest(acks=-1)
    assert exchange(replaying, request, 9, produced(0), produced(0)) == []
    assert exchange(replaying, request, 9, produced(0), produced(ErrorCode.NOT_ENOUGH_REPLICAS)) == [
        "errors: none then, NOT_ENOUGH_REPLICAS now"
    ]

    def fetched(*values: bytes) -> FetchResponse:
        partition = FetchResponse.PartitionData(partition_index=0, records=batch(*values) if values else None)
        return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])

    assert exchange(replaying, FetchRequest(), 12, fetched(b"a", b"b"), fetched(b"a")) == ["records: 2 then, 1 now"]
    prepared = replaying.prepare(asks(request, 9))
    assert replaying.compare(prepared, b"\0\0\0\1", None).differences == ["there is no answer now"]
    (unreadable,) = replaying.compare(prepared, answers(produced(0), 9), b"\0\0\0\1\0").differences
    assert unreadable.startswith("unreadable: none then, ")
