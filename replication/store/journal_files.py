"""The directory behind the journal, in the few calls that matter: what is on the disk after each, and after a failure.

The journal file and the directory stay open from the start on, so a process that has run out of descriptors still
writes its metadata. Only a snapshot opens a file, and can wait.

What a failed call leaves: `append` truncates what it has written of the data, so far as the disk lets it; `replace` has
left the old file in place. A call that the system broke off for a reason that passes (`PASSES`) is made again.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

logger = logging.getLogger(__name__)

PASSES = frozenset({errno.EINTR, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors that say nothing about the disk: the process, or the machine, is short of something for a moment."""

_TRIES = 3
_CHUNK = 1 << 20
P = ParamSpec("P")
T = TypeVar("T")


class Files(Protocol):
    """What the journal asks of its directory; tests stop it in the middle of any call. All raise OSError."""

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        ...

    def hold(self, name: str) -> None:
        """Open the file for `append` and `truncate`, and keep it open."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Put `data` in the place of the file: after a crash there is all of the old or all of the new one, and of the
        new one for certain after `sync_names`, or after the next `append` to it.
        """
        ...

    def sync_names(self) -> None:
        """What was replaced stays so."""
        ...

    def append(self, name: str, data: bytes) -> None:
        """Write at the end of a file that is held and wait until it is on the disk. Nothing of it is left after a
        failure, unless the disk refuses that as well: then the end of the file is not sound.
        """
        ...

    def truncate(self, name: str, length: int) -> None:
        """Cut a file that is held, and wait until that is on the disk."""
        ...

    def close(self) -> None:
        """Close the open files."""
        ...


class System(Protocol):
    """The system calls that are made, as module `os` has them; tests let each of them fail."""

    def open(self, path: str, flags: int, mode: int = ..., /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def read(self, fd: int, length: int, /) -> bytes: ...
    def pwrite(self, fd: int, data: memoryview, position: int, /) -> int: ...
    def ftruncate(self, fd: int, length: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def replace(self, source: str, target: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...


class DirectoryFiles:
    """`Files` of a real directory. Made if absent."""

    def __init__(self, path: str | os.PathLike[str], system: System = os) -> None:
        self._path = os.fspath(path)
        self._system = system
        self._held: dict[str, tuple[int, int]] = {}  # descriptor, sound length
        self._names_changed = False
        self._directory = -1
        os.makedirs(self._path, exist_ok=True)
        self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY)

    def read(self, name: str) -> bytes | None:
        try:
            fd = _again(self._system.open, self._at(name), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            parts = []
            while part := _again(self._system.read, fd, _CHUNK):
                parts.append(part)
            return b"".join(parts)
        finally:
            self._close(fd)

    def hold(self, name: str) -> None:
        if name not in self._held:
            fd = _again(self._system.open, self._at(name), os.O_RDWR)
            self._held[name] = fd, os.fstat(fd).st_size

    def replace(self, name: str, data: bytes) -> None:
        beside = self._at(name) + ".tmp"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        fd = _again(self._system.open, beside, flags, 0o666)
        try:
            self._write(fd, data, 0)
            _again(self._system.fsync, fd)
            _again(self._system.replace, beside, self._at(name))
        except BaseException:
            self._close(fd)
            self._remove(beside)  # on a full disk its room is wanted
            raise
        self._names_changed = True
        known = self._held.pop(name, None)
        if known is not None:  # from here on it is the new file that is appended to
            self._held[name] = fd, len(data)
            fd = known[0]
        self._close(fd)

    def sync_names(self) -> None:
        if self._names_changed:
            _again(self._system.fsync, self._directory)
            self._names_changed = False

    def append(self, name: str, data: bytes) -> None:
        fd, length = self._held[name]
        self.sync_names()
        try:
            self._write(fd, data, length)
            _again(getattr(self._system, "fdatasync", self._system.fsync), fd)  # macOS has the latter only
        except OSError:
            self._truncate(name, fd, length)
            raise
        self._held[name] = fd, length + len(data)

    def truncate(self, name: str, length: int) -> None:
        fd, _ = self._held[name]
        _again(self._system.ftruncate, fd, length)
        _again(self._system.fsync, fd)
        self._held[name] = fd, length

    def close(self) -> None:
        fds = [fd for fd, _ in self._held.values()]
        if self._directory >= 0:
            fds.append(self._directory)
        self._held, self._directory = {}, -1
        for fd in fds:
            self._close(fd)

    def __del__(self) -> None:
        if hasattr(self, "_directory"):
            self.close()

    # ---- pieces

    def _at(self, name: str) -> str:
        return os.path.join(self._path, name)

    def _write(self, fd: int, data: bytes, position: int) -> None:
        left = memoryview(data)
        while left:
            written = _again(self._system.pwrite, fd, left, position)
            if not written:
                raise OSError(errno.EIO, "the file takes no more bytes")
            left = left[written:]
            position += written

    def _close(self, fd: int) -> None:
        """What was to be safe is synced already: trouble here is of no interest but to the log."""
        try:
            self._system.close(fd)
        except OSError as error:
            logger.warning("closing a file of %s failed: %s", self._path, error)

    def _truncate(self, name: str, fd: int, length: int) -> None:
        """Half a frame must not stay: another one behind it would look like damage in the middle."""
        try:
            _again(self._system.ftruncate, fd, length)
            _again(self._system.fsync, fd)
        except OSError as error:
            logger.error("%s: truncating an incomplete write at %d failed: %s", name, length, error)

    def _remove(self, path: str) -> None:
        try:
            self._system.unlink(path)
        except OSError as error:
            logger.warning("removing %s failed: %s", path, error)


def _again(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What `call` gives, made again a few times when it is broken off for a reason that passes."""
    for left in reversed(range(_TRIES)):
        try:
            return call(*args, **kwargs)
        except OSError as error:
            if not left or error.errno not in PASSES:
                raise
    raise AssertionError
