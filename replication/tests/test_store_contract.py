"""What every `Store` must do: on the embedded store, in memory and on disk. ZooKeeper's joins by one more factory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from replication.journal import DirectoryFiles
from replication.store import (
    ANY_VERSION,
    MAX_COMMIT_BYTES,
    Changed,
    Check,
    CommitTooLarge,
    Create,
    Delete,
    EphemeralParent,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    SessionBack,
    SessionExpired,
    SessionLost,
    Set,
    Store,
    VersionMoved,
    name_of,
)
from replication.store_memory import EmbeddedSession, EmbeddedStore

Connect = Callable[[], EmbeddedSession]
Kind = Callable[[Path], AbstractAsyncContextManager[Connect]]


@asynccontextmanager
async def in_memory(path: Path) -> AsyncIterator[Connect]:
    yield EmbeddedStore.open().connect


@asynccontextmanager
async def on_disk(path: Path) -> AsyncIterator[Connect]:
    store = EmbeddedStore.open(DirectoryFiles(path))
    yield store.connect
    await store.aclose()


@asynccontextmanager
async def on_disk_in_threads(path: Path) -> AsyncIterator[Connect]:
    store = EmbeddedStore.open(DirectoryFiles(path), run_io=trio.to_thread.run_sync)
    yield store.connect
    await store.aclose()


@pytest.fixture(params=[in_memory, on_disk, on_disk_in_threads])
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    kind: Kind = request.param
    async with kind(tmp_path) as connect:
        yield connect


@pytest.fixture
async def store(connect: Connect) -> Store:
    return connect()


async def test_create_get_children(store: Store) -> None:
    [a, b] = await store.commit([Create("/a", b"1"), Create("/a/b")])
    assert a is not None
    assert b is not None
    assert await store.get("/a") == a
    assert (a.path, a.data, a.version, a.ephemeral) == ("/a", b"1", 0, False)
    assert a.czxid == a.mzxid == b.czxid
    await store.commit([Create("/a/c"), Create("/a/B")])
    assert await store.children("/a") == ["B", "b", "c"]
    assert await store.children("/") == ["a"]
    assert await store.children("/a/b") == []
    assert await store.children("/nothing") == []
    assert await store.get("/nothing") is None
    assert [n and n.path for n in await store.get_many(["/a/c", "/nothing", "/a"])] == ["/a/c", None, "/a"]


async def test_versions_count_writes_and_ids_rise(store: Store) -> None:
    [made] = await store.commit([Create("/a", b"0")])
    assert made is not None
    for expected in (1, 2, 3):
        [node] = await store.commit([Set("/a", b"same", expected - 1)])
        assert node is not None
        assert node.version == expected
        assert node.czxid == made.czxid
        assert node.mzxid > made.mzxid
    await store.commit([Set("/a", b"any", ANY_VERSION)])
    await store.commit([Delete("/a", 4)])
    [again] = await store.commit([Create("/a")])
    assert again is not None
    assert again.version == 0
    assert again.czxid > made.czxid


async def test_a_set_within_its_creating_commit(store: Store) -> None:
    nodes = await store.commit([Create("/a"), Set("/a", b"x", 0), Check("/a", 1), Set("/a", b"y", 1)])
    assert [node and node.version for node in nodes] == [0, 1, None, 2]
    assert (await store.get("/a")).data == b"y"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (Create("/a"), NodeExists),
        (Create("/no/child"), NoSuchNode),
        (Set("/no", b""), NoSuchNode),
        (Set("/a", b"", 7), VersionMoved),
        (Delete("/no"), NoSuchNode),
        (Delete("/a", 7), VersionMoved),
        (Delete("/full"), NodeNotEmpty),
        (Check("/a", 7), VersionMoved),
        (Check("/no", ANY_VERSION), NoSuchNode),
        (Create("/mine/child"), EphemeralParent),
    ],
    ids=str,
)
async def test_all_or_none(store: Store, op: object, error: type[Exception]) -> None:
    await store.commit([Create("/a", b"a"), Create("/full"), Create("/full/x"), Create("/mine", ephemeral=True)])
    before = [await store.get(path) for path in ("/a", "/full", "/full/x", "/mine")]
    ops = [
        Create("/new"),
        Create("/new/er"),
        Set("/a", b"changed", 0),
        Set("/a", b"a", 1),
        Delete("/full/x"),
        Create("/full/x"),
        Delete("/new/er"),
        op,
    ]
    if isinstance(op, Check | Set | Delete) and op.version == 7:
        ops = [*ops[:2], *ops[4:]]
    with pytest.raises(error) as caught:
        await store.commit(ops)  # type: ignore[arg-type]
    assert caught.value.index == len(ops) - 1  # type: ignore[attr-defined]
    assert caught.value.path == op.path  # type: ignore[attr-defined]
    assert [await store.get(path) for path in ("/a", "/full", "/full/x", "/mine")] == before
    assert await store.children("/") == ["a", "full", "mine"]
    [made] = await store.commit([Create("/full/s", sequential=True)])
    assert made is not None
    assert name_of(made.path) == "s0000000001", "a refused commit numbers no children"


async def test_check_alone_writes_nothing(store: Store) -> None:
    await store.commit([Create("/a")])
    before = await store.get("/a")
    assert await store.commit([Check("/a", 0), Check("/a", ANY_VERSION)]) == [None, None]
    assert await store.get("/a") == before


async def test_sequential_names_rise_and_are_not_used_twice(store: Store) -> None:
    await store.commit([Create("/q")])
    names = []
    for _ in range(3):
        [node] = await store.commit([Create("/q/n_", sequential=True)])
        assert node is not None
        names.append(name_of(node.path))
    assert names == sorted(names)
    assert all(len(name) == len("n_") + 10 and name[2:].isdecimal() for name in names)
    await store.commit([Delete(f"/q/{name}") for name in names])
    [node] = await store.commit([Create("/q/n_", sequential=True)])
    assert node is not None
    assert name_of(node.path) > names[-1]


async def test_too_large_a_commit(store: Store) -> None:
    await store.commit([Create("/large", b"x" * (MAX_COMMIT_BYTES - 1000))])
    with pytest.raises(CommitTooLarge):
        await store.commit([Set("/large", b"y" * MAX_COMMIT_BYTES)])


async def test_ephemerals_end_with_their_session(connect: Connect) -> None:
    one, two = connect(), connect()
    await one.commit([Create("/a"), Create("/a/mine", ephemeral=True), Create("/a/kept")])
    node = await two.get("/a/mine")
    assert node is not None
    assert node.ephemeral
    await two.commit([Create("/a/other", ephemeral=True)])
    await one.aclose()
    assert await two.children("/a") == ["kept", "other"]


async def test_an_expired_session_commits_nothing_and_comes_back(connect: Connect) -> None:
    one, two = connect(), connect()
    await one.commit([Create("/a", ephemeral=True)])
    async with one.changes(["/a"]) as changes:
        before = await two.get("/a")
        await one.expire()
        assert await two.get("/a") is None
        assert await anext(changes) == SessionLost()
        seen = set()
        while (event := await anext(changes)) != SessionBack():
            assert isinstance(event, Changed)
            seen |= event.paths
        assert seen == {"/a"}
    [again] = await one.commit([Create("/a", ephemeral=True)])
    assert again is not None
    assert before is not None
    assert again.czxid > before.czxid


async def test_commits_during_the_expiry_are_refused(connect: Connect) -> None:
    one = connect()
    await one.commit([Create("/a", ephemeral=True)])
    refused = []

    async def commit() -> None:
        try:
            await one.commit([Create("/b")])
        except SessionExpired as exc:
            refused.append(exc)

    one._session = 0  # between the end of the old session and the next one
    await commit()
    assert len(refused) == 1
    assert await connect().get("/b") is None


async def test_watching_places_and_their_children(connect: Connect) -> None:
    one, two = connect(), connect()
    await one.commit([Create("/a"), Create("/a/b"), Create("/a/b/c")])
    async with two.changes(["/a", "/later"]) as changes:
        await one.commit([Set("/a/b", b"1")])
        await one.commit([Set("/a/b/c", b"deeper: not seen"), Create("/else")])
        await one.commit([Create("/a/d"), Set("/a", b"")])
        await one.commit([Create("/later")])
        await one.commit([Create("/later/x"), Delete("/a/d")])
        with trio.fail_after(5):
            assert await anext(changes) == Changed(frozenset({"/a/b", "/a/d", "/a", "/later", "/later/x"}))
        with trio.move_on_after(0) as nothing:
            await anext(changes)
        assert nothing.cancelled_caught


async def test_a_watcher_is_woken_and_sees_what_was_committed(connect: Connect) -> None:
    one, two = connect(), connect()
    seen = []
    async with two.changes(["/"]) as changes, trio.open_nursery() as nursery:

        async def watch() -> None:
            while len(seen) < 10:
                await anext(changes)
                seen[:] = await two.children("/")
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        for number in range(10):
            await one.commit([Create(f"/{number}")])
        with trio.fail_after(5):
            await trio.sleep_forever()
    assert len(seen) == 10


async def test_one_of_many_rivals_wins(connect: Connect) -> None:
    await connect().commit([Create("/epoch")])
    won = []

    async def stand(number: int) -> None:
        try:
            await connect().commit([Create("/leader", ephemeral=True), Set("/epoch", b"%d" % number, 0)])
            won.append(number)
        except (NodeExists, VersionMoved):
            pass

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(stand, number)
    assert len(won) == 1
    assert (await connect().get("/epoch")).data == b"%d" % won[0]  # type: ignore[union-attr]


async def test_an_empty_commit(store: Store) -> None:
    assert await store.commit([]) == []
