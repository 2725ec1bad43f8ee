"""The store on ZooKeeper when things go wrong, on a small server in this process: lost connections, answers, sessions.

What every store must do is in test_store_contract; a real ZooKeeper is met there and in test_store_zookeeper_real.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
import trio
from kazoo.protocol.serialization import CheckVersion, Create2, SetData, Transaction
from kazoo.protocol.serialization import Delete as KazooDelete
from kazoo.security import ACL, Id

from barnabas.replication.store import zk as store_zk
from barnabas.replication.store import zk_link as store_zk_link
from barnabas.replication.store.store import (
    AccessDenied,
    Changed,
    Check,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoSuchNode,
    SessionBack,
    SessionExpired,
    SessionLost,
    Set,
    StoreClosed,
    StoreError,
    StoreFailed,
)
from barnabas.replication.store.zk import ZooKeeperStore, access_list, zookeeper_store
from barnabas.replication.store.zk_client import OneThread, failure, make_client, refusal
from barnabas.replication.store.zk_multi import Acl, Refused, decode_multi, encode_multi
from barnabas.replication.store.zk_settings import Login, ZooKeeperSettings, split_connect
from barnabas.replication.tests.store.fake_zookeeper import FakeZooKeeper, fake_zookeeper

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever leaves tells the server, even if everything stands still for a while."""
    monkeypatch.setattr(store_zk, "_STOP_WITHIN_S", 60)


@pytest.fixture
def server() -> Iterator[FakeZooKeeper]:
    with fake_zookeeper() as server:
        yield server


@pytest.fixture
async def store(server: FakeZooKeeper) -> AsyncIterator[ZooKeeperStore]:
    # Long enough that it does not end by itself, even if everything stands still for a while.
    async with zookeeper_store(ZooKeeperSettings(connect=server.connect, session_timeout_ms=60_000)) as store:
        yield store


async def eventually(holds: Callable[[], object]) -> None:
    """Let kazoo's thread and the server go on until `holds`."""
    with trio.fail_after(90):
        while not holds():  # noqa: ASYNC110 – what is waited for is in other threads
            await trio.sleep(0.001)


