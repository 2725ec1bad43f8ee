"""Logging in to other brokers: over a memory stream, and in a cluster whose brokers want it of each other."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from barnabas.replication import Endpoint
from barnabas.server.broker.broker import Broker
from barnabas.server.network.peer_login import logging_in
from barnabas.server.network.peers import PeerConnection, PeerError, SessionStream
from barnabas.server.security.sasl.client import ClientCredentials
from barnabas.server.testing import connected, embedded_cluster
from barnabas.server.tests.apis.records.test_produce import batch, only, request
from barnabas.server.tests.network.sasl_rig import METADATA, PASSWORD, log_in, sasl_broker

ENDPOINT = Endpoint("CLIENTS", "broker", 9092, "SASL_PLAINTEXT")


class Wire:
    """A `Connect` to a broker, over memory streams."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.opened = 0

    async def __call__(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.opened += 1
        ours, theirs = memory_stream_pair()
        self.broker.serve_stream(theirs, listener=endpoint.listener)
        return ours


@pytest.fixture
async def wire(tmp_path: Path) -> AsyncIterator[Wire]:
    settings = {"listener.name.clients.scram-sha-512.connections.max.reauth.ms": "10000"}
    async with sasl_broker(tmp_path, **settings) as broker:
        yield Wire(broker)


def peer(wire: Wire, mechanism: str, password: str = PASSWORD, user: str = "alice") -> PeerConnection:
    return PeerConnection(logging_in(wire, ClientCredentials(mechanism, user, password)), "test", 30)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_session_without_end_is_the_stream_itself(
    autojump_clock: MockClock, wire: Wire, mechanism: str
) -> None:
    one = peer(wire, mechanism)
    assert (await one.ask(ENDPOINT, METADATA, 12)).brokers
    assert not isinstance(one._stream, SessionStream)
    await one.close()


async def test_no_login_where_none_is_wanted(autojump_clock: MockClock, wire: Wire) -> None:
    one = peer(wire, "PLAIN", "wrong")
    assert (await one.ask(Endpoint("PLAINTEXT", "broker", 9093, "PLAINTEXT"), METADATA, 12)).brokers
    await one.close()


async def test_a_session_that_ends_is_renewed_on_the_same_connection(autojump_clock: MockClock, wire: Wire) -> None:
    one = peer(wire, "SCRAM-SHA-512")
    for pause_s in (1, 5, 8, 9.5, 30, 0):
        assert (await one.ask(ENDPOINT, METADATA, 12)).brokers
        await trio.sleep(pause_s)
    assert wire.opened == 1
    await one.close()


async def test_a_renewal_that_fails_costs_the_connection_only(autojump_clock: MockClock, wire: Wire) -> None:
    one = peer(wire, "SCRAM-SHA-512")
    await one.ask(ENDPOINT, METADATA, 12)
    users = wire.broker.services.users.scram
    kept = {mechanism.value: credential.text() for mechanism, credential in users.credentials("alice").items()}
    users.put("alice", {})
    await trio.sleep(9.5)
    with pytest.raises(PeerError, match="rejects the log-in of alice"):
        await one.ask(ENDPOINT, METADATA, 12)
    users.put("alice", kept)
    assert (await one.ask(ENDPOINT, METADATA, 12)).brokers
    await one.close()


@pytest.mark.parametrize(
    ("mechanism", "user", "password", "why"),
    [
        ("PLAIN", "alice", "wrong-secret", "rejects the log-in of alice: Authentication failed"),
        ("SCRAM-SHA-256", "alice", "wrong-secret", "rejects the log-in of alice: Authentication failed"),
        ("SCRAM-SHA-256", "mallory", PASSWORD, "rejects the log-in of mallory"),
    ],
)
async def test_a_rejected_broker_gets_the_reason(
    autojump_clock: MockClock, wire: Wire, mechanism: str, user: str, password: str, why: str
) -> None:
    one = peer(wire, mechanism, password, user)
    with pytest.raises(PeerError, match=why) as caught:
        await one.ask(ENDPOINT, METADATA, 12)
    assert "secret" not in str(caught.value)
    assert not one.is_open


async def test_a_mechanism_that_the_other_does_not_take(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with sasl_broker(tmp_path, **{"listener.name.clients.sasl.enabled.mechanisms": "PLAIN"}) as broker:
        one = peer(Wire(broker), "SCRAM-SHA-256")
        with pytest.raises(PeerError, match="UNSUPPORTED_SASL_MECHANISM, it offers PLAIN"):
            await one.ask(ENDPOINT, METADATA, 12)


async def test_a_server_that_does_not_know_the_password_is_not_spoken_to(
    autojump_clock: MockClock, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "barnabas.server.security.sasl.scram.b64encode", lambda data: b"AAAA" if len(data) == 32 else b"c2FsdA=="
    )
    one = peer(wire, "SCRAM-SHA-256")
    with pytest.raises(PeerError, match="cannot be trusted: the server does not know"):
        await one.ask(ENDPOINT, METADATA, 12)


BETWEEN = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="kafka" password="secret-of-brokers" user_kafka="secret-of-brokers";'
    ),
    "connections.max.reauth.ms": "20000",
}


@pytest.mark.parametrize("tcp", [False, True])
async def test_a_cluster_whose_brokers_log_in_to_each_other(
    tcp: bool, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Replication, group and controller traffic, over sessions that end and are renewed."""
    if tcp:
        autojump_clock.autojump_threshold = 0.01
    async with embedded_cluster(2, tcp=tcp, **BETWEEN) as cluster:
        from barnabas.kproto.messages import CreateTopicsRequest

        with caplog.at_level(logging.INFO, "barnabas"):
            async with connected(cluster[cluster.controller()], "CLIENTS") as client:
                topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=2)
                (made,) = (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)).topics
                assert made.error_code == 0
            leader = await cluster.leader("t")
            for _ in range(4):
                async with connected(cluster[leader], "CLIENTS") as client:
                    assert only(await client.ask(request(batch(b"x"), acks=-1), 9)).error_code == 0
                await trio.sleep(15)
            image = cluster[leader].services.image
            assert sorted(image.topics["t"].partitions[0].isr) == [1, 2]
            async with connected(cluster[1], "BROKERS") as client:
                assert (await log_in(client, "PLAIN", "kafka", "wrong")).error_code == 58
        assert "secret-of-brokers" not in caplog.text
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
