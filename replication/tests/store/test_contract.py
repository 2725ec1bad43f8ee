"""What every `Store` must do: the embedded one, the simulation's, the one on ZooKeeper (and with it ZooKeeper)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

from barnabas.replication.store import socket_server, socket_store, zk
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.store import (
    ANY_VERSION,
    MAX_COMMIT_BYTES,
    Changed,
    Check,
    CommitTooLarge,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    PathTooLong,
    SessionBack,
    SessionExpired,
    SessionLost,
    Set,
    Store,
    VersionMoved,
    name_of,
)
from barnabas.replication.tests.store.store_homes import (
    Home,
    Kind,
    in_memory,
    on_a_fake_zookeeper,
    on_a_socket,
    on_disk,
    on_disk_in_threads,
    on_zookeeper,
    simulated,
)
from compat_tests.harness.zookeeper import ZooKeeper

Connect = Callable[[], Awaitable[Store]]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes and who leaves tells the other side, even if everything stands still for a while."""
    for module, name in ((socket_server, "HELLO_S"), (socket_store, "CLOSE_S"), (zk, "_STOP_WITHIN_S")):
        monkeypatch.setattr(module, name, 60)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], ZooKeeper]]:
    """Starts the module's ZooKeeper when it is first asked for."""
    started: list[ZooKeeper] = []

    def server() -> ZooKeeper:
        if not started:
            one = ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
            started.append(one)
            one.start()
        return started[0]

    yield server
    for one in started:
        one.stop()


@pytest.fixture(
    params=[
        in_memory,
        on_disk,
        on_disk_in_threads,
        on_a_socket,
        simulated,
        on_a_fake_zookeeper,
        pytest.param(on_zookeeper, marks=[pytest.mark.campaign, pytest.mark.jvm]),
    ],
    ids=lambda kind: kind.__name__,
)
async def home(request: pytest.FixtureRequest, tmp_path: Path, servers: Callable[[], ZooKeeper]) -> AsyncIterator[Home]:
    kind: Kind = request.param
    async with kind(tmp_path, servers) as home:
        yield home


@pytest.fixture
def connect(home: Home) -> Connect:
    return home.connect


@pytest.fixture
async def store(home: Home) -> Store:
    return await home.connect()


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
    with pytest.raises(CommitTooLarge) as caught:
        await store.commit([Check("/large", 0), *(Create(f"/large/{'x' * 200}{n}") for n in range(6000))])
    assert caught.value.index == 0
    node = await store.get("/large")
    assert node is not None
    assert (node.version, len(node.data)) == (0, MAX_COMMIT_BYTES - 1000)
    assert await store.children("/large") == []


async def test_too_long_a_path_is_refused_without_other_effect(store: Store) -> None:
    await store.commit([Create("/names")])
    for path in (f"/names/{'x' * 65_530}", f"/names/{'é' * 32_767}"):
        with pytest.raises(PathTooLong) as caught:
            await store.commit([Set("/names", b"never"), Create(path)])
        assert caught.value.index == 1
        assert len(str(caught.value)) < 1000, "the message does not repeat the name"
    await store.commit([Create("/names/short")])
    node = await store.get("/names")
    assert node is not None
    assert node.version == 0
    assert await store.children("/names") == ["short"]


async def until(store: Store, changes: AsyncIterator[object], *paths: str) -> set[str]:
    """All paths told until each of `paths` was. Reads then: only what is read between two changes tells them apart."""
    seen: set[str] = set()
    with trio.fail_after(90):
        while not seen.issuperset(paths):
            event = await anext(changes)
            assert isinstance(event, Changed), event
            seen |= event.paths
        await store.get("/")
    return seen


async def read(store: Store, path: str) -> bytes:
    node = await store.get(path)
    assert node is not None
    return node.data


async def test_two_thousand_nodes_at_once(store: Store) -> None:
    await store.commit([Create("/a"), *(Create(f"/a/{number}", b"%d" % number) for number in range(2000))])
    paths = [f"/a/{number}" for number in range(2000)]
    nodes = await store.get_many([*paths, "/nothing"])
    assert [node and node.data for node in nodes] == [*(b"%d" % number for number in range(2000)), None]
    assert len(await store.children("/a")) == 2000
    assert await store.get_many([]) == []


async def test_a_later_registration_has_a_higher_epoch(home: Home) -> None:
    """The czxid is the broker epoch: a returning broker's is above everything that was done before."""
    one, two = await home.connect(), await home.connect()
    [first] = await one.commit([Create("/1", b"", ephemeral=True)])
    [between] = await two.commit([Create("/between")])
    await home.close(one)
    [again] = await two.commit([Create("/1", b"", ephemeral=True)])
    assert first.czxid < between.czxid < again.czxid
    found = await two.get("/1")
    assert found == again, "what a commit returns is what is read"


