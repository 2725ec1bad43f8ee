"""The log-in on a connection of a broker: what a client sees, when it is let in, refused, and when its session ends.
What each frame does in each state is in server/tests/security/sasl/test_authenticator.py.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    DescribeConfigsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.network.login import TIME_TO_READ_S, Login
from barnabas.server.network.stream_transport import StreamTransport
from barnabas.server.testing import Client, connected
from barnabas.server.tests.apis.records.test_produce import batch, only, request
from barnabas.server.tests.network.sasl_rig import (
    METADATA,
    PASSWORD,
    VERSIONS,
    authenticate,
    handshake,
    log_in,
    sasl_broker,
)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with sasl_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with connected(broker, "CLIENTS") as one:
        yield one


async def ended(client: Client) -> bool:
    with pytest.raises((EOFError, trio.BrokenResourceError)):
        await client.receive_frame()
    return True


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_that_logs_in_is_served(autojump_clock: MockClock, client: Client, mechanism: str) -> None:
    answer = await client.ask(VERSIONS, 3)
    assert {17: (0, 1), 36: (0, 2)}.items() <= {
        row.api_key: (row.min_version, row.max_version) for row in answer.api_keys
    }.items()
    answer = await log_in(client, mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
    assert (await client.ask(METADATA, 12)).brokers
    assert (await client.ask(VERSIONS, 4)).error_code == ErrorCode.NONE


async def test_a_principal_belongs_to_its_connection(
    autojump_clock: MockClock, broker: Broker, nursery: trio.Nursery
) -> None:
    ours, theirs = memory_stream_pair()
    transport = StreamTransport(theirs, lambda: None)
    connection = broker.parts.admission.connection("CLIENTS", "10.0.0.1", transport)
    nursery.start_soon(transport.serve, connection)
    await log_in(Client(ours), "SCRAM-SHA-256")
    assert connection.session.host == "10.0.0.1"
    assert str(connection.session.principal) == "User:alice"
    assert (connection.session.protocol, connection.session.listener) == ("SASL_PLAINTEXT", "CLIENTS")
    assert connection.login is None, "without end, nothing is left of the log-in"
    assert connection._dispatch is broker.parts.admission._dispatch


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize(("user", "password"), [("alice", "secret-of-bob"), ("mallory", PASSWORD)])
async def test_a_failed_log_in_is_answered_and_closed_after_the_delay(
    autojump_clock: MockClock,
    client: Client,
    mechanism: str,
    user: str,
    password: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        begin = trio.current_time()
        answer = await log_in(client, mechanism, user, password)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert trio.current_time() - begin == pytest.approx(0.1, abs=0.001)
        assert await ended(client)
        assert trio.current_time() - begin == pytest.approx(0.1 + TIME_TO_READ_S, abs=0.001), "time to read the answer"
    (line,) = [record for record in caplog.records if record.name == "barnabas.security"]
    assert line.levelno == logging.INFO
    assert f"by {mechanism} failed" in line.getMessage()
    assert user in line.getMessage()
    assert "secret" not in caplog.text


async def test_nothing_is_taken_up_after_a_failure(autojump_clock: MockClock, client: Client) -> None:
    await handshake(client)
    for token in (b"\0alice\0wrong", b"\0alice\0" + PASSWORD.encode()):
        await client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
    answer = await client.receive(SaslAuthenticateRequest(), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await ended(client)


async def test_other_requests_are_not_answered_before_the_log_in(autojump_clock: MockClock, client: Client) -> None:
    begin = trio.current_time()
    await client.send(METADATA, 12)
    assert await ended(client)
    assert trio.current_time() == begin


async def test_other_requests_during_the_log_in_get_their_own_refusal(
    autojump_clock: MockClock, client: Client
) -> None:
    await handshake(client)
    answer = await client.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")]), 7)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.ILLEGAL_SASL_STATE]
    assert await ended(client)


@pytest.mark.parametrize("version", [99, 3])
async def test_an_api_versions_that_is_refused_may_be_repeated(
    autojump_clock: MockClock, client: Client, version: int
) -> None:
    if version == 99:
        await client.stream.send_all(bytes.fromhex("0000000b 0012 0063 00000007 ffff 00"))
        frame = await client.receive_frame()
        assert frame[:6] == bytes.fromhex("00000007 0023")
    else:
        bad = type(VERSIONS)(client_software_name="-", client_software_version="1")
        assert (await client.ask(bad, 3)).error_code == ErrorCode.INVALID_REQUEST
    assert (await client.ask(VERSIONS, 3)).error_code == ErrorCode.NONE
    assert (await log_in(client)).error_code == ErrorCode.NONE


async def test_a_mechanism_that_is_not_enabled(autojump_clock: MockClock, client: Client) -> None:
    answer = await handshake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert await ended(client)


@pytest.mark.parametrize("is_right", [True, False])
async def test_the_raw_form(autojump_clock: MockClock, client: Client, is_right: bool) -> None:
    assert (await handshake(client, version=0)).error_code == ErrorCode.NONE
    token = b"\0alice\0" + (PASSWORD.encode() if is_right else b"wrong")
    await client.stream.send_all(len(token).to_bytes(4, "big") + token)
    if not is_right:
        assert await ended(client)
        return
    received = b""
    while len(received) < 4:
        received += await client.stream.receive_some(4 - len(received))
    assert received == b"\0\0\0\0"
    assert (await client.ask(METADATA, 12)).brokers


async def test_how_long_a_request_may_be(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with sasl_broker(tmp_path, sasl_server_max_receive_size="1000") as broker:
        async with connected(broker, "CLIENTS") as client:
            await handshake(client)
            await client.send(SaslAuthenticateRequest(auth_bytes=b"x" * 1000), 2)
            assert await ended(client)
        async with connected(broker, "CLIENTS") as client:
            await log_in(client)
            names = [MetadataRequest.MetadataRequestTopic(name=f"{n:0200}") for n in range(100)]
            answer = await client.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12)
            assert len(answer.topics) == 100


@pytest.mark.parametrize("listener", ["CLIENTS", "PLAINTEXT"])
async def test_at_the_wrong_time_a_handshake_is_refused_and_the_connection_stays(
    autojump_clock: MockClock, broker: Broker, listener: str
) -> None:
    async with connected(broker, listener) as client:
        if listener == "CLIENTS":
            await log_in(client)
        for _ in range(2):
            answer = await handshake(client)
            assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
            answer = await authenticate(client, b"")
            assert (answer.error_code, answer.auth_bytes) == (ErrorCode.ILLEGAL_SASL_STATE, b"")
        assert (await client.ask(METADATA, 12)).brokers


async def test_pipelined_frames_of_a_log_in(autojump_clock: MockClock, client: Client) -> None:
    """All at once, as Apache Kafka takes them too."""
    token = b"\0alice\0" + PASSWORD.encode()
    await client.send(VERSIONS, 3)
    await client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    await client.send(SaslAuthenticateRequest(auth_bytes=token), 2)
    await client.send(METADATA, 12)
    assert (await client.receive(VERSIONS, 3)).error_code == 0
    assert (await client.receive(SaslHandshakeRequest(), 1)).error_code == 0
    assert (await client.receive(SaslAuthenticateRequest(), 2)).error_code == 0
    assert (await client.receive(METADATA, 12)).brokers


async def test_no_secret_is_shown_by_describe_configs(autojump_clock: MockClock, client: Client) -> None:
    await log_in(client)
    resource = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")
    (result,) = (await client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)).results
    assert any(entry.name.endswith("sasl.jaas.config") and entry.is_sensitive for entry in result.configs)
    assert PASSWORD not in repr(result)
    assert "PlainLoginModule" not in repr(result)


async def test_no_secret_is_in_the_reprs_of_a_broker(autojump_clock: MockClock, broker: Broker, client: Client) -> None:
    await handshake(client, "SCRAM-SHA-256")
    sasl = broker._protection.listeners.sasl
    assert sasl is not None
    shown = [repr(broker.config), repr(broker._protection), repr(sasl), repr(sasl.listeners)]
    # Of some objects of other libraries `__module__` is no text.
    shown += [repr(one) for one in gc.get_objects() if str(type(one).__module__).startswith("barnabas.server.security")]
    assert len(shown) > 5
    assert not [text for text in shown if PASSWORD in text or "secret-2" in text]


# -- sessions that end ---------------------------------------------------------------------------------------------


@pytest.fixture
async def short(tmp_path: Path) -> AsyncIterator[Broker]:
    """Sessions of ten seconds by PLAIN, of twenty otherwise."""
    settings = {
        "listener.name.clients.connections.max.reauth.ms": "20000",
        "listener.name.clients.plain.connections.max.reauth.ms": "10000",
    }
    async with sasl_broker(tmp_path, **settings) as running:
        yield running


@pytest.fixture
async def guest(short: Broker) -> AsyncIterator[Client]:
    async with connected(short, "CLIENTS") as one:
        yield one


async def test_the_session_says_how_long_it_lasts(autojump_clock: MockClock, short: Broker) -> None:
    for mechanism, lifetime_ms in (("PLAIN", 10_000), ("SCRAM-SHA-256", 20_000)):
        async with connected(short, "CLIENTS") as client:
            assert (await log_in(client, mechanism)).session_lifetime_ms == lifetime_ms
        async with connected(short, "CLIENTS") as client:
            assert (await log_in(client, mechanism, version=1)).session_lifetime_ms == lifetime_ms


@pytest.mark.parametrize("version", [0, 2])
async def test_after_its_end_the_next_request_closes(autojump_clock: MockClock, guest: Client, version: int) -> None:
    await log_in(guest, version=version)
    await trio.sleep(9.9)
    assert (await guest.ask(METADATA, 12)).brokers
    await trio.sleep(0.2)
    await guest.send(METADATA, 12)
    assert await ended(guest)


@pytest.mark.parametrize("after_s", [2, 9, 15, 100])
async def test_a_client_that_logs_in_again_continues(autojump_clock: MockClock, guest: Client, after_s: float) -> None:
    """Also when the session has ended: only other requests are too late then."""
    await log_in(guest)
    for _ in range(3):
        await trio.sleep(after_s)
        assert (await log_in(guest)).session_lifetime_ms == 10_000
        assert (await guest.ask(METADATA, 12)).brokers
    await trio.sleep(10.1)
    await guest.send(METADATA, 12)
    assert await ended(guest)


async def test_not_again_within_a_second(autojump_clock: MockClock, guest: Client) -> None:
    await log_in(guest)
    assert (await log_in(guest)).error_code == ErrorCode.NONE, "the first time counts from no other"
    await trio.sleep(0.9)
    assert (await handshake(guest)).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await guest.ask(METADATA, 12)).brokers
    await trio.sleep(0.2)
    assert (await log_in(guest)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("PLAIN", "bob", "secret-2"), ("PLAIN", "alice", "wrong"), ("SCRAM-SHA-256", "alice", PASSWORD)],
)
async def test_as_another_or_otherwise_it_is_refused(
    autojump_clock: MockClock, guest: Client, mechanism: str, user: str, password: str
) -> None:
    await log_in(guest)
    await trio.sleep(5)
    assert (await log_in(guest, mechanism, user, password)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert await ended(guest)


async def test_other_requests_while_logging_in_again(autojump_clock: MockClock, guest: Client) -> None:
    await log_in(guest)
    await trio.sleep(5)
    await handshake(guest)
    answer = await guest.ask(CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")]), 7)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.ILLEGAL_SASL_STATE]
    assert await ended(guest)


async def test_requests_before_the_handshake_are_answered_first(autojump_clock: MockClock, guest: Client) -> None:
    await log_in(guest)
    await trio.sleep(5)
    await guest.send(METADATA, 12)
    await guest.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert (await guest.receive(METADATA, 12)).brokers
    assert (await guest.receive(SaslHandshakeRequest(), 1)).error_code == ErrorCode.NONE
    assert (await authenticate(guest, b"\0alice\0" + PASSWORD.encode())).error_code == ErrorCode.NONE


async def test_the_short_way_of_produce_ends_with_the_session(autojump_clock: MockClock, guest: Client) -> None:
    """Requests that are like the one before need not pass by: not even many of them at once."""
    await log_in(guest)
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    await guest.ask(CreateTopicsRequest(topics=[topic]), 7)
    ask = request(batch(b"x"))
    for _ in range(3):
        assert only(await guest.ask(ask, 9)).error_code == ErrorCode.NONE
    await trio.sleep(11)
    for _ in range(3):
        await guest.send(ask, 9)
    assert await ended(guest)


async def test_nothing_is_left_of_connections_that_are_gone(autojump_clock: MockClock, short: Broker) -> None:
    for number in range(20):
        async with connected(short, "CLIENTS") as client:
            if number % 2:
                await log_in(client)
            else:
                await handshake(client)
    await trio.sleep(1)
    gc.collect()
    assert not [one for one in gc.get_objects() if isinstance(one, Login)]
    left = [timer.callback for _, _, timer in short.services.timers._heap if timer.callback is not None]
    assert not [callback for callback in left if isinstance(getattr(callback, "__self__", None), Login)]


async def test_a_plain_listener_has_no_part_in_it(autojump_clock: MockClock, broker: Broker) -> None:
    _, theirs = memory_stream_pair()
    admission = broker.parts.admission
    connection = admission.connection("PLAINTEXT", "10.0.0.1", StreamTransport(theirs, lambda: None))
    assert connection.login is None
    assert connection._dispatch is admission._dispatch
