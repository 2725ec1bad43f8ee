"""The reactor: all TCP connections of a broker in one trio task over a private epoll.

Why not a task per connection: measured, a task costs 14 us per wake-up and starves other tasks when it skips
checkpoints; one task that drains epoll costs nothing per connection and lets a round of requests share one file write
and one send. A round is: receive once from every readable socket and run the requests found, then `end_of_round()`
(staged appends are written, their answers queued), then send once to every connection that has output. At most
`ROUNDS_MAX` rounds pass between two trio checkpoints, and no new one begins `PASS_S` after the first.

A connection takes up a few requests when it receives and, once it has sent, a few of those that are left
(`Connection.resume`); then it is the others' turn, and nothing more is received from it before its next round.

A busy client sends its next request within a millisecond. Going through trio in between is a twentieth of the broker's
CPU time, so a pass waits for it in the epoll itself, for a few milliseconds at most, since everything else in trio
waits meanwhile.

Received bytes lie in arenas that live until the round ends, because Produce stages views of them for `writev`.

What is sent, and by which calls, is in `barnabas.server.network.sending`; connections with TLS go through a
`TlsCarrier`, in the same rounds.

Where there is no epoll (macOS), `barnabas.server.network.readiness` stands in for it, and neither corks
nor `MSG_MORE` are used. `PORTABLE` makes Linux do the same, for the tests.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from heapq import nsmallest
from typing import Any

import trio

from barnabas.logdir import FileSlice
from barnabas.server.network.acceptor import Accept, Acceptor, Secure, always
from barnabas.server.network.arenas import Arenas
from barnabas.server.network.connection import LOGIN_S, Connection, Meter, ProtocolViolation
from barnabas.server.network.readiness import FAILED, HALF_CLOSED, HUNG_UP, READABLE, WRITABLE, PolledSockets
from barnabas.server.network.sending import send
from barnabas.server.network.tls_carrier import HANDSHAKE_S, TlsCarrier
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.descriptors import Allowance
from barnabas.server.runtime.log_throttle import LogThrottle
from barnabas.server.security.quotas.connections import ConnectionLimits
from barnabas.server.security.tls.channel import TlsError

log = logging.getLogger("barnabas.network")

ROUNDS_MAX = 8
PASS_S = 0.02
LINGER_S = 0.001
LINGERS_S = 0.003
"""A pass does not wait any more so long after it has begun: the two together are the delay of everything else."""
LINGER_REST_PASSES = 16
"""After a wait without an event, this many passes do not wait."""
EVENTS_MAX = 64
"""Connections that are served in a round, before anything of it is written and sent. A JoinGroup takes 50 us, and the
members of a large group send theirs at once.
"""
HANDSHAKES_PER_ROUND = 4
"""A step of a TLS handshake takes a millisecond, most of it a signature."""
PORTABLE = not hasattr(select, "epoll")
FILES_KEPT = 8
"""Open files that a response in flight may hold, however few descriptors are left."""

_IN = READABLE | HALF_CLOSED
_GONE_EVENTS = HUNG_UP | FAILED
_GONE = (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ECONNABORTED, errno.ENOTCONN, errno.EHOSTUNREACH)


class _Link:
    """A socket and what epoll watches it for. `half_closed`: the peer will send no more; `finished`: and all it sent
    was read. Its requests are still answered, as by Apache Kafka.
    """

    __slots__ = ("connection", "fd", "finished", "half_closed", "mask", "sock", "tls")

    def __init__(self, sock: socket.socket, connection: Connection, mask: int, tls: TlsCarrier | None) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.connection = connection
        self.mask = mask
        self.tls = tls
        self.half_closed = False
        self.finished = False

    @property
    def is_idle(self) -> bool:
        """No pending request, nothing to send."""
        return self.connection.idle and not (self.tls and self.tls.has_unsent)

    @property
    def is_done(self) -> bool:
        """All requests that have arrived are answered."""
        return self.is_idle and not self.connection.has_request


class Reactor:
    """See the module. `end_of_round` is called once after the requests of a round have run, `closed` for every
    connection that ended. `limits`: how many connections there may be. `meter`: counts requests. `portable`: use
    nothing that only Linux has; None for `PORTABLE`.
    """

    def __init__(
        self,
        end_of_round: Callable[[], None],
        now: Callable[[], float],
        closed: Callable[[Connection], None],
        limits: ConnectionLimits | None = None,
        allowance: Allowance | None = None,
        portable: bool | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.meter = meter
        self._portable = PORTABLE if portable is None else portable
        self._epoll: Any = PolledSockets() if self._portable else select.epoll()
        self._end_of_round = end_of_round
        self._now = now
        self._closed = closed
        self._limits = limits
        self._allowance = allowance or Allowance()
        self._links: dict[int, _Link] = {}
        self._acceptor = Acceptor(self._epoll, self._allowance, self._links.__len__, self._take)
        self._arenas = Arenas()
        self._dirty: dict[Connection, None] = {}
        self._in_round = False
        self._handshakes_left = 0
        self._tail = trio.Event()
        self._ending = False
        self._throttle = LogThrottle()
        self.tls_failures: Counter[str] = Counter()

    # -- listeners and connections -----------------------------------------------------------------------------------

    def add_listener(
        self,
        sock: socket.socket,
        accept: Accept,
        secure: Secure | None = None,
        may_accept: Callable[[], bool] = always,
    ) -> None:
        """Accept from `sock` (non-blocking, listening) while `may_accept()`. `accept(sock, address)` makes the
        connection, or returns None to reject it. `secure()` makes its `TlsCarrier`.
        """
        self._acceptor.add(sock, accept, secure, may_accept)

    def remove_listener(self, sock: socket.socket) -> None:
        """Stop accepting from a socket of `add_listener`, and close it."""
        self._acceptor.remove(sock)

    def remove_listeners(self) -> None:
        """Stop accepting and close the listening sockets."""
        self._acceptor.close()

    def end_connections(self, listener: str) -> list[Connection]:
        """Close the connections of a removed listener. Those with unanswered requests are returned: nothing more is
        received from them, and they are closed once all their requests are answered.
        """
        left = []
        for link in list(self._links.values()):
            if link.connection.listener != listener:
                continue
            if link.is_done:
                self._discard_requests(link)
                self._drop(link)
                continue
            link.half_closed = link.finished = True
            self._watch(link, link.mask & ~_IN)
            left.append(link.connection)
        return left

    def resume_accepting(self) -> None:
        """Accept connections that wait in the backlog: there may be room again."""
        self._acceptor.resume_accepting()

    @property
    def is_accepting(self) -> bool:
        """There are listeners."""
        return bool(self._acceptor)

    @property
    def connections(self) -> list[Connection]:
        return [link.connection for link in self._links.values()]

    def _take(self, sock: socket.socket, connection: Connection | None, secure: Secure | None) -> None:
        """Serve an accepted socket; without a connection it is rejected."""
        if connection is None:
            sock.close()
            return
        try:
            sock.setblocking(False)
            tls = None if secure is None else secure()
            self._epoll.register(sock.fileno(), _IN)
        except Exception:
            connection.lost()
            self._closed(connection)  # `accept` has counted it
            raise
        link = _Link(sock, connection, _IN, tls)
        connection.state = link
        connection.last_active = self._now()
        self._links[link.fd] = link

    def close_excess(self) -> None:
        """Close connections beyond the limit: those that have been idle for longest, whatever they wait for, as Apache
        Kafka does.
        """
        limits = self._limits
        if limits is None or not limits.excess:
            return
        others = [link for link in self._links.values() if not limits.spares(link.connection.listener)]
        excess = nsmallest(limits.excess, others, key=lambda link: link.connection.last_active)
        for link in excess:
            self._drop(link)
        log.info("closed the %d connections that were idle for longest: max.connections exceeded", len(excess))

    # -- the loop ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled; then close every connection."""
        poll = self._epoll.poll
        wait = self._epoll.wait if self._portable else partial(trio.lowlevel.wait_readable, self._epoll.fileno())
        resting = LINGER_REST_PASSES
        try:
            while True:
                await wait()
                now = self._now()
                over_at = now + PASS_S
                lingers_until = now if resting else now + LINGERS_S
                resting = max(0, resting - 1)
                for _ in range(ROUNDS_MAX):
                    linger_s = LINGER_S if now < lingers_until and not self._dirty else 0
                    events = poll(linger_s, EVENTS_MAX)
                    if not events:
                        if linger_s:
                            resting = LINGER_REST_PASSES
                        break
                    self._round(events, now)
                    now = self._now()
                    if now > over_at:
                        break
        finally:
            self.close()

    def close(self) -> None:
        """Close listeners, connections and the epoll itself."""
        if self._epoll.closed:
            return
        self.remove_listeners()
        for link in list(self._links.values()):
            self._drop(link)
        self._epoll.close()

    def _round(self, events: list[tuple[int, int]], now: float) -> None:
        self._in_round = True
        meter = self.meter
        if meter is not None:
            meter.round_begins()
        links = self._links
        self._handshakes_left = HANDSHAKES_PER_ROUND
        for fd, mask in events:
            link = links.get(fd)
            if link is None:
                self._acceptor.accept(fd)
                continue
            link.connection.last_active = now
            try:
                if mask & WRITABLE:
                    self._dirty[link.connection] = None
                if mask & READABLE:
                    self._readable(link)
                elif mask & _GONE_EVENTS:
                    self._drop(link)
                elif mask & HALF_CLOSED:
                    link.half_closed = True
                    self._watch(link, link.mask & ~HALF_CLOSED)
            except Exception as error:
                self._ended(link, error)
        self._end_of_round()
        if meter is not None:
            meter.round_written()
        self._finish_round()
        self._arenas.reset()
        if self._acceptor.has_accepted:
            self._acceptor.has_accepted = False
            self.close_excess()

    def _finish_round(self) -> None:
        # Sending may take up further requests of a connection (see _flush), which may stage appends again. A connection
        # has one such turn in a round.
        later: dict[Connection, None] = {}
        may_resume = True
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for connection in dirty:
                if not connection.closed and not self._flush(connection, may_resume):
                    later[connection] = None
            self._end_of_round()
            may_resume = False
        if later:
            self._dirty = later
            self._tail.set()
        self._in_round = False
        if self.meter is not None:
            self.meter.round_ends()

    async def run_tail(self) -> None:
        """Send what was answered outside of rounds, by timers and tasks; runs beside `run`."""
        while True:
            await self._tail.wait()
            self._tail = trio.Event()
            self._in_round = True
            if self.meter is not None:
                self.meter.round_begins()
            self._finish_round()

    def stop_reading(self) -> None:
        """Stop taking requests; the responses of those that were taken are still sent."""
        self._ending = True
        for link in self._links.values():
            self._watch(link, link.mask & ~_IN)

    def drop_idle(self) -> bool:
        """Close every connection without pending requests or output; True if some are left."""
        for link in list(self._links.values()):
            if link.is_idle:
                if self._ending:
                    self._discard_requests(link)
                self._drop(link)
        return bool(self._links)

    def _discard_requests(self, link: _Link) -> None:
        """A socket that is closed with bytes in its receive buffer sends a reset, which clients log as an error."""
        try:
            link.sock.recv_into(self._arenas.space())
        except OSError:
            pass  # there are none, or the peer has disconnected

    def sweep(self, idle_since: float) -> None:
        """Close connections without activity since `idle_since` (trio time) that have no pending request, or one that
        cannot be answered any more, or whose peer has half-closed; and those whose TLS handshake or log-in takes too
        long. Accept again after a pause.
        """
        self.resume_accepting()
        if self._allowance.is_short(self._epoll.fileno()):
            self._free_files()
        now = self._now()
        handshakes_since = now - HANDSHAKE_S
        for link in list(self._links.values()):
            connection = link.connection
            if link.tls is not None and not link.tls.is_open and link.tls.begun < handshakes_since:
                self._untrusted(link, TlsError(f"no handshake within {HANDSHAKE_S:g} s"))
                continue
            if connection.login_deadline < now:
                overdue = f"no log-in within {LOGIN_S:g} s on listener {connection.listener}"
                self._violated(link, ProtocolViolation(overdue, from_stranger=True))
                continue
            if connection.last_active >= idle_since:
                continue
            if link.tls is not None and link.tls.await_any(link.sock):
                continue  # perhaps less arrived than was awaited
            unanswerable = None if link.half_closed else connection.unanswerable()
            if unanswerable is not None:
                log.error(
                    "closing the connection of %s: no answer can come to %s", connection.client_host, unanswerable
                )
            if link.half_closed or unanswerable is not None or not connection.has_pending:
                self._drop(link)

    def time_jumped(self, seconds: float) -> None:
        """The clock was moved by so much, for a test, and nobody was idle or slow in the meantime."""
        for link in self._links.values():
            link.connection.last_active += seconds
            link.connection.login_deadline += seconds
            if link.tls is not None:
                link.tls.begun += seconds

    def _free_files(self) -> None:
        """Descriptors are short: close connections whose clients do not read responses that hold open files, those
        that hold most first.
        """
        holders = [
            (sum(isinstance(part, FileSlice) for part in link.connection.out), link) for link in self._links.values()
        ]
        for files, link in sorted(holders, key=lambda holder: -holder[0]):
            if files <= FILES_KEPT or not self._allowance.is_short(self._epoll.fileno()):
                return
            log.warning(
                "closing the connection of %s: it does not read its response, which holds %d files open, while "
                "descriptors are short",
                link.connection.client_host,
                files,
            )
            self._drop(link)

    def _readable(self, link: _Link) -> None:
        """Receive once. Raises what `Connection.receive` does, OSError."""
        connection = link.connection
        if connection.blocked:
            # Level-triggered: stop hearing about bytes that may not be taken up yet; a reset is still noticed.
            self._watch(link, link.mask & ~READABLE)
            if self._portable and not link.half_closed:
                link.half_closed = not link.sock.recv(1, socket.MSG_PEEK)  # poll does not report it
            return
        if connection.has_request:
            self._dirty[connection] = None  # its turn comes
            return
        try:
            if link.tls is not None:
                size = self._receive_tls(link, link.tls)
            elif (target := connection.recv_target()) is not None:
                size = link.sock.recv_into(target)
                if size:
                    connection.received(size)
            else:
                space = self._arenas.space()
                size = link.sock.recv_into(space)
                if size:
                    self._arenas.take(size)
                    connection.receive(space[:size])
        except BlockingIOError:
            return
        if not size:
            if link.is_done:
                self._drop(link)
                return
            link.half_closed = link.finished = True
            self._watch(link, link.mask & ~_IN)

    def _receive_tls(self, link: _Link, tls: TlsCarrier) -> int:
        if not tls.is_open:
            if not self._handshakes_left:
                raise BlockingIOError  # reported again in the next round
            self._handshakes_left -= 1
        size = tls.receive(link.sock, link.connection, self._arenas)
        if tls.has_unsent:
            self._dirty[link.connection] = None
        return size

    # -- sending -----------------------------------------------------------------------------------------------------

    def wake(self, connection: Connection) -> None:
        """Part of `Transport`."""
        if self._in_round:
            self._dirty[connection] = None
            return
        # Called from a timer or a task, perhaps deep inside a write: the tail task sends, so that nothing is
        # re-entered.
        self._dirty[connection] = None
        self._tail.set()

    def abort(self, connection: Connection) -> None:
        """Part of `Transport`."""
        link = connection.state
        if isinstance(link, _Link):
            self._drop(link)

    def _flush(self, connection: Connection, may_resume: bool) -> bool:
        """Send, and take up requests that are left. False: it has some, and must wait for another round."""
        link = connection.state
        assert isinstance(link, _Link)
        try:
            if link.tls is None:
                drained = send(link.sock, connection, portable=self._portable)
            else:
                drained = link.tls.send(link.sock, connection)
            if drained and (link.mask & WRITABLE):
                self._watch(link, link.mask & ~WRITABLE)
            elif not drained and not link.mask & WRITABLE:
                self._watch(link, link.mask | WRITABLE)
            if not (self._ending or connection.blocked):
                if connection.has_request:
                    if not may_resume:
                        return False
                    connection.resume()
                if link.finished:
                    if link.is_done:
                        self._discard_requests(link)
                        self._drop(link)
                elif not link.mask & READABLE and not connection.closed:
                    self._watch(link, link.mask | READABLE)
            elif drained and connection.ends:
                self._discard_requests(link)
                self._drop(link)
        except Exception as error:
            self._ended(link, error)
        return True

    # -- ends --------------------------------------------------------------------------------------------------------

    def _watch(self, link: _Link, mask: int) -> None:
        if mask != link.mask:
            link.mask = mask
            self._epoll.modify(link.fd, mask)

    def _ended(self, link: _Link, error: Exception) -> None:
        """An error that closes this connection, and leaves the others alone."""
        if isinstance(error, ProtocolViolation):
            self._violated(link, error)
        elif isinstance(error, TlsError):
            self._untrusted(link, error)
        elif isinstance(error, OSError):
            self._broken(link, error)
        else:
            log.error(
                "closing the connection of %s: its bytes could not be processed",
                link.connection.client_host,
                exc_info=error,
            )
            self._drop(link, has_failed=True)

    def _violated(self, link: _Link, violation: ProtocolViolation) -> None:
        more = self._throttle.due(str(violation), self._now()) if violation.from_stranger else ""
        if more is not None:
            log.warning("closing the connection of %s: %s%s", link.connection.client_host, violation, more)
        self._drop(link, has_failed=True)

    def _untrusted(self, link: _Link, error: TlsError) -> None:
        """TLS failed. Clients that are rejected retry again and again."""
        host, listener = link.connection.client_host, link.connection.listener
        self.tls_failures[listener] += 1
        more = self._throttle.due(str(error), self._now())
        if more is not None:
            log.warning("closing the connection of %s: TLS on listener %s: %s%s", host, listener, error, more)
        self._drop(link, has_failed=True)

    def _broken(self, link: _Link, error: OSError) -> None:
        if error.errno not in _GONE:
            log.error("closing the connection of %s: %s", link.connection.client_host, error)
        self._drop(link)

    def _drop(self, link: _Link, *, has_failed: bool = False) -> None:
        if self._links.pop(link.fd, None) is None:
            return
        if link.tls is not None:
            link.tls.say_last(link.sock, has_failed=has_failed)
        try:
            self._epoll.unregister(link.fd)
        except OSError:
            pass
        link.sock.close()
        self._dirty.pop(link.connection, None)
        link.connection.lost()
        try:
            self._closed(link.connection)
        except Exception as error:
            contain(log, f"deregistering the connection of {link.connection.client_host}", error)
        self._acceptor.resume_accepting()