async def test_ephemerals_end_with_their_session(home: Home) -> None:
    one, two = await home.connect(), await home.connect()
    await one.commit([Create("/a"), Create("/a/mine", ephemeral=True), Create("/a/kept")])
    node = await two.get("/a/mine")
    assert node is not None
    assert node.ephemeral
    await two.commit([Create("/a/other", ephemeral=True)])
    await home.close(one)
    assert await two.children("/a") == ["kept", "other"]


async def test_an_expired_session_comes_back_as_a_new_one(home: Home) -> None:
    one, two = await home.connect(), await home.connect()
    [before] = await one.commit([Create("/a", ephemeral=True)])
    async with one.changes(["/a", "/b"]) as changes, two.changes(["/a"]) as others:
        await home.expire(one)
        assert await until(two, others, "/a") == {"/a"}
        assert await two.get("/a") is None
        events = []
        with trio.fail_after(90):
            while SessionBack() not in events:
                events.append(await anext(changes))
        assert [event for event in events if not isinstance(event, Changed)] == [SessionLost(), SessionBack()]
        [again] = await one.commit([Create("/a", ephemeral=True)])
        assert again.czxid > before.czxid
        await two.commit([Create("/b", b"seen")])
        assert await until(one, changes, "/b") <= {"/a", "/b"}
        assert await read(one, "/b") == b"seen"
    assert await two.get("/a") == again


async def test_expired_again_and_again(home: Home) -> None:
    one, two = await home.connect(), await home.connect()
    await two.commit([Create("/a")])
    async with one.changes(["/a"]) as changes:
        for number in range(5):
            await one.commit([Create("/a/mine", ephemeral=True)])
            await until(one, changes, "/a/mine")
            await home.expire(one)
            events = []
            with trio.fail_after(90):
                while SessionBack() not in events:
                    events.append(await anext(changes))
            assert [event for event in events if not isinstance(event, Changed)] == [SessionLost(), SessionBack()]
            assert await one.get("/a/mine") is None, "a new session reads what the end of the old one did"
            await two.commit([Set("/a", b"%d" % number)])
            await until(one, changes, "/a")


async def test_commits_during_the_expiry_are_refused() -> None:
    embedded = EmbeddedStore.open()
    one = embedded.connect()
    await one.commit([Create("/a", ephemeral=True)])
    one._session = 0  # between the end of the old session and the next one
    with pytest.raises(SessionExpired):
        await one.commit([Create("/b")])
    assert await embedded.connect().get("/b") is None


