"""Many connections in one loop: they send without waiting, read what comes, leave in the middle, come again.

A connection has a nature for its whole life: how many requests stand behind each other, whether it closes within a
frame, sends in small pieces, says that it will send no more, or does not read for a while. What an answer breaks
(cannot be read, out of order, UNKNOWN_SERVER_ERROR, a close without reason, none at all) goes to `finding`.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from barnabas.kproto import ApiKey, DecodeError, ErrorCode, decoder, response_class
from barnabas.kproto.frame import parse_response_header
from barnabas.kproto.notation import Struct
from compat_tests.fuzz.grammar import WAITING, Grammar, Request
from compat_tests.fuzz.pools import Sent
from compat_tests.fuzz.recording import Recorder, Step

PATIENCE_S = (0.05, 0.2, 0.5, 2.0)
"""How long connections wait for an answer that may take its time, before they give up."""
OWED_S = 15.0
"""How long an answer may take that has nothing to wait for."""
DECODED_MAX = 300_000
SHOWN_BYTES = 600
SILENT_S = 0.2
RECEIVE_BYTES = 1 << 18
Finding = Callable[[str, str], None]
"""(kind, details)"""


class Owed(NamedTuple):
    correlation_id: int
    key: int
    version: int
    sent: Sent
    at: float
    is_clean: bool
    frame: bytes

    def __str__(self) -> str:
        return f"{ApiKey(self.key).name} v{self.version}"

    @property
    def shown(self) -> str:
        """The beginning of the request, in hexadecimal."""
        return self.frame[4 : 4 + SHOWN_BYTES].hex() + ("…" if len(self.frame) > 4 + SHOWN_BYTES else "")


class Nature(NamedTuple):
    requests: int
    depth: int
    piece: int
    """Bytes sent at a time; 0: all."""
    patience: float
    ends: str
    """"close", "cut" (within a frame), "eof", "silent" (does not read)."""


class Link:
    """One connection."""

    def __init__(self, number: int, sock: socket.socket, nature: Nature, now: float) -> None:
        self.number = number
        self.sock = sock
        self.nature = nature
        self.out = bytearray()
        self.received = bytearray()
        self.owed: deque[Owed] = deque()
        self.left = nature.requests
        self.correlation_id = 0
        self.is_readable = True
        """Whether what comes can still be understood: not after damage."""
        self.may_close = False
        self.ended_at = 0.0
        self.heard_at = self.listened_at = now


class Attack:
    """`connections` links to `addresses`, fed by `grammar`. `step` does what can be done now."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        grammar: Grammar,
        recorder: Recorder,
        finding: Finding,
        *,
        connections: int = 48,
        rate: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._addresses = list(addresses)
        self._grammar = grammar
        self._recorder = recorder
        self._finding = finding
        self._connections = connections
        self._rate = rate
        self._poll = select.epoll()
        self._links: dict[int, Link] = {}
        self._opened = 0
        self._clock = clock
        self._begun = clock()
        self.sent = self.answered = self.closed = self.refused = 0
        self.is_paused = False
        self.has_no_log = True

    def step(self, seconds: float = 0.01) -> None:
        """Send, wait for at most `seconds`, read."""
        now = self._clock()
        if not self.is_paused:
            while len(self._links) < self._connections and self._open():
                pass
            for link in list(self._links.values()):
                self._feed(link, now)
        for fd, event in self._poll.poll(seconds):
            found = self._links.get(fd)
            if found is None:
                continue
            if event & select.EPOLLOUT:
                self._send(found)
            if event & ~select.EPOLLOUT and fd in self._links:
                self._receive(found)
        now = self._clock()
        for link in list(self._links.values()):
            self._look(link, now)

    def close_all(self) -> None:
        for link in list(self._links.values()):
            self._close(link)

    def is_idle(self) -> bool:
        """Nothing is owed that will come."""
        return not any(link.owed and link.is_readable for link in self._links.values())

    def close(self) -> None:
        self.close_all()
        self._poll.close()

    # -- connections -----------------------------------------------------------------------------------------------

    def _open(self) -> bool:
        rng = self._grammar.rng
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(rng.choice(self._addresses))
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self.refused += 1
            return False
        self._opened += 1
        nature = Nature(
            rng.choice((1, 3, 10, 30, 100, 300)),
            rng.choice((1, 1, 2, 3, 5, 12)),
            rng.choice((0,) * 30 + (1, 7, 100)),
            rng.choice(PATIENCE_S),
            rng.choice(("close", "close", "close", "cut", "eof", "silent")),
        )
        link = Link(self._opened, sock, nature, self._clock())
        self._links[sock.fileno()] = link
        self._poll.register(sock.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
        return True

    def _close(self, link: Link) -> None:
        if self._links.pop(link.sock.fileno(), None) is not None:
            self._poll.unregister(link.sock.fileno())
            link.sock.close()
            self._recorder.add(Step(link.number, "close"))

    def _feed(self, link: Link, now: float) -> None:
        nature = link.nature
        if link.ended_at:
            return
        depth = nature.depth if link.is_readable else nature.depth * 2
        while link.left > 0 and len(link.owed) < depth and len(link.out) < 1 << 18:
            if self._rate and self.sent > self._rate * (now - self._begun):
                return
            self._ask(link, now)
        if link.left <= 0 and not link.out:
            self._end(link, now)
        elif link.out:
            self._send(link)

    def _ask(self, link: Link, now: float) -> None:
        link.correlation_id += 1
        link.left -= 1
        self.sent += 1
        request = self._grammar.request(link.correlation_id, lone=nature_is_lone(link))
        data = request.frame
        if link.left == 0 and link.nature.ends == "cut":
            data = data[: self._grammar.rng.randrange(len(data) + 1)]
            link.may_close = True
        self._recorder.add(Step(link.number, "raw", data, str(request), now))
        link.out += data
        if request.is_damaged or not request.is_answered:
            # What the broker makes of it, and of what comes behind it, nobody knows: a close is its right.
            link.may_close = True
            link.is_readable = link.is_readable and not request.is_damaged
        if request.is_answered:
            link.owed.append(
                Owed(link.correlation_id, request.key, request.version, request.sent, now, request.is_clean, data)
            )

    def _end(self, link: Link, now: float) -> None:
        """All is said."""
        link.ended_at = now
        if link.nature.ends == "eof":
            try:
                link.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._close(link)
                return
            link.may_close = True
            self._recorder.add(Step(link.number, "eof"))
        elif link.nature.ends == "cut":
            self._close(link)

    def _send(self, link: Link) -> None:
        if not link.out:
            return
        piece = link.nature.piece or len(link.out)
        try:
            sent = link.sock.send(memoryview(link.out)[:piece])
        except BlockingIOError:
            return
        except OSError:
            self._lost(link)
            return
        del link.out[:sent]

    def _receive(self, link: Link) -> None:
        if link.nature.ends == "silent" and link.left > 0 and link.correlation_id % 7:
            return
        while True:
            try:
                data = link.sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                self._lost(link)
                return
            if not data:
                self._lost(link)
                return
            link.heard_at = self._clock()
            link.received += data
        if link.is_readable:
            self._read_answers(link)
        else:
            link.received.clear()

    def _lost(self, link: Link) -> None:
        if link.received and link.is_readable:
            self._read_answers(link)
        self.closed += 1
        if not link.may_close and link.owed and all(owed.is_clean for owed in link.owed):
            first = link.owed[0]
            self._finding(
                f"closed on {ApiKey(first.key).name}",
                f"connection {link.number} was closed by the broker, {describe(link.owed)} not answered\n{first.shown}",
            )
        self._close(link)

    def _look(self, link: Link, now: float) -> None:
        """Whether it has waited long enough."""
        if link.ended_at and (not link.owed or not link.is_readable):
            if not link.is_readable and now - link.ended_at < 0.05:
                return
            self._close(link)
            return
        if link.nature.piece and link.out:
            self._send(link)
        if link.nature.ends == "silent" and link.left > 0 and now - link.listened_at > SILENT_S:
            self._listen(link, now)
        if not link.owed:
            return
        waited = now - max(link.owed[0].at, link.heard_at)
        first = link.owed[0]
        if waited > link.nature.patience and (not link.is_readable or link.may_close or _may_wait(link) or link.out):
            self._close(link)
        elif waited > OWED_S:
            self._finding(
                f"no answer to {ApiKey(first.key).name}",
                f"{first} on connection {link.number} has waited {waited:.1f} s\n{first.shown}",
            )
            self._close(link)

    def _listen(self, link: Link, now: float) -> None:
        """Now and then even one that does not read reads."""
        link.listened_at = now
        nature, link.nature = link.nature, link.nature._replace(ends="close")
        self._receive(link)
        link.nature = nature

    # -- answers -----------------------------------------------------------------------------------------------------

    def _read_answers(self, link: Link) -> None:
        buffer = link.received
        at = 0
        while len(buffer) - at >= 4:
            (size,) = struct.unpack_from(">i", buffer, at)
            if size < 4 or size > 1 << 30:
                self._finding("an answer of no length", f"connection {link.number}: length {size}")
                link.is_readable = False
                break
            if len(buffer) - at - 4 < size:
                break
            frame = bytes(memoryview(buffer)[at + 4 : at + 4 + size])
            at += 4 + size
            if not link.owed:
                if not link.may_close:
                    self._finding("an answer to nothing", f"connection {link.number}: {frame[:40].hex()}")
                continue
            self._answer(link, link.owed.popleft(), frame)
            if not link.is_readable:
                break
        del buffer[:at]

    def _answer(self, link: Link, owed: Owed, frame: bytes) -> None:
        self.answered += 1
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if correlation_id != owed.correlation_id:
            link.is_readable = False
            if not link.may_close:
                self._finding(
                    "answers out of order",
                    f"connection {link.number}: {correlation_id} for {owed.correlation_id}, {describe([owed])}",
                )
            return
        if len(frame) > DECODED_MAX:
            return
        try:
            answer = read_answer(owed.key, owed.version, frame)
        except DecodeError as error:
            if owed.is_clean:
                self._finding(
                    f"an answer to {ApiKey(owed.key).name} that cannot be read",
                    f"v{owed.version}: {error}: {frame[:200].hex()}\n{owed.shown}",
                )
            return
        for kind, value in self._grammar.pools.see(owed.key, owed.sent, answer):
            self._recorder.add(Step(link.number, "learnt", value, kind))
        # Some refusals have this code in Apache Kafka too; a fault of the broker's own stands in its log.
        if self.has_no_log and has_error(owed.key, answer, ErrorCode.UNKNOWN_SERVER_ERROR):
            self._finding(
                f"UNKNOWN_SERVER_ERROR to {ApiKey(owed.key).name}", f"{owed} on connection {link.number}\n{owed.shown}"
            )


def _may_wait(link: Link) -> bool:
    first = link.owed[0]
    return first.key in WAITING or not first.is_clean


def nature_is_lone(link: Link) -> bool:
    """Whether its requests come one by one."""
    return link.nature.depth == 1


def describe(owed: Sequence[Owed] | deque[Owed]) -> str:
    """`PRODUCE v9, FETCH v4 …`"""
    names = [str(one) for one in list(owed)[:5]]
    return ", ".join(names) + (f" and {len(owed) - 5} more" if len(owed) > 5 else "")


def read_answer(key: int, version: int, frame: bytes) -> Any:
    """The message of an answer without its length. Raises DecodeError."""
    _, offset = parse_response_header(key, version, frame)
    return decoder(response_class(key), version)(frame, offset)[0]


Path = tuple[tuple[str, "Path | None"], ...]


@cache
def _error_paths(key: int) -> Path:
    """Where an answer has error codes: (field, None for a code or the paths below)."""
    return _paths(response_class(key).__description__.struct)


def _paths(struct: Struct) -> Path:
    found: list[tuple[str, Path | None]] = []
    for field in struct.fields:
        if field.name == "error_code":
            found.append((field.name, None))
        elif field.struct is not None:
            below = _paths(field.struct)
            if below:
                found.append((field.name, below))
    return tuple(found)


def has_error(key: int, answer: Any, code: int) -> bool:
    """Whether the code stands anywhere in the answer."""
    return _has(answer, _error_paths(key), code)


def _has(record: Any, paths: Path, code: int) -> bool:
    for name, below in paths:
        value = getattr(record, name)
        if below is None:
            if value == code:
                return True
        elif isinstance(value, list):
            if any(_has(one, below, code) for one in value):
                return True
        elif value is not None and _has(value, below, code):
            return True
    return False


__all__ = ["Attack", "Finding", "Nature", "Request", "has_error", "read_answer"]
