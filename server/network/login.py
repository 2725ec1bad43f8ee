"""Authentication of a connection, and its re-authentication (KIP-368).

`Login` is a connection's dispatcher until its peer has authenticated: it passes frames to the machine
(`barnabas.server.security.sasl.authenticator`), sends the answers, and finally installs the real dispatcher. A session
that does not expire costs nothing from then on. One that expires keeps its `Login`, which looks at each request that
does not take a fast path: a SaslHandshake re-authenticates; after the session's end anything else closes the
connection. A timer removes the fast paths when the session ends.

A failure is answered after a delay, and the connection closed a moment later: kafka-python drops what arrives together
with the end of the stream, and would not learn the reason. Nothing is read meanwhile, and no task waits.

A failure is one line at INFO: client, listener and reason; never a password or token.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from barnabas.kproto import ApiKey, Part
from barnabas.server.network.connection import LOGIN_S, UNCOUNTED, Connection, Dispatch, Slot
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
"""Re-authentication sooner than this after the last one is rejected, by the API's handler."""
TIME_TO_READ_S = 0.1
"""Between the answer to a failure and the end of the connection."""
_KEY_BYTES = 2


class LoginCounts:
    """How many log-ins there were, those of sessions that are renewed included."""

    __slots__ = ("failed", "passed")

    def __init__(self) -> None:
        self.passed = self.failed = 0


@dataclass(frozen=True, slots=True)
class LoginService:
    """What log-ins on one listener share.

    `rules`: the mechanisms, and what they accept. `served(connection)`: the APIs of the broker before the log-in.
    `dispatch`: the dispatcher after it. `wall_ms()`: milliseconds since the epoch. `delay_s()`: between a failure and
    the answer. `frame_bytes_before`, `frame_bytes()`: the longest request before and after the log-in.
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
    counts: LoginCounts = field(default_factory=LoginCounts)

    def begin(self) -> Dispatch:
        """The dispatcher of a new connection."""
        return Login(self)


class _Answer:
    """The slot of an answer to a frame of the log-in; filled now or later."""

    __slots__ = ("measured", "parts", "pipelined")

    request_count = 0
    route = UNCOUNTED

    def __init__(self, frame: bytes | None) -> None:
        self.pipelined = False
        self.measured = None
        self.parts: list[Part] | tuple[()] | None
        self.fill(frame)

    def fill(self, frame: bytes | None) -> None:
        """None: pending; empty: no answer."""
        self.parts = None if frame is None else [frame] if frame else ()

    def connection_closed(self) -> None:
        """Nothing to release: only the `Login` waits for this client, and the connection notifies it."""


class Login:
    """See the module. One per connection on a listener with SASL; called as its dispatcher."""

    __slots__ = ("_again_at", "_connection", "_expires", "_machine", "_service", "_session", "_timer")

    def __init__(self, service: LoginService) -> None:
        self._service = service
        self._machine: Authenticator | None = None
        self._session: Authenticated | None = None
        self._expires = float("inf")
        self._again_at = float("-inf")
        self._timer: Timer | None = None
        self._connection: Connection | None = None

    def __call__(self, connection: Connection, frame: memoryview) -> Slot:
        """Handle a frame of a peer that is logging in."""
        service = self._service
        if self._machine is None:
            self._connection = connection
            connection.login = self
            self._machine = Authenticator(service.rules, service.served(connection), connection.client_host)
        try:
            step = self._machine.frame(frame, service.wall_ms())
        except Exception as error:  # ours: it costs this connection
            contain(log, f"logging in a client at {connection.client_host}", error)
            step = Failed("internal error", delayed=False)
        match step:
            case Continue(answer):
                return _Answer(answer)
            case Authenticated():
                return self._passed(connection, step)
            case Failed():
                return self._failed(connection, step)

    def _passed(self, connection: Connection, step: Authenticated) -> Slot:
        service = self._service
        again = self._session is not None
        log.debug(
            "%s at %s logged in%s on listener %s by %s",
            step.session.principal,
            connection.client_host,
            " again" if again else "",
            service.rules.listener,
            step.mechanism,
        )
        service.counts.passed += 1
        connection.session = step.session
        connection.login_deadline = inf
        self._machine, self._session = None, step
        self._cancel()
        if step.lifetime_ms is None:
            connection.login = None
            connection.serve_with(service.dispatch, service.frame_bytes())
        else:
            self._expires = service.now() + step.lifetime_ms / 1000
            self._timer = service.timers.at(self._expires, self._forget_fast_paths)
            connection.serve_with(self._serve, service.frame_bytes())
        return _Answer(step.answer)

    def _failed(self, connection: Connection, step: Failed) -> Slot:
        self._service.counts.failed += 1
        log.info("a client at %s on listener %s: %s", connection.client_host, self._service.rules.listener, step.reason)
        if not step.delayed:
            connection.abort()
            return _Answer(b"")
        answer = _Answer(None)
        service = self._service

        def send_answer() -> None:
            answer.fill(step.answer)
            if connection.closed:
                return
            if not step.answer:
                connection.end()
                return
            connection.mute(float("inf"))
            connection.answered()
            self._timer = service.timers.at(service.now() + TIME_TO_READ_S, connection.end)

        self._cancel()
        self._timer = service.timers.at(service.now() + service.delay_s(), send_answer)
        return answer

    # -- sessions that expire
    # -------------------------------------------------------------------------------------------

    def _serve(self, connection: Connection, frame: memoryview) -> Slot:
        """Handle a request of a peer whose session expires."""
        service, now = self._service, self._service.now()
        if int.from_bytes(frame[:_KEY_BYTES], "big") == ApiKey.SASL_HANDSHAKE and now >= self._again_at:
            self._again_at = now + AGAIN_AFTER_S
            self._machine = Authenticator(
                service.rules, service.served(connection), connection.client_host, before=self._session
            )
            connection.login_deadline = now + LOGIN_S
            connection.serve_with(self, service.frame_bytes_before)
            return self(connection, frame)
        if now > self._expires:
            log.debug("closing the connection of %s: its session has expired", connection.client_host)
            connection.abort()
            return _Answer(b"")
        return service.dispatch(connection, frame)

    def _forget_fast_paths(self) -> None:
        """The session has expired: the next request must come to `_serve`."""
        connection = self._connection
        if connection is not None:
            connection.fast_paths = []

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_closed(self) -> None:
        """Called by the connection when it is closed."""
        self._cancel()
        self._machine = self._connection = None
