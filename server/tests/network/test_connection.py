"""The connection without IO: framing, order of answers, bounds. A fake dispatcher stands in for the broker."""

from __future__ import annotations

import random
import struct

import pytest

from barnabas.kproto import ApiKey
from barnabas.server.network.connection import (
    OUT_BYTES_MAX,
    PIPELINE_MAX,
    REQUESTS_PER_TURN,
    Connection,
    ProtocolViolation,
)
from barnabas.server.requests.context import RequestContext


class Transport:
    """Collects what is sent, like a socket that takes everything."""

    def __init__(self) -> None:
        self.data = b""
        self.aborted = False
        self.stuck = False
        self.woken = 0

    def wake(self, connection: Connection) -> None:
        self.woken += 1
        while connection.out and not self.stuck:
            part = bytes(connection.out.popleft())
            self.data += part
            connection.sent(len(part))
        if not self.stuck:
            connection.resume()

    def abort(self, connection: Connection) -> None:
        self.aborted = True
        connection.lost()


class Route:
    """Encodes an answer as itself; `later` requests are left unanswered."""

    def __init__(self, pipelined: bool) -> None:
        self.pipelined = pipelined
        self.name = "TEST"

    def encode_frame(self, correlation_id: int, response: bytes) -> list[bytes]:
        return [response]


class Server:
    """Answers a frame with its own bytes; one that starts with `?` waits, with `!` waits and is pipelined, with `-`
    is never answered.
    """

    def __init__(self, max_frame_bytes: int = 1 << 20) -> None:
        self.transport = Transport()
        self.waiting: list[tuple[RequestContext, bytes]] = []
        self.seen: list[bytes] = []
        self.connection = Connection(
            self.dispatch,  # type: ignore[arg-type]
            self.transport,
            listener="PLAINTEXT",
            client_host="127.0.0.1",
            max_frame_bytes=max_frame_bytes,
        )

    def dispatch(self, connection: Connection, frame: memoryview) -> RequestContext:
        body = bytes(frame)
        self.seen.append(body)
        context = RequestContext(connection, Route(body[:1] == b"!"), 0, 0, None)  # type: ignore[arg-type]
        if body[:1] in (b"?", b"!"):
            self.waiting.append((context, body))
        elif body[:1] == b"-":
            context.no_reply()
        else:
            context.reply(body)
        return context

    def feed(self, data: bytes, piece: int | None = None) -> None:
        """As a transport does: into `recv_target` when there is one, else through a buffer of its own."""
        at = 0
        while at < len(data):
            size = min(piece or len(data), len(data) - at)
            target = self.connection.recv_target()
            if target is not None:
                size = min(size, len(target))
                target[:size] = data[at : at + size]
                self.connection.received(size)
            else:
                self.connection.receive(memoryview(bytearray(data[at : at + size])))
            at += size


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 1000])
def test_frames_are_found_however_the_bytes_are_cut(piece: int) -> None:
    server = Server()
    bodies = [b"a", b"b" * 40, b"-c", b"d" * 300, b"e"]
    server.feed(b"".join(map(frame, bodies)), piece)
    assert server.seen == bodies
    assert server.transport.data == b"".join(body for body in bodies if body[:1] != b"-")
    assert server.connection.backlog_bytes == 0


def test_a_waiting_request_holds_back_the_next_ones() -> None:
    server = Server()
    server.feed(frame(b"?1") + frame(b"2") + frame(b"3"))
    assert server.seen == [b"?1"]
    server.waiting[0][0].reply(b"one")
    assert server.seen == [b"?1", b"2", b"3"]
    assert server.transport.data == b"one23"


def test_pipelined_requests_run_at_once_and_are_answered_in_order() -> None:
    server = Server()
    server.feed(frame(b"!1") + frame(b"!2") + frame(b"3"))
    assert server.seen == [b"!1", b"!2", b"3"]
    server.waiting[1][0].reply(b"two")
    assert server.transport.data == b""
    server.waiting[0][0].reply(b"one")
    assert server.transport.data == b"onetwo3"


