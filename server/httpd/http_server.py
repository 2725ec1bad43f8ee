"""The requests of scrapers, probes and test suites: HTTP/1.1 by h11.

Bounds, as anybody on the network may connect: `CONNECTIONS_MAX` connections, of which the one that has waited longest
for a request is closed for a new one; `HEAD_BYTES_MAX` of a request's head, `BODY_BYTES_MAX` of a body that nobody
asked for, or what the service says; `REQUEST_S` from the first byte of a request to its last, `IDLE_S` before it,
`SEND_S` for an answer. A connection holds one request's head and body and refers to an answer that may be shared; the
next request of a client that sends several at once is not looked at before the answer to the first is sent.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

import h11
import trio

from barnabas.server.runtime.containment import contain

CONNECTIONS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 64 * 1024
REQUEST_S: Final = 10.0
IDLE_S: Final = 180.0
"""Scrapes come every minute or more often, over the same connection."""
SEND_S: Final = 30.0
CHUNK_BYTES: Final = 64 * 1024

READS: Final = ("GET", "HEAD")
"""The methods of a service that changes nothing."""
TEXT: Final = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """path: without the query, as it was sent. query: as it was sent, without its question mark. headers: by lower-case
    name; of repeated ones the values with commas between them. body: empty where the service takes none.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class Answer(NamedTuple):
    """status: of HTTP. body: its pieces. headers: beside those of every answer."""

    status: int
    body: Sequence[bytes]
    content_type: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


Handle = Callable[[Request], Awaitable[Answer]]
Refuse = Callable[[int, str], Answer]
"""Called with a status and one sentence that says why."""


def in_text(status: int, why: str) -> Answer:
    """A refusal for people."""
    return Answer(status, [f"{why}\n".encode()])


class _Place:
    """The place of one connection among those that are served. scope: of its wait for a request. is_lost: another
    connection has taken it.
    """

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.is_lost = False


class HttpServer:
    """See the module. `run` serves until cancelled. what: the service, for the log. methods: others are refused.
    body_bytes_max: of a request; None: a body is read and dropped. refuse: makes the answers to what does not get as
    far as handle.
    """

    def __init__(
        self,
        handle: Handle,
        log: logging.Logger,
        what: str,
        *,
        methods: Sequence[str] = READS,
        body_bytes_max: int | None = None,
        refuse: Refuse = in_text,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._handle = handle
        self._log = log
        self._what = what
        self._methods = methods
        self._takes_body = body_bytes_max is not None
        self._body_bytes_max = BODY_BYTES_MAX if body_bytes_max is None else body_bytes_max
        self._refusal = refuse
        self._connections_max = connections_max
        self._waiting: dict[_Place, None] = {}  # for a request, in the order in which they began to
        self._count = 0

    @property
    def connection_count(self) -> int:
        return self._count

    async def run(self, listening: Sequence[socket.socket]) -> None:
        """Accept from these sockets. They are closed at the end."""
        listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in listening]
        await trio.serve_listeners(self.serve, listeners)

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve one connection to its end."""
        if self._count < self._connections_max:
            self._count += 1
        elif self._waiting:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.is_lost = True  # it is this connection's now, whichever of the two tasks runs first
            oldest.scope.cancel()
        else:
            await trio.aclose_forcefully(stream)
            return
        place = _Place()
        try:
            await self._serve(stream, place)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception as error:
            contain(self._log, f"serving a connection of {self._what}", error)
        finally:
            self._count -= not place.is_lost
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.abc.Stream, place: _Place) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        while True:
            try:
                found = await self._request(stream, connection, place)
            except h11.RemoteProtocolError as error:
                await self._refuse(stream, connection, error.error_status_hint, str(error))
                return
            if found is None or place.is_lost:
                return
            if isinstance(found, Answer):
                await self._send(stream, connection, found, is_head=False, closes=True)
                return
            request, body = found
            answer = await self._answer(request, body)
            if not await self._send(stream, connection, answer, is_head=request.method == b"HEAD"):
                return
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _request(
        self, stream: trio.abc.Stream, connection: h11.Connection, place: _Place
    ) -> tuple[h11.Request, bytes] | Answer | None:
        """The next request and its body; an answer, if that is too long; None: the client has gone, or is too slow.
        Raises h11.RemoteProtocolError.
        """
        request: h11.Request | None = None
        body: list[bytes] = []
        size = 0
        with trio.CancelScope(deadline=trio.current_time() + IDLE_S) as scope:
            place.scope = scope
            self._waiting[place] = None
            has_begun = bool(connection.trailing_data[0])
            if has_begun:
                scope.deadline = trio.current_time() + REQUEST_S
            try:
                while True:
                    event = connection.next_event()
                    if event is h11.NEED_DATA:
                        data = await stream.receive_some(4096)
                        if data and not has_begun:
                            has_begun = True
                            scope.deadline = trio.current_time() + REQUEST_S
                        connection.receive_data(bytes(data))
                    elif isinstance(event, h11.Request):
                        request = event
                    elif isinstance(event, h11.Data):
                        size += len(event.data)
                        if size > self._body_bytes_max:
                            most = f"at most {self._body_bytes_max} bytes are" if self._takes_body else "none is"
                            return self._refusal(413, f"the body is too long: {most} expected")
                        if self._takes_body:
                            body.append(bytes(event.data))
                    elif isinstance(event, h11.EndOfMessage):
                        assert request is not None
                        return request, b"".join(body)
                    else:  # closed, or another protocol
                        return None
            finally:
                self._waiting.pop(place, None)
        return None

    async def _answer(self, request: h11.Request, body: bytes) -> Answer:
        method = request.method.decode("ascii")
        if method not in self._methods:
            refusal = self._refusal(405, f"only {' and '.join(self._methods)} are served")
            return refusal._replace(headers=(("Allow", ", ".join(self._methods)),))
        headers: dict[str, str] = {}
        for name, value in request.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            headers[key] = f"{headers[key]},{text}" if key in headers else text
        path, _, query = request.target.decode("ascii").partition("?")
        try:
            return await self._handle(Request(method, path, query, headers, body))
        except Exception as error:
            contain(self._log, f"answering {path[:100]!r}", error)
            return self._refusal(500, "internal error; the broker's log says more")

    async def _send(
        self,
        stream: trio.abc.Stream,
        connection: h11.Connection,
        answer: Answer,
        *,
        is_head: bool,
        closes: bool = False,
    ) -> bool:
        """False: the client was too slow."""
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(sum(map(len, answer.body)))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *answer.headers,
            *((("Connection", "close"),) if closes else ()),
        ]
        with trio.move_on_after(SEND_S):
            pieces = [
                connection.send(
                    h11.Response(status_code=answer.status, headers=headers, reason=HTTPStatus(answer.status).phrase)
                )
                or b""
            ]
            size = len(pieces[0])
            for piece in () if is_head else answer.body:
                sent = connection.send(h11.Data(data=piece)) or b""
                pieces.append(sent)
                size += len(sent)
                if size >= CHUNK_BYTES:
                    await stream.send_all(b"".join(pieces))
                    pieces, size = [], 0
            pieces.append(connection.send(h11.EndOfMessage()) or b"")
            await stream.send_all(b"".join(pieces))
            return True
        return False

    async def _refuse(self, stream: trio.abc.Stream, connection: h11.Connection, status: int, why: str) -> None:
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            await self._send(stream, connection, self._refusal(status, why), is_head=False, closes=True)
