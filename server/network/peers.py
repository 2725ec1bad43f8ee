"""Connections to other brokers: one request at a time over one stream.

`Connect` opens the stream; the simulation and tests pass their own; `tcp_connect` is the real one. Controller
messages, replica fetches and requests to the controller each keep `PeerConnection`s of their own, as in Apache Kafka:
a long fetch must not delay an AlterPartition.

A connection is opened by the first `ask`, and reopened after any failure (`PeerError`): whether the peer handled the
request is then unknown, and all requests between brokers may be repeated. An idle connection that the peer has closed
is noticed before the next request where the transport can detect that (TCP).

Responses are read into a buffer of their own: `records` fields are memoryviews over it that stay valid and may be
written to. Limits: length and correlation id are checked before memory is allocated for a response.

`Connect` also authenticates where the listener between brokers has SASL (`barnabas.server.network.peer_login`); a
session that expires is renewed before the next request (`SessionStream`). TLS is `barnabas.server.network.peer_tls`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decoder, response_class
from barnabas.kproto.frame import parse_response_header, request_frame
from barnabas.kproto.messages import ApiVersionsRequest
from barnabas.server.runtime.outside import answer_within

if TYPE_CHECKING:  # loading the package would be most of the start of a command that is a client
    from barnabas.replication import Endpoint

Connect: TypeAlias = "Callable[[Endpoint], Awaitable[trio.abc.Stream]]"

MAX_RESPONSE_BYTES = 1 << 30
UNLIMITED = 1 << 62
"""Of answers of brokers of the same cluster."""
CONNECT_S = 10.0
"""TCP backs off while a network is down: a new attempt notices sooner that it is up again."""
_SOFTWARE = "barnabas"
_TLS_ALERT = re.compile(b"\x15\x03.\x00\x02", re.DOTALL)
"""Seven bytes; no answer has a length that begins so."""
_CHUNK = 256 * 1024  # trio's default is 64 KiB, each a system call and a copy


class PeerError(Exception):
    """The request to the other broker failed: connection refused or closed, time-out, or an unreadable response."""


class PeerRefused(PeerError):
    """The other broker answers, but does not take us: our log-in, or its certificate. Waiting does not help."""


class NotSent(PeerError):
    """There is no connection, so the peer has not seen the request."""


class SessionStream(trio.abc.Stream):
    """A stream to a broker whose session expires."""

    renew_at: float
    """When to re-authenticate, before the next request (trio's clock)."""

    @property
    @abstractmethod
    def carrier(self) -> trio.abc.Stream:
        """The stream below."""

    @abstractmethod
    async def renew(self) -> None:
        """Re-authenticate; no request may be in flight. Raises PeerError, after which the stream cannot be used."""


async def tcp_connect(endpoint: Endpoint) -> trio.abc.Stream:
    """A TCP connection without delay for small packets. Raises OSError, PeerError."""
    if endpoint.security_protocol not in ("PLAINTEXT", "SASL_PLAINTEXT"):
        why = f"its listener {endpoint.listener} has {endpoint.security_protocol}, and ours between brokers has no TLS"
        raise PeerError(f"cannot connect to {_where(endpoint)}: {why}")
    return await trio.open_tcp_stream(endpoint.host, endpoint.port)  # sets TCP_NODELAY


class PeerConnection:
    """See the module. client_id: what the peer sees; timeout_s: for connecting (`CONNECT_S` at most) and for an answer,
    each, in seconds. answer_bytes_max: the longest answer that is read;
    answer_elements_max: how many elements it may have, as requests are bounded (`request_bounds`).
    """

    def __init__(
        self,
        connect: Connect,
        client_id: str,
        timeout_s: float,
        *,
        answer_bytes_max: int = MAX_RESPONSE_BYTES,
        answer_elements_max: int = UNLIMITED,
    ) -> None:
        self._connect = connect
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._answer_bytes_max = answer_bytes_max
        self._answer_elements_max = answer_elements_max
        self._stream: trio.abc.Stream | None = None
        self._endpoint: Endpoint | None = None
        self._correlation_id = 0
        self._versions: dict[ApiKey, tuple[int, int]] | None = None
        self._turn = trio.Lock()

    @property
    def is_open(self) -> bool:
        """There is a connection, as far as is known."""
        return self._stream is not None

    async def ask(self, endpoint: Endpoint, request: Any, version: int, *, timeout_s: float | None = None) -> Any:
        """Send `request` to the broker at `endpoint` and return its response.

        Connects if needed; another endpoint than last time closes the connection to that. timeout_s: for the answer,
        beyond what the request itself allows. Several tasks take turns. Raises PeerError; NotSent if it was not sent.
        """
        async with self._turn:
            await self._open(endpoint)
            return await self._exchange(request, version, timeout_s)

    async def versions(self, endpoint: Endpoint) -> dict[ApiKey, tuple[int, int]]:
        """What the broker at `endpoint` serves: first and last version by API; asked once per connection.

        APIs unknown to this broker are left out. Raises PeerError.
        """
        async with self._turn:
            await self._open(endpoint)
            if self._versions is None:
                request = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version="0")
                response = await self._exchange(request, 3, None)
                if response.error_code == ErrorCode.UNSUPPORTED_VERSION:  # older than 2.4
                    response = await self._exchange(ApiVersionsRequest(), 0, None)
                if response.error_code != ErrorCode.NONE:
                    await self.close()
                    raise PeerError(f"{_where(endpoint)} rejects ApiVersions: {ErrorCode.of(response.error_code).name}")
                self._versions = {
                    ApiKey(row.api_key): (row.min_version, row.max_version)
                    for row in response.api_keys
                    if row.api_key in _KNOWN_KEYS
                }
            return self._versions

    async def close(self) -> None:
        """Close the connection immediately; the next `ask` opens another. A request in flight ends with PeerError."""
        stream, self._stream = self._stream, None
        self._versions = None
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _open(self, endpoint: Endpoint) -> None:
        if self._stream is not None and (endpoint != self._endpoint or _has_ended(self._stream)):
            await self.close()
        if isinstance(self._stream, SessionStream) and trio.current_time() >= self._stream.renew_at:
            await self._renew(self._stream)
        if self._stream is not None:
            return
        self._endpoint = endpoint
        limit_s = min(self._timeout_s, CONNECT_S)
        try:
            with answer_within(limit_s, is_prompt=True):
                self._stream = await self._connect(endpoint)
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise NotSent(f"cannot connect to {_where(endpoint)}: {error or type(error).__name__}") from error
        except trio.TooSlowError:
            raise NotSent(f"cannot connect to {_where(endpoint)} within {limit_s:g} s") from None

    async def _renew(self, stream: SessionStream) -> None:
        """Re-authenticate an open connection, or close it: the next one starts with a log-in anyway."""
        whole = False
        try:
            with trio.move_on_after(min(self._timeout_s, CONNECT_S)):
                await stream.renew()
                whole = True
        except (PeerError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            if not whole:
                await self.close()

    async def _exchange(self, request: Any, version: int, timeout_s: float | None) -> Any:
        stream = self._stream
        assert stream is not None
        assert self._endpoint is not None
        where = _where(self._endpoint)
        key = ApiKey(request.__description__.api_key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        frame = request_frame(version, self._correlation_id, self._client_id, request)
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        whole = False
        try:
            with answer_within(limit_s, is_prompt=key is not ApiKey.FETCH):
                await stream.send_all(frame)
                body = await read_response(stream, self._correlation_id, self._answer_bytes_max)
            _, offset = parse_response_header(key, version, body)
            try:
                response, _ = decoder(response_class(key), version)(body, offset, self._answer_elements_max)
            except DecodeError:
                if key is not ApiKey.API_VERSIONS:
                    raise
                response, _ = decoder(response_class(key), 0)(body, offset)  # "too new" comes in version 0
            whole = True
            return response
        except (OSError, EOFError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise PeerError(f"{where}: connection lost: {error or type(error).__name__}") from error
        except trio.TooSlowError:
            raise PeerError(f"{where}: no answer to {key.name} within {limit_s:g} s") from None
        except DecodeError as error:
            raise PeerError(f"{where}: unreadable answer to {key.name}: {error}") from error
        finally:
            if not whole and self._stream is stream:  # also when cancelled: an answer that comes late is not read
                await self.close()


async def read_response(stream: trio.abc.Stream, correlation_id: int, bytes_max: int = MAX_RESPONSE_BYTES) -> bytearray:
    """The next frame without its length. Raises EOFError, DecodeError."""
    head = bytearray()
    while len(head) < 8:
        data = await stream.receive_some(_CHUNK)
        if not data:
            raise EOFError("closed by the peer")
        head += data
        if _TLS_ALERT.match(head):
            raise DecodeError("it is TLS")
    size = int.from_bytes(head[:4], "big", signed=True)
    answered = int.from_bytes(head[4:8], "big", signed=True)
    if answered != correlation_id:
        if head.startswith(b"HTTP"):
            raise DecodeError("it is HTTP, not Kafka's protocol")
        raise DecodeError(f"answer to request {answered} instead of {correlation_id}")
    if not 4 <= size <= bytes_max:
        raise DecodeError(f"frame of {size} bytes")
    filled = len(head) - 4
    if filled > size:
        raise DecodeError(f"{filled - size} bytes more than the answer")
    if filled == size:
        return head[4:]
    body = bytearray(size)
    body[:filled] = head[4:]
    while filled < size:
        data = await stream.receive_some(min(_CHUNK, size - filled))
        if not data:
            raise EOFError("closed by the peer")
        body[filled : filled + len(data)] = data
        filled += len(data)
    return body


def _has_ended(stream: trio.abc.Stream) -> bool:
    """An idle stream has something to read: its end, or bytes that no request asked for."""
    while isinstance(stream, SessionStream):
        stream = stream.carrier
    return isinstance(stream, trio.SocketStream) and stream.socket.is_readable()


def _where(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}"


_KNOWN_KEYS = frozenset(ApiKey.__members__.values())
