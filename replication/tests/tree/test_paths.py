"""Names and JSON of the tree, against what Apache Kafka 3.9.1 writes, and what older or foreign writers leave."""

from __future__ import annotations

import json

import pytest

from barnabas.kproto import uuid_from_text
from barnabas.replication.tree import paths
from barnabas.replication.tree.paths import Assignment, BadNode, ProducerIdBlock, StateNode, TopicNode
from barnabas.replication.tree.registration import decode_broker, encode_broker
from barnabas.replication.values.image import BrokerImage, Endpoint

TOPIC_ID = uuid_from_text("5DhbiGy7QOiaWg31HDs8Ig")


def test_cluster_id() -> None:
    data = paths.encode_cluster_id("4L6g3nShT-eMCtK--X86sw")
    assert data == b'{"version":"1","id":"4L6g3nShT-eMCtK--X86sw"}'
    assert paths.decode_cluster_id(data) == "4L6g3nShT-eMCtK--X86sw"


def test_topic() -> None:
    node = TopicNode(TOPIC_ID, {0: Assignment((1, 2)), 1: Assignment((2, 3, 1), (3,), (1,))})
    data = paths.encode_topic(node)
    assert data == (
        b'{"removing_replicas":{"1":[1]},"partitions":{"0":[1,2],"1":[2,3,1]},'
        b'"topic_id":"5DhbiGy7QOiaWg31HDs8Ig","adding_replicas":{"1":[3]},"version":3}'
    )
    assert paths.decode_topic("/t", data) == node


@pytest.mark.parametrize(
    "text",
    [
        '{"version":1,"partitions":{"1":[2],"0":[1]}}',
        '{"version":2,"partitions":{"0":[1],"1":[2]},"adding_replicas":{},"removing_replicas":{}}',
        '{"partitions":{"0":["1"],"1":["2"]},"version":1,"later":{"x":1}}',
    ],
)
def test_topics_of_older_writers(text: str) -> None:
    node = paths.decode_topic("/t", text.encode())
    assert node == TopicNode(None, {0: Assignment((1,)), 1: Assignment((2,))})
    assert list(node.partitions) == [0, 1]
    assert b"topic_id" not in paths.encode_topic(node)


def test_state() -> None:
    node = StateNode(1, 3, 7, (1, 2))
    data = paths.encode_state(node)
    assert data == b'{"controller_epoch":7,"leader":1,"version":1,"leader_epoch":3,"isr":[1,2]}'
    assert paths.decode_state("/s", data) == node
    recovering = StateNode(1, 3, 7, (1,), recovering=True)
    assert b'"leader_recovery_state":1' in paths.encode_state(recovering)
    assert paths.decode_state("/s", paths.encode_state(recovering)) == recovering


def test_controller() -> None:
    data = paths.encode_controller(1, 1700000000000)
    assert data == b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    assert paths.decode_controller(data) == 1
    assert paths.decode_controller(b'{"version":1,"brokerid":2,"timestamp":"1"}') == 2
    assert paths.decode_controller_epoch(paths.encode_controller_epoch(12)) == 12


def test_configs_and_their_notifications() -> None:
    data = paths.encode_config({"retention.ms": "5"})
    assert data == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert paths.decode_config("/c", data) == {"retention.ms": "5"}
    assert paths.decode_config("/c", b"") == {}
    assert paths.decode_config("/c", b'{"version":1}') == {}
    assert paths.decode_config("/c", b'{"config":{"a":1,"b":true}}') == {"a": "1", "b": "true"}
    assert paths.config_entity("topics", "t") == "/config/topics/t"
    assert paths.config_entity("brokers", "<default>") == "/config/brokers/<default>"
    assert paths.config_entity("users", "a b/c*~+") == "/config/users/a%20b%2Fc%2A%7E%2B"
    for name in ("a b/c*~+", "t.x_y-z", "<default>", "é"):
        assert paths.unescape(paths.config_entity("users", name).removeprefix("/config/users/")) == name
        change = paths.encode_config_change("users", name)
        assert paths.decode_config_change("/n", change) == ("users", name)
    assert paths.encode_config_change("topics", "t") == b'{"version":2,"entity_path":"topics/t"}'
    version_1 = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert paths.decode_config_change("/n", version_1) == ("topics", "t")