def test_a_pipeline_has_an_end() -> None:
    server = Server()
    server.feed(frame(b"!") * (PIPELINE_MAX + 10))
    assert len(server.seen) == PIPELINE_MAX
    assert server.connection.blocked


def test_a_client_that_reads_nothing_gets_no_further_requests_served() -> None:
    server = Server()
    server.transport.stuck = True
    body = b"x" * 1000
    server.feed(frame(body) * 2000)
    while not server.connection.blocked:
        server.connection.resume()
    assert server.connection.out_bytes <= OUT_BYTES_MAX + len(body)
    served = len(server.seen)
    assert served < 300
    server.transport.stuck = False
    server.transport.wake(server.connection)
    assert len(server.seen) == 2000
    assert server.connection.out_bytes == 0


@pytest.mark.parametrize("kind", [b"answered", b"-never answered"])
def test_a_turn_has_an_end(kind: bytes) -> None:
    server = Server()
    server.transport.stuck = True
    count = 3 * REQUESTS_PER_TURN + 1
    server.feed(frame(kind) * count + frame(kind)[:-1])
    for turn in (1, 2, 3):
        assert len(server.seen) == turn * REQUESTS_PER_TURN
        assert server.connection.has_request
        assert server.transport.woken, "the transport knows that there is more"
        server.transport.woken = 0
        server.connection.resume()
    assert len(server.seen) == count
    assert not server.connection.has_request, "half of one is none"
    server.feed(frame(kind)[-1:])
    assert len(server.seen) == count + 1


def test_a_large_request_that_is_complete_while_the_connection_is_muted_has_its_turn() -> None:
    server = Server()
    body = b"x" * 100_000
    server.feed(frame(body)[:50_000])
    server.connection.mute(10.0)
    server.feed(frame(body)[50_000:], 30_000)
    assert server.seen == []
    assert server.connection.has_request
    server.connection.unmute(10.0)
    assert server.seen == [body]
    assert not server.connection.has_request


def test_a_turn_ends_before_the_next_begins() -> None:
    """What arrives meanwhile is taken up in its turn, too."""
    server = Server()
    server.transport.stuck = True
    for at in range(1, 5):
        server.feed(frame(b"-x") * (2 * REQUESTS_PER_TURN))
        assert len(server.seen) == at * REQUESTS_PER_TURN


@pytest.mark.parametrize("length", [-1, 0, (1 << 20) + 1, 0x77455420])
def test_an_impossible_length_is_a_violation_before_anything_is_allocated(length: int) -> None:
    server = Server()
    with pytest.raises(ProtocolViolation, match="frame length"):
        server.feed(struct.pack(">i", length) + b"x" * 10)
    assert server.seen == []
    assert server.connection.backlog_bytes == 0


def test_the_buffer_grows_with_what_arrives_not_with_what_is_promised() -> None:
    server = Server(max_frame_bytes=100 << 20)
    server.feed(struct.pack(">ih", 90 << 20, 0) + b"x" * 1000)
    target = server.connection.recv_target()
    assert target is not None
    assert len(target) < 1 << 20


@pytest.mark.parametrize(
    ("key", "allowed"),
    [(ApiKey.JOIN_GROUP, 16 << 20), (ApiKey.UPDATE_METADATA, 16 << 20), (ApiKey.METADATA, 4 << 20), (999, 4 << 20)],
)
def test_only_produce_may_be_huge(key: int, allowed: int) -> None:
    server = Server(max_frame_bytes=100 << 20)
    server.feed(struct.pack(">ih", 100 << 20, ApiKey.PRODUCE) + b"x" * 1000)
    assert server.connection.recv_target() is not None
    server = Server(max_frame_bytes=100 << 20)
    server.feed(struct.pack(">ih", allowed, key) + b"x" * 1000)
    assert server.connection.recv_target() is not None
    server = Server(max_frame_bytes=100 << 20)
    with pytest.raises(ProtocolViolation, match=f"for API key {key:d}"):
        server.feed(struct.pack(">ih", allowed + 1, key) + b"x" * 1000)
    assert server.connection.backlog_bytes == 0


