"""A session's end of the connection to the store of one machine: requests in order, and what a lost connection means.

`Link.run` connects, says hello, and connects again when the connection has ended, until it is closed. Everything that
is asked passes one queue and is answered in order, so the oldest request without an answer is whose the next answer is.

Each request says what the end of a connection means to it, as with ZooKeeper (`zk_link.py`):

- a read is asked again on the next connection, whatever the session;
- a commit belongs to the session in which it was made. Sent when the connection ends: its fate is unknown
  (ConnectionLost). Not sent yet: it waits for the next connection. When the session is over: SessionExpired;
- a watch is dropped; all watches are set again on each connection, before anything else is asked.

The connection counts as lost when nothing has come for two thirds of the time-out; a third without a request, and the
store is pinged. Only the store says that a session is over. Times are seconds of trio's clock.

A request whose waiter was cancelled is not sent if it was still in the queue; otherwise its answer is ignored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, TypeVar

import trio

from barnabas.replication.store import socket_wire as wire
from barnabas.replication.store.socket_wire import Hello, Reader, WireError
from barnabas.replication.store.store import ConnectionLost, SessionExpired, StoreClosed, StoreError, StoreFailed

log = logging.getLogger("barnabas.store")

T = TypeVar("T")
Connect = Callable[[], Awaitable[trio.abc.Stream]]
"""Opens a connection to the store. Raises OSError."""

RETRY_S: Final = (0.01, 0.5)
"""The first pause before another attempt to connect, and the longest."""
_PIECE: Final = 1 << 16
_AT_ONCE: Final = 100
_LOST = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError, WireError)


class Request:
    """Something to ask. repeat: ask again on the next connection; bound: belongs to the present session; neither: to
    the present connection. on_answer: called as soon as the answer is there, before anything that came after it.
    """

    __slots__ = ("answer", "bound", "cancelled", "done", "error", "on_answer", "payload", "repeat")

    def __init__(
        self,
        payload: bytes,
        *,
        repeat: bool = False,
        bound: bool = False,
        on_answer: Callable[[Reader], None] | None = None,
    ) -> None:
        self.payload = payload
        self.repeat = repeat
        self.bound = bound
        self.on_answer = on_answer
        self.cancelled = False
        self.done = trio.Event()
        self.answer: Reader | None = None
        self.error: StoreError | None = None

    def fail(self, error: StoreError) -> None:
        """It has no answer."""
        if not self.done.is_set():
            self.error = error
            self.done.set()


class Hooks(Protocol):
    """What the link calls."""

    def again(self) -> list[Request]:
        """There is a connection: the requests that set all watches again."""
        ...

    def changed(self, reader: Reader) -> None:
        """News of watched places (`wire.CHANGED`). Raises WireError."""
        ...

    def lost(self) -> None:
        """The session is over."""
        ...

    def back(self) -> None:
        """There is a new session."""
        ...


class Outside(Protocol):
    """What is waited for from others, where the clock can be moved (`barnabas.server.runtime.outside`): the deadlines
    of these scopes move along.
    """

    def begin(self, scope: trio.CancelScope, *, is_prompt: bool) -> None: ...

    def end(self, scope: trio.CancelScope) -> None: ...


class Link:
    """See the module. name: of whoever has the session, for the store's log. outside: None for a clock that goes as
    clocks go.
    """

    def __init__(
        self, connect: Connect, hooks: Hooks, *, timeout_ms: int, name: str, outside: Outside | None = None
    ) -> None:
        self._connect = connect
        self._hooks = hooks
        self._timeout_ms = timeout_ms
        self._name = name
        self._outside = outside
        self._queue: deque[Request] = deque()
        self._sent: deque[Request] = deque()
        self._session = 0
        self._had_session = False
        self._connected = False
        self._end: StoreError | None = None
        self._news = trio.Event()
        self._ready = trio.Event()
        self.trouble = "no answer"
        """Why the last attempt to connect failed."""

    @property
    def session(self) -> int:
        """The present session, 0 if there is none."""
        return self._session

    @property
    def connected(self) -> bool:
        return self._connected

    # -- asking ------------------------------------------------------------------------------------------------------

    def put(self, request: Request) -> None:
        """Queue a request."""
        self._queue.append(request)
        self._news.set()

    async def ask(self, request: Request, kind: int, decode: Callable[[Reader], T]) -> T:
        """Ask, wait for the answer, which is to be of `kind`, and decode it. Raises the store's errors."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.check_open()
        if request.bound and not self._session:
            await trio.lowlevel.checkpoint()
            raise SessionExpired("the session has expired")
        self.put(request)
        try:
            with self._waiting(trio.CancelScope(), is_prompt=True):
                await request.done.wait()
        except trio.Cancelled:
            request.cancelled = True
            raise
        if request.error is not None:
            raise request.error
        assert request.answer is not None
        try:
            if request.answer.kind == wire.FAILED:
                raise wire.decode_failed(request.answer)
            if request.answer.kind != kind:
                raise WireError(f"an answer of kind {request.answer.kind}, not {kind}")
            return decode(request.answer)
        except WireError as error:
            raise ConnectionLost(f"the metadata store does not make sense: {error}") from error

    @contextmanager
    def _waiting(self, scope: trio.CancelScope, *, is_prompt: bool = False) -> Iterator[None]:
        if self._outside is None:
            yield
            return
        self._outside.begin(scope, is_prompt=is_prompt)
        try:
            yield
        finally:
            self._outside.end(scope)

    def check_open(self) -> None:
        """Raises StoreClosed, StoreFailed."""
        if self._end is not None:
            raise self._end

    async def ready(self) -> None:
        """Return when there is a session for the first time. Raises StoreFailed."""
        await self._ready.wait()
        self.check_open()

    async def close(self) -> None:
        """End the session, if the store can be reached; then whatever waits is refused."""
        if self._end is None and self._connected:
            closing = Request(wire.frame(wire.CLOSE), bound=True)
            self.put(closing)
            await closing.done.wait()
        self.finish(StoreClosed("the metadata store is closed"))

    def finish(self, error: StoreError) -> None:
        """Refuse whatever waits and whatever comes."""
        if self._end is None:
            self._end = error
        self._connected = False
        for request in (*self._sent, *self._queue):
            request.fail(self._end)
        self._sent.clear()
        self._queue.clear()
        self._ready.set()

    # -- connections -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the session until cancelled, or the store refuses us."""
        pause_s = RETRY_S[0]
        while self._end is None:
            try:
                stream = await self._connect()
            except OSError as error:
                self.trouble = error.strerror or str(error)
            else:
                async with stream:
                    try:
                        if await self._converse(stream):
                            pause_s = RETRY_S[0]
                    except* _LOST as errors:
                        self.trouble = str(_first(errors)) or "the connection was lost"
                    finally:
                        self._disconnected()
            if self._end is None:
                await trio.sleep(pause_s)
                pause_s = min(pause_s * 2, RETRY_S[1])

    async def _converse(self, stream: trio.abc.Stream) -> bool:
        """One connection to its end; whether there was a session on it. Raises what is in `_LOST`, in groups."""
        silence_s = self._timeout_ms * 2 / 3000
        frames = wire.Frames(wire.MOST_BYTES)
        with trio.fail_after(silence_s):
            await stream.send_all(wire.encode_hello(Hello(self._session, self._timeout_ms, self._name)))
            views: list[memoryview] = []
            while not views:
                views = list(frames.feed(await _some(stream)))
        if not self._welcomed(Reader(views[0])):
            return False
        self.trouble = "the connection was lost"
        with trio.CancelScope() as silence, self._waiting(silence):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, stream)
                waiting = views[1:]
                while True:
                    for view in waiting:
                        self._take(Reader(view))
                    if not self._connected:
                        break
                    silence.deadline = trio.current_time() + self._timeout_ms * 2 / 3000
                    waiting = list(frames.feed(await _some(stream)))
                nursery.cancel_scope.cancel()
        if silence.cancelled_caught:
            self.trouble = "nothing was heard"
        return True

    def _welcomed(self, answer: Reader) -> bool:
        """Take the answer to our hello: whether there is a session now."""
        match answer.kind:
            case wire.WELCOME:
                welcome = wire.decode_welcome(answer)
                is_new = welcome.session != self._session
                self._session, self._timeout_ms = welcome.session, welcome.timeout_ms
                self._connected = True
                log.info("connected to the metadata store: %s session", "new" if is_new else "same")
                self._queue.extendleft(reversed(self._hooks.again()))
                self._news.set()
                if is_new and self._had_session:
                    self._hooks.back()
                self._had_session = True
                self._ready.set()
                return True
            case wire.EXPIRED:
                self._lost()
            case wire.REFUSED:
                reader = answer.text()
                self.finish(StoreFailed(f"the metadata store refuses us: {reader}"))
            case kind:
                raise WireError(f"a frame of kind {kind} instead of a welcome")
        return False

    def _take(self, answer: Reader) -> None:
        match answer.kind:
            case wire.PONG:
                pass
            case wire.CHANGED:
                self._hooks.changed(answer)
            case wire.EXPIRED:
                self._lost()
            case _:
                if not self._sent:
                    raise WireError(f"a frame of kind {answer.kind} that answers nothing")
                request = self._sent.popleft()
                if request.on_answer is not None and not request.cancelled:
                    request.on_answer(answer)
                request.answer = answer
                request.done.set()

    def _lost(self) -> None:
        """The session is over."""
        self._connected = False
        self._session = 0
        log.warning("the session with the metadata store has expired")
        error = SessionExpired("the session has expired")
        for requests in (self._sent, self._queue):
            for request in requests:
                if request.bound:
                    request.fail(error if requests is self._queue else _unknown())
        self._queue = deque(request for request in self._queue if not request.bound)
        self._hooks.lost()

    def _disconnected(self) -> None:
        """The connection has ended."""
        if self._connected and self._end is None:
            log.warning("the connection to the metadata store was lost")
        self._connected = False
        sent, self._sent = self._sent, deque()
        for request in (*sent, *(each for each in self._queue if not (each.repeat or each.bound))):
            if not request.repeat:
                request.fail(_unknown())
        self._queue = deque(request for request in (*sent, *self._queue) if not request.done.is_set())

    async def _send(self, stream: trio.abc.Stream) -> None:
        """Send what is asked, and a ping when nothing is. Raises what is in `_LOST`."""
        while True:
            batch: list[bytes] = []
            while self._queue and len(batch) < _AT_ONCE:
                request = self._queue.popleft()
                if not request.cancelled:
                    self._sent.append(request)
                    batch.append(request.payload)
            if not batch:
                self._news = trio.Event()
                with trio.move_on_after(self._timeout_ms / 3000) as quiet:
                    await self._news.wait()
                if quiet.cancelled_caught:
                    batch.append(wire.frame(wire.PING))
            if batch:
                await stream.send_all(b"".join(batch))


async def _some(stream: trio.abc.Stream) -> bytes | bytearray:
    piece = await stream.receive_some(_PIECE)
    if not piece:
        raise trio.BrokenResourceError("the store has closed the connection")
    return piece


def _unknown() -> ConnectionLost:
    return ConnectionLost("the connection to the metadata store was lost")


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
