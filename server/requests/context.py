"""One request in the broker: who sent it, and the slot of its answer.

The context is also the *token* that a coordinator's state machines hold while a client waits. To them it is opaque:
they can only answer it (`barnabas.coordinator.machine`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.kproto import ErrorCode, Part
from barnabas.server.runtime.containment import contain

if TYPE_CHECKING:
    from barnabas.server.network.connection import Connection
    from barnabas.server.security.session import Session

log = logging.getLogger("barnabas.requests")

_SHOWN_LENGTH = 100
"""The part of a client id that log lines show."""


class Route(Protocol):
    """The request's API in its version (`barnabas.server.requests.route`), as far as users of a context need it."""

    taken: int

    @property
    def pipelined(self) -> bool: ...

    @property
    def name(self) -> str: ...

    @property
    def elements_max(self) -> int: ...

    @property
    def decode(self) -> Callable[[Any, int, int], tuple[Any, int]]: ...

    @property
    def handle(self) -> Callable[[Any, Any, Any], Any]: ...

    def is_large(self, response: Any) -> bool: ...

    def encode_frame(self, correlation_id: int, response: Any) -> list[Part]: ...

    def error_response(self, request: Any, code: ErrorCode) -> Any: ...


class RequestContext:
    """A request's caller and its answer slot.

    `api_version`: int, as sent. `client_id`: str or None. `client_host`: the peer's address, without port.
    `listener`: name of the listener that the request came in on. `session`: who the caller is; it changes when
    the peer re-authenticates. `pipelined`: the next request of the connection may be taken up before this one is
    answered. `parts`: the encoded answer, None while it is pending, `()` when none will be sent (acks=0).
    `measured`: see `barnabas.server.network.connection.Slot`.

    Set only where needed, to keep Produce cheap: `request`, while it may have to be answered as failed; `has_failed`,
    once it was, while another owner may still try to answer.
    """

    __slots__ = (
        "_on_close",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "has_failed",
        "measured",
        "parts",
        "pipelined",
        "request",
        "route",
    )
    request: Any
    has_failed: bool
    request_count = 1
    """How many requests it stands for."""

    def __init__(
        self, connection: Connection, route: Route, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.connection = connection
        self.route = route
        self.pipelined = route.pipelined
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.parts: list[Part] | tuple[()] | None = None
        self.measured: Any = None
        self._on_close: Callable[[], None] | None = None

    @property
    def client_host(self) -> str:
        return self.connection.client_host

    @property
    def listener(self) -> str:
        return self.connection.listener

    @property
    def session(self) -> Session:
        return self.connection.session

    @property
    def closed(self) -> bool:
        """True once the client has disconnected: no answer can be sent."""
        return self.connection.closed

    def __str__(self) -> str:
        """The request and its client, for the log."""
        client = self.client_id and self.client_id[:_SHOWN_LENGTH]
        return f"{self.route.name} v{self.api_version} of client {client!r} at {self.client_host}"

    def reply(self, response: Any) -> None:
        """Answer, once. Encoding happens here; the bytes leave when all earlier requests of the connection are
        answered. Never raises, as the caller has others to serve. An answer that cannot be encoded is logged and
        replaced by the API's answer for UNKNOWN_SERVER_ERROR, or the connection is closed if that cannot be encoded
        either.
        """
        if self.parts is not None:
            self._answered_already()
            return
        self._on_close = None
        if self.connection.closed:
            self.parts = ()
            return
        try:
            self.parts = self.route.encode_frame(self.correlation_id, response)
        except Exception as error:
            became = self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            log.error("cannot encode the answer to %s: %s", self, became, exc_info=error)
            return
        self.connection.answered()

    def settle(self, response: Any) -> None:
        """Called before an answer is encoded: throttling measures it and fills in the throttle time
        (`barnabas.server.requests.throttling`).
        """

    def exempt(self) -> None:
        """The request is another broker's: its time and its bytes count for no client's quota."""

    @property
    def fetch_bytes_max(self) -> float | None:
        """The largest response by the client's fetch quota; None: no limit."""
        return None

    def withholds(self, size: int) -> bool:
        """Whether the fetch quota forbids an answer of `size` bytes now."""
        return False

    def count_fetched(self, size: int) -> None:
        """Count an answer of `size` bytes against the fetch quota, which is sent all the same."""

    def charge(self, count: int, *, strict: bool) -> None:
        """Count partitions that the client creates, adds or deletes. strict: raises KafkaError
        THROTTLING_QUOTA_EXCEEDED beyond its quota.
        """

    def refuse(self, code: ErrorCode) -> str:
        """Answer that the whole request failed, unless it was answered; where no answer can say so, close the
        connection. Never raises. Returns what was done, for the log. Later answers are ignored.
        """
        self.has_failed = True
        if self.parts is not None:
            return "it was answered already"
        self._on_close = None
        if self.connection.closed:
            self.parts = ()
            return "the client has disconnected"
        request = getattr(self, "request", None)
        if request is not None:
            try:
                response = self.route.error_response(request, code)
                self.settle(response)
                self.parts = self.route.encode_frame(self.correlation_id, response)
            except Exception as error:
                self.release_waiters()
                return f"closing the connection, as {code.name} cannot be encoded ({error})"
            self.connection.answered()
            return f"answered with {code.name}"
        self.release_waiters()
        return "closing the connection"

    def release_waiters(self) -> str:
        """No answer will come: close the connection, unless it was answered. Part of `HasWaiters`."""
        if self.parts is None:
            self.connection.abort()
        return str(self)

    def _answered_already(self) -> None:
        if not getattr(self, "has_failed", False):
            log.error("%s was answered twice", self, stack_info=True)

    def reply_encoded(self, *parts: Part) -> None:
        """Answer with an encoded frame, length and header included; once."""
        if self.parts is not None:
            self._answered_already()
            return
        self._on_close = None
        if self.connection.closed:
            self.parts = ()
            return
        self.parts = list(parts)
        self.connection.answered()

    def no_reply(self) -> None:
        """Complete without an answer (Produce with acks=0)."""
        if self.parts is not None:
            self._answered_already()
            return
        self._on_close = None
        self.parts = ()
        if not self.connection.closed:
            self.connection.answered()

    def hold(self) -> Callable[[], None]:
        """Take no further request of this connection, though the API is pipelined, until the returned function is
        called or the request answered: later requests must not overtake this one.
        """
        before, self.pipelined = self.pipelined, False

        def release() -> None:
            self.pipelined = before
            self.connection.wake()

        return release

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection closes before the answer, to release what waits for this request."""
        self._on_close = callback

    def connection_closed(self) -> None:
        """Called by the connection when it is closed. Never raises."""
        callback, self._on_close = self._on_close, None
        if callback is not None:
            try:
                callback()
            except Exception as error:
                contain(log, f"releasing {self}, whose connection is closed,", error)
