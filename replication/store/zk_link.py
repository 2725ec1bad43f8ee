"""The line between trio and kazoo: requests in order, their answers, and what happens to them when a connection ends.

Everything that is asked of ZooKeeper passes one queue and leaves it in order, at most `limit` at a time unanswered.
ZooKeeper serves a session's requests in order too, so *asked earlier* means *seen earlier*; the watches build on that.

Each request says what the end of a connection means to it:

- a read is asked again on the next connection, whatever the session;
- a commit belongs to the session in which it was made. On the wire when the connection ends: its fate is unknown
  (ConnectionLost). Still in our queue: it waits for the connection. When the session expires: SessionExpired;
- a watch is dropped; all watches are set again when there is a connection.

kazoo's thread calls `_heard` and `_listen`, which only post to trio. One thing is shared: the count of ended sessions,
raised under a lock before kazoo serves a new session. A request is handed over under the same lock and only if the
count is the one trio knows, so nothing meant for one session is ever sent in the next.

A request whose waiter was cancelled is not sent if it was still in the queue; otherwise its answer is ignored.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import trio
from kazoo.protocol.states import KazooState, KeeperState

from barnabas.replication.store.store import SessionExpired, StoreClosed
from barnabas.replication.store.zk_client import GONE

log = logging.getLogger("barnabas.zookeeper")

Send = Callable[[Any], Any]
"""Hands a request to the kazoo client given, and returns its AsyncResult."""

Done = Callable[[Any, BaseException | None], None]
"""Takes the answer's value, or its error."""

MOST_IN_FLIGHT = 100  # each is a byte in the socket pair that wakes kazoo's thread; more than about 270 would block us
_RESTART_AFTER_S = 1.0


class Request:
    """Something to ask. `repeat`: ask again on the next connection. `bound`: belongs to the present session."""

    __slots__ = ("bound", "cancelled", "done", "repeat", "send", "settled")

    def __init__(self, send: Send, done: Done, *, repeat: bool = False, bound: bool = False) -> None:
        self.send = send
        self.done = done
        self.repeat = repeat
        self.bound = bound
        self.cancelled = False
        self.settled = False


def _call(function: Callable[..., object], args: tuple[object, ...]) -> None:
    """An exception would end trio's whole run; a notification that cannot be processed counts as lost."""
    try:
        function(*args)
    except Exception:
        log.exception("handling a message of ZooKeeper failed (%r)", function)


