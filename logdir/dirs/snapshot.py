"""A log directory set aside, to be put back any number of times: for test suites, which start each test from a filled
broker.

`take` remembers a directory that was saved (`LogDir.save`) and that nobody touches meanwhile, as a clean stop would
have left it, its mark included. `put_back` makes a directory that nobody has open hold that again, and writes only what
is different. To make a file is by far the most expensive thing here, on a disk that is busy a millisecond; a hundred
partitions have some five hundred. So there are:

    contents.bin     the contents of all other files, one after the other
    0, 1, …          hard links to segments' logs of more than `SMALL_BYTES`, in the order of the list
    snapshot.json    {"directories": […], "small": [[path, bytes, mtime in ns], …], "large": the same}; paths in the
                     log directory; written last, without it this is no snapshot

Of a large log the first bytes, as many as it had, are the snapshot's. It may have grown since, if it was the end of the
partition: then it is cut when it is put back, or copied if another snapshot may need what follows. That is sound as
long as nobody writes elsewhere than at its end. A broker alone does not: compaction writes new files, retention
unlinks, and only replicas truncate. `check` notices one that was cut, by its size. For brokers with replicas nothing is
shared (`shares`): large logs are copied, both ways.

Not taken along: what is on its way out (`.deleted`, `-delete`), a compaction's unfinished output (`.cleaned`), and the
lock.

Plain files, not through a `Disk`; nothing is synced: it has to outlast the process, not the machine.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from barnabas.logdir.files import layout

LIST: Final = "snapshot.json"
CONTENTS: Final = "contents.bin"
SMALL_BYTES: Final = 64 * 1024
_LEFT_OUT: Final = (layout.DELETED, layout.CLEANED, ".tmp")
_CANNOT_LINK: Final = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EOPNOTSUPP)


class SnapshotDamaged(Exception):
    """Files of a snapshot are not as they were; the message says which."""


def take(directory: str, into: str, *, shares: bool = True) -> None:
    """Remember a log directory in the directory `into`, which is made. Raises OSError, FileExistsError among them; then
    `into` is not to be used.
    """
    os.makedirs(into)
    directories: list[str] = []
    small: list[tuple[str, int, int]] = []
    large: list[tuple[str, int, int]] = []
    contents: list[bytes] = []
    for path, entry in _everything(directory):
        found = entry.stat()
        if stat.S_ISDIR(found.st_mode):
            directories.append(path)
        elif found.st_size > SMALL_BYTES and path.endswith(layout.LOG):
            (_share if shares else shutil.copyfile)(entry.path, f"{into}/{len(large)}")
            large.append((path, found.st_size, found.st_mtime_ns))
        else:
            data = _read(entry.path) if found.st_size else b""
            contents.append(data)
            small.append((path, len(data), found.st_mtime_ns))
    mark = layout.encode_clean_shutdown()
    contents.append(mark)
    small.append((layout.CLEAN_SHUTDOWN, len(mark), 0))
    with open(f"{into}/{CONTENTS}", "xb") as file:
        file.writelines(contents)
    with open(f"{into}/{LIST}", "x", encoding="utf-8") as text:
        json.dump({"directories": directories, "small": small, "large": large}, text)


def check(snapshot: str) -> None:
    """Whether a snapshot made by `take` can be put back. Raises `SnapshotDamaged`; FileNotFoundError if there is none,
    or it was not completed.
    """
    said = _said(snapshot)
    sizes = [(CONTENTS, CONTENTS, sum(size for _, size, _ in said["small"]))]
    sizes += [(path, str(number), size) for number, (path, size, _) in enumerate(said["large"])]
    for path, name, size in sizes:
        now = os.stat(f"{snapshot}/{name}").st_size
        if now < size:
            raise SnapshotDamaged(f"{path} has {now} bytes, and had {size} when the snapshot was made")


def put_back(snapshot: str, directory: str, attic: str, *, shares: bool = True) -> None:
    """Let `directory` hold what `snapshot`, which was checked, has. Whatever else is there is moved into the directory
    `attic`, which is made; to be removed by the caller, who may do that later. Best on the same file system. Raises
    OSError.
    """
    said = _said(snapshot)
    os.makedirs(attic)
    files = {path for kind in ("small", "large") for path, _, _ in said[kind]}
    _clear(directory, set(said["directories"]), files, (f"{attic}/{number}" for number in count()))
    for path in said["directories"]:
        if not os.path.isdir(f"{directory}/{path}"):
            os.mkdir(f"{directory}/{path}")
    contents = memoryview(_read(f"{snapshot}/{CONTENTS}"))
    at = 0
    for path, size, mtime_ns in said["small"]:
        _put_small(f"{directory}/{path}", contents[at : at + size], mtime_ns)
        at += size
    for number, (path, size, mtime_ns) in enumerate(said["large"]):
        if shares:
            _put_large(f"{snapshot}/{number}", f"{directory}/{path}", size, mtime_ns)
        else:
            _copy(f"{snapshot}/{number}", f"{directory}/{path}", size)
            _date(f"{directory}/{path}", mtime_ns)


def _said(snapshot: str) -> dict[str, Any]:
    with open(f"{snapshot}/{LIST}", encoding="utf-8") as file:
        said: dict[str, Any] = json.load(file)
    return said


def _everything(directory: str, below: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is to be remembered, directories before what is in them; paths from `directory`."""
    with os.scandir(f"{directory}/{below}" if below else directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            name = entry.name
            is_dir = entry.is_dir()
            if name.endswith(_LEFT_OUT) or (is_dir and name.endswith(layout.DELETE_DIR)):
                continue
            if not below and name in (layout.LOCK, layout.CLEAN_SHUTDOWN):
                continue
            path = f"{below}/{name}" if below else name
            yield path, entry
            if is_dir:
                yield from _everything(directory, path)


def _clear(directory: str, directories: set[str], files: set[str], places: Iterator[str], below: str = "") -> None:
    """Move what is to be neither a directory nor a file to one of `places` each."""
    with os.scandir(f"{directory}/{below}" if below else directory) as entries:
        for entry in list(entries):
            path = f"{below}/{entry.name}" if below else entry.name
            is_dir = entry.is_dir()
            if is_dir and path in directories:
                _clear(directory, directories, files, places, path)
            elif is_dir or path not in files:
                _move(entry.path, next(places))


def _put_small(target: str, data: memoryview, mtime_ns: int) -> None:
    """Written over what is there, if that is nobody else's."""
    found = _stat(target)
    if found is not None and found.st_nlink > 1:
        os.unlink(target)  # a snapshot has it, from when it was larger
        found = None
    if found is None or found.st_size != len(data) or (data and _read(target) != data):
        with open(target, "wb" if found is not None else "xb", buffering=0) as file:
            if data:
                file.write(data)
    elif found.st_mtime_ns == mtime_ns:
        return
    _date(target, mtime_ns)


def _put_large(shared: str, target: str, size: int, mtime_ns: int) -> None:
    """The first `size` bytes of `shared`. The same file if it has no more, or nobody else wants what follows."""
    now, found = os.stat(shared), _stat(target)
    is_same = found is not None and (found.st_dev, found.st_ino) == (now.st_dev, now.st_ino)
    if found is not None and not is_same:
        os.unlink(target)
    if now.st_size > size and now.st_nlink > (2 if is_same else 1):
        if is_same:
            os.unlink(target)
        _copy(shared, target, size)
    else:
        if now.st_size > size:
            os.truncate(shared, size)
        if not is_same:
            _share(shared, target)
    _date(target, mtime_ns)


def _date(target: str, mtime_ns: int) -> None:
    """When it was last written: without timestamps in a log's records, that is their age."""
    if target.endswith(layout.LOG):
        os.utime(target, ns=(mtime_ns, mtime_ns))


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _share(source: str, target: str) -> None:
    """A hard link, or a copy where there are none."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        shutil.copyfile(source, target)


def _copy(source: str, target: str, size: int) -> None:
    shutil.copyfile(source, target)  # within the kernel
    os.truncate(target, size)


def _move(source: str, target: str) -> None:
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.move(source, target)
