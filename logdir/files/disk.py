"""The operating system as this package sees it: a dozen calls on files, behind one seam.

`Disk` is the real one. Tests put another object with the same methods in its place: one that loses what was never
synced, writes half a buffer, or says that the disk is full. Nothing else in this package touches files.

Paths are text. Every method raises OSError as the system call does. Files are opened for reading and writing without
a file position: reads and writes name theirs. A write is on the disk after `sync` of the file, a new, renamed or
removed name after `sync_dir` of its directory.

Nothing is mapped into memory: a write to a mapped sparse file on a full disk ends the process (SIGBUS), and a map
holds a descriptor of its own.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

Buffer = bytes | bytearray | memoryview

IOV_MAX = os.sysconf("SC_IOV_MAX")
"""Most buffers that one `pwritev` takes."""


class Entry(NamedTuple):
    """One name in a directory. `size` in bytes, 0 for directories; `mtime_ms` since 1970."""

    name: str
    is_dir: bool
    size: int
    mtime_ms: int


class Disk:
    """The calls as the operating system has them."""

    pread = staticmethod(os.pread)
    pwritev = staticmethod(os.pwritev)
    close = staticmethod(os.close)
    truncate = staticmethod(os.ftruncate)
    sync = staticmethod(getattr(os, "fdatasync", os.fsync))  # macOS has the latter only
    rename = staticmethod(os.replace)
    remove = staticmethod(os.unlink)
    remove_dir = staticmethod(os.rmdir)

    @staticmethod
    def open(path: str, create: bool = False) -> int:
        """A descriptor for reading and writing. With `create` the file is made if it is not there, else
        FileNotFoundError.
        """
        flags = os.O_RDWR | os.O_CLOEXEC
        return os.open(path, flags | os.O_CREAT if create else flags, 0o644)

    @staticmethod
    def size(fd: int) -> int:
        return os.fstat(fd).st_size

    @staticmethod
    def set_mtime(fd: int, mtime_ms: int) -> None:
        """Let the file look as if it was last written then."""
        os.utime(fd, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    @staticmethod
    def make_dir(path: str) -> None:
        """FileExistsError if it is there; parents must be."""
        os.mkdir(path, 0o755)

    @staticmethod
    def list(path: str) -> list[Entry]:
        """The names in a directory in no particular order; what vanishes meanwhile is left out."""
        entries = []
        with os.scandir(path) as names:
            for name in names:
                try:
                    found = name.stat()
                except FileNotFoundError:
                    continue
                is_dir = stat.S_ISDIR(found.st_mode)
                entries.append(Entry(name.name, is_dir, 0 if is_dir else found.st_size, found.st_mtime_ns // 1_000_000))
        return entries

    @staticmethod
    def sync_dir(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @staticmethod
    def sync_all(path: str) -> None:
        """Write everything that is dirty on the file system of `path`; fails, from Linux 5.8 on, if any of it could not
        be written. Syncing many files one by one would flush the drive's own cache once for each.
        """
        libc = ctypes.CDLL(None, use_errno=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not hasattr(libc, "syncfs"):
                os.sync()
            elif libc.syncfs(fd) < 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), path)
        finally:
            os.close(fd)

    @staticmethod
    def lock(path: str) -> int:
        """A descriptor that locks `path` until it is closed. BlockingIOError if another broker has the lock.

        Two locks: Apache Kafka and other processes see the POSIX record lock, which one process can take twice; a
        second broker in this process sees the flock, which belongs to the descriptor.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(error.errno, "locked by another process", path) from None
            raise
        return fd


def _refuse(*arguments: object) -> NoReturn:
    raise OSError(errno.EROFS, "opened for reading only")


class ReadOnlyDisk(Disk):
    """For reading files that are not ours: a copy, another broker's directory, a file system that is mounted read-only.
    Changes raise OSError.
    """

    @staticmethod
    def open(path: str, create: bool = False) -> int:
        """A descriptor for reading. Raises OSError with `create`."""
        if create:
            _refuse()
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @staticmethod
    def identity(file: int | str) -> tuple[int, int]:
        """The identity of a file (descriptor or path), which another file of the same name does not have."""
        found = os.stat(file)
        return found.st_dev, found.st_ino

    _refused: Any = staticmethod(_refuse)
    pwritev = truncate = sync = rename = remove = remove_dir = _refused
    make_dir = sync_dir = sync_all = lock = set_mtime = _refused


def read_file(disk: Disk, path: str) -> bytes:
    """The whole file. Raises OSError, FileNotFoundError among them."""
    fd = disk.open(path)
    try:
        size = disk.size(fd)
        parts = []
        position = 0
        while position < size:
            part = disk.pread(fd, size - position, position)
            if not part:
                break
            parts.append(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        disk.close(fd)


def write_fully(disk: Disk, fd: int, buffers: Sequence[Buffer], position: int) -> None:
    """Write all of `buffers` one after the other from `position` on: short writes are continued. Raises OSError; part
    may then be written.
    """
    queue = list(buffers)
    first = 0
    while first < len(queue):
        batch = queue[first : first + IOV_MAX]
        written = disk.pwritev(fd, batch, position)
        if written <= 0 and any(len(buffer) for buffer in batch):
            raise OSError(errno.EIO, "the file takes no more bytes")
        position += written
        for buffer in batch:
            if written < len(buffer):
                queue[first] = memoryview(buffer)[written:]
                break
            written -= len(buffer)
            first += 1


def write_file(disk: Disk, path: str, data: bytes, *, sync: bool) -> None:
    """Replace the whole content of a file that need not survive a crash in its old form."""
    fd = disk.open(path, create=True)
    try:
        write_fully(disk, fd, (data,), 0)
        disk.truncate(fd, len(data))
        if sync:
            disk.sync(fd)
    finally:
        disk.close(fd)


def replace_file(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Put `data` in place of the file at once or not at all, also over a crash: `<name>.tmp`, sync, rename, sync of
    the directory.
    """
    path = f"{directory}/{name}"
    write_file(disk, path + ".tmp", data, sync=True)
    disk.rename(path + ".tmp", path)
    disk.sync_dir(directory)


def sync_file(disk: Disk, path: str) -> None:
    """Sync a file by its name, if it is there. Raises OSError."""
    try:
        fd = disk.open(path)
    except FileNotFoundError:
        return
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)


def remove_if_there(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except FileNotFoundError:
        pass
