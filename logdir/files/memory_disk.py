"""A disk in memory that can crash, fill up and fail, in place of `barnabas.logdir.files.disk.Disk`: for tests and
simulation.

What a crash leaves: of every directory the synced names and some of the later changes in their order; of every file
the synced bytes and, of what was written since, nothing, everything, a part in order, or sectors here and there with
zeros between. As bad as file systems are allowed to be, and a bit worse.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

from barnabas.logdir.files.disk import Buffer, Disk, Entry

SECTOR = 512


class File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.changes: list[tuple[int, bytes | None]] = []  # (position, bytes), or (size, None) for a cut
        self.mtime_ms = 0

    def write(self, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data += bytes(position - len(self.data))
        self.data[position : position + len(data)] = data
        self.changes.append((position, data))

    def cut(self, size: int) -> None:
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))
        self.changes.append((size, None))

    def sync(self) -> None:
        self.durable = bytes(self.data)
        self.changes = []

    def crash(self, rng: random.Random) -> None:
        kind = rng.choice(("nothing", "all", "part", "sectors")) if self.changes else "all"
        if kind == "nothing":
            self.data = bytearray(self.durable)
        elif kind == "part":
            self.data = bytearray(self.durable)
            changes, self.changes = self.changes[: rng.randint(0, len(self.changes))], []
            for number, (position, data) in enumerate(changes):
                if data is None:
                    self.cut(position)
                elif number < len(changes) - 1:
                    self.write(position, data)
                else:
                    self.write(position, data[: rng.randint(0, len(data))])
        elif kind == "sectors":
            old = self.durable + bytes(max(len(self.data) - len(self.durable), 0))
            for start in range(0, len(self.data), SECTOR):
                if rng.random() < 0.5:
                    self.data[start : start + SECTOR] = old[start : start + SECTOR][: len(self.data) - start]
        self.sync()


class Directory:
    def __init__(self) -> None:
        self.names: dict[str, File | Directory] = {}
        self.durable: dict[str, File | Directory] = {}
        self.changes: list[tuple[str, str, Any]] = []

    def change(self, what: str, name: str, value: Any = None) -> None:
        self.changes.append((what, name, value))
        self._apply(self.names, what, name, value)

    @staticmethod
    def _apply(names: dict[str, Any], what: str, name: str, value: Any) -> None:
        if what == "link":
            names[name] = value
        elif what == "unlink":
            names.pop(name, None)
        elif name in names:
            names[value] = names.pop(name)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes = []

    def crash(self, rng: random.Random) -> None:
        self.names = dict(self.durable)
        for change in self.changes[: rng.randint(0, len(self.changes))]:
            self._apply(self.names, *change)
        self.sync()
        for node in self.names.values():
            node.crash(rng)


class MemoryDisk(Disk):
    """Paths start with `/`. `space`: bytes that may still be written, None for no limit; `full`: the error of a write
    without any; `on_call(name, path)`, if
    set, may raise OSError.
    """

    def __init__(self) -> None:
        self.root = Directory()
        self.open_files: dict[int, tuple[File, str]] = {}
        self.next_fd = 100
        self.space: int | None = None
        self.full = errno.ENOSPC
        self.short_writes: random.Random | None = None
        self.on_call: Callable[[str, str], None] | None = None
        self.locked: set[str] = set()
        self.syncs = 0

    def _called(self, name: str, path: str) -> None:
        if self.on_call is not None:
            self.on_call(name, path)

    def _directory(self, path: str) -> Directory:
        node: File | Directory = self.root
        for part in path.strip("/").split("/"):
            if part:
                if not isinstance(node, Directory) or part not in node.names:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                node = node.names[part]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent), name

    def node(self, path: str) -> File:
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    # ---- the calls

    def open(self, path: str, create: bool = False) -> int:  # type: ignore[override]
        self._called("open", path)
        parent, name = self._parent(path)
        if name not in parent.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if self.space is not None and self.space <= 0:
                raise OSError(self.full, os.strerror(self.full), path)
            parent.change("link", name, File())
        self.next_fd += 1
        self.open_files[self.next_fd] = self.node(path), path
        return self.next_fd

    def close(self, fd: int) -> None:
        # Unknown after a crash: what was open is forgotten then, while objects of before may still release it.
        if fd in self.open_files:
            self.locked.discard(self.open_files.pop(fd)[1])

    def pread(self, fd: int, length: int, position: int) -> bytes:
        file, path = self.open_files[fd]
        self._called("pread", path)
        return bytes(file.data[position : position + length])

    def pwritev(self, fd: int, buffers: Sequence[Buffer], position: int) -> int:  # type: ignore[override]
        file, path = self.open_files[fd]
        self._called("pwritev", path)
        data = b"".join(buffers)
        if self.space is not None:
            if data and self.space <= 0:
                raise OSError(self.full, os.strerror(self.full), path)
            data = data[: self.space]
            self.space -= len(data)
        if self.short_writes is not None and len(data) > 1:
            data = data[: self.short_writes.randint(1, len(data))]
        file.write(position, data)
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        file, path = self.open_files[fd]
        self._called("truncate", path)
        if size != len(file.data):
            file.cut(size)

    def size(self, fd: int) -> int:  # type: ignore[override]
        return len(self.open_files[fd][0].data)

    def set_mtime(self, fd: int, mtime_ms: int) -> None:  # type: ignore[override]
        file, path = self.open_files[fd]
        self._called("set_mtime", path)
        file.mtime_ms = mtime_ms

    def sync(self, fd: int) -> None:  # type: ignore[override]
        file, path = self.open_files[fd]
        self._called("sync", path)
        self.syncs += 1
        file.sync()

    def sync_dir(self, path: str) -> None:  # type: ignore[override]
        self._called("sync_dir", path)
        self._directory(path).sync()

    def sync_all(self, path: str) -> None:  # type: ignore[override]
        self._called("sync_all", path)

        def walk(node: File | Directory) -> None:
            node.sync()
            if isinstance(node, Directory):
                for child in node.names.values():
                    walk(child)

        walk(self.root)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        self._called("rename", source)
        parent, name = self._parent(source)
        target_parent, target_name = self._parent(target)
        assert parent is target_parent, "renames stay in their directory"
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        parent.change("rename", name, target_name)

    def remove(self, path: str) -> None:  # type: ignore[override]
        self._called("remove", path)
        self.node(path)
        parent, name = self._parent(path)
        parent.change("unlink", name)

    def make_dir(self, path: str) -> None:  # type: ignore[override]
        self._called("make_dir", path)
        parent, name = self._parent(path)
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        parent.change("link", name, Directory())

    def remove_dir(self, path: str) -> None:  # type: ignore[override]
        self._called("remove_dir", path)
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        parent, name = self._parent(path)
        parent.change("unlink", name)

    def list(self, path: str) -> list[Entry]:  # type: ignore[override]
        self._called("list", path)
        return [
            Entry(name, False, len(node.data), node.mtime_ms) if isinstance(node, File) else Entry(name, True, 0, 0)
            for name, node in self._directory(path).names.items()
        ]

    def lock(self, path: str) -> int:  # type: ignore[override]
        if path in self.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", path)
        fd = self.open(path, create=True)
        self.locked.add(path)
        return fd

    # ---- what may happen to it

    def crash(self, rng: random.Random) -> None:
        """The machine stops: nothing is open any more, and what was not synced is at chance's mercy."""
        self.open_files = {}
        self.locked = set()
        self.root.crash(rng)
