"""The operating system's files, of which some fail: for brokers whose disks break while they run."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from barnabas.logdir import Disk

WRITES = frozenset(
    {"pwritev", "truncate", "sync", "rename", "remove", "remove_dir", "make_dir", "sync_dir", "sync_all"}
)


class FaultyDisk(Disk):
    """`break_below(path, code)`: from now on every call on what is in that directory fails with that error; with
    ENOSPC and EROFS only those that write. `heal()` ends that.
    """

    def __init__(self) -> None:
        self._broken: dict[str, int] = {}
        self._paths: dict[int, str] = {}
        self.calls: list[tuple[str, str]] = []

    def break_below(self, path: str | Path, code: int = errno.EIO) -> None:
        self._broken[str(path)] = code

    def heal(self) -> None:
        self._broken = {}

    def _look(self, call: str, path: str) -> None:
        for below, code in self._broken.items():
            if path == below or path.startswith(below + "/"):
                self.calls.append((call, path))
                if code not in (errno.ENOSPC, errno.EROFS) or call in WRITES:
                    raise OSError(code, os.strerror(code), path)

    # the calls; the seam's are static, as the system's are

    def open(self, path: str, create: bool = False) -> int:  # type: ignore[override]
        self._look("make_dir" if create and not os.path.exists(path) else "open", path)
        fd = Disk.open(path, create)
        self._paths[fd] = path
        return fd

    def pread(self, fd: int, length: int, position: int) -> bytes:  # type: ignore[override]
        self._look("pread", self._paths[fd])
        return os.pread(fd, length, position)

    def pwritev(self, fd: int, buffers: Sequence[bytes], position: int) -> int:  # type: ignore[override]
        self._look("pwritev", self._paths[fd])
        return os.pwritev(fd, buffers, position)

    def truncate(self, fd: int, size: int) -> None:  # type: ignore[override]
        self._look("truncate", self._paths[fd])
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:  # type: ignore[override]
        self._look("sync", self._paths[fd])

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        self._look("rename", source)
        os.replace(source, target)

    def remove(self, path: str) -> None:  # type: ignore[override]
        self._look("remove", path)
        os.unlink(path)

    def remove_dir(self, path: str) -> None:  # type: ignore[override]
        self._look("remove_dir", path)
        os.rmdir(path)

    def make_dir(self, path: str) -> None:  # type: ignore[override]
        self._look("make_dir", path)
        Disk.make_dir(path)

    def list(self, path: str):  # type: ignore[no-untyped-def, override]
        self._look("list", path)
        return Disk.list(path)

    def sync_dir(self, path: str) -> None:  # type: ignore[override]
        self._look("sync_dir", path)

    def sync_all(self, path: str) -> None:  # type: ignore[override]
        self._look("sync_all", path)

    def lock(self, path: str) -> int:  # type: ignore[override]
        self._look("lock", path)
        fd = Disk.lock(path)
        self._paths[fd] = path
        return fd
