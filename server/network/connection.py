"""One client connection without IO: bytes go in, request frames go to the dispatcher, answer parts come out in order.

The reactor (plain TCP) and `barnabas.server.network.stream_transport` (tests, TLS) drive the same object. What they do:

- `receive(view)` with bytes that lie in a shared buffer, or, while a large frame is being collected, `recv_target()`
  / `received(n)` so that its bytes land where they stay;
- after each round of events, take parts from `out` and send them, then call `sent()`;
- `Transport.wake(connection)` is called whenever there is something new to send;
- `receive` and `resume` take up at most `REQUESTS_PER_TURN` requests. While `has_request`, nothing more is received,
  and the connection gets another turn by `resume` when the others have had theirs.

A peer that must authenticate is served by a `Login` (`barnabas.server.network.login`) as the connection's dispatcher;
it calls `serve_with` once the peer has authenticated, or `end` to close when pending responses are sent.

Bounds (a client must not be able to make the broker hold memory): a frame longer than `max_frame_bytes`, or than its
API may have (`barnabas.server.network.request_bounds`), closes the connection before anything is allocated; the buffer
of a partial frame grows with what has arrived, not with what was announced; while responses of more than
`OUT_BYTES_MAX` wait to be sent, or a request that is not pipelined is pending, no further request is taken up.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final, Protocol

from barnabas.kproto import Part
from barnabas.server.network.request_bounds import GENERAL, bounds_of
from barnabas.server.network.strangers import name_stranger
from barnabas.server.security.acls.authorizer import Permissions
from barnabas.server.security.session import Session, anonymous

OUT_BYTES_MAX = 256 * 1024
PIPELINE_MAX = 256
REQUESTS_PER_TURN = 32
"""A client that sends thousands of requests at once must not delay the others by as many. A run of requests that one
fast path takes up together counts as one.
"""
LOGIN_S = 30.0
"""How long a peer may take to log in, from its connection on; stock clients time out by then, too. Apache Kafka closes
such a peer only when it is idle (`connections.max.idle.ms`).
"""
_GROW_FROM_BYTES = 16 * 1024
_GROW_FACTOR = 4
_FRAME_BYTES_GENERAL = GENERAL.frame_bytes

_LENGTH = struct.Struct(">i")
_KEY = struct.Struct(">h")


class ProtocolViolation(Exception):
    """The peer sent what cannot be a Kafka request; the connection is closed without an answer (as Apache Kafka
    does). from_stranger: it does not speak the protocol at all, and will probably reconnect.
    """

    def __init__(self, text: str, *, from_stranger: bool = False) -> None:
        super().__init__(text)
        self.from_stranger = from_stranger


class Meter(Protocol):
    """Counts and times requests (`barnabas.server.metrics.meter`). note: None in rounds that are not timed; else called
    with the connection, the slot of a request that was taken up, and when its handler was called and had returned, in
    nanoseconds of clock().
    """

    @property
    def clock(self) -> Callable[[], int]: ...

    @property
    def note(self) -> Callable[[tuple[Connection, Slot, int, int]], None] | None: ...

    def answered(self, connection: Connection, measured: Any) -> None:
        """The answer of a request is about to be sent. measured: of its slot, where the meter has put it."""

    def lost(self, connection: Connection) -> None:
        """The connection is closed: take over what it has counted."""

    def round_begins(self) -> None:
        """It is known which sockets are readable; or something is to be sent outside of a round."""

    def round_written(self) -> None:
        """What the round's requests have staged is written."""

    def round_ends(self) -> None:
        """What there was to be sent was given to the sockets."""


class Transport(Protocol):
    """What carries the bytes of a connection."""

    def wake(self, connection: Connection) -> None:
        """There is something to send, or reading may continue; called on the loop's thread, also outside of a round."""

    def abort(self, connection: Connection) -> None:
        """Close the carrier now."""


class Counting(Protocol):
    """An API in one version. taken: how many requests were taken up, while there is a meter."""

    taken: int


class Slot(Protocol):
    """A request that was taken up, and the place of its answer (`barnabas.server.requests.context.RequestContext`).
    `parts`: None while the request is pending. `pipelined`: the next request may be taken up before this one is
    answered. `request_count`: how many requests it stands for. `route`, which counts them, and `measured` are the
    meter's.
    """

    measured: Any

    @property
    def route(self) -> Counting: ...

    @property
    def request_count(self) -> int: ...

    @property
    def parts(self) -> list[Part] | tuple[()] | None: ...

    @property
    def pipelined(self) -> bool: ...

    def connection_closed(self) -> None: ...


