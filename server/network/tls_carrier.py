"""What carries a connection's bytes through TLS over a non-blocking socket: the reactor's, where a listener has it.

No task, no thread, and memory that has a bound: what one `recv` brought is decrypted at once, and at most
`WRITE_BYTES_MAX` of an answer is encrypted before the socket has taken what was encrypted before. So a client that does
not read holds 64 KiB, and one that dribbles its handshake holds a few hundred bytes until `HANDSHAKE_S` is over.

There is no `sendfile` for what must be encrypted: slices of segments are read, as the peer drains.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.logdir import FileSlice
from barnabas.server.network.connection import Connection, ProtocolViolation
from barnabas.server.network.strangers import name_stranger_without_tls
from barnabas.server.security.tls.channel import WRITE_BYTES_MAX, TlsChannel, TlsError

HANDSHAKE_S: Final = 10.0
_NOTHING: Final = memoryview(b"")

Opened = Callable[[Connection, TlsChannel], None]
"""Told when the handshake is over. Raises TlsError where the peer is nobody who may come in."""


class Arenas(Protocol):
    """Memory that stays as it is until the round ends."""

    def space(self) -> memoryview: ...

    def take(self, size: int) -> None: ...


class TlsCarrier:
    """begun: when the connection was accepted, in the reactor's time."""

    __slots__ = ("_channel", "_is_new", "_opened", "_unsent", "begun")

    def __init__(self, channel: TlsChannel, opened: Opened, begun: float) -> None:
        self._channel = channel
        self._opened = opened
        self._unsent = _NOTHING
        self._is_new = True
        self.begun = begun

    @property
    def is_open(self) -> bool:
        """The handshake is over."""
        return self._channel.is_open

    @property
    def has_unsent(self) -> bool:
        """There is ciphertext that the socket has not taken."""
        return bool(self._unsent or self._channel.outgoing_bytes)

    def receive(self, sock: socket.socket, connection: Connection, arenas: Arenas) -> int:
        """Receive once, and hand the connection all that can be read of it. Returns how many bytes came: 0 when no more
        will. Raises TlsError, OSError, and what `Connection.receive` does.
        """
        space = arenas.space()
        came = sock.recv_into(space)
        if not came:
            return 0
        if self._is_new:
            self._is_new = False
            stranger = name_stranger_without_tls(bytes(space[:4]), connection.listener)
            if stranger is not None:
                raise ProtocolViolation(stranger, from_stranger=True)
        channel = self._channel
        was_open = channel.is_open
        channel.feed(space[:came])
        if channel.is_open and not was_open:
            self._opened(connection, channel)
        self._deliver(connection, arenas)
        return 0 if channel.peer_closed else came

    def _deliver(self, connection: Connection, arenas: Arenas) -> None:
        """Hand over all plaintext that there is. It may lie where the ciphertext lay, which was copied."""
        while not connection.closed:
            target = connection.recv_target()
            if target is not None:
                size = self._channel.read_into(target)
                connection.received(size)
                if not size:
                    break
                continue
            room = arenas.space()
            filled = self._fill(room)
            if not filled:
                break
            arenas.take(filled)
            connection.receive(room[:filled])

    def _fill(self, room: memoryview) -> int:
        """With as many records as there are."""
        filled = 0
        while filled < len(room):
            size = self._channel.read_into(room[filled:])
            if not size:
                break
            filled += size
        return filled

    def send(self, sock: socket.socket, connection: Connection) -> bool:
        """Send what the socket takes; True when nothing is left. Raises TlsError, OSError."""
        channel = self._channel
        try:
            while True:
                if self._unsent:
                    self._unsent = self._unsent[sock.send(self._unsent) :]
                elif channel.outgoing_bytes:
                    self._unsent = memoryview(channel.outgoing())
                elif connection.out and channel.is_open:
                    _encrypt_some(channel, connection)
                else:
                    return True
        except BlockingIOError:
            return False

    def say_last(self, sock: socket.socket, *, has_failed: bool) -> None:
        """Before the socket is closed, as far as it takes it: what went wrong, or that no more will come."""
        try:
            if self._unsent:
                return  # something would have to be in front of it
            if not has_failed and self._channel.is_open:
                self._channel.close()
            if self._channel.outgoing_bytes:
                sock.send(self._channel.outgoing())
        except (OSError, TlsError):
            pass


def _encrypt_some(channel: TlsChannel, connection: Connection) -> None:
    """The beginning of what is to be sent."""
    out = connection.out
    pieces: list[bytes | memoryview] = []
    room = WRITE_BYTES_MAX
    while out and room:
        part = out.popleft()
        if isinstance(part, FileSlice):
            piece: bytes | memoryview = FileSlice(part.file, part.position, min(part.length, room)).read()
            if len(piece) < part.length:
                out.appendleft(FileSlice(part.file, part.position + len(piece), part.length - len(piece)))
        else:
            view = memoryview(part)  # type: ignore[arg-type]
            piece = view[:room]
            if len(piece) < len(view):
                out.appendleft(view[room:])
        pieces.append(piece)
        room -= len(piece)
    # One write, as each makes at least one record.
    channel.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    connection.sent(WRITE_BYTES_MAX - room)