async def test_watching_places_and_their_children(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await one.commit([Create("/a"), Create("/a/b"), Create("/a/b/c")])
    async with two.changes(["/a", "/later"]) as changes:
        await one.commit([Set("/a/b", b"1")])
        await one.commit([Set("/a/b/c", b"deeper: not seen"), Create("/else")])
        await one.commit([Create("/a/d"), Set("/a", b"")])
        await until(two, changes, "/a/b", "/a/d", "/a")
        await one.commit([Create("/later")])
        await until(two, changes, "/later")
        await one.commit([Create("/later/x"), Delete("/a/d")])
        seen = await until(two, changes, "/later/x", "/a/d")
        await one.commit([Set("/later/x", b"1"), Delete("/a/b/c"), Create("/later/last")])
        seen |= await until(two, changes, "/later/x", "/later/last")
        assert seen <= {"/a", "/a/d", "/later", "/later/x", "/later/last"}
        await one.commit([Delete("/later/x"), Delete("/later/last"), Delete("/later")])
        await until(two, changes, "/later/x", "/later/last", "/later")
        await one.commit([Create("/later"), Create("/later/x")])
        await until(two, changes, "/later/x", "/later")


async def test_a_node_that_goes_and_comes_is_reported(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await one.commit([Create("/a"), Create("/a/b", b"1")])
    async with two.changes(["/a"]) as changes:
        for number in range(20):
            await one.commit([Delete("/a/b"), Create("/a/b", b"%d" % number)])
            while (node := await two.get("/a/b")) is None or node.data != b"%d" % number:
                await until(two, changes, "/a/b")


async def test_several_subscribers_share_places(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await one.commit([Create("/a"), Create("/a/b"), Create("/a/b/c")])
    async with two.changes(["/a"]) as outer, two.changes(["/a/b"]) as inner:
        await one.commit([Set("/a/b", b"1")])
        await until(two, outer, "/a/b")
        await until(two, inner, "/a/b")
        async with two.changes(["/a", "/a/b"]) as both:
            await one.commit([Set("/a/b", b"2"), Set("/a/b/c", b"2")])
            assert await until(two, both, "/a/b", "/a/b/c") == {"/a/b", "/a/b/c"}
        assert await until(two, outer, "/a/b") == {"/a/b"}
        assert await until(two, inner, "/a/b", "/a/b/c") == {"/a/b", "/a/b/c"}
        await one.commit([Set("/a/b", b"3")])
        await until(two, outer, "/a/b")
        await until(two, inner, "/a/b")


async def test_a_notified_reader_sees_all_earlier_changes(connect: Connect) -> None:
    one, two = await connect(), await connect()
    await one.commit([Create("/first", b"0"), Create("/second", b"0")])
    async with two.changes(["/first", "/second"]) as changes, trio.open_nursery() as nursery:

        async def write() -> None:
            for number in range(1, 101):
                await one.commit([Set("/first", b"%d" % number)])
                await one.commit([Set("/second", b"%d" % number)])

        nursery.start_soon(write)
        with trio.fail_after(90):
            while (second := int(await read(two, "/second"))) < 100:
                assert int(await read(two, "/first")) >= second
                await anext(changes)


async def test_a_watcher_is_woken_and_sees_what_was_committed(connect: Connect) -> None:
    one, two = await connect(), await connect()
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
        with trio.fail_after(90):
            await trio.sleep_forever()
    assert len(seen) == 10


@pytest.mark.parametrize("seed", range(4))
async def test_a_mirror_kept_by_watching(home: Home, seed: int) -> None:
    """A reader of all reported places has the watched part of the tree in the end; so too over expiries."""
    rng = random.Random(seed)
    writer, watcher = await home.connect(), await home.connect()
    await writer.commit([Create("/p"), Create("/q")])
    places = ["/p", "/q", "/p/1", "/end"]
    mirror: dict[str, bytes] = {}
    done = False

    async def look(paths: set[str]) -> None:
        for path, node in zip(sorted(paths), await watcher.get_many(sorted(paths)), strict=True):
            if node is None:
                mirror.pop(path, None)
            else:
                mirror[path] = node.data

    async def everything(store: Store) -> set[str]:
        found = set(places)
        for place in places:
            found |= {f"{place}/{name}" for name in await store.children(place)}
        return found

    async def write() -> None:
        nonlocal done
        for number in range(120):
            top = f"/{rng.choice('pq')}/{rng.randrange(4)}"
            path = rng.choice([top, f"{top}/{rng.randrange(3)}", f"/{rng.choice('pq')}"])
            data = b"%d" % number
            op = rng.choice([Create(path, data), Create(path, data), Set(path, data), Delete(path)])
            try:
                await writer.commit([op])
            except (NodeExists, NoSuchNode, NodeNotEmpty):
                pass
            if rng.random() < 0.03:
                await home.expire(watcher)
        done = True
        try:
            await writer.commit([Create("/end")])
        except NodeExists:
            pass

    async def truth() -> dict[str, bytes]:
        paths = sorted(await everything(writer))
        return {path: node.data for path, node in zip(paths, await writer.get_many(paths), strict=True) if node}

    async with watcher.changes(places) as changes, trio.open_nursery() as nursery:
        await look(await everything(watcher))
        nursery.start_soon(write)
        with trio.move_on_after(90) as late:
            while not done or mirror != await truth():  # with an event lost it waits for ever
                event = await anext(changes)
                if isinstance(event, Changed):
                    await look(set(event.paths))
                elif isinstance(event, SessionBack):
                    await look(await everything(watcher) | set(mirror))
    assert not late.cancelled_caught, f"seed {seed}: {set(mirror.items()) ^ set((await truth()).items())}"


async def test_one_of_many_rivals_wins(connect: Connect) -> None:
    first = await connect()
    await first.commit([Create("/epoch")])
    won = []

    async def stand(number: int) -> None:
        rival = await connect()
        try:
            await rival.commit([Create("/leader", ephemeral=True), Set("/epoch", b"%d" % number, 0)])
            won.append(number)
        except (NodeExists, VersionMoved):
            pass

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(stand, number)
    assert len(won) == 1
    assert await read(first, "/epoch") == b"%d" % won[0]


async def test_cancelled_commits_happen_or_not(store: Store) -> None:
    await store.commit([Create("/a")])
    counted = 0

    async def count(deadline: float) -> None:
        nonlocal counted
        with trio.move_on_after(deadline):
            await store.commit([Set("/a", b"x")])
            counted += 1

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(count, 0 if number % 4 == 0 else 0.001 if number % 4 == 1 else 90)
    node = await store.get("/a")
    assert node is not None
    assert 100 <= counted <= node.version <= 200
    [after] = await store.commit([Set("/a", b"after", node.version)])
    assert after == Node("/a", b"after", node.version + 1, node.czxid, after.mzxid)  # type: ignore[union-attr]


async def test_an_empty_commit(store: Store) -> None:
    assert await store.commit([]) == []


async def test_paths_that_are_none(store: Store) -> None:
    await store.commit([Create("/a")])
    for path in ("", "a", "/a/", "//a", "/a\0"):
        with pytest.raises(ValueError, match="not a node path"):
            await store.commit([Create(path)])
