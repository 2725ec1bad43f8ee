"""Faults and records of `barnabas.Broker` and `barnabas.Cluster`, as tests of users have them: real processes."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

import barnabas
from barnabas import BrokerError, child
from barnabas.kproto import ApiKey, decode, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import MetadataRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.server.requests.faults.rules import KIT_CLIENT_ID
from barnabas.server.tests.test_barnabas_process import ROOT
from barnabas.server.tests.test_barnabas_pytest import suite  # noqa: F401

pytestmark = pytest.mark.slow
pytest_plugins = ["pytester"]
NOW_MS = int(time.time() * 1000)


class Wire:
    """One connection, requests of any client id."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._answers = self._socket.makefile("rb")

    def ask(self, request: Any, version: int) -> Any:
        key = ApiKey(request.__description__.api_key)
        self._socket.sendall(request_frame(version, 1, "test", request))
        size = self._answers.read(4)
        if len(size) < 4:
            raise EOFError
        frame = self._answers.read(int.from_bytes(size, "big"))
        if len(frame) < int.from_bytes(size, "big"):
            raise EOFError
        _, offset = parse_response_header(key, version, frame)
        return decode(response_class(key), version, frame, offset)

    def produce(self, topic: str, *values: bytes, index: int = 0, acks: int = -1) -> tuple[int, int]:
        """Error and offset."""
        records = [Record(i, NOW_MS + i, b"k", value, [("h", b"x")]) for i, value in enumerate(values)]
        data = ProduceRequest.PartitionProduceData(index=index, records=build_batch(records))
        topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
        answer = self.ask(ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic_data]), 9)
        partition = answer.responses[0].partition_responses[0]
        return partition.error_code, partition.base_offset

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


@contextmanager
def wire(bootstrap: str) -> Iterator[Wire]:
    made = Wire(bootstrap)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(topics={"t": 2}) as made:
        yield made


@pytest.fixture(autouse=True)
def _clean(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        found = request.getfixturevalue("broker")
        found.faults.clear()
        found.delete_topic("t")
        found.create_topic("t", 2)


# -- faults ----------------------------------------------------------------------------------------------------------


def test_a_fault_strikes_in_its_block(broker: barnabas.Broker) -> None:
    with wire(broker.bootstrap) as client:
        with broker.faults.produce(topic="t", error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
            assert [client.produce("t", b"a")[0] for _ in range(3)] == [6, 6, 0]
            assert (fault.hits, fault.seen) == (2, 2)
        assert client.produce("t", b"a") == (0, 1)
        assert (fault.hits, fault.seen) == (2, 2)
        assert list(broker.faults) == []


def test_a_fault_without_a_block(broker: barnabas.Broker) -> None:
    with wire(broker.bootstrap) as client:
        first = broker.faults.produce(topic="t", error="MESSAGE_TOO_LARGE")
        second = broker.faults.any(api="Produce", delay_s=0.001)
        assert client.produce("t", b"a")[0] == 10
        assert [each.hits for each in broker.faults] == [1, 1]
        first.end()
        first.end()
        assert client.produce("t", b"a")[0] == 0
        broker.faults.clear()
        second.end()
        assert client.produce("t", b"a")[0] == 0
        assert (first.hits, second.hits) == (1, 0)  # cleared, it does not know what became of it


def test_connections_that_break(broker: barnabas.Broker) -> None:
    written = 0
    for what in ({"drop": True}, {"drop": "answer"}, {"half": True}):
        with broker.faults.produce(topic="t", **what) as fault, wire(broker.bootstrap) as client:
            with pytest.raises(EOFError):
                client.produce("t", b"a")
            assert fault.hits == 1
        written += what != {"drop": True}
        assert len(broker.topics["t"].records()) == written


def test_a_delay(broker: barnabas.Broker) -> None:
    with broker.faults.produce(topic="t", delay_s=0.3), wire(broker.bootstrap) as client:
        began = time.monotonic()
        assert client.produce("t", b"a") == (0, 0)
        assert time.monotonic() - began >= 0.3


def test_the_other_kinds(broker: barnabas.Broker) -> None:
    def metadata() -> int:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("t",)]
        return int(client.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9).topics[0].error_code)

    with wire(broker.bootstrap) as client:
        with broker.faults.disk_full(topic="t", partition=1):
            assert (client.produce("t", b"a")[0], client.produce("t", b"a", index=1)[0]) == (0, 56)
        broker.delete_topic("t")
        with broker.faults.metadata(stale=True):
            broker.create_topic("t", 2)
            assert metadata() == 3
        assert metadata() == 0
        with broker.faults.metadata(topic="t", error="TOPIC_AUTHORIZATION_FAILED"):
            assert metadata() == 29
        with broker.faults.coordinator_moved(group="g"), broker.faults.coordinator_moved(transactional_id="x"):
            pass
        with broker.faults.fetch(topic="t", error="OFFSET_OUT_OF_RANGE") as fetch:
            broker.topics["t"].records()
            assert fetch.seen == 0, "the kit's own requests are spared"