class FastPath(Protocol):
    """Takes up requests that are like earlier ones of the connection, without decoding them
    (`barnabas.server.requests.fast_paths`). A method that returns None has left the request as it was.
    """

    def take(self, connection: Connection, frame: memoryview) -> Slot | None:
        """Take up one request, and return the slot of its answer."""

    def take_run(self, connection: Connection, view: memoryview, position: int) -> tuple[Slot, int] | None:
        """Take up several consecutive requests in `view`, the first of them at `position`. Returns the one slot of
        their answers, and where the next request begins.
        """


Dispatch = Callable[["Connection", memoryview], Slot]


class LoggingIn(Protocol):
    """The `Login` of a connection, while it is needed."""

    def connection_closed(self) -> None: ...


class _Uncounted:
    """Stands for the API of what is no request of a client that has logged in."""

    taken = 0


UNCOUNTED: Final[Counting] = _Uncounted()


class _End:
    """The slot that is never filled: nothing is taken up behind it."""

    parts = None
    pipelined = False
    measured = None
    request_count = 0
    route = UNCOUNTED

    def connection_closed(self) -> None:
        pass


_END = _End()


class Connection:
    """See the module. `listener`: the listener's name; `client_host`: address without port; `client_port`: the port, 0
    where there is none; `out`: parts to send, oldest first; `has_request`: a request has arrived (or what may be one)
    and is not taken up, since the turn was over or the connection is blocked; `muted_until`: 0, or it is not read
    before; `login_deadline`: when the peer must have authenticated, in the transport's time; `permissions`: what the
    peer may do, if that was determined, and no ACL has changed since.
    """

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_dispatch",
        "_filled",
        "_frame_end",
        "_meter",
        "_session",
        "_slots",
        "_transport",
        "bytes_in",
        "bytes_out",
        "client_host",
        "client_id",
        "client_port",
        "closed",
        "fast_paths",
        "has_request",
        "last_active",
        "listener",
        "login",
        "login_deadline",
        "max_frame_bytes",
        "muted_until",
        "out",
        "out_bytes",
        "permissions",
        "requests",
        "software",
        "state",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        transport: Transport,
        *,
        listener: str,
        client_host: str,
        max_frame_bytes: int,
        meter: Meter | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._transport = transport
        self._meter = meter
        self.listener = listener
        self.client_host = client_host
        self.client_port = 0
        self._session = anonymous(client_host, listener, "PLAINTEXT")
        self.max_frame_bytes = max_frame_bytes
        self.software = ""
        self.closed = False
        self.login: LoggingIn | None = None
        self.last_active = 0.0
        self.muted_until = 0.0
        self.login_deadline = inf
        self.out: deque[Part] = deque()
        self.out_bytes = 0
        # For the meter, which takes them away.
        self.requests = self.bytes_in = self.bytes_out = 0
        self.client_id: str | None = None
        # What has arrived and is not dispatched yet: _buffer[:_filled]. _frame_end > 0: the buffer is being filled
        # with one frame that ends there.
        self._buffer: bytearray | None = None
        self._filled = 0
        self._frame_end = 0
        self.has_request = False
        self._slots: deque[Slot] = deque()
        self.fast_paths: list[FastPath] = []
        self.permissions: Permissions | None = None
        self.state: object = None  # the transport's own state

    @property
    def session(self) -> Session:
        """Who the peer is: anonymous until it has authenticated."""
        return self._session

    @session.setter
    def session(self, session: Session) -> None:
        """The peer has (re-)authenticated: permissions and fast paths of the last session do not apply to this one."""
        self._session = session
        self.permissions = None
        self.fast_paths = []

    # -- bytes in ----------------------------------------------------------------------------------------------------

    @property
    def blocked(self) -> bool:
        """True while no further request may be taken up: one is pending, too much waits to be sent, or the peer is
        throttled.
        """
        if self.muted_until:
            return True
        slots = self._slots
        if slots:
            last = slots[-1]
            if last.parts is None and not last.pipelined:
                return True
            if len(slots) >= PIPELINE_MAX:
                return True
        return self.out_bytes > OUT_BYTES_MAX

    def receive(self, view: memoryview) -> None:
        """Take bytes; `view` stays valid and unchanged until the end of the round. Raises ProtocolViolation."""
        if self._buffer is not None:
            self._extend(view)
            self.resume()
            return
        consumed = self._take_frames(view)
        if consumed < len(view) and not self.closed:
            self._keep(view[consumed:])

    def recv_target(self) -> memoryview | None:
        """Where to receive the next bytes directly (a large frame has arrived in part); None: into a shared buffer."""
        if not self._frame_end:
            return None
        buffer = self._buffer
        assert buffer is not None
        if self._filled == len(buffer):
            buffer = self._grow(self._frame_end)
        return memoryview(buffer)[self._filled : self._frame_end]

    @property
    def missing_bytes(self) -> int:
        """What the peer has still to send of the frame that is being collected; 0: it may have said all."""
        return max(0, self._frame_end - self._filled)

    def received(self, size: int) -> None:
        """`size` bytes were put into `recv_target()`."""
        self._filled += size
        if self._filled == self._frame_end:
            self._frame_end = 0
            self.has_request = True
            self.resume()

    def resume(self) -> None:
        """Continue with requests that are left of the last turn, or arrived while the connection was blocked. Raises
        ProtocolViolation.
        """
        buffer = self._buffer
        if buffer is None or self._filled < self._frame_end or self.blocked:
            return
        view = memoryview(buffer)[: self._filled]
        # The buffer is released, never reused: views of it may be staged for writing until the round ends.
        self._buffer, self._filled, self._frame_end, self.has_request = None, 0, 0, False
        consumed = self._take_frames(view)
        if consumed < len(view) and not self.closed:
            self._keep(view[consumed:])

    @property
    def backlog_bytes(self) -> int:
        """Bytes received and not yet dispatched."""
        return self._filled

    def _take_frames(self, view: memoryview) -> int:
        """Take up requests, and return where the first one begins that is left."""
        position, end = 0, len(view)
        slots = self._slots
        left = REQUESTS_PER_TURN
        meter, note, taken_ns = self._meter, None, 0
        if meter is not None and (note := meter.note) is not None:
            taken_ns = meter.clock()
        while end - position >= 4 and not self.closed:
            size: int = _LENGTH.unpack_from(view, position)[0]
            if size <= 0 or size > self.max_frame_bytes:
                raise self._violation(view, position, f"frame length {size} (allowed: 1 to {self.max_frame_bytes})")
            if size > _FRAME_BYTES_GENERAL and end - position >= 6:
                key: int = _KEY.unpack_from(view, position + 4)[0]
                if size > bounds_of(key).frame_bytes:
                    allowed = f"allowed for API key {key}: 1 to {bounds_of(key).frame_bytes}"
                    raise self._violation(view, position, f"frame length {size} ({allowed})")
            frame_end = position + 4 + size
            if frame_end > end or not left or ((slots or self.out_bytes or self.muted_until) and self.blocked):
                break
            left -= 1
            frame = view[position + 4 : frame_end]
            for path in self.fast_paths:
                if frame_end + 4 < end and (run := path.take_run(self, view, position)) is not None:
                    context, position = run
                    break
                if (taken := path.take(self, frame)) is not None:
                    context, position = taken, frame_end
                    break
            else:
                context, position = self._dispatch(self, frame), frame_end
            if meter is not None:
                count = context.request_count
                context.route.taken += count
                self.requests += count
                if note is not None:
                    handled_ns = meter.clock()
                    note((self, context, taken_ns, handled_ns))
                    taken_ns = handled_ns
            if context.parts is None or slots:
                # `answered` looks at the head of the queue, so a slot is queued before or right after it is filled.
                slots.append(context)
                if context.parts is not None:
                    self.answered()
            elif context.parts:
                self._queue(context.parts)
                self._transport.wake(self)
        self.bytes_in += position
        return position

    def _violation(self, view: memoryview, position: int, otherwise: str) -> ProtocolViolation:
        stranger = name_stranger(bytes(view[position : position + 4]), self.listener)
        return ProtocolViolation(stranger or otherwise, from_stranger=stranger is not None)

    def _keep(self, rest: memoryview) -> None:
        """Copy what is left over out of the shared buffer."""
        size = len(rest)
        if size >= 4:
            frame_bytes = 4 + _LENGTH.unpack_from(rest, 0)[0]
            if frame_bytes > size:
                # Assigned to a bytearray itself, what is no bytearray is copied twice.
                self._buffer = buffer = bytearray(min(frame_bytes, max(_GROW_FACTOR * size, _GROW_FROM_BYTES)))
                memoryview(buffer)[:size] = rest
                self._filled, self._frame_end = size, frame_bytes
                return
            self.has_request = True
        self._buffer, self._filled, self._frame_end = bytearray(rest), size, 0
        if self.has_request and not self.blocked:
            self.wake()  # for another turn

    def _grow(self, capacity: int) -> bytearray:
        old = self._buffer
        assert old is not None
        grown = bytearray(min(capacity, _GROW_FACTOR * len(old)))
        memoryview(grown)[: self._filled] = memoryview(old)[: self._filled]
        self._buffer = grown
        return grown

    def _extend(self, view: memoryview) -> None:
        """More bytes for what is already buffered (a short remainder, or a blocked connection)."""
        assert self._buffer is not None
        self._buffer = joined = bytearray().join((memoryview(self._buffer)[: self._filled], view))
        self._filled, self._frame_end = len(joined), 0
        self.has_request = len(joined) >= 4

    # -- answers out -------------------------------------------------------------------------------------------------

    def answered(self) -> None:
        """An answer slot was filled: move all leading finished answers to `out`."""
        slots = self._slots
        moved = False
        meter = self._meter
        while slots and slots[0].parts is not None:
            slot = slots.popleft()
            parts = slot.parts
            if parts:
                self._queue(parts)
            if meter is not None and slot.measured is not None:
                meter.answered(self, slot.measured)
            moved = True
        if moved:
            self._transport.wake(self)

    def split(self, context: Slot, contexts: Sequence[Slot]) -> None:
        """Answer one by one the requests that were to be answered together, in the slot of `context`."""
        if context in self._slots:
            at = self._slots.index(context)
            del self._slots[at]
            for one in reversed(contexts):
                self._slots.insert(at, one)

    def mute(self, until: float) -> bool:
        """Take up nothing more until then, in seconds of the clock of `unmute`. False: it is muted for that long
        already. Pending responses are sent all the same.
        """
        if until <= self.muted_until:
            return False
        self.muted_until = until
        return True

    def unmute(self, now: float) -> None:
        """Take up requests again, if the time is over."""
        if self.muted_until and now >= self.muted_until:
            self.muted_until = 0.0
            self.wake()

    def wake(self) -> None:
        """Have the transport look again: the next request may be taken up, or something may be sent."""
        if not self.closed:
            self._transport.wake(self)

    def end(self) -> None:
        """Take up nothing more, and close when all requests before are answered and the responses sent. Not from within
        a request's handling: its own slot would come behind the end.
        """
        self._slots.append(_END)
        self.answered()
        self.wake()

    @property
    def ends(self) -> bool:
        """To be closed when `out` is sent."""
        return bool(self._slots) and self._slots[0] is _END

    def serve_with(self, dispatch: Dispatch, max_frame_bytes: int) -> None:
        """From the next request on use `dispatch`; no frame may be longer than `max_frame_bytes`."""
        self._dispatch = dispatch
        self.max_frame_bytes = max_frame_bytes
        self.fast_paths = []

    def _queue(self, parts: list[Part]) -> None:
        if len(parts) == 1:
            (part,) = parts
            self.out.append(part)
            size = len(part)
        else:
            self.out.extend(parts)
            size = sum(map(len, parts))
        self.out_bytes += size
        self.bytes_out += size

    def sent(self, size: int) -> None:
        """`size` bytes were sent; the transport has removed the finished parts from `out`."""
        self.out_bytes -= size

    @property
    def has_pending(self) -> bool:
        """A request was taken up, and its response is not ready."""
        return bool(self._slots)

    def unanswerable(self) -> Slot | None:
        """A pending request that cannot be answered any more: no timer, waiter, state machine or task holds its
        context. That is a bug of ours, and would block the connection for good.
        """
        for at in range(len(self._slots)):
            # The references of the queue itself and of the call. Those in a cycle are the garbage collector's.
            if sys.getrefcount(self._slots[at]) <= 2 and self._slots[at].parts is None:
                return self._slots[at]
        return None

    @property
    def idle(self) -> bool:
        """No pending request, nothing to send."""
        return not self._slots and not self.out

    # -- end -----------------------------------------------------------------------------------------------------------

    def abort(self) -> None:
        """Close from our side, without an answer."""
        if not self.closed:
            self._transport.abort(self)

    def lost(self) -> None:
        """The carrier is closed: drop all state and release what waits for this client."""
        if self.closed:
            return
        self.closed = True
        if self._meter is not None:
            self._meter.lost(self)
        slots, self._slots = self._slots, deque()
        self.out.clear()
        self.out_bytes = 0
        self._buffer, self._filled, self._frame_end, self.has_request = None, 0, 0, False
        # The transport's state refers to this object, too: breaking the cycle frees both now, not at the next garbage
        # collection.
        self.fast_paths = []
        self.state = None
        login, self.login = self.login, None
        if login is not None:
            login.connection_closed()
        for context in slots:
            if context.parts is None:
                context.connection_closed()
