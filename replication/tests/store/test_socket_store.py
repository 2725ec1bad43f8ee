"""The store of one machine: what lost connections, a store that stands still or is killed, and slow disks mean.

The contract that it shares with the other stores is in `test_contract.py`.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from barnabas.replication.store import socket_wire as wire
from barnabas.replication.store.socket_server import HELLO_S, StoreServer
from barnabas.replication.store.socket_sessions import TICK_S
from barnabas.replication.store.socket_store import socket_store
from barnabas.replication.store.socket_wire import Hello, Reader, Welcome
from barnabas.replication.store.store import (
    Changed,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NodeExists,
    NodeNotEmpty,
    NoSuchNode,
    SessionBack,
    SessionExpired,
    SessionLost,
    Set,
    Store,
    StoreClosed,
    StoreEvent,
    StoreFailed,
)
from barnabas.replication.tests.store.socket_rig import TIMEOUT_MS, Gate, Machine, machine
from barnabas.server.cluster.steady_store import SteadyStore

TIMEOUT_S = TIMEOUT_MS / 1000


async def registered(store: Store, path: str = "/me") -> Node:
    [node] = await store.commit([Create(path, ephemeral=True)])
    assert node is not None
    return node


async def until_lost_and_back(changes: AsyncIterator[StoreEvent]) -> None:
    seen: list[StoreEvent] = []
    while SessionBack() not in seen:
        event = await anext(changes)
        if not isinstance(event, Changed):
            seen.append(event)
    assert seen == [SessionLost(), SessionBack()]


# -- lost connections ------------------------------------------------------------------------------------------------


async def test_a_session_outlives_its_connection(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine, one.session() as other:
        node = await registered(mine)
        number = mine.session_id
        for _ in range(5):
            one.cut()
            assert await other.get("/me") == node
            assert await mine.get("/me") == node
            assert mine.session_id == number
        await mine.commit([Create("/again")])


async def test_reads_wait_for_the_next_connection_and_commits_in_flight_are_in_doubt(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine, trio.open_nursery() as nursery:
        await mine.commit([Create("/a", b"1")])
        one.gate.close()
        found: list[object] = []

        async def read() -> None:
            found.append(await mine.get("/a"))

        async def write() -> None:
            with pytest.raises(ConnectionLost):
                await mine.commit([Set("/a", b"2")])
            found.append("in doubt")

        nursery.start_soon(read)
        nursery.start_soon(write)
        await wait_all_tasks_blocked()
        one.cut()
        await wait_all_tasks_blocked()
        assert found == ["in doubt"]
        one.gate.open()
        await trio.sleep(2)
        assert isinstance(found[1], Node)
        assert found[1].data in (b"1", b"2"), "what the old connection brought was read before, or never"


async def test_a_commit_made_without_a_connection_waits_and_is_done_once(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine:
        await mine.commit([Create("/a")])
        one.kill()
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mine.commit, [Create("/a/b")])
            await wait_all_tasks_blocked()
            with trio.move_on_after(1) as late:
                await mine.get("/a")
            assert late.cancelled_caught
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_done_twice_or_forgotten_however_connections_end(autojump_clock: MockClock, seed: int) -> None:
    """Counters, written by a steady store over a connection that is cut all the time, at any point of a request."""
    rng = random.Random(seed)
    async with machine(None) as one, one.session() as mine, one.session() as truth:
        store = SteadyStore(mine)
        await store.commit([Create("/n", b"0")])
        done = False

        async def cut() -> None:
            while not done:
                await trio.sleep(rng.uniform(0, 0.02))
                for _ in range(rng.randrange(4)):
                    await trio.lowlevel.checkpoint()
                one.cut()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            for number in range(200):
                await store.commit([Set("/n", b"%d" % (number + 1), number)])
                node = await truth.get("/n")
                assert node is not None
                assert (node.version, node.data) == (number + 1, b"%d" % (number + 1)), f"seed {seed}"
            done = True


@pytest.mark.parametrize("seed", range(6))
async def test_no_change_is_missed_however_connections_end(
    autojump_clock: MockClock, seed: int, tmp_path: Path
) -> None:
    """A mirror kept by watching, while connections are cut, sessions expire and the store is killed."""
    rng = random.Random(seed)
    places = ["/p", "/q", "/p/1"]
    mirror: dict[str, bytes] = {}
    async with machine(tmp_path) as one, one.session() as writer, one.session() as watcher:
        steady = SteadyStore(writer)
        await steady.commit([Create("/p"), Create("/q")])

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

        async def follow() -> None:
            async with watcher.changes(places) as changes:
                await look(await everything(watcher))
                async for event in changes:
                    if isinstance(event, Changed):
                        await look(set(event.paths))
                    elif isinstance(event, SessionBack):
                        await look(await everything(watcher) | set(mirror))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await wait_all_tasks_blocked()
            for number in range(150):
                top = f"/{rng.choice('pq')}/{rng.randrange(4)}"
                path = rng.choice([top, top, f"{top}/{rng.randrange(2)}", f"/{rng.choice('pq')}"])
                op = rng.choice([Create(path, b"%d" % number), Set(path, b"%d" % number), Delete(path)])
                try:
                    await steady.commit([op])
                except (NodeExists, NoSuchNode, NodeNotEmpty, SessionExpired):
                    pass
                dice = rng.random()
                if dice < 0.15:
                    one.cut()
                elif dice < 0.18 and watcher.session_id in one.store.tree.sessions:
                    one.server.end(watcher.session_id)
                elif dice < 0.23:
                    one.kill()
                    await trio.sleep(rng.uniform(0, 1))
                    await one.start()
                if rng.random() < 0.3:
                    await trio.sleep(rng.uniform(0, 0.5))
            await trio.sleep(30)
            paths = sorted(await everything(writer))
            truth = {path: node.data for path, node in zip(paths, await writer.get_many(paths), strict=True) if node}
            assert mirror == truth, f"seed {seed}"
            nursery.cancel_scope.cancel()


async def test_a_deletion_during_a_cut_is_reported(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine, one.session() as other:
        await other.commit([Create("/p"), Create("/p/gone"), Create("/p/kept"), Create("/p/written")])
        async with mine.changes(["/p", "/later"]) as changes:
            one.kill()  # nobody is connected
            one.store.begin([Delete("/p/gone"), Create("/p/came"), Set("/p/written", b""), Create("/later")], 7)
            await one.store.until_durable(one.store.tree.zxid)
            one.directory = None
            server = StoreServer(one.store, new_id=lambda: 5, now=trio.current_time)
            one.nursery.start_soon(server.run, one)
            event = await anext(changes)
            assert event == Changed(frozenset({"/p/gone", "/p/came", "/p/written", "/later"}))


# -- the end of a session --------------------------------------------------------------------------------------------


async def test_silence_ends_a_session_after_its_timeout_and_not_before(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session("other") as other:
        stream = await one.connect()
        await stream.send_all(wire.encode_hello(Hello(0, TIMEOUT_MS, "dies")))
        await stream.send_all(wire.encode_commit([Create("/dies", ephemeral=True)]))
        await stream.send_all(wire.frame(wire.PING))
        await wait_all_tasks_blocked()
        begun = trio.current_time()
        await stream.aclose()
        async with other.changes(["/dies"]) as changes:
            assert await other.get("/dies") is not None
            assert await anext(changes) == Changed(frozenset({"/dies"}))
        assert TIMEOUT_S <= trio.current_time() - begun <= TIMEOUT_S + 2 * TICK_S
        assert await other.get("/dies") is None
        await trio.sleep(20 * TIMEOUT_S)
        assert other.session_id, "pings keep a session that asks nothing"
        assert one.server.sessions == 1


async def test_who_was_away_too_long_cannot_commit_and_comes_back_anew(
    autojump_clock: MockClock,
) -> None:
    async with machine(None) as one, one.session() as mine, one.session() as other:
        node = await registered(mine)
        async with mine.changes(["/x"]) as changes, trio.open_nursery() as nursery:
            one.server.end(mine.session_id)
            with pytest.raises((SessionExpired, ConnectionLost)):
                await mine.commit([Create("/late")])
            await until_lost_and_back(changes)
            assert await other.get("/me") is None
            assert await other.get("/late") is None
            again = await registered(mine)
            assert again.czxid > node.czxid
            await other.commit([Create("/x")])
            assert await anext(changes) == Changed(frozenset({"/x"}))
            nursery.cancel_scope.cancel()


async def test_a_commit_of_the_last_session_is_not_done_in_the_next(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine:
        one.kill()
        await wait_all_tasks_blocked()
        refused = []

        async def commit() -> None:
            with pytest.raises(SessionExpired):
                await mine.commit([Create("/late")])
            refused.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit)
            await wait_all_tasks_blocked()
            await one.start()  # of an empty tree: it knows no session
            await trio.sleep(2)
            assert refused
        assert await mine.get("/late") is None


async def test_leaving_ends_the_session_at_once(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as other:
        async with one.session() as mine:
            await registered(mine)
        assert await other.get("/me") is None
        with pytest.raises(StoreClosed):
            await mine.get("/")
        with pytest.raises(StoreClosed):
            mine.changes(["/"])
        assert one.server.sessions == 1
    await one.server.until_sessionless()


# -- a store that is killed, stands still, or has a slow disk ----------------------------------------------------------


async def test_sessions_survive_a_restart_of_the_store(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with machine(tmp_path) as one, one.session() as mine:
        node = await registered(mine)
        number = mine.session_id
        async with mine.changes(["/", "/me"]) as changes:
            for round_ in range(4):
                one.kill()
                await trio.sleep(1)
                await one.start()
                assert await mine.get("/me") == node, "its czxid, the broker's epoch, is the same"
                await mine.commit([Create(f"/{round_}", b"x" * 900)])  # with snapshots in between
                assert await anext(changes) == Changed(frozenset({f"/{round_}"}))
            assert mine.session_id == number


async def test_sessions_of_the_dead_expire_after_a_restart(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with machine(tmp_path) as one:
        async with one.session() as mine:
            await registered(mine)
            one.kill()
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
                await trio.sleep(10 * TIMEOUT_S)  # that the store is away does not count
        await one.start()
        begun = trio.current_time()
        async with one.session() as other, other.changes(["/me"]) as changes:
            assert await other.get("/me") is not None
            assert await anext(changes) == Changed(frozenset({"/me"}))
            assert TIMEOUT_S - 0.1 <= trio.current_time() - begun <= TIMEOUT_S + 2 * TICK_S
        one.kill()
        await one.start()
        assert one.store.tree.get("/me") is None
        assert not one.store.tree.sessions, "a restart has all that is left of the past"


async def test_all_sessions_of_the_dead_can_be_ended_at_the_start(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with machine(tmp_path) as one:
        async with one.session() as mine:
            await registered(mine)
            one.kill()
        await one.start()
        one.server.end_all()
        async with one.session() as other:
            assert await other.get("/me") is None


async def test_a_store_that_stands_still_loses_no_session(autojump_clock: MockClock) -> None:
    """As under SIGSTOP: it finds late what was sent in time."""
    async with machine(None) as one, one.session() as mine:
        node = await registered(mine)
        one.gate.close()
        one.clock_s += 10 * TIMEOUT_S
        await trio.sleep(TIMEOUT_S / 2)
        one.gate.open()
        assert await mine.get("/me") == node


async def test_a_store_that_does_not_answer_is_left_for_another_connection(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine:
        node = await registered(mine)
        one.gate.close()
        begun = trio.current_time()
        with trio.move_on_after(TIMEOUT_S * 0.9):
            await mine.get("/me")
        assert not mine._link.connected
        one.gate.open()
        assert await mine.get("/me") == node
        assert trio.current_time() - begun < 2 * TIMEOUT_S


async def test_a_slow_disk_is_no_silence(autojump_clock: MockClock, tmp_path: Path) -> None:
    gate = trio.Event()
    gate.set()

    async def slowly(work: Callable[[], None]) -> None:
        await gate.wait()
        work()

    async with machine(tmp_path, slowly) as one, one.session() as mine:
        await registered(mine)
        await mine.commit([Create("/n")])
        gate = trio.Event()
        done = 0

        async def write(number: int) -> None:
            nonlocal done
            await mine.commit([Create(f"/n/{number}", b"x" * 900_000)])
            done += 1

        async with trio.open_nursery() as nursery:
            for number in range(12):  # more than may wait: the connection is not read any more
                nursery.start_soon(write, number)
            with trio.move_on_after(3 * TIMEOUT_S):
                await mine.get("/me")
            assert done == 0
            gate.set()
        assert done == 12
        assert await mine.get("/me") is not None


async def test_a_failed_disk_ends_the_server(autojump_clock: MockClock, tmp_path: Path) -> None:
    async def fail(_: Callable[[], None]) -> None:
        raise OSError(28, "No space left on device")

    async def use() -> None:
        async with machine(tmp_path, fail) as one, one.session():
            pytest.fail("there is no session without a disk")

    with pytest.raises(BaseExceptionGroup) as caught:
        await use()
    failed, rest = caught.value.split(StoreFailed)
    assert failed is not None
    assert rest is None


# -- who is let in ---------------------------------------------------------------------------------------------------


async def test_nobody_answers(autojump_clock: MockClock) -> None:
    async def connect() -> trio.abc.Stream:
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(ConnectionLost, match="within 6000 ms: No such file or directory"):
        async with socket_store(connect, timeout_ms=TIMEOUT_MS):
            pytest.fail("there is no store")


async def test_what_happens_inside_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    async with machine(None) as one:
        with pytest.raises(ZeroDivisionError):
            async with one.session():
                _ = 1 / 0


async def test_a_store_of_another_format_is_refused(autojump_clock: MockClock) -> None:
    async def connect() -> trio.abc.Stream:
        ours, theirs = memory_stream_pair()
        await theirs.send_all(wire.encode_refused("the store speaks format 2, not 1"))
        return ours

    with pytest.raises(StoreFailed, match="the store speaks format 2, not 1"):
        async with socket_store(connect, timeout_ms=TIMEOUT_MS):
            pytest.fail("it was refused")


async def answers(one: Machine, *sent: bytes) -> list[bytes]:
    """Everything the store says to these bytes, as frames, until it ends the connection or is silent for a while."""
    stream = await one.connect()
    frames = wire.Frames(wire.MOST_BYTES)
    said: list[bytes] = []
    for piece in sent:
        await stream.send_all(piece)
        await wait_all_tasks_blocked()
    with trio.move_on_after(HELLO_S + 1):
        while piece := await stream.receive_some():
            said += [bytes(view) for view in frames.feed(piece)]
        said.append(b"end")
    await stream.aclose()
    return said


HELLO = wire.encode_hello(Hello(0, TIMEOUT_MS, "somebody"))


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\xff" * 100,
        wire.frame(wire.PING),
        wire.frame(wire.HELLO, b"BNBSSTOR"),
        HELLO.replace(b"BNBSSTOR", b"ZKZKZKZK"),
    ],
    ids=["silent", "http", "ones", "ping", "half a hello", "other magic"],
)
async def test_a_stranger_is_left(autojump_clock: MockClock, sent: bytes) -> None:
    async with machine(None) as one, one.session() as mine:
        assert await answers(one, sent) == [b"end"]
        await mine.commit([Create("/still")])
        assert one.server.sessions == 1


async def test_another_format_is_told_ours(autojump_clock: MockClock) -> None:
    async with machine(None) as one:
        [said, end] = await answers(one, HELLO.replace(b"BNBSSTOR\x00\x01", b"BNBSSTOR\x00\x09"))
        assert said == wire.encode_refused("the store speaks format 1, not 9")[4:]
        assert end == b"end"


@pytest.mark.parametrize(
    "sent",
    [
        wire.frame(99),
        wire.frame(wire.COMMIT, b"\xff\xff\xff\xff"),
        wire.frame(wire.GET, b"\x00\x00\x00\x01\x7f\xff\xff\xff"),
        wire.frame(wire.CHILDREN, b"\x00\x00\x00\x01\xff"),
        wire.frame(wire.PING, b"more"),
        wire.encode_commit([Create("no path")]),
        (wire.REQUEST_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x00",
        HELLO,
    ],
    ids=["kind", "count", "length", "text", "rest", "path", "frame", "empty", "second hello"],
)
async def test_nonsense_ends_a_connection_but_not_its_session(autojump_clock: MockClock, sent: bytes) -> None:
    async with machine(None) as one, one.session() as mine:
        [welcome, end] = await answers(one, HELLO, sent)
        assert (welcome[0], end) == (wire.WELCOME, b"end")
        await mine.commit([Create("/still")])
        session = wire.decode_welcome(Reader(memoryview(welcome))).session
        [again] = await answers(one, wire.encode_hello(Hello(session, TIMEOUT_MS, "somebody")))
        assert again[0] == wire.WELCOME


async def test_random_bytes_of_a_hostile_peer(autojump_clock: MockClock) -> None:
    rng = random.Random(3)
    good = [
        wire.encode_commit([Create("/h", b"1", True, False), Set("/h", b"2"), Delete("/h")]),
        wire.encode_paths(wire.GET, ["/", "/h"]),
        wire.encode_paths(wire.WATCH, ["/", "/h"]),
        wire.encode_paths(wire.UNWATCH, ["/h"]),
        wire.encode_children("/"),
        wire.frame(wire.CLOSE),
    ]
    async with machine(None) as one, one.session() as mine:
        await mine.commit([Create("/a", b"mine")])
        for _ in range(400):
            sent = bytearray(b"".join([HELLO, *rng.choices(good, k=5)]))
            for _ in range(rng.randrange(4)):
                sent[rng.randrange(len(HELLO), len(sent))] = rng.randrange(256)
            stream = await one.connect()
            await stream.send_all(sent)
            await wait_all_tasks_blocked()
            await stream.aclose()
        node = await mine.get("/a")
        assert node is not None
        assert node.data == b"mine"
        await trio.sleep(2 * TIMEOUT_S)
        assert one.server.sessions == 1


async def test_a_later_connection_takes_the_place_of_the_one_before(autojump_clock: MockClock) -> None:
    async with machine(None) as one:
        stream = await one.connect()
        await stream.send_all(HELLO)
        frames = wire.Frames(wire.MOST_BYTES)
        [view] = frames.feed(await stream.receive_some())
        welcome = wire.decode_welcome(Reader(view))
        before, one.gate = one.gate, Gate()
        before.close()
        await stream.send_all(wire.encode_commit([Create("/late")]))
        [again] = await answers(one, wire.encode_hello(Hello(welcome.session, TIMEOUT_MS, "somebody")))
        assert wire.decode_welcome(Reader(memoryview(again))) == Welcome(welcome.session, TIMEOUT_MS, True)
        before.open()
        assert await stream.receive_some() == b""
        assert one.store.tree.get("/late") is None


async def test_a_session_that_is_not_known_is_over(autojump_clock: MockClock) -> None:
    async with machine(None) as one:
        assert await answers(one, wire.encode_hello(Hello(12345, TIMEOUT_MS, "somebody"))) == [
            bytes([wire.EXPIRED]),
            b"end",
        ]


async def test_who_does_not_read_is_not_read_and_expires(autojump_clock: MockClock) -> None:
    """A peer that asks and asks, and takes no answer, costs what is bounded, and then its session."""
    async with machine(None) as one, one.session() as mine:
        await mine.commit([Create("/big", b"x" * 900_000)])
        first, second = lockstep_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.server.serve, second)
            await first.send_all(HELLO)
            await first.receive_some()

            async def ask() -> None:
                while True:
                    await first.send_all(wire.encode_paths(wire.GET, ["/big"]))

            with pytest.raises(trio.BrokenResourceError), trio.fail_after(2 * TIMEOUT_S):
                await ask()
        assert one.server.sessions == 1


async def test_large_answers_come_in_parts(autojump_clock: MockClock) -> None:
    async with machine(None) as one, one.session() as mine:
        paths = [f"/{number}" for number in range(12)]
        for path in paths:
            await mine.commit([Create(path, path.encode() * 200_000)])
        nodes = await mine.get_many([*paths, "/none", *paths])
        assert [node and node.data[:3] for node in nodes] == [
            node and node.data[:3] for node in [*nodes[:12], None, *nodes[:12]]
        ]
        assert all(node is not None and node.data == node.path.encode() * 200_000 for node in nodes[:12])