def test_mistakes_are_told(broker: barnabas.Broker) -> None:
    with pytest.raises(ValueError, match="error must be the name of an error"):
        broker.faults.produce(error="NOPE")
    with pytest.raises(ValueError, match="a fault has one of error, stale, drop and half"):
        broker.faults.produce(topic="t")
    with pytest.raises(ValueError, match="api must be one that this broker serves"):
        broker.faults.any(api="Nope", half=True)
    assert list(broker.faults) == []


def test_the_kit_has_one_name() -> None:
    assert child.KIT_CLIENT_ID == KIT_CLIENT_ID


def test_a_restart_ends_faults() -> None:
    with barnabas.Broker(topics=["t"]) as broker:
        url = broker.control_url
        fault = broker.faults.produce(error="MESSAGE_TOO_LARGE")
        broker.restart()
        assert broker.control_url != url
        with wire(broker.bootstrap) as client:
            assert client.produce("t", b"a")[0] == 0
        fault.end()
        broker.kill()
        with pytest.raises(BrokerError, match="the broker is not running"):
            broker.faults.produce(half=True)
        with pytest.raises(BrokerError, match="the broker is not running"):
            _ = broker.control_url


@pytest.mark.campaign
def test_a_cluster_with_faults_on_one_broker() -> None:
    # Nobody who stands still for a while loses its session, and with it what it leads.
    with barnabas.Cluster(2, {"zookeeper.session.timeout.ms": 60_000}, topics={"t": 4}) as cluster:
        first, second = cluster.brokers
        with first.faults.produce(topic="t", error="NOT_ENOUGH_REPLICAS") as fault:
            for number, broker in enumerate((first, second)):
                with wire(broker.bootstrap) as client:
                    codes = {client.produce("t", b"a", index=index, acks=1)[0] for index in range(4)}
                assert (19 in codes) is (number == 0)
            assert fault.hits > 0
        assert 0 < len(cluster.topics["t"].records()) < 8
        assert list(cluster.topics) == ["t"]


# -- records ---------------------------------------------------------------------------------------------------------


def test_records(broker: barnabas.Broker) -> None:
    with wire(broker.bootstrap) as client:
        client.produce("t", b"a", b"b", index=1)
        client.produce("t", b"c", index=0)
    headers = (("h", b"x"),)
    assert broker.topics["t"].records() == [
        barnabas.Record(0, 0, NOW_MS, b"k", b"c", headers),
        barnabas.Record(1, 0, NOW_MS, b"k", b"a", headers),
        barnabas.Record(1, 1, NOW_MS + 1, b"k", b"b", headers),
    ]
    assert [each.value for each in broker.topics["t"].records(partition=1)] == [b"a", b"b"]
    assert [each.value for each in broker.topics["t"].records(partition=[0], committed=True)] == [b"c"]
    assert list(broker.topics) == ["t"]
    assert "t" in broker.topics
    assert "u" not in broker.topics


