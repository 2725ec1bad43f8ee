"""What carries a connection's bytes through TLS over a non-blocking socket: the reactor's, where a listener has it.

No task, no thread, and memory that has a bound: what one `recv` brought is decrypted at once, `FEED_BYTES` at a time,
since a connection keeps the memory in which ciphertext has waited for OpenSSL. At most `WRITE_BYTES_MAX` of an answer
is encrypted before the socket has taken what was encrypted before. So a client that does not read holds 64 KiB, and one
that dribbles its handshake holds a few hundred bytes until `HANDSHAKE_S` is over.

Clients send record by record, 16 KiB at most, and to receive each of them in a round of its own costs more than to
decrypt it. While a frame is being collected, Linux reports the socket as readable only when a good part of what is
missing is there (`SO_RCVLOWAT`): at most as many bytes as must come before the frame can be complete.

There is no `sendfile` for what must be encrypted: slices of segments are read, as the peer drains.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Final

from barnabas.logdir import FileSlice
from barnabas.server.network.arenas import Arenas
from barnabas.server.network.connection import Connection, ProtocolViolation
from barnabas.server.network.sending import read_slice
from barnabas.server.network.strangers import name_stranger_without_tls
from barnabas.server.security.tls.channel import WRITE_BYTES_MAX, TlsChannel, TlsError
from barnabas.server.security.tls.record_bounds import RecordBounds

HANDSHAKE_S: Final = 10.0
FEED_BYTES: Final = 64 * 1024
"""Larger pieces are not decrypted faster, and each connection would keep memory for one."""
AWAITED_BYTES: Final = 64 * 1024
"""So much of a large frame is worth a round."""
_CAN_AWAIT: Final = sys.platform == "linux"
_NO_ROOM: Final = memoryview(b"")
_NOTHING: Final = b""

Opened = Callable[[Connection, TlsChannel], None]
"""Told when the handshake is over. Raises TlsError where the peer is nobody who may come in."""


class TlsCarrier:
    """begun: when the connection was accepted, in the reactor's time."""

    __slots__ = ("_awaited_bytes", "_channel", "_is_new", "_opened", "_records", "_unsent", "begun")

    def __init__(self, channel: TlsChannel, opened: Opened, begun: float) -> None:
        self._channel = channel
        self._opened = opened
        self._unsent: bytes | memoryview = _NOTHING
        self._is_new = True
        self._records = RecordBounds()
        self._awaited_bytes = 1
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
        """Receive once, and pass all that can be read of it to the connection. Returns the number of bytes received; 0:
        the peer sends no more. Raises TlsError, OSError, and what `Connection.receive` does.
        """
        scratch = arenas.scratch
        came = sock.recv_into(scratch)
        if not came:
            return 0
        if self._is_new:
            self._is_new = False
            stranger = name_stranger_without_tls(bytes(scratch[:4]), connection.listener)
            if stranger is not None:
                raise ProtocolViolation(stranger, from_stranger=True)
        ciphertext = scratch[:came]
        self._records.add(ciphertext)
        self._deliver(ciphertext, connection, arenas)
        if connection.closed:
            return came  # by what it received, and the socket is closed as well
        missing_bytes = connection.missing_bytes
        if missing_bytes:
            self._await(sock, min(AWAITED_BYTES, self._records.bytes_before(missing_bytes)))
        elif self._awaited_bytes > 1:
            self._await(sock, 1)
        return 0 if self._channel.peer_closed else came

    def _deliver(self, ciphertext: memoryview, connection: Connection, arenas: Arenas) -> None:
        """Decrypt: the rest of a large frame to its place, what follows to an arena, from which the connection takes it
        up at once.
        """
        channel = self._channel
        target = connection.recv_target()
        room, filled = _NO_ROOM, 0
        for at in range(0, len(ciphertext), FEED_BYTES):
            was_open = channel.is_open
            channel.feed(ciphertext[at : at + FEED_BYTES])
            if channel.is_open and not was_open:
                self._opened(connection, channel)
            while channel.may_have_data:
                if target is not None:
                    space = target
                elif filled < len(room):
                    space = room[filled:]
                else:
                    if filled:
                        arenas.take(filled)
                        connection.receive(room)
                        if connection.closed:
                            return
                        room, filled = _NO_ROOM, 0
                        target = connection.recv_target()
                        continue
                    space = room = arenas.space()
                size = channel.read_into(space)
                if target is None:
                    filled += size
                elif size:
                    connection.received(size)
                    if connection.closed:
                        return
                    target = connection.recv_target()
                if size < len(space):
                    break  # that was all
        if filled:
            arenas.take(filled)
            connection.receive(room[:filled])

    def _await(self, sock: socket.socket, awaited_bytes: int) -> None:
        """The socket becomes readable when so much is there. Linux reports the end of the stream all the same, and
        waits for no more than it has room for.
        """
        if awaited_bytes != self._awaited_bytes and _CAN_AWAIT:
            self._awaited_bytes = awaited_bytes
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited_bytes)

    def await_any(self, sock: socket.socket) -> bool:
        """The socket becomes readable when anything is there. False: it does already."""
        was_awaiting = self._awaited_bytes > 1
        self._await(sock, 1)
        return was_awaiting

    def send(self, sock: socket.socket, connection: Connection) -> bool:
        """Send what the socket takes; True when nothing is left. Raises TlsError, OSError."""
        channel = self._channel
        out = connection.out
        try:
            while True:
                unsent = self._unsent
                if not unsent:
                    if out and channel.is_open:
                        _encrypt_some(channel, connection)
                    elif not channel.outgoing_bytes:
                        return True
                    unsent = self._unsent = channel.outgoing()
                size = sock.send(unsent)
                if size < len(unsent):
                    self._unsent = memoryview(unsent)[size:]
                    continue
                self._unsent = _NOTHING
                if not out:
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
    """The beginning of what is to be sent. Raises TlsError, OSError."""
    out = connection.out
    pieces: list[bytes | memoryview] = []
    room = WRITE_BYTES_MAX
    while out and room:
        part = out.popleft()
        if isinstance(part, FileSlice):
            piece: bytes | memoryview = read_slice(FileSlice(part.file, part.position, min(part.length, room)))
            if len(piece) < part.length:
                out.appendleft(FileSlice(part.file, part.position + len(piece), part.length - len(piece)))
        elif len(part) <= room:
            piece = part  # type: ignore[assignment]
        else:
            view = memoryview(part)  # type: ignore[arg-type]
            piece = view[:room]
            out.appendleft(view[room:])
        pieces.append(piece)
        room -= len(piece)
    # One write, as each makes at least one record.
    channel.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    connection.sent(WRITE_BYTES_MAX - room)
