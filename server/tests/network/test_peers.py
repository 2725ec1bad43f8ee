"""Connections between brokers, over memory streams and one real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from barnabas.kproto import ApiKey, ErrorCode, encode
from barnabas.kproto.frame import FrameSplitter, parse_request_header, response_frame
from barnabas.kproto.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from barnabas.replication import Endpoint
from barnabas.server.network.peers import PeerConnection, PeerError, tcp_connect

HERE = Endpoint("PLAINTEXT", "one", 1)
THERE = Endpoint("PLAINTEXT", "two", 2)
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")

Serve = Callable[[trio.abc.Stream], Awaitable[None]]


def frame(key: ApiKey, version: int, correlation_id: int, response: object) -> bytes:
    return b"".join(response_frame(key, version, correlation_id, [encode(response, version)]))  # type: ignore[arg-type]


def beat(correlation_id: int, code: int = 0) -> bytes:
    return frame(ApiKey.HEARTBEAT, 4, correlation_id, HeartbeatResponse(error_code=code))


async def requests(stream: trio.abc.Stream) -> AsyncIterator[tuple[int, bytes]]:
    """(correlation id, frame) of each request that arrives."""
    splitter = FrameSplitter(1 << 20)
    while data := await stream.receive_some(1 << 16):
        for one in splitter.feed(data):
            yield parse_request_header(one).correlation_id, one


async def answer_all(stream: trio.abc.Stream) -> None:
    async for correlation_id, _ in requests(stream):
        await stream.send_all(beat(correlation_id, 27))


class Peers:
    """Stands for the other brokers: each connection is served by the next of `scripts`, the last one for ever."""

    def __init__(self, nursery: trio.Nursery, *scripts: Serve) -> None:
        self.nursery = nursery
        self.scripts = list(scripts)
        self.opened: list[Endpoint] = []

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.opened.append(endpoint)
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self._serve, self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0], theirs)
        return ours

    async def _serve(self, script: Serve, stream: trio.abc.Stream) -> None:
        try:
            await script(stream)
        except trio.BrokenResourceError:
            pass
        finally:
            await trio.aclose_forcefully(stream)


@asynccontextmanager
async def peers(*scripts: Serve) -> AsyncIterator[tuple[Peers, PeerConnection]]:
    async with trio.open_nursery() as nursery:
        there = Peers(nursery, *scripts)
        connection = PeerConnection(there.connect, "1", 30)
        yield there, connection
        await connection.close()
        nursery.cancel_scope.cancel()


async def test_one_connection_for_many_requests() -> None:
    async with peers(answer_all) as (there, connection):
        for _ in range(3):
            assert (await connection.ask(HERE, BEAT, 4)).error_code == 27
        assert there.opened == [HERE]
        assert connection.is_open


async def test_the_request_as_the_peer_sees_it() -> None:
    seen: list[bytes] = []

    async def script(stream: trio.abc.Stream) -> None:
        async for correlation_id, one in requests(stream):
            seen.append(one)
            await stream.send_all(beat(correlation_id))

    async with peers(script) as (_, connection):
        await connection.ask(HERE, BEAT, 4)
    header = parse_request_header(seen[0])
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.HEARTBEAT, 4, "1")
    assert seen[0][header.body_offset :] == encode(BEAT, 4)


async def test_tasks_take_turns() -> None:
    async with peers(answer_all) as (there, connection):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(connection.ask, HERE, BEAT, 4)
        assert there.opened == [HERE]


async def test_another_endpoint_is_another_connection() -> None:
    async with peers(answer_all) as (there, connection):
        for endpoint in (HERE, THERE, THERE, HERE):
            await connection.ask(endpoint, BEAT, 4)
        assert there.opened == [HERE, THERE, HERE]


async def test_an_answer_in_single_bytes() -> None:
    async def script(stream: trio.abc.Stream) -> None:
        async for correlation_id, _ in requests(stream):
            for byte in beat(correlation_id, 22):
                await stream.send_all(bytes([byte]))

    async with peers(script) as (_, connection):
        assert (await connection.ask(HERE, BEAT, 4)).error_code == 22


async def test_records_are_a_writable_view_of_their_own() -> None:
    async def script(stream: trio.abc.Stream) -> None:
        async for correlation_id, _ in requests(stream):
            partition = FetchResponse.PartitionData(partition_index=0, records=b"%d" % correlation_id * 100_000)
            topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
            await stream.send_all(frame(ApiKey.FETCH, 11, correlation_id, FetchResponse(responses=[topic])))

    async with peers(script) as (_, connection):
        first = (await connection.ask(HERE, FetchRequest(), 11)).responses[0].partitions[0].records
        second = (await connection.ask(HERE, FetchRequest(), 11)).responses[0].partitions[0].records
        assert isinstance(first, memoryview)
        assert not first.readonly
        first[0:1] = b"x"
        assert bytes(first) == b"x" + b"1" * 99_999
        assert bytes(second) == b"2" * 100_000


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (b"", "closed by the peer"),
        (b"\0\0\0\x06\0\0", "closed by the peer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is HTTP"),
        (b"\x7f\xff\xff\xff\0\0\0\x01", "frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff\0\0\0\x01", "frame of -1 bytes"),
        (beat(1) + b"more", "4 bytes more than the answer"),
        (beat(2), "answer to request 2 instead of 1"),
        (b"\0\0\0\x06\0\0\0\x01\0\0", "unreadable answer to HEARTBEAT"),
    ],
)
async def test_bad_answers(what: bytes, why: str) -> None:
    async def script(stream: trio.abc.Stream) -> None:
        async for _ in requests(stream):
            await stream.send_all(what)
            return

    async with peers(script, answer_all) as (there, connection):
        with pytest.raises(PeerError, match=why):
            await connection.ask(HERE, BEAT, 4)
        assert not connection.is_open
        assert (await connection.ask(HERE, BEAT, 4)).error_code == 27
        assert there.opened == [HERE, HERE]


async def test_no_answer_in_time(autojump_clock: MockClock) -> None:
    async def silent(stream: trio.abc.Stream) -> None:
        async for _ in requests(stream):
            pass

    async with peers(silent, silent, answer_all) as (_, connection):
        began = trio.current_time()
        with pytest.raises(PeerError, match="no answer to HEARTBEAT within 30 s"):
            await connection.ask(HERE, BEAT, 4)
        assert trio.current_time() - began == 30
        with pytest.raises(PeerError, match=r"within 0.5 s"):
            await connection.ask(HERE, BEAT, 4, timeout_s=0.5)
        assert (await connection.ask(HERE, BEAT, 4)).error_code == 27


async def test_a_cancelled_request_does_not_leave_its_answer_to_the_next(autojump_clock: MockClock) -> None:
    async def slow(stream: trio.abc.Stream) -> None:
        async for correlation_id, _ in requests(stream):
            await trio.sleep(2)
            await stream.send_all(beat(correlation_id, 22))

    async with peers(slow, answer_all) as (there, connection):
        with trio.move_on_after(1):
            await connection.ask(HERE, BEAT, 4)
        assert (await connection.ask(HERE, BEAT, 4)).error_code == 27
        assert len(there.opened) == 2


async def test_close_while_waiting() -> None:
    async def silent(stream: trio.abc.Stream) -> None:
        async for _ in requests(stream):
            pass

    async with peers(silent) as (_, connection), trio.open_nursery() as nursery:

        async def ask() -> None:
            with pytest.raises(PeerError):
                await connection.ask(HERE, BEAT, 4)

        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        await connection.close()


async def test_no_broker_listens(autojump_clock: MockClock) -> None:
    async def refuse(endpoint: Endpoint) -> trio.abc.Stream:
        raise ConnectionRefusedError("refused")

    async def hang(endpoint: Endpoint) -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.raises(PeerError, match="cannot connect to one:1: refused"):
        await PeerConnection(refuse, "1", 30).ask(HERE, BEAT, 4)
    with pytest.raises(PeerError, match="cannot connect to one:1 within 7 s"):
        await PeerConnection(hang, "1", 7).ask(HERE, BEAT, 4)


async def test_versions_are_requested_once_per_connection() -> None:
    asked = 0

    async def script(stream: trio.abc.Stream) -> None:
        nonlocal asked
        async for correlation_id, one in requests(stream):
            header = parse_request_header(one)
            if header.api_key == ApiKey.API_VERSIONS:
                asked += 1
                keys = [
                    ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, low, high in ((56, 0, 3), (9999, 0, 1))
                ]
                response = ApiVersionsResponse(error_code=0, api_keys=keys)
                await stream.send_all(frame(ApiKey.API_VERSIONS, header.api_version, correlation_id, response))
            else:
                return

    async with peers(script) as (_, connection):
        for _ in range(3):
            assert await connection.versions(HERE) == {ApiKey.ALTER_PARTITION: (0, 3)}
        assert asked == 1
        with pytest.raises(PeerError):
            await connection.ask(HERE, BEAT, 4)
        await connection.versions(HERE)
        assert asked == 2


async def test_versions_of_an_old_broker() -> None:
    async def script(stream: trio.abc.Stream) -> None:
        async for correlation_id, one in requests(stream):
            version = parse_request_header(one).api_version
            row = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)
            code = ErrorCode.UNSUPPORTED_VERSION if version > 2 else ErrorCode.NONE
            response = ApiVersionsResponse(error_code=code, api_keys=[row])
            await stream.send_all(frame(ApiKey.API_VERSIONS, 0, correlation_id, response))

    async with peers(script) as (there, connection):
        assert await connection.versions(HERE) == {ApiKey.API_VERSIONS: (0, 2)}
        assert there.opened == [HERE]


async def test_tcp_and_a_peer_that_closes_an_idle_connection() -> None:
    closed = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        async for correlation_id, _ in requests(stream):
            await stream.send_all(beat(correlation_id, 27))
            await stream.aclose()
            closed.set()
            return

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        host, port = listener.socket.getsockname()
        connection = PeerConnection(tcp_connect, "1", 60)
        endpoint = Endpoint("PLAINTEXT", host, port)
        for _ in range(2):
            assert (await connection.ask(endpoint, BEAT, 4)).error_code == 27
            await closed.wait()
            closed = trio.Event()
        await connection.close()
        nursery.cancel_scope.cancel()
    with pytest.raises(PeerError, match="has SASL_SSL, and ours between brokers has no TLS"):
        await connection.ask(Endpoint("SECURE", host, port, "SASL_SSL"), BEAT, 4)
    with pytest.raises(PeerError, match="cannot connect"):
        await connection.ask(endpoint, BEAT, 4)
