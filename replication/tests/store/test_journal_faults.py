"""Every system call of the journal fails once, or from some point on: what was confirmed is there after a restart, what
was not confirmed is not, and the store either goes on or says that it has failed.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.replication.store.journal import JOURNAL, SNAPSHOT
from barnabas.replication.store.journal_files import PASSES, DirectoryFiles
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.node_tree import Tree
from barnabas.replication.store.store import MAX_PATH_BYTES, Create, Delete, Op, PathTooLong, Set, StoreFailed

Snapshot = dict[str, tuple[bytes, int]]
CODES = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.EINTR)


class FailingSystem:
    """The system's calls, of which those that `fails` names by their number raise. Writes are short ones now and then,
    and one that fails has written a part before. Nothing is synced: the machine goes on.
    """

    def __init__(self, fails: Callable[[int, str], int] = lambda number, call: 0) -> None:
        self.fails = fails
        self.count = 0
        self.names: list[str] = []

    def __getattr__(self, call: str) -> Any:
        def made(*args: Any) -> Any:
            self.count += 1
            self.names.append(call)
            code = self.fails(self.count, call)
            if code:
                if call == "pwrite":
                    os.pwrite(args[0], args[1][: len(args[1]) // 2], args[2])
                if call == "close":
                    os.close(*args)  # as Linux does, whatever it says
                raise OSError(code, os.strerror(code))
            if call in ("fsync", "fdatasync"):
                return None
            if call == "pwrite" and self.count % 3 == 0:
                return os.pwrite(args[0], args[1][:100], args[2])
            return getattr(os, call)(*args)

        return made


def snapshot(tree: Tree) -> Snapshot:
    return {put.path: (put.data, put.version) for put in tree.lasting_nodes()}


def reopened(path: Path) -> Snapshot:
    """What a restart finds, on a disk that works."""
    files = DirectoryFiles(path)
    try:
        return snapshot(EmbeddedStore.open(files)._tree)
    finally:
        files.close()


def history() -> Iterator[list[Op]]:
    """Enough for two snapshots."""
    yield [Create("/a"), Create("/b", b"x" * 50)]
    for number in range(8):
        yield [Create(f"/a/{number}", bytes([number]) * 60), Set("/b", b"%d" % number)]
    yield [Delete("/a/3")]


async def run(path: Path, system: FailingSystem) -> tuple[Snapshot, Snapshot, bool]:
    """Commit the history, as far as it goes; what was confirmed, what was attempted, and whether the store failed."""
    heard: list[StoreFailed] = []
    store = EmbeddedStore.open(DirectoryFiles(path, system), snapshot_after_bytes=400)
    store.on_failure = heard.append
    session = store.connect()
    confirmed: Snapshot = snapshot(store._tree)
    failed = False
    for ops in history():
        try:
            await session.commit(ops)
            assert not failed, "a store that has failed takes nothing more"
            confirmed = snapshot(store._tree)
        except StoreFailed:
            failed = True
            with pytest.raises(StoreFailed):
                await session.get("/a")
    assert len(heard) == failed, "told once"
    await store.aclose()
    return confirmed, snapshot(store._tree), failed


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The calls that the history makes when nothing fails."""
    system = FailingSystem()
    path = tmp_path_factory.mktemp("calls")
    trio.run(run, path, system)
    assert (path / SNAPSHOT).exists()
    return system.names


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
async def test_any_call_fails_once(calls: list[str], code: int, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL)
    opening = 4  # no journal yet: those failures end the start, and leave nothing
    for number in range(opening + 1, len(calls) + 1):
        path = tmp_path / str(number)
        system = FailingSystem(lambda count, call, at=number: code if count == at else 0)  # type: ignore[misc]
        try:
            confirmed, _, failed = await run(path, system)
        except OSError:
            assert number < calls.index("fdatasync"), "only a start ends so"
            continue
        what = f"call {number}, {calls[number - 1]}"
        assert reopened(path) == confirmed, what
        if code in PASSES:
            assert not failed, what
        assert sorted(os.listdir(path)) in ([JOURNAL], [JOURNAL, SNAPSHOT]), f"{what} leaves something behind"
        shutil.rmtree(path)


@pytest.mark.parametrize("code", CODES, ids=lambda code: errno.errorcode[code])
async def test_everything_fails_from_some_call_on(calls: list[str], code: int, tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL)
    for number in range(5, len(calls) + 1):
        path = tmp_path / str(number)
        system = FailingSystem(lambda count, call, at=number: code if count >= at else 0)  # type: ignore[misc]
        try:
            confirmed, attempted, _ = await run(path, system)
        except OSError:
            continue
        # The disk takes nothing back either: of the one commit that was under way nobody can know.
        assert reopened(path) in (confirmed, attempted), f"call {number}"
        shutil.rmtree(path)


async def test_out_of_descriptors_nothing_is_missing(tmp_path: Path) -> None:
    system = FailingSystem()
    store = EmbeddedStore.open(DirectoryFiles(tmp_path, system), snapshot_after_bytes=400)
    system.fails = lambda count, call: errno.EMFILE if call == "open" else 0
    session = store.connect()
    for ops in history():
        await session.commit(ops)
    assert not (tmp_path / SNAPSHOT).exists(), "a snapshot can wait"
    assert system.names.count("open") < 30, "and is not tried for every commit"
    assert reopened(tmp_path) == snapshot(store._tree)
    system.fails = lambda count, call: 0
    for number in itertools.count(100):
        await session.commit([Create(f"/{number}", b"x" * 100)])
        if (tmp_path / SNAPSHOT).exists():
            break
    assert reopened(tmp_path) == snapshot(store._tree)


async def test_no_room_is_a_failure_that_leaves_no_trace(tmp_path: Path) -> None:
    system = FailingSystem()
    store = EmbeddedStore.open(DirectoryFiles(tmp_path, system))
    session = store.connect()
    await session.commit([Create("/kept")])
    size = (tmp_path / JOURNAL).stat().st_size
    system.fails = lambda count, call: errno.ENOSPC if call == "fdatasync" else 0
    with pytest.raises(StoreFailed, match="No space left on device"):
        await session.commit([Create("/refused")])
    assert (tmp_path / JOURNAL).stat().st_size == size
    assert list(reopened(tmp_path)) == ["/kept"]


async def test_the_longest_path_is_kept(tmp_path: Path) -> None:
    store = EmbeddedStore.open(DirectoryFiles(tmp_path))
    longest = "/" + "x" * (MAX_PATH_BYTES - 11)
    await store.connect().commit([Create(longest, sequential=True)])
    assert list(reopened(tmp_path)) == [longest + "0000000000"]


async def test_what_cannot_be_encoded_is_refused_and_the_store_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = EmbeddedStore.open(DirectoryFiles(tmp_path))
    session = store.connect()
    await session.commit([Create("/groups")])
    with pytest.raises(PathTooLong):
        await session.commit([Create("/groups/" + "%2F" * 30_000)])

    def unable(zxid: int, effects: object) -> bytes:
        raise ValueError("cannot be written down")

    with monkeypatch.context() as patch:
        patch.setattr(store._tree, "_encode", unable)
        with pytest.raises(ValueError, match="written down"):
            await session.commit([Set("/groups", b"never"), Create("/groups/a")])
    assert await session.children("/groups") == []
    await session.commit([Create("/groups/b")])
    assert reopened(tmp_path) == snapshot(store._tree) == {"/groups": (b"", 0), "/groups/b": (b"", 0)}
