"""The tap: clients connect to it, it connects to the broker, and passes on what both say.

Every broker has a listening port of its own here: a client that talks to three of them has three connections, which
lead to three brokers. The first port is the one that was asked for, and leads to the broker that was named; the others
are opened when an answer names their broker, the next free ones after it (any free ones, if any port was asked for).

Memory is bounded by the longest frame of each direction, at most `frames.FRAME_BYTES_MAX`: frames are passed on when
they are complete.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TextIO

import trio

from barnabas.server.client.approach import Approach
from barnabas.server.client.connections import approached, endpoint
from barnabas.server.network.peers import PeerError
from barnabas.server.wire import tape
from barnabas.server.wire.addresses import Address
from barnabas.server.wire.conversation import Answer, Conversation, Event, Offered
from barnabas.server.wire.frames import Frames, framed, kind_of
from barnabas.server.wire.shown import Limits

if TYPE_CHECKING:
    from barnabas.server.network.peers import Connect

CHUNK_BYTES: Final = 256 * 1024
CONNECT_S: Final = 10.0
PORTS_TRIED: Final = 100
_ANY: Final = ("0.0.0.0", "::")
_SECRET: Final = frozenset({"SaslAuthenticate", "SASL token"})

Tell = Callable[[Event], None]


class CannotTap(Exception):
    """The tap cannot listen; the message says why."""


class Tap:
    """See the module. listen: where clients connect. to: the first broker. approach: how brokers are reached; what
    clients say about themselves is theirs. tell: gets each event. recording: where the tape goes.
    connect: in place of the network.
    """

    def __init__(
        self,
        listen: Address,
        to: Address,
        tell: Tell,
        *,
        approach: Approach | None = None,
        limits: Limits | None = None,
        recording: TextIO | None = None,
        connect: Connect | None = None,
    ) -> None:
        self._listen = listen
        self._to = to
        self.tell = tell
        self._approach = approach or Approach()
        self._connect = connect or approached(self._approach)
        self._limits = limits
        self._recording = recording
        self._places: dict[Address, Address] = {}
        self._offered: dict[Address, Offered] = {}
        self._resolved: dict[str, frozenset[str]] = {}
        self._connections = 0
        self._begun = trio.current_time()
        self._opening = trio.Lock()
        self._nursery: trio.Nursery

    async def run(self, task_status: trio.TaskStatus[Address] = trio.TASK_STATUS_IGNORED) -> None:
        """Tap until cancelled; started with the address where clients connect. Raises CannotTap."""
        self._record_line(tape.head(str(self._to)))
        async with trio.open_nursery() as self._nursery:
            task_status.started(await self._place(self._to, self._listen.port))
            await trio.sleep_forever()

    # -- brokers -----------------------------------------------------------------------------------------------------

    async def _place(self, broker: Address, port: int) -> Address:
        """Listen for a broker's clients. port 0: any free one. Raises CannotTap."""
        sock = self._bind(port)
        where = Address(self._listen.host, sock.getsockname()[1])
        self._places[broker] = where
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        self.tell({"at": self.now(), "listening": str(where), "broker": str(broker)})
        self._nursery.start_soon(partial(trio.serve_listeners, partial(self._serve, broker), [listener]))
        return where

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._listen.host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((self._listen.host, port))
            sock.listen(128)
        except (OSError, OverflowError) as error:
            sock.close()
            why = getattr(error, "strerror", None) or str(error)
            raise CannotTap(f"cannot listen on {Address(self._listen.host, port)}: {why}") from None
        sock.setblocking(False)
        return sock

    async def places_of(self, brokers: list[Address], came_to: str) -> dict[Address, Address]:
        """Where a client shall go instead; a broker for which no port can be opened is left as it is. came_to: the
        address at which the client has found the tap, if that listens on all.
        """
        async with self._opening:
            for broker in brokers:
                if broker in self._places:
                    continue
                known = await self._same_as(broker)
                if known is not None:
                    self._places[broker] = self._places[known]
                    continue
                await self._place_next(broker)
        places = {broker: self._places[broker] for broker in brokers if broker in self._places}
        if self._listen.host in _ANY:
            return {broker: Address(came_to, place.port) for broker, place in places.items()}
        return places

    async def _place_next(self, broker: Address) -> None:
        ports = [0]
        if self._listen.port:
            taken = {each.port for each in self._places.values()}
            ports = [port for port in range(self._listen.port + 1, self._listen.port + PORTS_TRIED) if port < 65536]
            ports = [port for port in ports if port not in taken]
        why = CannotTap("there is no port left")
        for port in ports:
            try:
                await self._place(broker, port)
            except CannotTap as error:
                why = error
            else:
                return
        self.tell({"at": self.now(), "broker": str(broker), "odd": [f"clients leave the tap for it: {why}"]})

    async def _same_as(self, broker: Address) -> Address | None:
        """A known broker by another name: localhost and 127.0.0.1."""
        mine = await self._numbers(broker.host)
        for known in self._places:
            if known.port == broker.port and (mine & await self._numbers(known.host)):
                return known
        return None

    async def _numbers(self, host: str) -> frozenset[str]:
        found = self._resolved.get(host)
        if found is None:
            try:
                with trio.move_on_after(CONNECT_S):
                    rows = await trio.socket.getaddrinfo(host, None)
                    found = frozenset(str(row[4][0]) for row in rows)
            except OSError:
                pass
            found = self._resolved[host] = found or frozenset()
        return found

    # -- connections -------------------------------------------------------------------------------------------------

    async def _serve(self, broker: Address, client: trio.SocketStream) -> None:
        self._connections += 1
        number, now = self._connections, self.now()
        opened: Event = {"at": now, "connection": number, "broker": str(broker), "opened_by": _peer(client)}
        try:
            with trio.fail_after(CONNECT_S):
                upstream = await self._connect(endpoint(broker.host, broker.port, self._approach.protocol))
        except (OSError, PeerError, trio.TooSlowError, trio.BrokenResourceError) as error:
            self.tell({**opened, "odd": [f"the broker cannot be reached: {error or 'it takes too long'}"]})
            await client.aclose()
            return
        self.tell(opened)
        self.record(tape.Entry(now, number, tape.OPENED, text=str(broker)))
        conversation = Conversation(number, str(broker), self._offered.setdefault(broker, {}), self._limits)
        link = _Link(self, number, conversation, client, upstream)
        by = await link.run()
        self.tell(conversation.ended(by, self.now()))
        self.record(tape.Entry(self.now(), number, tape.CLOSED, text=by))

    def now(self) -> float:
        """Seconds since the tap began."""
        return round(trio.current_time() - self._begun, 6)

    def record(self, entry: tape.Entry) -> None:
        """Write down what happened, if there is a recording."""
        if self._recording is not None:
            self._record_line(tape.line(entry))

    def _record_line(self, text: str) -> None:
        if self._recording is not None:
            self._recording.write(text)
            self._recording.flush()