class Link:
    """One kazoo client, from trio's side. Make it, set the three hooks, then `start` the client.

    on_lost: the session is over. on_connected(new session): there is a connection, and it was answered on; called
    before anything else is sent on it, may `put` requests in front. on_refused: ZooKeeper refused our login. All are
    called in trio's thread.
    """

    def __init__(self, client: Any, limit: int) -> None:
        self._client = client
        self._limit = min(limit, MOST_IN_FLIGHT)
        self._token = trio.lowlevel.current_trio_token()
        self._queue: deque[Request] = deque()
        self._again: list[Request] = []
        self._sent: set[Request] = set()
        self._connected = False
        self._connection = 0  # counts kazoo's changes of state
        self._session_id = 0
        self._closed = False
        self._lock = threading.Lock()
        self._ended = 0  # sessions that have ended, as kazoo's thread counts; guarded by the lock
        self._ended_seen = 0  # the same as far as trio has heard
        self.on_lost: Callable[[], None] = _nothing
        self.on_connected: Callable[[bool], None] = lambda _: None
        self.on_refused: Callable[[], None] = _nothing

    @property
    def connected(self) -> bool:
        return self._connected

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to connect failed, if one did."""
        trouble: str | None = self._client.handler.trouble
        return trouble

    @property
    def session_id(self) -> int:
        """Id of the present session, 0 if there is none."""
        return self._session_id

    # -- asking ------------------------------------------------------------------------------------------------------

    def put(self, requests: Iterable[Request], *, in_front: bool = False) -> None:
        """Queue requests. Their `done` is called in trio's thread, once."""
        if in_front:
            self._queue.extendleft(reversed(list(requests)))
        else:
            self._queue.extend(requests)
        self._pump()

    async def ask(self, sends: Iterable[Send]) -> list[tuple[Any, BaseException | None]]:
        """Ask several questions at once; answers or errors in their order. Raises StoreClosed."""
        self.check_open()
        questions = list(sends)
        answers: list[tuple[Any, BaseException | None]] = [(None, None)] * len(questions)
        left = len(questions)
        if not left:
            await trio.lowlevel.checkpoint()
            return answers
        all_there = trio.Event()

        def done(index: int, value: Any, error: BaseException | None) -> None:
            nonlocal left
            answers[index] = value, error
            left -= 1
            if not left:
                all_there.set()

        await self._finish(
            [Request(send, partial(done, index), repeat=True) for index, send in enumerate(questions)], all_there
        )
        return answers

    async def commit(self, send: Send) -> Any:
        """Do something once, in the present session. Raises SessionExpired, StoreClosed, and kazoo's errors."""
        self.check_open()
        if not self._session_id:
            await trio.lowlevel.checkpoint()
            raise SessionExpired("there is no ZooKeeper session")
        outcome: list[tuple[Any, BaseException | None]] = []
        there = trio.Event()

        def done(value: Any, error: BaseException | None) -> None:
            outcome.append((value, error))
            there.set()

        await self._finish([Request(send, done, bound=True)], there)
        value, error = outcome[0]
        if error is not None:
            raise error
        return value

    async def _finish(self, requests: list[Request], finished: trio.Event) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self.put(requests)
        try:
            await finished.wait()
        except trio.Cancelled:
            for request in requests:
                request.cancelled = True
            raise

    def check_open(self) -> None:
        """Raises StoreClosed."""
        if self._closed:
            raise StoreClosed("the metadata store is closed")

    def _pump(self) -> None:
        """Hand over what may be sent now."""
        while self._connected and len(self._sent) < self._limit and self._queue:
            request = self._queue[0]
            if request.cancelled:
                self._queue.popleft()
                continue
            if not self._hand_over(request):
                return  # news of the end of the connection are on the way to us
            self._queue.popleft()

    def _hand_over(self, request: Request) -> bool:
        """Give a request to kazoo, unless the session that we know has ended."""
        with self._lock:
            if self._ended != self._ended_seen or not self._client.connected:
                return False
            self._sent.add(request)
            request.send(self._client).rawlink(partial(self._heard, request))
            return True

    # -- kazoo's thread ----------------------------------------------------------------------------------------------

    def post(self, function: Callable[..., object], *args: object) -> None:
        """Call `function` in trio's thread soon, in the order posted; never, if trio has ended."""
        try:
            self._token.run_sync_soon(_call, function, args)
        except trio.RunFinishedError:
            pass

    def _heard(self, request: Request, result: Any) -> None:
        self.post(self._settle, request, result)

    def _listen(self, state: str) -> None:
        with self._lock:
            if state == KazooState.LOST:
                self._ended += 1
            ended = self._ended
        identity = self._client.client_id  # None while there is no connection
        self.post(self._changed, state, ended, identity[0] if identity else 0, self._client.client_state)

    # -- trio's thread -----------------------------------------------------------------------------------------------

    def _settle(self, request: Request, result: Any) -> None:
        if request.settled:
            return  # kazoo answers some requests twice when it is closed
        self._sent.discard(request)
        error = result.exception
        if error is not None and request.repeat and isinstance(error, GONE) and not self._closed:
            self._again.append(request)
        else:
            request.settled = True
            if not request.cancelled:
                _call(request.done, (result.value, error))
        self._pump()

    def _changed(self, state: str, ended: int, session_id: int, detail: str) -> None:
        self._connected = False
        self._connection += 1
        self._ended_seen = ended
        if self._closed:
            return
        if state == KazooState.LOST:
            self._lost(detail)
        elif state == KazooState.CONNECTED:
            hello = Request(_say_hello, partial(self._greeted, self._connection, session_id))
            self._hand_over(hello)

    def _greeted(self, connection: int, session_id: int, _: Any, error: BaseException | None) -> None:
        """The first answer on a connection: now we know that our login is accepted, and the server up to date."""
        if error is not None or connection != self._connection or self._closed:
            return
        self._connected = True
        is_new, self._session_id = session_id != self._session_id, session_id
        log.info("connected to ZooKeeper: %s session 0x%x", "new" if is_new else "same", session_id)
        again, self._again = self._again, []
        self._queue.extendleft(reversed(again))
        self.on_connected(is_new)
        self._pump()

    def _lost(self, detail: str) -> None:
        had_session, self._session_id = self._session_id != 0, 0
        bound = [request for request in self._queue if request.bound]
        self._queue = deque(request for request in self._queue if not request.bound)
        for request in bound:
            request.settled = True
            if not request.cancelled:
                _call(request.done, (None, SessionExpired("the ZooKeeper session has expired")))
        if had_session:
            log.warning("ZooKeeper session lost: %s", detail)
            self.on_lost()
        if detail in (
            KeeperState.AUTH_FAILED,
            KeeperState.CLOSED,
        ):  # kazoo has stopped trying; otherwise it continues by itself
            if detail == KeeperState.AUTH_FAILED:
                log.error("ZooKeeper refuses the login of this broker")
                self.on_refused()
            self.later(self._restart)

    def later(self, function: Callable[[], object]) -> None:
        """Call `function` a second from now, in a thread of its own."""
        timer = threading.Timer(_RESTART_AFTER_S, function)
        timer.daemon = True
        timer.start()

    def _restart(self) -> None:
        if not self._closed:
            self._client.start_async()

    def start(self) -> None:
        """Start kazoo's thread; it connects by itself. Blocks shortly: call it in a thread."""
        self._client.add_listener(self._listen)
        self._client.start_async()

    def close(self) -> None:
        """Refuse whatever waits, and whatever comes. The client is stopped by `stop`, in a thread."""
        self._closed = True
        requests = [*self._sent, *self._again, *self._queue]
        for group in (self._sent, self._again, self._queue):
            group.clear()
        for request in requests:
            request.settled = True
            if not request.cancelled:
                request.done(None, StoreClosed("the metadata store is closed"))

    def stop(self) -> None:
        """End the session (ZooKeeper removes its ephemeral nodes) and kazoo's thread. Blocks: call it in a thread."""
        try:
            self._client.stop()
            self._client.close()
        except Exception as exc:  # kazoo's complaints about its own thread: the process continues without it
            log.warning("closing the ZooKeeper session failed: %s", exc)


def _nothing() -> None:
    pass


def _say_hello(client: Any) -> Any:
    """A server that lags behind its leader catches up before it answers this, and all that is asked after it."""
    return client.sync_async("/")
