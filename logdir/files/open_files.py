"""Open log files: shared by reference, and limited in number.

A `LogFile` stays open as long as there is a reference to it and is closed with the last one. So a segment can be
dropped, renamed or deleted while an answer that carries a `FileSlice` of it is still being sent. The pool bounds how
many segments keep their file open and their indexes in memory: those that were not used since the last check are
released, and opened again when needed.

One event loop uses a pool; `FileSlice.read` and `LogFile` may be used from threads.
"""

from __future__ import annotations

import errno
import resource
from typing import Protocol

from barnabas.logdir.files.disk import Disk


class LogFile:
    """A descriptor that closes itself with the last reference."""

    __slots__ = ("_close", "disk", "fd", "path")

    def __init__(self, disk: Disk, path: str, create: bool = False) -> None:
        self.fd = -1
        self._close = disk.close
        self.disk = disk
        self.path = path
        self.fd = disk.open(path, create)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._close(self.fd)
            self.fd = -1


def new_log_file(disk: Disk, path: str) -> LogFile:
    """The log file of a new segment, made last. There is none if that fails: an empty one behind an active segment that
    continues to grow would be taken for the log's end by the next start. Raises OSError.
    """
    file = LogFile(disk, path, create=True)
    try:
        if disk.size(file.fd):
            disk.truncate(file.fd, 0)
    except OSError:
        try:
            disk.remove(path)
        except OSError as error:
            raise OSError(errno.EIO, "an empty segment can be neither made nor removed", path) from error
        raise
    return file


class FileSlice:
    """Bytes `position` to `position + length` of a log file, not read yet: for sendfile, or `read`. They do not
    change.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    @property
    def fd(self) -> int:
        return self.file.fd

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, position={self.position}, length={self.length})"

    def read(self) -> bytes:
        """The bytes. Raises OSError, EOFError when the file was cut meanwhile (by a truncation of the log)."""
        data = self.file.disk.pread(self.file.fd, self.length, self.position)
        if len(data) == self.length:
            return data
        parts = [data]
        have = len(data)
        while have < self.length:
            data = self.file.disk.pread(self.file.fd, self.length - have, self.position + have)
            if not data:
                raise EOFError(f"{self.file.path} ends inside the slice")
            parts.append(data)
            have += len(data)
        return b"".join(parts)


class Pooled(Protocol):
    """What a pool holds: `used` is set on every use, `release` lets the descriptor and memory go."""

    used: bool

    def release(self) -> None: ...


class Pool:
    """Holds at most `capacity` segments open ("second chance": of those not used since the last look, the oldest go
    first), and at most `index_bytes` of indexes that were loaded from files, as far as idle ones can give that.
    """

    __slots__ = ("_held", "_index_bytes", "capacity", "index_bytes")

    def __init__(self, capacity: int = 1024, index_bytes: int = 64 << 20) -> None:
        self.capacity = max(capacity, 1)
        self.index_bytes = index_bytes
        self._held: dict[Pooled, int] = {}
        self._index_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def loaded_index_bytes(self) -> int:
        """Bytes of indexes that are held now."""
        return self._index_bytes

    def add(self, segment: Pooled, loaded_bytes: int = 0) -> None:
        """`segment` opened its file or loaded `loaded_bytes` of indexes."""
        self._held[segment] = self._held.get(segment, 0) + loaded_bytes
        self._index_bytes += loaded_bytes
        if len(self._held) > self.capacity or self._index_bytes > self.index_bytes:
            self._let_go(segment)

    def discard(self, segment: Pooled) -> None:
        """`segment` was released by itself."""
        self._index_bytes -= self._held.pop(segment, 0)

    def _let_go(self, keep: Pooled) -> None:
        # Go down to 3/4, so that the walk is paid for by many openings. Two rounds: the first one takes the second
        # chances away.
        files, index_bytes = self.capacity * 3 // 4, self.index_bytes * 3 // 4
        for _ in range(2):
            for segment in list(self._held):
                if len(self._held) <= files and self._index_bytes <= index_bytes:
                    return
                if segment is keep:
                    continue
                if segment.used:
                    segment.used = False
                else:
                    self.discard(segment)
                    segment.release()


def half_of_the_limit() -> int:
    """How many files to hold open: the other half is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(min(soft // 2, 4096), 16)
