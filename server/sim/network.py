"""The network between brokers and clients, in memory: ordered streams over links with delay, bandwidth and cuts.

What TCP shows to a program is kept, not TCP: bytes arrive in order or not at all. A *cut* link (one direction) delivers
nothing; what was sent waits and arrives after the link is mended, as by retransmission, unless the connection was reset
meanwhile. Connecting over a cut link waits too, until the caller's time-out. Connecting to a host that is up but does
not listen is refused. A host whose process is killed sends resets to all its peers; one that lost power sends nothing,
and its peers notice only when it is up again and they send something.

    network.add("broker-1")                         a host
    network.listen("broker-1", welcome)             welcome(stream, peer's host) for each connection made to it
    stream = await network.connect("client", "broker-1")

Delays and slowness are of the ordered pair (source, target); see `Link`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import NamedTuple

import trio

from barnabas.server.sim.world import World

Welcome = Callable[[trio.abc.Stream, str], None]

WINDOW_BYTES = 256 * 1024
"""What one end may have sent that has not arrived."""
_RESET, _END = object(), object()


FAST = (0.0002, 0.0015)
"""Delay of a link without burden: smallest and largest, in seconds."""


class Burden(NamedTuple):
    """What makes a link slow; see `Link`."""

    delay_s: tuple[float, float]
    bytes_per_s: float


@dataclass(slots=True)
class Link:
    """One direction between two hosts. delay_s: smallest and largest; bytes_per_s: infinite for any number."""

    delay_s: tuple[float, float] = FAST
    bytes_per_s: float = inf
    cuts: int = 0
    burdens: list[Burden] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        return self.cuts > 0


class Stream(trio.abc.Stream):
    """One end of a connection."""

    def __init__(self, network: Network, host: str, peer_host: str, name: str) -> None:
        self._network = network
        self.host = host
        self.peer_host = peer_host
        self.name = name
        self.peer: Stream
        self.closed = False
        self.broken = False
        self._ended = False
        self._inbox: deque[bytes] = deque()
        self._readable: trio.Event | None = None
        self._writable: trio.Event | None = None
        # What this end sent and the other has not got, with the time of its arrival.
        self._outbox: deque[tuple[float, object]] = deque()
        self._outbox_bytes = 0
        self._due = 0.0

    def __repr__(self) -> str:
        return self.name

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check()
        while self._outbox_bytes >= WINDOW_BYTES:
            self._writable = trio.Event()
            await self._writable.wait()
            self._check()
        self._outbox_bytes += len(data)
        self._network._send(self, bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._inbox:
            if self.closed:
                raise trio.ClosedResourceError
            if self.broken:
                raise trio.BrokenResourceError("reset by the peer")
            if self._ended:
                return b""
            self._readable = trio.Event()
            await self._readable.wait()
        data = self._inbox.popleft()
        if max_bytes is not None and len(data) > max_bytes:
            self._inbox.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        return data

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint_if_cancelled()

    def close(self) -> None:
        """Close without waiting: what was sent still arrives, then the end."""
        if not self.closed:
            self.closed = True
            if not self.broken:
                self._network._send(self, _RESET if self._inbox else _END)
            self._wake()
            self._network._forget(self)

    def _check(self) -> None:
        if self.closed:
            raise trio.ClosedResourceError
        if self.broken:
            raise trio.BrokenResourceError("reset by the peer")

    def _arrive(self, what: object) -> None:
        """Called by the network at the receiving end."""
        if isinstance(what, bytes):
            self._inbox.append(what)
        elif what is _END:
            self._ended = True
        else:
            self.broken = True
            self._inbox.clear()
            self._outbox.clear()
        self._wake()

    def _wake(self) -> None:
        for event in (self._readable, self._writable):
            if event is not None:
                event.set()
        self._readable = self._writable = None


@dataclass(slots=True)
class _Host:
    welcome: Welcome | None = None
    is_up: bool = True
    streams: dict[Stream, None] | None = None


class Network:
    """See the module."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._hosts: dict[str, _Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._waiting: dict[tuple[str, str], trio.Event] = {}
        self._serial = 0
        self.bytes_carried = 0

    # -- hosts -------------------------------------------------------------------------------------------------------

    def add(self, host: str) -> None:
        self._hosts[host] = _Host(streams={})

    def listen(self, host: str, welcome: Welcome) -> None:
        """The host is up and takes connections."""
        self._hosts[host].welcome = welcome
        self._hosts[host].is_up = True

    def unlisten(self, host: str) -> None:
        """Connections to the host are refused from now on."""
        self._hosts[host].welcome = None

    def kill(self, host: str) -> None:
        """The process there is gone: the operating system resets its connections."""
        state = self._hosts[host]
        state.welcome = None
        assert state.streams is not None
        for stream in list(state.streams):
            stream._outbox_bytes = 0
            self._send(stream, _RESET)
            self._lose(stream)
        state.streams.clear()

    def power_off(self, host: str) -> None:
        """The machine is gone: its peers get no reset."""
        state = self._hosts[host]
        state.welcome = None
        state.is_up = False
        assert state.streams is not None
        for stream in list(state.streams):
            stream._outbox.clear()
            self._lose(stream)
        state.streams.clear()

    def power_on(self, host: str) -> None:
        self._hosts[host].is_up = True

    @staticmethod
    def _lose(stream: Stream) -> None:
        stream.broken = stream.closed = True
        stream._inbox.clear()
        stream._wake()

    # -- links -------------------------------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The link in this direction, to be changed."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link()
        return link

    def cut(self, source: str, target: str) -> None:
        """Nothing arrives in this direction until as many `mend`s."""
        self.link(source, target).cuts += 1

    def mend(self, source: str, target: str) -> None:
        link = self.link(source, target)
        link.cuts -= 1
        assert link.cuts >= 0
        if link.cuts:
            return
        waiting = self._waiting.pop((source, target), None)
        if waiting is not None:
            waiting.set()
        for stream in list(self._hosts[source].streams or ()):
            if stream.peer_host == target:
                self._flush_later(stream)

    def burden(self, source: str, target: str, burden: Burden) -> None:
        """Make the link slow; of several burdens the worst counts."""
        self.link(source, target).burdens.append(burden)
        self._weigh(source, target)

    def relieve(self, source: str, target: str, burden: Burden) -> None:
        self.link(source, target).burdens.remove(burden)
        self._weigh(source, target)

    def _weigh(self, source: str, target: str) -> None:
        link = self.link(source, target)
        link.delay_s = max((burden.delay_s for burden in link.burdens), default=FAST)
        link.bytes_per_s = min((burden.bytes_per_s for burden in link.burdens), default=inf)
        if not link.burdens:
            for stream in list(self._hosts[source].streams or ()):  # what is queued need not wait any longer
                if stream.peer_host == target and stream._outbox:
                    stream._due = due = self._world.now + self._delay(link)
                    stream._outbox = deque((min(due, old), what) for old, what in stream._outbox)
                    self._world.at(due, self._deliver, stream)

    def reset(self, one: str, other: str) -> int:
        """Break every connection between the two; how many there were."""
        count = 0
        for stream in list(self._hosts[one].streams or ()):
            if stream.peer_host == other:
                for end in (stream, stream.peer):
                    end._arrive(_RESET)
                count += 1
        return count

    def is_open(self, one: str, other: str) -> bool:
        """Both directions work."""
        return not self.link(one, other).is_cut and not self.link(other, one).is_cut

    # -- connections -------------------------------------------------------------------------------------------------

    async def connect(self, source: str, target: str) -> Stream:
        """A connection. Raises OSError (refused, unknown host); waits while the way is cut or the host is down."""
        if target not in self._hosts:
            raise OSError(f"unknown host {target}")
        for pair in ((source, target), (target, source)):
            await trio.sleep(self._delay(self.link(*pair)))
            while self.link(*pair).is_cut:
                await self._waiting.setdefault(pair, trio.Event()).wait()
        host = self._hosts[target]
        if not host.is_up:
            await trio.sleep_forever()
        if host.welcome is None:
            raise ConnectionRefusedError(f"{target} refuses connections")
        self._serial += 1
        ours = Stream(self, source, target, f"{source}>{target}#{self._serial}")
        theirs = Stream(self, target, source, f"{target}<{source}#{self._serial}")
        ours.peer, theirs.peer = theirs, ours
        for end in (ours, theirs):
            streams = self._hosts[end.host].streams
            assert streams is not None
            streams[end] = None
        host.welcome(theirs, source)
        return ours

    def _delay(self, link: Link) -> float:
        low, high = link.delay_s
        return low + (high - low) * self._rng.random()

    def _send(self, stream: Stream, what: object) -> None:
        """Take what `stream` sends; it arrives later."""
        link = self.link(stream.host, stream.peer_host)
        due = self._world.now + self._delay(link)
        if link.bytes_per_s < inf and isinstance(what, bytes):
            due = max(due, stream._due) + len(what) / link.bytes_per_s
        stream._due = due = max(due, stream._due)
        stream._outbox.append((due, what))
        self._world.at(due, self._deliver, stream)

    def _flush_later(self, stream: Stream) -> None:
        if stream._outbox:
            due = self._world.now + self._delay(self.link(stream.host, stream.peer_host)) + self._rng.uniform(0, 0.3)
            self._world.at(due, self._deliver, stream)

    def _deliver(self, stream: Stream) -> None:
        """Whatever `stream` sent and is due arrives."""
        if self.link(stream.host, stream.peer_host).is_cut:
            return
        outbox, now, peer = stream._outbox, self._world.now, stream.peer
        while outbox and outbox[0][0] <= now:
            what = outbox.popleft()[1]
            if isinstance(what, bytes):
                stream._outbox_bytes -= len(what)
                self.bytes_carried += len(what)
                if stream._writable is not None:
                    stream._writable.set()
                    stream._writable = None
            if not peer.closed:
                peer._arrive(what)
            elif self._hosts[peer.host].is_up and isinstance(what, bytes) and not stream.broken:
                self._send(peer, _RESET)  # the process there is gone

    def _forget(self, stream: Stream) -> None:
        streams = self._hosts[stream.host].streams
        assert streams is not None
        streams.pop(stream, None)