class _Link:
    """One connection through the tap."""

    def __init__(
        self, tap: Tap, number: int, conversation: Conversation, client: trio.SocketStream, broker: trio.abc.Stream
    ) -> None:
        self._tap = tap
        self._number = number
        self._conversation = conversation
        self._client = client
        self._broker = broker
        self._ended_by = ""

    async def run(self) -> str:
        """Pass on until one of both closes. Returns who."""
        async with self._client, self._broker, trio.open_nursery() as nursery:
            nursery.start_soon(self._pass, "client", self._client, self._requests, nursery.cancel_scope)
            nursery.start_soon(self._pass, "broker", self._broker, self._answers, nursery.cancel_scope)
        return self._ended_by

    async def _pass(
        self,
        who: str,
        source: trio.abc.Stream,
        take: Callable[[Frames, bytes], Awaitable[None]],
        scope: trio.CancelScope,
    ) -> None:
        frames = Frames()
        try:
            while data := await source.receive_some(CHUNK_BYTES):
                was_opaque = frames.is_opaque
                await take(frames, bytes(data))
                if frames.is_opaque and not was_opaque:
                    self._tell_odd(f"what the {who} says is {kind_of(bytes(data))}")
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        if frames.pending_bytes:
            self._tell_odd(f"the {who} ends within a frame, {frames.pending_bytes} bytes of which have come")
        self._ended_by = self._ended_by or who
        scope.cancel()

    def _tell_odd(self, what: str) -> None:
        self._tap.tell({"at": self._tap.now(), "connection": self._number, "odd": [what]})

    async def _requests(self, frames: Frames, data: bytes) -> None:
        complete, rest = frames.feed(data)
        for frame in complete:
            now = self._tap.now()
            event = self._read_request(frame, now)
            self._keep(now, tape.REQUEST, event.get("request"), frame)
            self._tap.tell(event)
        # As it came: whole frames, or what is not Kafka's protocol.
        await self._broker.send_all(b"".join(map(framed, complete)) + rest)

    async def _answers(self, frames: Frames, data: bytes) -> None:
        complete, rest = frames.feed(data)
        for frame in complete:
            now = self._tap.now()
            answer = self._read_answer(frame, now)
            self._keep(now, tape.ANSWER, answer.event.get("answer"), frame)
            await self._client.send_all(framed(await self._rewritten(answer)))
            self._tap.tell(answer.event)
        if rest:
            await self._client.send_all(rest)

    def _read_request(self, frame: bytes, now: float) -> Event:
        """A fault of ours does not end the connection of others."""
        try:
            return self._conversation.request(frame, now)
        except Exception as error:
            return {"at": now, "connection": self._number, "odd": [f"this program fails at a request: {error!r}"]}

    def _read_answer(self, frame: bytes, now: float) -> Answer:
        try:
            return self._conversation.answer(frame, now)
        except Exception as error:
            why = f"this program fails at an answer: {error!r}"
            return Answer({"at": now, "connection": self._number, "odd": [why]}, frame)

    async def _rewritten(self, answer: Answer) -> bytes:
        if not answer.addresses:
            return answer.frame
        came_to = str(self._client.socket.getsockname()[0])
        return self._conversation.rewritten(answer, await self._tap.places_of(answer.addresses, came_to))

    def _keep(self, now: float, kind: str, name: object, frame: bytes) -> None:
        if name in _SECRET:
            self._tap.record(tape.Entry(now, self._number, tape.LEFT_OUT, text=str(name)))
        else:
            self._tap.record(tape.Entry(now, self._number, kind, frame))


def _peer(stream: trio.SocketStream) -> str:
    try:
        host, port = stream.socket.getpeername()[:2]
    except OSError:
        return "unknown"
    return str(Address(host, port))
