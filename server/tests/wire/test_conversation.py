"""What is said of requests and answers: sizes, times, errors, and all that is odd."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, request_class, response_class, schema_versions
from barnabas.kproto.messages import (
    AlterUserScramCredentialsRequest,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeConfigsResponse,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from barnabas.server.tests.wire.rig import Line, answers, asks, batch
from barnabas.server.wire.addresses import Address
from barnabas.server.wire.conversation import Conversation, name_of


@pytest.fixture
def line() -> Line:
    return Line()


def produce(records: bytes, acks: int = -1) -> ProduceRequest:
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])


def test_a_request_and_its_answer(line: Line) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="t")]
    event = line.ask(MetadataRequest(topics=topics), 12, 5)
    frame = asks(MetadataRequest(topics=topics), 12, 5)
    assert {name: event[name] for name in event if name != "body"} == {
        "at": 0.001,
        "connection": 7,
        "broker": "b:9092",
        "request": "Metadata",
        "version": 12,
        "correlation_id": 5,
        "client_id": "app",
        "bytes": len(frame) + 4,
    }
    assert event["body"]["topics"] == [{"topic_id": "AAAAAAAAAAAAAAAAAAAAAA", "name": "t"}]
    missing = MetadataResponse.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="t")
    answer = line.answer(MetadataResponse(topics=[missing], throttle_time_ms=30), 12, 5)
    assert {name: answer.event[name] for name in answer.event if name != "body"} == {
        "at": 0.003,
        "connection": 7,
        "broker": "b:9092",
        "answer": "Metadata",
        "version": 12,
        "correlation_id": 5,
        "bytes": len(answer.frame) + 4,
        "ms": 2.0,
        "errors": {"UNKNOWN_TOPIC_OR_PARTITION": 1},
        "throttle_ms": 30,
    }
    assert answer.event["body"]["topics"][0]["error_code"] == "UNKNOWN_TOPIC_OR_PARTITION"
    json.dumps(answer.event)
    assert "odd" not in line.talk.ended("client", 1.0)


@pytest.mark.parametrize("key", ApiKey, ids=lambda key: key.name)
def test_every_message_of_every_version_can_be_shown(key: ApiKey) -> None:
    first, last = schema_versions(key)
    for version in range(first, last + 1):
        line = Line()
        request: Any = request_class(key)()
        if key is ApiKey.PRODUCE:
            request.acks = -1  # with 0, its default, there is no answer
        event = line.ask(request, version, version)
        assert "odd" not in event, event
        answer = line.answer(response_class(key)(), version, version)
        assert "odd" not in answer.event, answer.event
        assert answer.event["answer"] == name_of(key)
        json.dumps([event, answer.event])


def test_answers_out_of_order(line: Line) -> None:
    for correlation_id in (1, 2, 3):
        line.ask(HeartbeatRequest(), 4, correlation_id)
    assert line.answer(HeartbeatResponse(), 4, 2).event["odd"] == [
        "it comes before the answers to 1 older requests: Heartbeat"
    ]
    assert "odd" not in line.answer(HeartbeatResponse(), 4, 1).event
    assert line.answer(HeartbeatResponse(), 4, 1).event["odd"] == ["it answers no request that waits"]
    assert line.talk.ended("broker", 9.0)["odd"] == ["1 requests are not answered: Heartbeat"]


def test_a_correlation_id_that_is_in_use(line: Line) -> None:
    line.ask(HeartbeatRequest(), 4, 1)
    assert line.ask(HeartbeatRequest(), 4, 1)["odd"] == ["its correlation id is that of a request that waits"]


def test_no_answer_is_expected_to_acks_0(line: Line) -> None:
    line.ask(produce(batch(b"a"), acks=0), 9, 1)
    line.ask(HeartbeatRequest(), 4, 2)
    assert "odd" not in line.answer(HeartbeatResponse(), 4, 2).event
    assert "odd" not in line.talk.ended("client", 9.0)
    assert line.answer(ProduceResponse(), 9, 1).event["odd"] == ["it answers no request that waits"]


def test_versions_outside_the_offered_ones(line: Line) -> None:
    line.ask(ApiVersionsRequest(), 3, 1)
    rows = [ApiVersionsResponse.ApiVersion(api_key=3, min_version=0, max_version=8)]
    line.answer(ApiVersionsResponse(api_keys=rows), 3, 1)
    assert line.offered == {3: (0, 8)}
    assert "odd" not in line.ask(MetadataRequest(), 8, 2)
    assert line.ask(MetadataRequest(), 9, 3)["odd"] == ["the broker offers version 0 to 8"]
    assert line.ask(HeartbeatRequest(), 4, 4)["odd"] == ["the broker does not offer this API"]


def test_what_this_program_does_not_know(line: Line) -> None:
    new = bytearray(asks(MetadataRequest(), 12, 1))
    new[3] = 99
    event = line.talk.request(bytes(new), 1.0)
    assert (event["version"], event["odd"]) == (99, ["this program does not know the version"])
    answer = line.talk.answer(answers(MetadataResponse(), 12, 1), 2.0)
    assert (answer.event["answer"], answer.event["ms"]) == ("Metadata", 1000.0)
    other = bytearray(asks(MetadataRequest(), 1, 2))
    other[1] = 200
    event = line.talk.request(bytes(other), 1.0)
    assert (event["request"], event["odd"]) == ("API 200", ["this program does not know the API"])
    assert line.talk.answer(b"\0\0\0\2whatever", 2.0).event["answer"] == "API 200"


def test_a_version_that_the_broker_does_not_serve_is_answered_in_the_oldest_layout(line: Line) -> None:
    line.ask(ApiVersionsRequest(), 4, 1)
    answer = line.answer(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0, 1)
    assert answer.event["errors"] == {"UNSUPPORTED_VERSION": 1}
    assert "odd" not in answer.event


def test_bytes_and_fields_that_nobody_knows(line: Line) -> None:
    message = MetadataRequest()
    message.unknown_tags = {9: b"tag"}
    frame = asks(message, 12, 1) + b"tail"
    event = line.talk.request(frame, 1.0)
    assert event["odd"] == ["4 bytes follow its end", "the message has unknown tagged fields: 9"]
    assert event["body"]["unknown_tags"] == {"9": {"bytes": 3, "hex": "746167"}}
    # In the header: after the client id there is the number of tagged fields.
    at = 10 + len("app")
    plain = asks(MetadataRequest(), 12, 2)
    tagged = plain[:at] + b"\x01\x05\x01x" + plain[at + 1 :]
    assert line.talk.request(tagged, 1.0)["odd"] == ["its header has 1 tagged fields, none of which is known"]


def test_what_cannot_be_read(line: Line) -> None:
    cut = asks(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 12, 1)[:-3]
    (odd,) = line.talk.request(cut, 1.0)["odd"]
    assert odd.startswith("it cannot be read: ")
    (odd,) = line.talk.request(b"\0\1", 1.0)["odd"]
    assert odd == "request header of 2 bytes"
    line = Line()
    line.ask(HeartbeatRequest(), 4, 5)
    (odd,) = line.talk.answer(b"\0\0\0\5\0\0", 2.0).event["odd"]
    assert odd.startswith("it cannot be read: ")
    assert line.talk.answer(b"\0\0", 2.0).event["odd"] == ["a frame of 2 bytes"]


@pytest.mark.parametrize(
    ("damage", "odd"),
    [
        (lambda data: data, None),
        (lambda data: data[:70] + b"\xff" + data[71:], "checksum"),
        (lambda data: data[:-1], "is cut off"),
        (lambda data: data + data[:40], "is cut off"),
        (lambda data: data[:16] + b"\x07" + data[17:], "unknown magic 7"),
    ],
)
def test_records_of_a_producer(line: Line, damage: Any, odd: str | None) -> None:
    data = batch(b"a" * 20, b"b" * 20)
    event = line.ask(produce(damage(data)), 9, 1)
    if odd is None:
        assert "odd" not in event
        (partition,) = event["body"]["topic_data"][0]["partition_data"]
        shown = {"base_offset": 0, "records": 2, "bytes": len(data)}
        assert partition["records"] == {"bytes": len(data), "records": 2, "batches": [shown]}
    else:
        (found,) = event["odd"]
        assert found.startswith("topic_data[0].partition_data[0].records: ")
        assert odd in found


def test_an_answer_to_fetch_may_end_within_a_batch(line: Line) -> None:
    data = batch(b"a") + batch(b"b")[:-5]
    line.talk.request(asks(request_class(1)(), 12, 1), 0.0)
    partition = FetchResponse.PartitionData(partition_index=0, high_watermark=2, records=data)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    event = line.answer(FetchResponse(responses=[topic]), 12, 1).event
    assert "odd" not in event
    records = event["body"]["responses"][0]["partitions"][0]["records"]
    assert (records["records"], records["cut_off_bytes"]) == (1, len(batch(b"b")) - 5)


def test_addresses_are_put_in_another_form(line: Line) -> None:
    line.ask(MetadataRequest(), 12, 9)
    brokers = [
        MetadataResponse.MetadataResponseBroker(node_id=1, host="b1", port=9092),
        MetadataResponse.MetadataResponseBroker(node_id=2, host="::1", port=9093),
    ]
    answer = line.answer(MetadataResponse(brokers=brokers, cluster_id="c"), 12, 9)
    assert answer.addresses == [Address("b1", 9092), Address("::1", 9093)]
    assert line.talk.rewritten(answer, {}) == answer.frame
    changed = line.talk.rewritten(answer, {Address("b1", 9092): Address("127.0.0.1", 7001)})
    assert answer.event["rewritten"] == {"b1:9092": "127.0.0.1:7001"}
    other = Line()
    other.ask(MetadataRequest(), 12, 9)
    again = other.talk.answer(changed, 1.0)
    assert again.addresses == [Address("127.0.0.1", 7001), Address("::1", 9093)]
    assert "odd" not in again.event
    assert again.event["body"]["cluster_id"] == "c"


def test_addresses_of_coordinators_and_of_new_leaders(line: Line) -> None:
    for version in (1, 3, 4, 6):
        line.ask(FindCoordinatorRequest(), version, version)
        one = {"host": "b1", "port": 9} if version < 4 else {}
        rows = [] if version < 4 else [FindCoordinatorResponse.Coordinator(key="g", node_id=1, host="b1", port=9)]
        answer = line.answer(FindCoordinatorResponse(**one, coordinators=rows), version, version)
        assert answer.addresses == [Address("b1", 9)]
    line.ask(produce(b""), 10, 20)
    moved = ProduceResponse(node_endpoints=[ProduceResponse.NodeEndpoint(node_id=2, host="b2", port=9)])
    answer = line.answer(moved, 10, 20)
    assert answer.addresses == [Address("b2", 9)]
    assert line.talk.rewritten(answer, {Address("b2", 9): Address("t", 1)}) != answer.frame
    line.ask(FindCoordinatorRequest(), 3, 21)  # none yet
    assert line.answer(FindCoordinatorResponse(error_code=15, node_id=-1, port=-1), 3, 21).addresses == []


def test_secrets_are_not_shown(line: Line) -> None:
    def text(message: Any, version: int) -> str:
        return json.dumps(line.ask(message, version, 1))

    assert "hunter2" not in text(SaslAuthenticateRequest(auth_bytes=b"\0u\0hunter2"), 2)
    scram = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="u", mechanism=1, iterations=4096, salt=b"hunter2", salted_password=b"hunter2"
    )
    hexed = b"hunter2".hex()
    assert hexed not in text(AlterUserScramCredentialsRequest(upsertions=[scram]), 0)
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=name, value="hunter2")
        for name in ("ssl.key.password", "listener.name.a.plain.sasl.jaas.config", "ssl.keystore.key")
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    assert "hunter2" not in text(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    shown = DescribeConfigsResponse.DescribeConfigsResourceResult(name="retention.ms", value="5")
    result = DescribeConfigsResponse.DescribeConfigsResult(resource_type=2, resource_name="t", configs=[shown])
    line = Line()
    line.ask(request_class(32)(), 4, 2)
    answer = line.answer(DescribeConfigsResponse(results=[result]), 4, 2)
    assert answer.event["body"]["results"][0]["configs"][0]["value"] == "5"


def test_raw_tokens_of_old_log_ins(line: Line) -> None:
    line.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0, 1)
    line.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]), 0, 1)
    event = line.talk.request(b"\0alice\0hunter2", 1.0)
    assert (event["request"], event["bytes"]) == ("SASL token", 18)
    assert "body" not in event
    assert line.talk.answer(b"", 2.0).event["answer"] == "SASL token"
    assert line.ask(MetadataRequest(), 1, 2)["request"] == "Metadata"
    assert "odd" not in line.answer(MetadataResponse(), 1, 2).event


def test_long_things_are_cut() -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="t" * 249, topic_id=ZERO_UUID) for _ in range(30)]
    event = Line().ask(MetadataRequest(topics=topics), 12, 1)
    assert len(event["body"]["topics"]) == 11
    assert event["body"]["topics"][-1] == "… 20 more"
    assert event["body"]["topics"][0]["name"] == "t" * 200 + "… (249 characters)"


def test_two_connections_know_what_a_broker_offers() -> None:
    line = Line()
    line.ask(ApiVersionsRequest(), 3, 1)
    rows = [ApiVersionsResponse.ApiVersion(api_key=12, min_version=0, max_version=2)]
    line.answer(ApiVersionsResponse(api_keys=rows), 3, 1)
    second = Conversation(8, "b:9092", line.offered)
    assert second.request(asks(HeartbeatRequest(), 4), 0.0)["odd"] == ["the broker offers version 0 to 2"]