def test_a_large_frame_is_received_in_place() -> None:
    server = Server(max_frame_bytes=8 << 20)
    body = random.Random(1).randbytes(3 << 20)
    body = b"x" + body
    server.feed(frame(body) + frame(b"next"), 100_000)
    assert server.seen == [body, b"next"]


def test_a_lost_connection_releases_waiting_requests() -> None:
    server = Server()
    server.feed(frame(b"?1"))
    context = server.waiting[0][0]
    gone: list[str] = []
    context.on_close(lambda: gone.append("gone"))
    server.connection.lost()
    assert gone == ["gone"]
    context.reply(b"nobody reads this")
    assert server.transport.data == b""


def test_answering_twice_is_our_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """The caller serves other requests too, so nothing is raised: the log says where it was."""
    server = Server()
    server.feed(frame(b"?1"))
    context = server.waiting[0][0]
    context.reply(b"one")
    context.reply(b"two")
    (record,) = caplog.records
    assert record.getMessage() == "TEST v0 of client None at 127.0.0.1 was answered twice"
    assert "test_answering_twice_is_our_mistake" in (record.stack_info or "")
    assert server.transport.data == b"one"


@pytest.mark.parametrize("seed", range(30))
def test_random_traffic_is_answered_in_order(seed: int) -> None:
    rng = random.Random(seed)
    server = Server()
    bodies = [
        rng.choice([b"?", b"!", b"p", b"-"]) + str(i).encode() + b"." * rng.choice([0, 0, 3, 500, 5000])
        for i in range(100)
    ]
    data = b"".join(map(frame, bodies))
    at = 0
    answered: set[int] = set()

    def answer_some() -> None:
        for i, (context, body) in enumerate(list(server.waiting)):
            if i not in answered and rng.random() < 0.5:
                answered.add(i)
                context.reply(body)

    while at < len(data) or len(answered) < len(server.waiting):
        size = rng.choice([1, 3, 100, 2000])
        if at < len(data):
            server.feed(data[at : at + size])
            at += size
        answer_some()
    expected = b"".join(body for body in bodies if body[:1] != b"-")
    assert server.transport.data == expected, f"seed {seed}"


def test_a_muted_connection_takes_up_nothing_until_it_is_time() -> None:
    server = Server()
    connection = server.connection
    assert connection.mute(10.0)
    assert connection.blocked
    server.connection.receive(memoryview(frame(b"one") + frame(b"two")))
    assert server.seen == []
    assert not connection.mute(5.0)  # it is muted for longer
    connection.unmute(9.9)
    assert server.seen == []
    connection.unmute(10.0)
    assert server.seen == [b"one", b"two"]
    assert not connection.blocked


def test_pending_answers_of_a_muted_connection_are_sent() -> None:
    server = Server()
    server.connection.receive(memoryview(frame(b"?one") + frame(b"two")))
    server.connection.mute(10.0)
    context, body = server.waiting.pop()
    context.reply(body)
    assert server.transport.data == b"?one"
    server.connection.unmute(10.0)
    assert server.transport.data == b"?onetwo"


def test_muting_holds_within_one_receive() -> None:
    """The first of many requests is too much: the others stay where they are."""
    server = Server()
    dispatch = server.connection._dispatch

    def muting(connection: Connection, body: memoryview) -> object:
        connection.mute(10.0)
        return dispatch(connection, body)

    server.connection.serve_with(muting, 1 << 20)  # type: ignore[arg-type]
    server.connection.receive(memoryview(frame(b"one") + frame(b"two")))
    assert server.seen == [b"one"]
    server.connection.unmute(10.0)
    assert server.seen == [b"one", b"two"]
