"""One request on its way through the broker: who sent it, and the slot that its answer goes into.

The context is also the *token* that state machines hold while a client waits (structure: coordinator machines never
look inside it).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from kproto import Part

if TYPE_CHECKING:
    from server.connection import Connection
    from server.dispatch import Route


class RequestContext:
    """The request's circumstances and its answer slot.

    `api_version`: int, as sent. `client_id`: str or None. `client_host`: the peer's address, without port.
    `listener`: name of the listener that the request came in on. `principal`: `User:ANONYMOUS` until the listener
    authenticates. `parts`: the encoded answer, None while it is owed, `()` when none will be sent (acks=0).
    """

    __slots__ = ("_on_close", "api_version", "client_id", "connection", "correlation_id", "parts", "route")

    def __init__(
        self, connection: Connection, route: Route, api_version: int, correlation_id: int, client_id: str | None
    ) -> None:
        self.connection = connection
        self.route = route
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
    def principal(self) -> str:
        return self.connection.principal

    @property
    def closed(self) -> bool:
        """True once the client is gone: an answer would reach nobody."""
        return self.connection.closed

    def reply(self, response: Any) -> None:
        """Answer, once. Encoding happens here; the bytes leave when all earlier requests of the connection are
        answered.
        """
        if self.parts is not None:
            raise RuntimeError(f"{self.route.api.key.name} was answered twice")
        self._on_close = None
        if self.connection.closed:
            self.parts = ()
            return
        self.parts = self.route.encode_frame(self.correlation_id, response)
        self.connection.answered()

    def reply_encoded(self, *parts: Part) -> None:
        """Answer with what is encoded already, length and header with it; once, and never after `on_close`."""
        if self.parts is not None:
            raise RuntimeError(f"{self.route.api.key.name} was answered twice")
        if self.connection.closed:
            self.parts = ()
            return
        self.parts = list(parts)
        self.connection.answered()

    def no_reply(self) -> None:
        """The protocol asks for silence (Produce with acks=0): free the slot without sending."""
        if self.parts is not None:
            raise RuntimeError(f"{self.route.api.key.name} was answered twice")
        self._on_close = None
        self.parts = ()
        if not self.connection.closed:
            self.connection.answered()

    def hold(self) -> Callable[[], None]:
        """Though the API is pipelined, take up nothing more of this connection until the returned function is called,
        or the answer given: what comes next must not overtake this request.
        """
        route = self.route
        self.route = copy(route)
        self.route.pipelined = False

        def release() -> None:
            self.route = route
            self.connection.go_on()

        return release

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection ends before the answer is given: let go of what waits on its behalf."""
        self._on_close = callback

    def connection_closed(self) -> None:
        """The connection tells that it is gone (called by it alone)."""
        callback, self._on_close = self._on_close, None
        if callback is not None:
            callback()