def test_producer_ids() -> None:
    block = ProducerIdBlock(1, 0, 999)
    data = paths.encode_producer_ids(block)
    assert data == b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    assert paths.decode_producer_ids(data) == block
    assert paths.decode_producer_ids(b"") is None


BROKER = BrokerImage(
    1, (Endpoint("SECURE", "h", 9093, "SASL_SSL"), Endpoint("PLAINTEXT", "::1", 9092)), rack="r", epoch=25
)


def test_registration() -> None:
    data = encode_broker(BROKER, 1700000000000)
    assert json.loads(data) == {
        "version": 5,
        "host": "::1",
        "port": 9092,
        "endpoints": ["SECURE://h:9093", "PLAINTEXT://[::1]:9092"],
        "listener_security_protocol_map": {"SECURE": "SASL_SSL", "PLAINTEXT": "PLAINTEXT"},
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "features": {
            "group.version": {"min_version": 1, "max_version": 1},
            "share.version": {"min_version": 1, "max_version": 1},
            "streams.version": {"min_version": 1, "max_version": 1},
            "transaction.version": {"min_version": 1, "max_version": 2},
        },
        "rack": "r",
    }
    assert decode_broker(1, data, 25) == BROKER
    only_secure = json.loads(encode_broker(BrokerImage(2, BROKER.endpoints[:1]), 1))
    assert (only_secure["host"], only_secure["port"]) == (None, -1)
    assert "rack" not in only_secure


@pytest.mark.parametrize(
    "text",
    [
        '{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2"}',
        '{"version":2,"host":"h","port":9092,"jmx_port":9999,"timestamp":"2","endpoints":["PLAINTEXT://h:9092"]}',
        '{"version":3,"host":"h","port":9092,"jmx_port":9999,"endpoints":["PLAINTEXT://h:9092"],"rack":null}',
        '{"version":6,"endpoints":["PLAINTEXT://h:9092"],"jmx_port":"9999",'
        '"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
    ],
)
def test_registrations_of_other_versions(text: str) -> None:
    assert decode_broker(7, text.encode(), 3) == BrokerImage(7, (Endpoint("PLAINTEXT", "h", 9092),), None, 3, 9999)


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"7.5", b"{", b'{"x":1}', b"[" * 100_000, b"null"])
def test_unreadable_nodes(data: bytes) -> None:
    readers = [
        lambda: paths.decode_cluster_id(data),
        lambda: paths.decode_state("/x", data),
        lambda: paths.decode_controller(data),
        lambda: paths.decode_controller_epoch(data),
        lambda: paths.decode_config_change("/x", data),
        lambda: decode_broker(1, data, 0),
    ]
    for read in readers:
        with pytest.raises(BadNode):
            read()
    if data != b'{"x":1}':
        with pytest.raises(BadNode):
            paths.decode_topic("/x", data)


@pytest.mark.parametrize(
    "text",
    [
        '{"version":5,"endpoints":["nonsense"]}',
        '{"version":5,"endpoints":["ODD://h:1"]}',
        '{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"A":"NEW"}}',
        '{"version":0,"host":"h","port":1}',
        '{"version":5,"endpoints":7}',
        '{"version":5,"endpoints":["PLAINTEXT://h:1"],"listener_security_protocol_map":[7]}',
    ],
)
def test_registrations_that_cannot_be_used(text: str) -> None:
    with pytest.raises(BadNode):
        decode_broker(1, text.encode(), 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"partitions":{"x":[1]}}',
        '{"partitions":{"0":["x"]}}',
        '{"partitions":{"0":1}}',
        '{"topic_id":"short"}',
        '{"partitions":[1]}',
    ],
)
def test_assignments_that_cannot_be_used(text: str) -> None:
    with pytest.raises(BadNode):
        paths.decode_topic("/x", text.encode())
