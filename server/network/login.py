"""The time in the life of a connection until it is known who speaks, and its return (KIP-368).

`Login` is a connection's dispatcher as long as its peer has not logged in: it hands frames to the machine
(`barnabas.server.security.sasl.authenticator`), sends what that says, and in the end has the real dispatcher take over.
A session without end costs nothing from then on. One that ends keeps its `Login`, which looks at each request that does
not take a fast path: a SaslHandshake logs in again; past the end anything else closes the connection. The fast paths
are forgotten when the session ends (`timers`).

A failure is answered after a delay, and the connection ended a moment later: kafka-python throws away what arrives
together with the end, and would never come to know why. Nothing is read meanwhile, and no task waits for it.

Who has failed, where and why is one line at INFO; a password or token is never in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from barnabas.kproto import ApiKey, Part
from barnabas.server.network.connection import LOGIN_S, Connection, Dispatch, Slot
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.timers import Timer, Timers
from barnabas.server.security.sasl.authenticator import (
    Authenticated,
    Authenticator,
    Continue,
    Failed,
    ListenerRules,
    Served,
)

log = logging.getLogger("barnabas.security")

AGAIN_AFTER_S = 1.0
"""Whoever begins to log in again sooner than this after the last time is refused, by the API's handler."""
TIME_TO_READ_S = 0.1
"""Between the answer to a failure and the end of the connection."""
_KEY_BYTES = 2


@dataclass(frozen=True, slots=True)
class LoginDesk:
    """What log-ins on one listener have in common.

    `rules`: what may be shown. `served(connection)`: the APIs of the broker before the log-in. `dispatch`: takes over
    afterwards. `wall_ms()`: milliseconds since the epoch. `delay_s()`: between a failure and the answer.
    `frame_bytes_before`, `frame_bytes()`: the longest request before and after the log-in.
    """

    rules: ListenerRules
    served: Callable[[Connection], Served]
    dispatch: Dispatch
    timers: Timers
    now: Callable[[], float]
    wall_ms: Callable[[], int]
    delay_s: Callable[[], float]
    frame_bytes_before: int
    frame_bytes: Callable[[], int]

    def begin(self) -> Dispatch:
        """What takes up the requests of a new connection."""
        return Login(self)


class _Answer:
    """The slot of an answer that is no request's of the broker; filled now or later."""

    __slots__ = ("parts", "pipelined")

    def __init__(self, frame: bytes | None) -> None:
        self.pipelined = False
        self.parts: list[Part] | tuple[()] | None
        self.fill(frame)

    def fill(self, frame: bytes | None) -> None:
        """None: it is still owed; empty: there is none."""
        self.parts = None if frame is None else [frame] if frame else ()

    def connection_closed(self) -> None:
        """Nothing waits for this client but the `Login` itself, which is told."""


class Login:
    """See the module. One per connection on a listener with SASL; called as its dispatcher."""

    __slots__ = ("_again_at", "_connection", "_desk", "_expires", "_machine", "_session", "_timer")

    def __init__(self, desk: LoginDesk) -> None:
        self._desk = desk
        self._machine: Authenticator | None = None
        self._session: Authenticated | None = None
        self._expires = float("inf")
        self._again_at = float("-inf")
        self._timer: Timer | None = None
        self._connection: Connection | None = None

    def __call__(self, connection: Connection, frame: memoryview) -> Slot:
        """Take up a frame of a peer that is logging in."""
        desk = self._desk
        if self._machine is None:
            self._connection = connection
            connection.login = self
            self._machine = Authenticator(desk.rules, desk.served(connection), connection.client_host)
        try:
            step = self._machine.frame(frame, desk.wall_ms())
        except Exception as error:  # ours: it costs this connection
            contain(log, f"logging in a client at {connection.client_host}", error)
            step = Failed("of a fault of ours", delayed=False)
        match step:
            case Continue(answer):
                return _Answer(answer)
            case Authenticated():
                return self._passed(connection, step)
            case Failed():
                return self._failed(connection, step)

    def _passed(self, connection: Connection, step: Authenticated) -> Slot:
        desk = self._desk
        again = self._session is not None
        log.debug(
            "%s at %s logged in%s on listener %s by %s",
            step.session.principal,
            connection.client_host,
            " again" if again else "",
            desk.rules.listener,
            step.mechanism,
        )
        connection.session = step.session
        connection.known_by = inf
        self._machine, self._session = None, step
        self._cancel()
        if step.lifetime_ms is None:
            connection.login = None
            connection.serve_with(desk.dispatch, desk.frame_bytes())
        else:
            self._expires = desk.now() + step.lifetime_ms / 1000
            self._timer = desk.timers.at(self._expires, self._forget_fast_paths)
            connection.serve_with(self._serve, desk.frame_bytes())
        return _Answer(step.answer)

    def _failed(self, connection: Connection, step: Failed) -> Slot:
        log.info("a client at %s on listener %s: %s", connection.client_host, self._desk.rules.listener, step.reason)
        if not step.delayed:
            connection.abort()
            return _Answer(b"")
        answer = _Answer(None)
        desk = self._desk

        def tell() -> None:
            answer.fill(step.answer)
            if connection.closed:
                return
            if not step.answer:
                connection.end()
                return
            connection.mute(float("inf"))
            connection.answered()
            self._timer = desk.timers.at(desk.now() + TIME_TO_READ_S, connection.end)

        self._cancel()
        self._timer = desk.timers.at(desk.now() + desk.delay_s(), tell)
        return answer

    # -- sessions that end -------------------------------------------------------------------------------------------

    def _serve(self, connection: Connection, frame: memoryview) -> Slot:
        """Take up a request of a peer whose session ends some time."""
        desk, now = self._desk, self._desk.now()
        if int.from_bytes(frame[:_KEY_BYTES], "big") == ApiKey.SASL_HANDSHAKE and now >= self._again_at:
            self._again_at = now + AGAIN_AFTER_S
            self._machine = Authenticator(
                desk.rules, desk.served(connection), connection.client_host, before=self._session
            )
            connection.known_by = now + LOGIN_S
            connection.serve_with(self, desk.frame_bytes_before)
            return self(connection, frame)
        if now > self._expires:
            log.debug("closing the connection of %s: its session has ended", connection.client_host)
            connection.abort()
            return _Answer(b"")
        return desk.dispatch(connection, frame)

    def _forget_fast_paths(self) -> None:
        """The session has ended: the next request must come to `_serve`."""
        connection = self._connection
        if connection is not None:
            connection.fast_paths = []

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_closed(self) -> None:
        """The connection tells that it is gone."""
        self._cancel()
        self._machine = self._connection = None
