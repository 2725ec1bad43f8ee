"""Commits and reads over a connection that comes and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock

from barnabas.replication import ConnectionLost, EmbeddedSession, EmbeddedStore, Node, Op, SessionExpired, StoreEvent
from barnabas.replication.store.store import Check, Create, Delete, NodeExists, NoSuchNode, Set, VersionMoved
from barnabas.server.cluster.steady_store import SteadyStore


class Wire:
    """A session with a scripted connection. outcomes: per call 'lost before', 'lost after', or 'ok' when empty."""

    def __init__(self, session: EmbeddedSession) -> None:
        self.session = session
        self.outcomes: list[str] = []
        self.calls = 0

    async def get(self, path: str) -> Node | None:
        await self._break()
        return await self.session.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        await self._break()
        return await self.session.get_many(paths)

    async def children(self, path: str) -> list[str]:
        await self._break()
        return await self.session.children(path)

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        self.calls += 1
        outcome = self.outcomes.pop(0) if self.outcomes else "ok"
        if outcome == "lost before":
            raise ConnectionLost("before")
        result = await self.session.commit(ops)
        if outcome == "lost after":
            raise ConnectionLost("after")
        return result

    def changes(self, places: Collection[str]) -> AbstractAsyncContextManager[AsyncIterator[StoreEvent]]:
        return self.session.changes(places)

    async def _break(self) -> None:
        self.calls += 1
        if self.outcomes and self.outcomes.pop(0) != "ok":
            raise ConnectionLost("reading")


def wired() -> tuple[Wire, SteadyStore, EmbeddedStore]:
    store = EmbeddedStore.open()
    wire = Wire(store.connect())
    return wire, SteadyStore(wire), store


async def test_reads_are_repeated(autojump_clock: MockClock) -> None:
    wire, store, _ = wired()
    await store.commit([Create("/a", b"1")])
    wire.outcomes = ["lost before"] * 5
    node = await store.get("/a")
    assert node is not None
    assert node.data == b"1"
    assert trio.current_time() == pytest.approx(0.5)
    wire.outcomes = ["lost before"]
    assert await store.get_many(["/a", "/b"]) == [node, None]
    wire.outcomes = ["lost before"]
    assert await store.children("/") == ["a"]


@pytest.mark.parametrize(
    "outcomes", [["lost before"], ["lost after"], ["lost before", "lost after"], ["lost after"] * 3]
)
async def test_a_commit_happens_once(outcomes: list[str], autojump_clock: MockClock) -> None:
    wire, store, _ = wired()
    await store.commit([Create("/epoch"), Create("/old"), Create("/seen", b"1")])
    wire.outcomes = list(outcomes)
    ops: list[Op] = [
        Check("/epoch", 0),
        Create("/new", b"x", ephemeral=True),
        Set("/seen", b"2", 0),
        Delete("/old"),
    ]
    check, new, seen, old = await store.commit(ops)
    assert check is None
    assert old is None
    assert new == await wire.session.get("/new")
    assert seen == await wire.session.get("/seen")
    assert new is not None
    assert seen is not None
    assert (new.data, new.version, seen.data, seen.version) == (b"x", 0, b"2", 1)
    assert await wire.session.get("/old") is None


async def test_another_writer_was_faster(autojump_clock: MockClock) -> None:
    wire, store, tree = wired()
    other = tree.connect()
    await store.commit([Create("/epoch", b"1"), Create("/gone")])
    for ops, meanwhile, refusal in (
        ([Create("/a", b"ours")], [Create("/a", b"theirs")], NodeExists),
        ([Set("/epoch", b"ours", 0)], [Set("/epoch", b"theirs", 0)], VersionMoved),
        ([Check("/epoch", 1), Create("/b")], [Set("/epoch", b"3", 1)], VersionMoved),
        ([Check("/epoch", 2), Set("/gone", b"1")], [Delete("/gone")], NoSuchNode),
    ):
        await other.commit(meanwhile)
        wire.outcomes = ["lost before"]
        with pytest.raises(refusal):
            await store.commit(ops)  # type: ignore[arg-type]
    assert await wire.session.get("/b") is None


async def test_what_was_changed_again_since_counts_as_not_done(autojump_clock: MockClock) -> None:
    wire, store, tree = wired()
    other = tree.connect()
    await store.commit([Create("/a", b"0")])

    class Meddling(Wire):
        async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
            await self.session.commit(ops)
            await other.commit([Set("/a", b"2", 1)])
            self.commit = super().commit  # type: ignore[method-assign]
            raise ConnectionLost("after")

    with pytest.raises(VersionMoved):
        await SteadyStore(Meddling(wire.session)).commit([Set("/a", b"1", 0)])


async def test_sequential_nodes_cannot_be_recognised(autojump_clock: MockClock) -> None:
    wire, store, _ = wired()
    wire.outcomes = ["lost after"]
    await store.commit([Create("/n_", sequential=True)])
    assert len(await store.children("/")) == 2, "a notification comes twice at worst"


async def test_refusals_of_the_first_attempt_are_just_that(autojump_clock: MockClock) -> None:
    wire, store, _ = wired()
    await store.commit([Create("/a", b"1")])
    wire.calls = 0
    with pytest.raises(NodeExists):
        await store.commit([Create("/a", b"1")])
    assert wire.calls == 1


async def test_the_end_of_the_session_ends_the_waiting(autojump_clock: MockClock) -> None:
    class Ended(Wire):
        async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
            self.calls += 1
            raise ConnectionLost("lost") if self.calls < 3 else SessionExpired("expired")

    with pytest.raises(SessionExpired):
        await SteadyStore(Ended(EmbeddedStore.open().connect())).commit([Create("/a")])
