"""Unix sockets: of the metadata store that the brokers of a machine share.

Only the user who runs the store may connect: the socket's file has mode 0600. The name of a socket has room for 107
bytes on Linux (103 on macOS), less than paths may have. A longer one is reached through the directory's descriptor
where the system has /proc.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import trio

LONGEST_BYTES: Final = 107 if sys.platform == "linux" else 103
_DESCRIPTORS: Final = "/proc/self/fd"
_BACKLOG: Final = 128


def listen(path: str) -> trio.SocketListener:
    """Listen at `path`, whose directory exists; a file that a killed process left there is replaced. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        with _short(path) as name:
            before = os.umask(0o177)
            try:
                sock.bind(name)
            finally:
                os.umask(before)
        sock.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
    except BaseException:
        sock.close()
        raise


async def connect(path: str) -> trio.abc.Stream:
    """Connect to what listens at `path`. Raises OSError."""
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as name:
            await sock.connect(name)
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(sock)


@contextmanager
def _short(path: str) -> Iterator[str]:
    """A name of `path` that is short enough for a socket. Raises OSError."""
    if len(os.fsencode(path)) <= LONGEST_BYTES:
        yield path
        return
    directory, name = os.path.split(path)
    if not os.path.isdir(_DESCRIPTORS):
        raise OSError(errno.ENAMETOOLONG, f"a Unix socket's path has at most {LONGEST_BYTES} bytes", path)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"{_DESCRIPTORS}/{descriptor}/{name}"
    finally:
        os.close(descriptor)
