"""One request on its way through the broker: who sent it, and the slot that its answer goes into.

The context is also the *token* that a coordinator's state machines hold while a client waits. They never look inside
it: a token is answered, no more (`barnabas.coordinator.machine`).
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
"""So much of a client id is shown in a line of the log."""


class Route(Protocol):
    """The request's API in its version (`barnabas.server.requests.route`), as far as whoever has a context may ask for
    it.
    """

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
    """The request's circumstances and its answer slot.

    `api_version`: int, as sent. `client_id`: str or None. `client_host`: the peer's address, without port.
    `listener`: name of the listener that the request came in on. `session`: who asks, which changes when the
    peer authenticates again. `pipelined`: the next request of the connection may be taken up before this one is
    answered. `parts`: the encoded answer, None while it is owed, `()` when none will be sent (acks=0).

    Set only where it is needed, as a Produce request costs little: `request`, while it may have to be told that the
    whole of it failed; `has_failed`, when that was told, and whoever still holds this context does not know it.
    """

    __slots__ = (
        "_on_close",
        "api_version",
        "client_id",
        "connection",
        "correlation_id",
        "has_failed",
        "parts",
        "pipelined",
        "request",
        "route",
    )
    request: Any
    has_failed: bool

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
        """True once the client is gone: an answer would reach nobody."""
        return self.connection.closed

    def __str__(self) -> str:
        """Who asked what, for the log."""
        client = self.client_id and self.client_id[:_SHOWN_LENGTH]
        return f"{self.route.name} v{self.api_version} of client {client!r} at {self.client_host}"

    def reply(self, response: Any) -> None:
        """Answer, once. Encoding happens here; the bytes leave when all earlier requests of the connection are
        answered. Never raises: who answers serves others, too. What cannot be encoded is logged, and answered with the
        API's answer for UNKNOWN_SERVER_ERROR, or by closing the connection where that cannot be encoded either.
        """
        if self.parts is not None:
            self._is_answered()
            return
        self._on_close = None
        if self.connection.closed:
            self.parts = ()
            return
        try:
            self.parts = self.route.encode_frame(self.correlation_id, response)
        except Exception as error:
            became = self.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            log.error("the answer to %s cannot be encoded: %s", self, became, exc_info=error)
            return
        self.connection.answered()

    def settle(self, response: Any) -> None:
        """Before an answer is encoded: put into it what is known of the request as a whole
        (`barnabas.server.requests.throttling`).
        """

    def exempt(self) -> None:
        """It is a broker's: neither the time spent on it nor what is read is any client's."""

    @property
    def fetch_bytes_max(self) -> float | None:
        """The most that the client may be answered with at once; None: no limit."""
        return None

    def withholds(self, size: int) -> bool:
        """Whether the client may not have `size` bytes of records now."""
        return False

    def charge(self, count: int, *, strict: bool) -> None:
        """The client creates, adds or deletes so many partitions. strict: raises KafkaError THROTTLING_QUOTA_EXCEEDED
        if it has done too much of that.
        """

    def refuse(self, code: ErrorCode) -> str:
        """Say that the whole request failed, if it was not answered; where that cannot be said, close the connection.
        Never raises. Returns what was done, for the log. Whoever answers later is not heard.
        """
        self.has_failed = True
        if self.parts is not None:
            return "it was answered before"
        self._on_close = None
        if self.connection.closed:
            self.parts = ()
            return "the client is gone"
        request = getattr(self, "request", None)
        if request is not None:
            try:
                response = self.route.error_response(request, code)
                self.settle(response)
                self.parts = self.route.encode_frame(self.correlation_id, response)
            except Exception as error:
                self.let_go()
                return f"closing the connection, as {code.name} cannot be said ({error})"
            self.connection.answered()
            return f"answered with {code.name}"
        self.let_go()
        return "closing the connection"

    def let_go(self) -> str:
        """The answer will never come: close the connection, unless it was given. Part of `Concerned`."""
        if self.parts is None:
            self.connection.abort()
        return str(self)

    def _is_answered(self) -> None:
        if not getattr(self, "has_failed", False):
            log.error("%s was answered twice", self, stack_info=True)

    def reply_encoded(self, *parts: Part) -> None:
        """Answer with what is encoded already, length and header with it; once, and never after `on_close`."""
        if self.parts is not None:
            self._is_answered()
            return
        if self.connection.closed:
            self.parts = ()
            return
        self.parts = list(parts)
        self.connection.answered()

    def no_reply(self) -> None:
        """The protocol asks for silence (Produce with acks=0): free the slot without sending."""
        if self.parts is not None:
            self._is_answered()
            return
        self._on_close = None
        self.parts = ()
        if not self.connection.closed:
            self.connection.answered()

    def hold(self) -> Callable[[], None]:
        """Though the API is pipelined, take up nothing more of this connection until the returned function is called,
        or the answer given: what comes next must not overtake this request.
        """
        before, self.pipelined = self.pipelined, False

        def release() -> None:
            self.pipelined = before
            self.connection.wake()

        return release

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection ends before the answer is given: let go of what waits on its behalf."""
        self._on_close = callback

    def connection_closed(self) -> None:
        """The connection tells that it is gone (called by it alone). Never raises."""
        callback, self._on_close = self._on_close, None
        if callback is not None:
            try:
                callback()
            except Exception as error:
                contain(log, f"letting go of {self}, whose connection is closed,", error)
