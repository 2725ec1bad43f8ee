"""The embedded store on disk: crashes at every byte, damage, snapshots, failing disks, and how many syncs it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from barnabas.replication.store.journal import JOURNAL, SNAPSHOT
from barnabas.replication.store.journal_files import DirectoryFiles
from barnabas.replication.store.memory import EmbeddedSession, EmbeddedStore
from barnabas.replication.store.node_tree import Tree
from barnabas.replication.store.store import (
    Create,
    Delete,
    Op,
    Set,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFailed,
    parent_of,
)

Snapshot = dict[str, tuple[bytes, int, int, int]]


class MemoryFiles:
    """Files in memory. Counts syncs; can stop, as a machine does, after a number of written bytes."""

    def __init__(self, files: dict[str, bytes] | None = None, *, bytes_left: int = 1 << 60) -> None:
        self.files = dict(files or {})
        self.bytes_left = bytes_left
        self.syncs = 0

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def hold(self, name: str) -> None:
        assert name in self.files

    def sync_names(self) -> None:
        pass

    def close(self) -> None:
        pass

    def replace(self, name: str, data: bytes) -> None:
        self.syncs += 1
        self._spend(len(data))  # written beside: until the rename nothing of it counts
        self.files[name] = data

    def append(self, name: str, data: bytes) -> None:
        self.syncs += 1
        kept = data[: max(0, self.bytes_left)]
        self.files[name] += kept
        self._spend(len(data))

    def truncate(self, name: str, length: int) -> None:
        self.files[name] = self.files[name][:length]

    def _spend(self, amount: int) -> None:
        self.bytes_left -= amount
        if self.bytes_left < 0:
            raise OSError("the machine stops")


def snapshot(tree: Tree) -> Snapshot:
    """Persistent nodes with their numbers."""
    return {put.path: (put.data, put.version, put.czxid, put.mzxid) for put in tree.lasting_nodes()}


def random_ops(rng: Random, existing: list[str]) -> list[Op]:
    """A commit that mostly makes sense, and sometimes does not."""
    ops: list[Op] = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        path = rng.choice(existing)
        kind = rng.randrange(10)
        if kind < 5:
            parent = "" if path == "/" else path
            data = rng.randbytes(rng.choice((0, 3, 40)))
            ops.append(Create(f"{parent}/{rng.choice('abcd')}", data, sequential=kind == 0, ephemeral=kind == 1))
        elif kind < 8:
            ops.append(Set(path, rng.randbytes(5)))
        elif path != "/":
            ops.append(Delete(path))
    return ops


async def random_history(store: EmbeddedStore, rng: Random, commits: int) -> list[tuple[int, Snapshot]]:
    """Random commits; the model is a plain dict kept beside. Returns the snapshot after every commit, by its id."""
    session = store.connect()
    model: dict[str, tuple[bytes, int, int, int]] = {}
    ephemeral: set[str] = set()
    history: list[tuple[int, Snapshot]] = [(store._tree.zxid, {})]
    for _ in range(commits):
        ops = random_ops(rng, ["/", *model, *ephemeral])
        try:
            nodes = await session.commit(ops)
        except StoreFailed:
            raise
        except StoreError:
            continue
        zxid = history[-1][0] + (1 if ops else 0)
        for op, node in zip(ops, nodes, strict=True):
            match op:
                case Create():
                    assert node is not None
                    if op.ephemeral:
                        ephemeral.add(node.path)
                    else:
                        assert parent_of(node.path) == "/" or parent_of(node.path) in model
                        model[node.path] = (op.data, 0, zxid, zxid)
                case Set() if op.path in model:
                    _, version, czxid, _ = model[op.path]
                    model[op.path] = (op.data, version + 1, czxid, zxid)
                case Delete():
                    model.pop(op.path, None)
                    ephemeral.discard(op.path)
        if ops:
            history.append((zxid, dict(model)))
    return history


@pytest.mark.parametrize("seed", range(6))
async def test_a_crash_at_every_byte_of_the_journal(seed: int) -> None:
    files = MemoryFiles()
    store = EmbeddedStore.open(files)
    frames = [len(files.files[JOURNAL])]  # where each confirmed commit ends
    rng = Random(seed)
    history = [(0, Snapshot())]
    for _ in range(30):
        more = await random_history_step(store, rng, history)
        if more is not None:
            history.append(more)
            frames.append(len(files.files[JOURNAL]))
    whole = files.files[JOURNAL]
    for cut in range(frames[0], len(whole) + 1):
        reopened = EmbeddedStore.open(crashed := MemoryFiles({JOURNAL: whole[:cut]}))
        confirmed = max(index for index, end in enumerate(frames) if end <= cut)
        assert snapshot(reopened._tree) == history[confirmed][1], f"seed {seed}, cut at {cut}"
        assert reopened._tree.zxid == history[confirmed][0]
        assert len(crashed.files[JOURNAL]) == frames[confirmed], "the unconfirmed rest is cut off"


async def random_history_step(
    store: EmbeddedStore, rng: Random, history: list[tuple[int, Snapshot]]
) -> tuple[int, Snapshot] | None:
    session = store.connect()
    try:
        if not await session.commit(random_ops(rng, ["/", *store._tree._entries])):
            return None
    except StoreError:
        return None
    assert store._tree.zxid == history[-1][0] + 1
    return store._tree.zxid, snapshot(store._tree)


@pytest.mark.parametrize("seed", range(20))
async def test_random_commits_against_a_dict(seed: int) -> None:
    files = MemoryFiles()
    store = EmbeddedStore.open(files, snapshot_after_bytes=2000)
    history = await random_history(store, Random(seed), 150)
    assert snapshot(store._tree) == history[-1][1], f"seed {seed}"
    reopened = EmbeddedStore.open(MemoryFiles(files.files))
    assert snapshot(reopened._tree) == history[-1][1], f"seed {seed}"
    assert reopened._tree.zxid == history[-1][0]
    assert SNAPSHOT in files.files, "the history is long enough to come by a snapshot"


@pytest.mark.parametrize("seed", range(40))
async def test_a_crash_anywhere_between_and_in_snapshots(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles()
    EmbeddedStore.open(files, snapshot_after_bytes=300)
    confirmed: list[tuple[int, Snapshot]] = [(0, {})]
    attempted = confirmed
    for _ in range(4):  # several lives, each ended by a crash
        files = MemoryFiles(files.files, bytes_left=rng.randrange(1, 6000))
        store = EmbeddedStore.open(files, snapshot_after_bytes=300)
        now = snapshot(store._tree)
        assert now in (confirmed[-1][1], attempted[-1][1]), f"seed {seed}"
        confirmed = attempted = [(store._tree.zxid, now)]
        for _ in range(2000):
            try:
                await store.connect().commit(random_ops(rng, ["/", *store._tree._entries]))
                confirmed = [(store._tree.zxid, snapshot(store._tree))]
            except StoreFailed:
                attempted = [(store._tree.zxid, snapshot(store._tree))]
                break
            except StoreError:
                pass
        else:
            pytest.fail(f"seed {seed}: the disk did not fail")


@pytest.mark.parametrize("seed", range(30))
async def test_damage_in_the_middle_is_refused(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles()
    store = EmbeddedStore.open(files)
    session = store.connect()
    ends = []
    for number in range(10):
        await session.commit([Create(f"/{number}", rng.randbytes(rng.randrange(50)))])
        ends.append(len(files.files[JOURNAL]))
    data = bytearray(files.files[JOURNAL])
    at = rng.randrange(0, ends[-2])
    if rng.random() < 0.5:
        data[at] ^= 1 << rng.randrange(8)
    else:
        end = min(at + rng.randrange(1, 60), ends[-2])
        damage = bytes(end - at)
        if data[at:end] == damage:
            damage = b"\xff" * (end - at)
        data[at:end] = damage
    with pytest.raises(StoreCorrupt):
        EmbeddedStore.open(MemoryFiles({JOURNAL: bytes(data)}))


async def test_a_damaged_end_is_cut_off_and_writing_goes_on() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files).connect()
    await session.commit([Create("/kept")])
    confirmed = files.files[JOURNAL]
    await session.commit([Create("/torn", b"x" * 100)])
    torn = files.files[JOURNAL][:-50] + bytes(50)
    files = MemoryFiles({JOURNAL: torn})
    store = EmbeddedStore.open(files)
    assert files.files[JOURNAL] == confirmed
    session = store.connect()
    assert await session.children("/") == ["kept"]
    await session.commit([Create("/after")])
    assert await EmbeddedStore.open(MemoryFiles(files.files)).connect().children("/") == ["after", "kept"]


async def test_a_frame_planted_in_data_is_not_taken_for_one() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files).connect()
    await session.commit([Create("/a", b"the other frame")])
    planted = files.files[JOURNAL][-80:]
    other = MemoryFiles()
    session = EmbeddedStore.open(other).connect()
    await session.commit([Create("/b", planted)])
    torn = other.files[JOURNAL]
    assert (
        EmbeddedStore.open(MemoryFiles({JOURNAL: torn[:24] + bytes([torn[24] ^ 1]) + torn[25:]}))._tree.get("/b")
        is None
    )


@pytest.mark.parametrize("cut", [0, 7, 23])
async def test_a_journal_without_a_whole_header_is_refused(cut: int) -> None:
    files = MemoryFiles()
    EmbeddedStore.open(files)
    with pytest.raises(StoreCorrupt):
        EmbeddedStore.open(MemoryFiles({JOURNAL: files.files[JOURNAL][:cut]}))


async def test_damaged_or_lonely_snapshots_are_refused() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files, snapshot_after_bytes=100).connect()
    for number in range(600):
        await session.commit([Create(f"/{number}", b"x" * 20)])
    snapshot, journal = files.files[SNAPSHOT], files.files[JOURNAL]
    rng = Random(1)
    for at in [0, len(snapshot) - 1, *(rng.randrange(len(snapshot)) for _ in range(50))]:
        damaged = bytearray(snapshot)
        damaged[at] ^= 0x10
        with pytest.raises(StoreCorrupt):
            EmbeddedStore.open(MemoryFiles({SNAPSHOT: bytes(damaged), JOURNAL: journal}))
    for cut in (0, 30, len(snapshot) - 1):
        with pytest.raises(StoreCorrupt):
            EmbeddedStore.open(MemoryFiles({SNAPSHOT: snapshot[:cut], JOURNAL: journal}))
    with pytest.raises(StoreCorrupt):
        EmbeddedStore.open(MemoryFiles({SNAPSHOT: snapshot}))


async def test_a_restart_ends_ephemeral_nodes_but_reuses_no_id(tmp_path: Path) -> None:
    store = EmbeddedStore.open(DirectoryFiles(tmp_path / "new"))
    session = store.connect()
    await session.commit([Create("/ids"), Create("/ids/s", sequential=True)])
    [first] = await session.commit([Create("/ids/1", ephemeral=True)])
    await store.aclose()
    with pytest.raises(StoreClosed):
        await session.get("/ids")
    session = EmbeddedStore.open(DirectoryFiles(tmp_path / "new")).connect()
    assert await session.children("/ids") == ["s0000000000"]
    [second] = await session.commit([Create("/ids/1", ephemeral=True)])
    assert first is not None
    assert second is not None
    assert second.czxid > first.czxid, "the broker epoch must rise over restarts"


async def test_sequential_names_survive_snapshots_and_restarts() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files, snapshot_after_bytes=100).connect()
    await session.commit([Create("/q")])
    for _ in range(20):
        [node] = await session.commit([Create("/q/n", sequential=True)])
        assert node is not None
        await session.commit([Delete(node.path)])
    session = EmbeddedStore.open(MemoryFiles(files.files)).connect()
    [node] = await session.commit([Create("/q/n", sequential=True)])
    assert node is not None
    assert node.path == "/q/n0000000020"


async def test_a_failing_disk_fails_the_store_for_good() -> None:
    files = MemoryFiles()
    store = EmbeddedStore.open(files)
    session = store.connect()
    await session.commit([Create("/a")])
    files.bytes_left = 0
    with pytest.raises(StoreFailed):
        await session.commit([Create("/b")])
    files.bytes_left = 1 << 60
    for use in (session.get("/a"), session.children("/"), session.commit([Create("/c")])):
        with pytest.raises(StoreFailed):
            await use


async def test_commits_that_come_together_share_a_sync() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files).connect()
    await session.commit([Create("/topics")])
    before = files.syncs
    async with trio.open_nursery() as nursery:
        for number in range(2000):
            nursery.start_soon(session.commit, [Create(f"/topics/{number}", b"x" * 100)])
    assert len(await session.children("/topics")) == 2000
    assert files.syncs - before <= 5


async def test_snapshots_stay_few_while_the_tree_grows() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files, snapshot_after_bytes=1000).connect()
    written = 0
    for number in range(1000):
        before = dict(files.files)
        await session.commit([Create(f"/{number:04}", b"x" * 50)])
        written += sum(len(data) for name, data in files.files.items() if data is not before.get(name))
        if before[JOURNAL] == files.files[JOURNAL][: len(before[JOURNAL])]:
            written -= len(before[JOURNAL])
    assert written < 6 * sum(map(len, files.files.values())), "no quadratic work"


async def test_no_reader_sees_what_is_not_on_disk() -> None:
    files = MemoryFiles()
    gate, writing = trio.Event(), trio.Event()

    async def slowly(work: Callable[[], None]) -> None:
        writing.set()
        await gate.wait()
        work()

    gate.set()
    store = EmbeddedStore.open(files, run_io=slowly)
    one, two = store.connect(), store.connect()
    await one.commit([Create("/a"), Create("/old")])
    gate, writing = trio.Event(), trio.Event()
    seen: list[object] = []

    async def read(session: EmbeddedSession) -> None:
        seen.append(await session.children("/"))
        node = await session.get("/new")
        seen.append(node and node.path)

    async with two.changes(["/"]) as changes, trio.open_nursery() as nursery:
        nursery.start_soon(one.commit, [Create("/new")])
        await writing.wait()
        nursery.start_soon(read, two)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == []
        assert (await two.get("/old")) is not None, "other nodes can be read meanwhile"
        with trio.move_on_after(0) as nothing:
            await anext(changes)
        assert nothing.cancelled_caught
        gate.set()
        await anext(changes)
    assert seen == [["a", "new", "old"], "/new"]


async def test_a_cancelled_commit_still_reaches_the_disk() -> None:
    files = MemoryFiles()
    session = EmbeddedStore.open(files).connect()
    with trio.CancelScope() as scope:
        scope.cancel()
        await session.commit([Create("/never")])
    assert await session.get("/never") is None

    async def slowly(work: Callable[[], None]) -> None:
        scope.cancel()
        await trio.lowlevel.checkpoint()
        work()

    session = EmbeddedStore.open(files, run_io=slowly).connect()
    with trio.CancelScope() as scope:
        await session.commit([Create("/accepted")])
    assert await EmbeddedStore.open(MemoryFiles(files.files)).connect().get("/accepted") is not None


async def test_a_commit_cancelled_while_it_waits_for_another_flush_reaches_the_disk_too() -> None:
    files = MemoryFiles()
    gate = trio.Event()

    async def gated(work: Callable[[], None]) -> None:
        await gate.wait()
        work()

    session = EmbeddedStore.open(files, run_io=gated).connect()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.commit, [Create("/first")])
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(session.commit, [Create("/second")])
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            gate.set()
    assert await EmbeddedStore.open(MemoryFiles(files.files)).connect().children("/") == ["first", "second"]