async def cut(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    """End the connection, and let there be no other."""
    server.refusing = True
    server.drop()
    await eventually(lambda: not store._link.connected)


# -- lost connections ----------------------------------------------------------------------------------------------


async def test_reads_wait_for_a_connection(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    server.write(Create("/a", b"before"), Create("/a/b"))
    await cut(server, store)
    found: list[object] = []

    async def look() -> None:
        found.append(await store.get("/a"))
        found.append(await store.children("/a"))
        found.append(await store.get_many(["/a/b", "/none"]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await eventually(lambda: store._link._queue)
        server.write(Set("/a", b"after"))
        server.refusing = False
    assert found[0].data == b"after"  # type: ignore[attr-defined]
    assert found[1] == ["b"]
    assert [node and node.path for node in found[2]] == ["/a/b", None]  # type: ignore[attr-defined]


async def test_reads_under_way_are_asked_again(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    server.write(*(Create(f"/{number}", b"%d" % number) for number in range(100)))
    session = store.session_id
    async with trio.open_nursery() as nursery:
        server.running.clear()

        async def look() -> None:
            nodes = await store.get_many([f"/{number}" for number in range(100)])
            assert [node and node.data for node in nodes] == [b"%d" % number for number in range(100)]

        nursery.start_soon(look)
        await eventually(lambda: len(store._link._sent) == 10)
        assert len(store._link._queue) == 90, "no more than max_in_flight are sent"
        server.drop()
        server.running.set()
    assert store.session_id == session


async def test_a_commit_whose_answer_is_lost_may_have_happened(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    session = store.session_id
    server.lose_answer = True
    with pytest.raises(ConnectionLost):
        await store.commit([Create("/a", ephemeral=True)])
    assert await store.get("/a") is not None
    assert store.session_id == session
    with pytest.raises(NodeExists):
        await store.commit([Create("/a", ephemeral=True)])


async def test_a_commit_made_while_disconnected_waits(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    await cut(server, store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, [Create("/a", ephemeral=True)])
        await eventually(lambda: store._link._queue)
        server.refusing = False
    assert server.owner("/a") == store.session_id


async def test_a_commit_that_waits_ends_with_its_session(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    old = store.session_id
    await cut(server, store)
    raised: list[Exception] = []

    async def commit() -> None:
        try:
            await store.commit([Create("/a", ephemeral=True)])
        except SessionExpired as exc:
            raised.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        await eventually(lambda: store._link._queue)
        server.expire(old)
        server.refusing = False
    assert raised
    assert await store.get("/a") is None
    assert store.session_id not in (0, old)


async def test_cancelled_requests_are_not_sent_later(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    await cut(server, store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, [Create("/a")])
        nursery.start_soon(store.get, "/a")
        await eventually(lambda: len(store._link._queue) == 2)
        nursery.cancel_scope.cancel()
    server.refusing = False
    assert await store.get("/a") is None
    assert not store._link._queue
    assert not store._link._sent


async def test_no_ephemeral_of_one_session_is_made_in_the_next(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    made, ended = 0, 0
    stop = False

    async def commit(name: str) -> None:
        nonlocal made, ended
        while not stop:
            session = store.session_id
            try:
                await store.commit([Create(f"/{name}", ephemeral=True)])
                assert server.owner(f"/{name}") in (session, 0)
                made += 1
                await store.commit([Delete(f"/{name}")])
            except (SessionExpired, ConnectionLost):
                ended += 1
                await trio.sleep(0.001)
            except (NodeExists, NoSuchNode):
                assert server.owner(f"/{name}") in (0, store.session_id)
                await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        for name in "abcd":
            nursery.start_soon(commit, name)
        for _ in range(10):
            await eventually(lambda: store.session_id)
            server.expire(store.session_id)
            before = made
            await eventually(lambda before=before: made > before)
        stop = True
    assert ended


# -- watches ---------------------------------------------------------------------------------------------------------


async def test_a_disconnect_is_no_event_but_what_it_hid_is(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    server.write(
        *(Create(path) for path in ("/a", "/a/same", "/a/written", "/a/deleted", "/a/again", "/b", "/b/x", "/c"))
    )
    async with store.changes(["/a", "/b", "/c", "/later"]) as changes:
        await cut(server, store)
        server.write(
            Set("/a/written", b"1"),
            Delete("/a/deleted"),
            Create("/a/created"),
            Delete("/a/again"),
            Create("/a/again"),
            Delete("/b/x"),
            Delete("/b"),
            Create("/later"),
            Create("/later/x"),
        )
        server.refusing = False
        seen: set[str] = set()
        told = {"/a/written", "/a/deleted", "/a/created", "/a/again", "/b/x", "/b", "/later", "/later/x"}
        with trio.fail_after(90):
            while seen != told:
                event = await anext(changes)
                assert isinstance(event, Changed)
                assert event.paths <= told
                seen |= event.paths
        server.write(Set("/c", b"last"))
        with trio.fail_after(90):
            assert await anext(changes) == Changed(frozenset({"/c"}))


async def test_subscribing_waits_until_everything_is_watched(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    server.write(Create("/a"), *(Create(f"/a/{number}") for number in range(50)))
    await cut(server, store)
    inside = trio.Event()

    async def watch() -> None:
        async with store.changes(["/a", "/none"]) as changes:
            inside.set()
            assert await anext(changes) == Changed(frozenset({"/a/49"}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        await trio.sleep(0.01)
        assert not inside.is_set()
        server.refusing = False
        with trio.fail_after(90):
            await inside.wait()
        watched = next(iter(server.connections)).node_watches
        assert {"/a", "/none", "/a/0", "/a/49"} <= watched
        server.write(Set("/a/49", b"x"))


async def test_a_closed_subscriber_is_dropped(server: FakeZooKeeper, store: ZooKeeperStore) -> None:
    server.write(Create("/a"), Create("/a/b"), Create("/a/b/c"))
    async with store.changes(["/a/b"]):
        async with store.changes(["/a"]):
            assert set(store._watches._seen) == {"/a", "/a/b", "/a/b/c"}
        assert set(store._watches._seen) == {"/a/b", "/a/b/c"}
    assert not store._watches._seen
    server.write(Set("/a/b", b"1"))
    await store.get("/a")
    assert "/a/b" not in next(iter(server.connections)).node_watches, "it is not watched again"


@pytest.mark.parametrize("seed", range(8))
async def test_a_mirror_through_faults(server: FakeZooKeeper, store: ZooKeeperStore, seed: int) -> None:
    """A reader of all reported places has the watched part of the tree in the end, whatever happens to connections."""
    rng = random.Random(seed)
    places = ["/p", "/q", "/p/1"]
    server.write(Create("/p"), Create("/q"))
    mirror: dict[str, int] = {}
    writing = True

    def watched(path: str) -> bool:
        return path in places or path.rpartition("/")[0] in places

    def write() -> None:
        nonlocal writing
        for number in range(400):
            top = f"/{rng.choice('pq')}/{rng.randrange(4)}"
            path = rng.choice([top, top, f"{top}/{rng.randrange(3)}", f"/{rng.choice('pq')}"])
            data = b"%d" % number
            op = rng.choice([Create(path, data), Create(path, data), Set(path, data), Delete(path)])
            try:
                server.write(op)
            except StoreError:
                pass
            fault = rng.random()
            if fault < 0.02:
                server.drop()
            elif fault < 0.03:
                server.expire(store.session_id)
            if rng.random() < 0.3:
                threading.Event().wait(0.001)
        writing = False

    def truth() -> dict[str, int]:
        with server.lock:
            return {
                path: node.mzxid
                for path in list(server.tree._entries)
                if watched(path)
                for node in [server.tree.get(path)]
            }

    async def look(paths: set[str]) -> None:
        for path, node in zip(sorted(paths), await store.get_many(sorted(paths)), strict=True):
            if node is None:
                mirror.pop(path, None)
            else:
                mirror[path] = node.mzxid

    async def everything() -> set[str]:
        found = set(places) | set(mirror)
        for place in places:
            found |= {f"{place}/{name}" for name in await store.children(place)}
        return found

    async with store.changes(places) as changes, trio.open_nursery() as nursery:
        await look(await everything())
        nursery.start_soon(trio.to_thread.run_sync, write)
        with trio.move_on_after(90) as late:
            while writing or mirror != truth():
                event: object = None
                with trio.move_on_after(0.1):
                    event = await anext(changes)
                if isinstance(event, Changed):
                    await look(set(event.paths))
                elif isinstance(event, SessionBack):
                    await look(await everything())
                else:
                    assert event in (None, SessionLost())
    assert not late.cancelled_caught, f"seed {seed}: {set(mirror.items()) ^ set(truth().items())}"


# -- beginning and end -------------------------------------------------------------------------------------------------


async def test_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    settings = ZooKeeperSettings(connect=f"127.0.0.1:{port}", connection_timeout_ms=200)
    with pytest.raises(ConnectionLost, match=f"no connection to ZooKeeper at 127.0.0.1:{port} within 200 ms: "):
        async with zookeeper_store(settings):
            raise AssertionError
    handler = OneThread(None, 10)
    with pytest.raises(ConnectionRefusedError):
        handler.create_connection(("127.0.0.1", port), hostname="some.host")
    assert handler.trouble == f"some.host:{port}: [Errno 111] Connection refused"


async def test_a_server_that_does_not_answer(server: FakeZooKeeper) -> None:
    server.running.clear()
    with pytest.raises(ConnectionLost):
        async with zookeeper_store(
            ZooKeeperSettings(connect=server.connect, connection_timeout_ms=100, session_timeout_ms=500)
        ):
            raise AssertionError


def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        handler = OneThread(None, 0.05)
        with handler.create_connection(mute.getsockname()) as connection:
            assert handler.select([connection], [], [], 1000) == ([], [], [])
            peer, _ = mute.accept()
            with peer:
                peer.sendall(b"x")
                assert handler.select([connection], [], [], 1000) == ([connection], [], [])
    for hosts, seconds in (("a", 6), ("a,b,c", 2), ("a,b,c,d,e,f,g,h,i,j", 1.8)):
        client = make_client(hosts, session_timeout=18, context=None, sasl=None, digest=None)
        assert client.handler._connect_timeout == seconds


async def test_errors_of_the_user_pass_as_they_are(server: FakeZooKeeper) -> None:
    with pytest.raises(KeyError):
        async with zookeeper_store(ZooKeeperSettings(connect=server.connect)):
            raise KeyError


async def test_a_chroot_is_made_with_its_parents(server: FakeZooKeeper) -> None:
    for _ in range(2):
        async with zookeeper_store(ZooKeeperSettings(connect=f"{server.connect}/some/where/")) as store:
            await store.commit([Create("/a", b"1", ephemeral=True), Check("/", -1)])
            [node] = await store.commit([Create("/n", sequential=True)])
            assert node is not None
            assert await store.get(node.path) == node
            assert "/some/where/a" in server.tree._entries
            assert (await store.get("/a")).data == b"1"  # type: ignore[union-attr]
            assert "a" in await store.children("/")
            async with store.changes(["/"]) as changes:
                server.write(Set("/some/where/a", b"2"), Set("/some/where", b""))
                with trio.fail_after(90):
                    seen: set[str] = set()
                    while seen != {"/a", "/"}:
                        event = await anext(changes)
                        assert isinstance(event, Changed)
                        seen |= event.paths
            with pytest.raises(NodeExists) as caught:
                await store.commit([Create("/b"), Create("/a")])
            assert (caught.value.index, caught.value.path) == (1, "/a")
    assert sorted(server.tree.children("/some/where")) == ["n0000000001", "n0000000003"]


async def test_leaving_ends_the_session(server: FakeZooKeeper) -> None:
    async with zookeeper_store(ZooKeeperSettings(connect=server.connect)) as store:
        await store.commit([Create("/a", ephemeral=True)])
        assert server.sessions
    assert not server.sessions
    assert server.tree.get("/a") is None
    for use in (store.get("/a"), store.children("/a"), store.commit([Create("/a")])):
        with pytest.raises(StoreClosed):
            await use
    with pytest.raises(StoreClosed):
        store.changes(["/a"])


async def test_leaving_does_not_wait_for_a_server_that_is_gone(
    server: FakeZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_zk, "_STOP_WITHIN_S", 0.05)
    ended: list[Exception] = []

    async def commit(store: ZooKeeperStore, path: str) -> None:
        try:
            await store.commit([Create(path)])
        except StoreError as exc:
            ended.append(exc)

    async with trio.open_nursery() as nursery:
        with trio.fail_after(90):
            async with zookeeper_store(ZooKeeperSettings(connect=server.connect, max_in_flight=1)) as store:
                server.running.clear()
                nursery.start_soon(commit, store, "/sent")
                nursery.start_soon(commit, store, "/waits")
                await eventually(lambda: store._link._sent and store._link._queue)
    assert [type(exc) for exc in ended] == [StoreClosed, StoreClosed]


async def test_a_login_that_is_refused(server: FakeZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_zk_link, "_RESTART_AFTER_S", 0.01)
    settings = ZooKeeperSettings(connect=server.connect, digest=Login("us", "secret"))
    server.refuse_logins = True
    with pytest.raises(StoreFailed, match="refuses our login"):
        async with zookeeper_store(settings):
            raise AssertionError
    server.refuse_logins = False
    async with zookeeper_store(settings) as store, store.changes(["/a"]) as changes:
        server.refuse_logins = True
        server.drop()
        with trio.fail_after(90):
            assert await anext(changes) == SessionLost()
            with pytest.raises(SessionExpired):
                await store.commit([Create("/a")])
            server.refuse_logins = False
            while await anext(changes) != SessionBack():
                pass
        assert await store.get("/none") is None


# -- values ------------------------------------------------------------------------------------------------------------

EVERYONE = Acl(31, "world", "anyone")


@pytest.mark.parametrize(
    ("path", "entries"),
    [
        ("/brokers/topics/t", [(31, "auth", ""), (1, "world", "anyone")]),
        ("/config/topics/t", [(31, "auth", ""), (1, "world", "anyone")]),
        ("/config/users/u", [(31, "auth", "")]),
        ("/config/brokers", [(31, "auth", "")]),
        ("/delegation_token/tokens/t", [(31, "auth", "")]),
        ("/consumers", [(31, "world", "anyone")]),
    ],
)
def test_access_lists_are_apache_kafkas(path: str, entries: list[tuple[int, str, str]]) -> None:
    assert list(access_list(path, secure=True)) == entries
    assert access_list(path, secure=False) == (EVERYONE,)


def test_a_commit_as_kazoo_would_write_it() -> None:
    ops = [
        Create("/a", b"x", ephemeral=True, sequential=True),
        Set("/b", b"y", 3),
        Delete("/c", -1),
        Check("/d", 7),
        Create("/", b"", sequential=True),
    ]
    acl = [ACL(31, Id("world", "anyone"))]
    theirs = Transaction(
        [
            Create2("/root/a", b"x", acl, 3),
            SetData("/root/b", b"y", 3),
            KazooDelete("/root/c", -1),
            CheckVersion("/root/d", 7),
            Create2("/root", None, acl, 2),
        ]
    )
    assert encode_multi(ops, "/root", lambda _: [EVERYONE]) == bytes(theirs.serialize())


def test_answers_that_do_not_fit_are_errors() -> None:
    end = b"\xff\xff\xff\xff\x01\xff\xff\xff\xff"
    done = b"\x00\x00\x00\x02\x00\x00\x00\x00\x00"
    error = b"\xff\xff\xff\xff\x00\xff\xff\xff\x9b\xff\xff\xff\x9b"
    assert decode_multi([Delete("/a")], "", done + end) == [None]
    assert decode_multi([Delete("/a"), Set("/b", b"")], "", done[:0] + error + error + end) == Refused(0, -101)
    for ops, answer in (([Delete("/a")], end), ([], done + end), ([Set("/a", b"")], done + end)):
        with pytest.raises(ValueError, match="result"):
            decode_multi(ops, "", answer)


def test_errors_by_name() -> None:
    ops = [Check("/a", 1), Set("/b", b"", 2)]
    for number, kind in ((-101, NoSuchNode), (-102, AccessDenied), (-114, AccessDenied), (-8, StoreError)):
        error = refusal(ops, Refused(1, number))
        assert type(error) is kind or number == -8
        assert getattr(error, "index", 1) == 1
        assert "/b" in str(error)
    assert isinstance(failure("/x", RuntimeError("odd")), StoreError)


def test_a_broker_alone_does_not_import_kazoo() -> None:
    code = (
        "import sys, barnabas.server.broker.broker, barnabas.server.cli.main; "
        "sys.exit(any(name.split('.')[0] == 'kazoo' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=180).returncode == 0


def test_connect_strings() -> None:
    assert split_connect("a:1,b:2/x/y/") == ("a:1,b:2", "/x/y")
    assert split_connect("a") == ("a", "")
    assert split_connect("a:1/") == ("a:1", "")
    with pytest.raises(ValueError, match="no host"):
        ZooKeeperSettings(connect="/x")
    with pytest.raises(ValueError, match="login"):
        ZooKeeperSettings(connect="z", set_acl=True)
    assert "hidden" not in repr(ZooKeeperSettings(connect="z", sasl=Login("u", "hidden")))
