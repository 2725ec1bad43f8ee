"""Sessions of the store of one machine: when they expire, and that they and their nodes are kept on disk."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.replication.store.journal import JOURNAL, SNAPSHOT
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.node_tree import Put, SessionOpened, Tree
from barnabas.replication.store.socket_sessions import LATE_S, TICK_S, Sessions
from barnabas.replication.store.store import Create, Delete, Node, Op, Set, StoreError
from barnabas.replication.tests.store.test_journal import MemoryFiles

# -- when ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_a_session_lasts_as_long_as_it_is_heard_and_little_longer(seed: int) -> None:
    """Against a model that counts, for each session, the time in which the store was there and heard nothing of it."""
    rng = Random(seed)
    now = 1000.0
    silent: dict[int, float] = {}  # of each session
    timeouts: dict[int, float] = {}
    known = {number: rng.randrange(500, 5000) for number in range(3)}
    sessions = Sessions(known, now)
    for number, timeout_ms in known.items():
        silent[number], timeouts[number] = 0.0, timeout_ms / 1000
    ended = set()
    for _ in range(3000):
        dice = rng.random()
        if dice < 0.02:
            number, timeout_ms = 100 + len(timeouts), rng.randrange(500, 5000)
            sessions.open(number, timeout_ms, now)
            silent[number], timeouts[number] = 0.0, timeout_ms / 1000
        elif dice < 0.2 and silent:
            number = rng.choice(list(timeouts))
            sessions.heard(number, now)
            assert (number in sessions) == (number in silent), f"seed {seed}: one that is over is not woken by a word"
            if number in silent:
                silent[number] = 0.0
        elif dice < 0.22 and silent:
            number = rng.choice(list(silent))
            sessions.end(number)
            del silent[number]
        else:
            stands_still = rng.random() < 0.02
            passed = rng.uniform(1, 100) if stands_still else rng.uniform(0.5, 1.0) * TICK_S
            now += passed
            for number in silent:
                silent[number] += TICK_S if stands_still else passed
            expired = sessions.expired(now)
            for number in expired:
                assert silent[number] >= timeouts[number] - 1e-6, f"seed {seed}: {number} too early"
                sessions.end(number)
                ended.add(number)
                del silent[number]
            for number, seconds in silent.items():
                assert seconds < timeouts[number] + 1e-6, f"seed {seed}: {number} too late"
        assert set(sessions) == set(silent)
        assert len(sessions) == len(silent)
    assert len(ended) > 5


def test_what_is_a_little_late_is_no_standing_still() -> None:
    sessions = Sessions({}, 0)
    sessions.open(1, 1000, 0)
    at = 0.0
    while not sessions.expired(at):
        at += TICK_S + LATE_S / 2
    assert at < 1.0 + TICK_S + LATE_S


# -- on disk -----------------------------------------------------------------------------------------------------------

State = tuple[dict[int, int], dict[str, tuple[bytes, int, int, int, int]]]


def state(tree: Tree) -> State:
    return dict(tree.sessions), {
        put.path: (put.data, put.version, put.czxid, put.mzxid, put.owner) for put in tree.lasting_nodes()
    }


def random_step(store: EmbeddedStore, rng: Random) -> bool:
    """Open or end a session, or commit for one. False: it was refused."""
    tree = store.tree
    if not tree.sessions or rng.random() < 0.1:
        store.begin_session(rng.getrandbits(62) + 1, rng.randrange(500, 9000))
        return True
    session = rng.choice(list(tree.sessions))
    if rng.random() < 0.1:
        mine = set(tree.owned_by(session))
        outcome = store.end_session(session)
        assert set(outcome.changed) == mine
        assert not tree.owned_by(session)
        return True
    paths = ["/", *(put.path for put in tree.lasting_nodes())]
    ops: list[Op] = []
    for _ in range(rng.choice((1, 1, 3))):
        path = rng.choice(paths)
        above = "" if path == "/" else path
        ops.append(
            rng.choice(
                [
                    Create(f"{above}/{rng.choice('abc')}", rng.randbytes(rng.choice((0, 30))), rng.random() < 0.5),
                    Set(path, rng.randbytes(5)),
                    Delete(path),
                ]
            )
        )
    try:
        store.begin(ops, session)
    except StoreError:
        return False
    return True


@pytest.mark.parametrize("seed", range(8))
async def test_a_crash_at_every_byte_keeps_sessions_and_their_nodes(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles()
    store = EmbeddedStore.open(files, keeps_sessions=True)
    history = [(len(files.files[JOURNAL]), store.tree.zxid, state(store.tree))]
    while len(history) < 40:
        if random_step(store, rng):
            await store.until_durable(store.tree.zxid)
            history.append((len(files.files[JOURNAL]), store.tree.zxid, state(store.tree)))
    whole = files.files[JOURNAL]
    for cut in range(history[0][0], len(whole) + 1):
        reopened = EmbeddedStore.open(MemoryFiles({JOURNAL: whole[:cut]}), keeps_sessions=True)
        _, zxid, expected = max((each for each in history if each[0] <= cut), key=lambda each: each[0])
        assert (reopened.tree.zxid, state(reopened.tree)) == (zxid, expected), f"seed {seed}, cut at {cut}"


@pytest.mark.parametrize("seed", range(8))
async def test_snapshots_keep_sessions_and_their_nodes(seed: int) -> None:
    rng = Random(seed)
    files = MemoryFiles()
    for _ in range(4):
        store = EmbeddedStore.open(files, keeps_sessions=True, snapshot_after_bytes=500)
        for _ in range(80):
            if random_step(store, rng) and rng.random() < 0.7:
                await store.until_durable(store.tree.zxid)
        await store.until_durable(store.tree.zxid)
        before = state(store.tree)
        reopened = EmbeddedStore.open(MemoryFiles(files.files), keeps_sessions=True)
        assert state(reopened.tree) == before, f"seed {seed}"
    assert SNAPSHOT in files.files


async def test_a_broker_alone_finds_nothing_of_the_sessions_that_were() -> None:
    files = MemoryFiles()
    store = EmbeddedStore.open(files, keeps_sessions=True)
    store.begin_session(7, 6000)
    store.begin([Create("/kept"), Create("/mine", b"x", ephemeral=True)], 7)
    await store.until_durable(store.tree.zxid)
    alone = EmbeddedStore.open(MemoryFiles(files.files))
    session = alone.connect()
    assert await session.children("/") == ["kept"]
    assert not alone.tree.sessions
    [made] = await session.commit([Create("/mine")])
    assert isinstance(made, Node)
    assert not made.ephemeral
    again = EmbeddedStore.open(MemoryFiles(files.files), keeps_sessions=True)
    assert again.tree.sessions == {7: 6000}


async def test_a_store_that_keeps_no_sessions_writes_none_down() -> None:
    files = MemoryFiles()
    store = EmbeddedStore.open(files)
    await store.connect().commit([Create("/mine", ephemeral=True)])
    assert not list(EmbeddedStore.open(MemoryFiles(files.files)).tree.lasting_nodes())


def test_ending_what_is_no_session_is_our_mistake() -> None:
    tree = Tree(keeps_sessions=True)
    tree.apply([Create("/a")], 5)
    with pytest.raises(ValueError, match="of a session that is over"):
        tree.apply([Create("/a/b"), Create("/mine", ephemeral=True)], 5)
    assert tree.children("/a") == []
    with pytest.raises(KeyError):
        tree.end_session(0)
    assert tree.get("/a") is not None
    tree.put_session(SessionOpened(3, 500))
    tree.put(Put("/a/b", b"", 0, 1, 1, 0, 1, 3))
    assert tree.end_session(3).changed == ["/a/b"]
