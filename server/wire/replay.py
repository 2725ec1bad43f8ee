"""A recording is said again to a broker: in the order of the tape, over as many connections as there were.

A request is sent when all that stands before it on the tape has happened: answers that were there before it have come,
from whichever connection. So what clients did after each other happens after each other. `Replaying` decides what is
sent, and what the answers' differences are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from barnabas.kproto import DecodeError
from barnabas.server.client.approach import Approach
from barnabas.server.client.connections import approached, endpoint
from barnabas.server.network.peers import PeerError
from barnabas.server.wire import tape
from barnabas.server.wire.addresses import Address
from barnabas.server.wire.conversation import Event
from barnabas.server.wire.frames import FRAME_BYTES_MAX, Frames, framed
from barnabas.server.wire.replaying import NEVER_SENT, Prepared, Replaying, correlation_id_of

if TYPE_CHECKING:
    from barnabas.server.network.peers import Connect

CHUNK_BYTES: Final = 256 * 1024
_CLOSED: Final = "the broker has closed the connection"


@dataclass(slots=True)
class Result:
    """Of a replay: requests that were sent, those whose answers differ, and those that could not be sent."""

    sent: int = 0
    differ: int = 0
    left_out: int = 0


@dataclass(slots=True)
class _Waiting:
    """A request that was sent. recorded: the answer on the tape, once that was reached."""

    request: Prepared
    at: float
    recorded_at: float


@dataclass(slots=True)
class _Connection:
    stream: trio.abc.Stream
    frames: Frames = field(default_factory=Frames)
    complete: list[bytes] = field(default_factory=list)
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    why_closed: str = ""


class Replay:
    """See the module. to: where the recorded brokers' requests go, by their addresses; `other`: those of any other.
    tell: gets an event for each request. timing: leave the times between requests as they were. answer_s: how long an
    answer is waited for.
    """

    def __init__(
        self,
        other: Address,
        tell: Callable[[Event], None],
        *,
        to: Mapping[str, Address] | None = None,
        approach: Approach | None = None,
        connect: Connect | None = None,
        timing: bool = False,
        answer_s: float = 30.0,
    ) -> None:
        self._other = other
        self._to = to or {}
        self._tell = tell
        self._approach = approach or Approach()
        self._connect = connect or approached(self._approach)
        self._timing = timing
        self._answer_s = answer_s
        self._replaying = Replaying()
        self._connections: dict[int, _Connection] = {}
        self._begun = 0.0

    async def run(self, entries: Iterable[tape.Entry]) -> Result:
        """Replay a tape. Raises BadTape."""
        result = Result()
        self._begun = trio.current_time()
        try:
            for entry in entries:
                if self._timing:
                    await trio.sleep_until(self._begun + entry.at)
                match entry.kind:
                    case tape.OPENED:
                        await self._open(entry)
                    case tape.REQUEST:
                        await self._send(entry, result)
                    case tape.ANSWER:
                        await self._expect(entry, result)
                    case tape.LEFT_OUT:
                        self._tell({"connection": entry.connection, "left_out": entry.text})
                    case tape.CLOSED:
                        await self._close(entry.connection, result)
            for number in list(self._connections):
                await self._close(number, result)
        finally:
            with trio.CancelScope(shield=True):
                for connection in self._connections.values():
                    await trio.aclose_forcefully(connection.stream)
        return result

    async def _open(self, entry: tape.Entry) -> None:
        where = self._to.get(entry.text, self._other)
        try:
            with trio.fail_after(self._answer_s):
                stream = await self._connect(endpoint(where.host, where.port, self._approach.protocol))
        except (OSError, PeerError, trio.TooSlowError, trio.BrokenResourceError) as error:
            why = f"the broker cannot be reached: {error or 'it takes too long'}"
            self._tell({"connection": entry.connection, "broker": str(where), "odd": [why]})
            return
        self._connections[entry.connection] = _Connection(stream)
        self._tell({"connection": entry.connection, "broker": str(where), "opened": True})

    async def _send(self, entry: tape.Entry, result: Result) -> None:
        connection = self._connections.get(entry.connection)
        try:
            request = self._replaying.prepare(entry.frame)
        except DecodeError as error:
            result.left_out += 1
            self._tell({"connection": entry.connection, "left_out": f"a request that cannot be read: {error}"})
            return
        event: Event = {"connection": entry.connection, "request": request.name, "version": request.version}
        if request.key in NEVER_SENT:
            self._tell({**event, "left_out": "a log-in; --command-config says who this one is of"})
            return
        if connection is None or connection.why_closed:
            result.left_out += 1
            why = _CLOSED if connection is None else connection.why_closed
            self._tell({**event, "left_out": f"there is no connection: {why}"})
            return
        try:
            await connection.stream.send_all(framed(request.frame))
        except (OSError, trio.BrokenResourceError):
            connection.why_closed = _CLOSED
            result.left_out += 1
            self._tell({**event, "left_out": _CLOSED})
            return
        result.sent += 1
        if request.answered:
            connection.waiting[request.correlation_id] = _Waiting(request, trio.current_time(), entry.at)
        else:
            self._tell({**event, **_notes(request)})

    async def _expect(self, entry: tape.Entry, result: Result) -> None:
        """An answer was here on the tape: wait for that of today."""
        connection = self._connections.get(entry.connection)
        correlation_id = correlation_id_of(entry.frame)
        if connection is None or correlation_id not in connection.waiting:
            return
        waiting = connection.waiting.pop(correlation_id)
        now = await self._answer(connection, correlation_id)
        if now is None:
            connection.why_closed = connection.why_closed or f"no answer to {waiting.request.name}"
        self._compare(entry, waiting, now, result, connection.why_closed)

    def _compare(self, entry: tape.Entry, waiting: _Waiting, now: bytes | None, result: Result, why: str) -> None:
        request = waiting.request
        compared = self._replaying.compare(request, entry.frame, now)
        event: Event = {"connection": entry.connection, "request": request.name, "version": request.version}
        recorded_ms = round((entry.at - waiting.recorded_at) * 1000, 3)
        event["then"] = {"ms": recorded_ms, **compared.recorded}
        if now is not None:
            event["now"] = {"ms": round((trio.current_time() - waiting.at) * 1000, 3), **compared.now}
        event.update(_notes(request))
        differences = [*compared.differences, *([why] if now is None and why else [])]
        event["same"] = not differences
        if differences:
            event["differs"] = differences
            result.differ += 1
        self._tell(event)

    async def _answer(self, connection: _Connection, correlation_id: int) -> bytes | None:
        """The answer to a request, or None when there is none: in order, but for a broker that answers out of order."""
        with trio.move_on_after(self._answer_s):
            while True:
                for number, frame in enumerate(connection.complete):
                    if correlation_id_of(frame) == correlation_id:
                        return connection.complete.pop(number)
                try:
                    data = await connection.stream.receive_some(CHUNK_BYTES)
                except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                    data = b""
                if not data:
                    connection.why_closed = _CLOSED
                    return None
                complete, rest = connection.frames.feed(bytes(data))
                connection.complete += complete
                if rest:
                    connection.why_closed = f"the broker's frame is longer than {FRAME_BYTES_MAX} bytes"
                    return None
        connection.why_closed = f"there was no answer within {self._answer_s:g} s"
        return None

    async def _close(self, number: int, result: Result) -> None:
        connection = self._connections.pop(number, None)
        if connection is None:
            return
        for waiting in connection.waiting.values():
            event: Event = {"connection": number, "request": waiting.request.name, "version": waiting.request.version}
            self._tell({**event, **_notes(waiting.request), "note": "the recording has no answer: not waited for"})
        await trio.aclose_forcefully(connection.stream)


def _notes(request: Prepared) -> Event:
    notes: Event = {}
    if request.replaced:
        notes["replaced"] = request.replaced
    if request.as_recorded:
        notes["as_recorded"] = request.as_recorded
    return notes