def test_records_of_what_is_not_there(broker: barnabas.Broker) -> None:
    assert broker.topics["t"].records() == []
    with pytest.raises(BrokerError, match=r"topic u: .*there is no such topic"):
        broker.topics["u"].records()
    with pytest.raises(BrokerError, match="topic t has 2 partitions, and not 2"):
        broker.topics["t"].records(partition=2)


def test_within_other_loops(broker: barnabas.Broker) -> None:
    """Under asyncio and trio alike: what the kit does is plain calls."""
    with wire(broker.bootstrap) as client:
        client.produce("t", b"a")

    async def look() -> int:
        with broker.faults.produce(half=True):
            return len(broker.topics["t"].records())

    assert asyncio.run(look()) == 1
    assert trio.run(look) == 1


@pytest.mark.parametrize("security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_with_security(security: str) -> None:
    with barnabas.Broker(security=security, topics=["t"]) as broker:
        assert broker.topics["t"].records() == []
        with broker.faults.any(api="Metadata", error="CLUSTER_AUTHORIZATION_FAILED") as fault:
            assert list(broker.topics) == ["t"]
            assert fault.hits == 0


# -- from elsewhere --------------------------------------------------------------------------------------------------


def test_the_command_says_where(tmp_path: Any) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "barnabas",
        "dev",
        "--control",
        "--set",
        "metrics.listener=http://127.0.0.1:0",
    ]
    process = subprocess.Popen(
        [*command, "--topic", "t"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    try:
        assert process.stdout is not None
        said = dict(process.stdout.readline().rstrip("\n").split("=", 1) for _ in range(3))
        assert list(said) == ["bootstrap", "metrics", "control"]
        with urllib.request.urlopen(said["control"] + "/v1/broker", timeout=60) as response:
            assert json.load(response)["bootstrap"] == said["bootstrap"]
    finally:
        process.terminate()
        assert process.wait(60) == 0
        process.stdout.close()


@pytest.mark.parametrize(
    ("value", "code", "error"),
    [
        ("0.0.0.0:0", 1, "--control: 0.0.0.0 is not an address of loopback, such as 127.0.0.1"),
        ("9999", 2, "--control: '9999' must be written as HOST:PORT, such as 127.0.0.1:0"),
    ],
)
def test_other_machines_are_kept_out(value: str, code: int, error: str) -> None:
    command = [sys.executable, "-P", "-m", "barnabas", "dev", "--control", value]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert (done.returncode, done.stdout) == (code, "")
    assert error in done.stderr


def test_the_plugin_ends_the_faults_of_a_test(suite: pytest.Pytester) -> None:  # noqa: F811
    suite.makepyfile(
        """
        def test_one(kafka_broker, kafka_topic):
            kafka_broker.faults.any(error="REQUEST_TIMED_OUT")
            assert len(list(kafka_broker.faults)) == 1

        def test_two(kafka_broker):
            assert list(kafka_broker.faults) == []

        def test_three(kafka_cluster):
            kafka_cluster.brokers[1].faults.any(half=True)

        def test_four(kafka_cluster):
            assert [list(broker.faults) for broker in kafka_cluster.brokers] == [[], [], []]

        def test_five(kafka_broker_fresh):
            kafka_broker_fresh.faults.any(half=True)
            kafka_broker_fresh.kill()
        """
    )
    suite.runpytest_subprocess().assert_outcomes(passed=5)


@pytest.mark.campaign
def test_workers_of_xdist_do_not_meet(suite: pytest.Pytester) -> None:  # noqa: F811
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_alone(number, kafka_broker, kafka_topic):
            assert list(kafka_broker.faults) == []
            with kafka_broker.faults.any(api="Produce", half=True):
                assert len(list(kafka_broker.faults)) == 1
                assert kafka_broker.topics[kafka_topic].records() == []
        """
    )
    suite.runpytest_subprocess("-n", "4").assert_outcomes(passed=8)
