"""Answers to a socket: which bytes are sent by which system call.

Bytes by `send`, with small slices of log files that are read to be sent with them, since a system call costs more than
to copy some kilobytes. A large `FileSlice` goes by `sendfile` straight from the page cache, its header announced with
`MSG_MORE`. From the first one to the end the socket is corked: `sendfile` feeds it by 16 pages, and each time the
kernel would send what there is, in packets of all sizes. With whole packets alone a megabyte costs a third less CPU.

Corks and `MSG_MORE` are Linux's, and not used by who asks for what is `portable`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import Any

from barnabas.kproto import Part
from barnabas.logdir import FileSlice
from barnabas.server.network.connection import Connection

JOIN_BYTES_MAX = 1024 * 1024
READ_BYTES_MAX = 32 * 1024
"""Slices up to this size are read rather than sent by `sendfile`, several of them as long as they are no more."""


def send(sock: socket.socket, connection: Connection, *, portable: bool) -> bool:
    """Send what the socket takes; True when nothing is left. Raises OSError."""
    out = connection.out
    is_corked = False
    try:
        while out:
            part: Any = out[0]
            if type(part) is FileSlice and part.length > READ_BYTES_MAX:
                if not (is_corked or portable):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
                    is_corked = True
                size = os.sendfile(sock.fileno(), part.fd, part.position, part.length)
                if size == 0:
                    raise _cut_off()
            else:
                more = 0
                if len(out) > 1 or type(part) is FileSlice:
                    part = _joined(out)
                    if len(out) > 1 and type(out[1]) is FileSlice and not portable:
                        more = socket.MSG_MORE
                size = sock.send(part, more)
            connection.sent(size)
            if size == len(part):
                out.popleft()
            elif type(part) is FileSlice:
                out[0] = FileSlice(part.file, part.position + size, part.length - size)
            else:
                out[0] = memoryview(part)[size:]
    except BlockingIOError:
        return False
    finally:
        if is_corked:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    return True


def _joined(out: deque[Part]) -> Any:
    """Make one bytes object of the parts before the next large slice; it becomes `out[0]`. Of slices no more is read
    than a client may hold that does not receive it.
    """
    pieces: list[Any] = []
    total = read = 0
    while out and total < JOIN_BYTES_MAX:
        piece = out[0]
        if type(piece) is FileSlice:
            read += piece.length
            if read > READ_BYTES_MAX:
                break
            piece = read_slice(piece)
        out.popleft()
        pieces.append(piece)
        total += len(piece)
    joined = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    out.appendleft(joined)
    return joined


def read_slice(piece: FileSlice) -> bytes:
    """Its bytes. Raises OSError, also if the segment was cut meanwhile."""
    try:
        return piece.read()
    except EOFError:
        raise _cut_off() from None


def _cut_off() -> OSError:
    return OSError(errno.EIO, "a log segment is shorter than the slice to be sent from it")
