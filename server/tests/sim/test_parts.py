"""What the simulated cluster stands on: virtual time, processes that stand still, the network, disks, the store."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any

import pytest
import trio

from barnabas.replication import ConnectionLost, SessionBack, SessionExpired, SessionLost
from barnabas.replication.store.store import Changed, Create, Delete
from barnabas.replication.tests.store import test_contract as contract
from barnabas.server.sim.disk import SimDisk
from barnabas.server.sim.network import Burden, Network, Stream
from barnabas.server.sim.store import SimSession, SimStore
from barnabas.server.sim.world import World


def in_world(main: Callable[[World], Awaitable[None]], seed: int = 0) -> World:
    """Run `main(world)`; its violations are failures."""
    world = World(seed)
    world.run(lambda: main(world))
    assert world.violations == []
    return world


# -- time ------------------------------------------------------------------------------------------------------------


def test_time_goes_to_what_is_due_next() -> None:
    seen: list[object] = []

    async def main(world: World) -> None:
        world.at(5.0, seen.append, "second")
        world.at(2.0, lambda: seen.append(world.now))
        world.at(5.0, seen.append, "third")
        world.at(5.5, seen.append, "never").cancel()
        await trio.sleep(6)
        seen.append(trio.current_time())

    in_world(main)
    assert seen == [2.0, "second", "third", 6.0]


def test_a_frozen_process_continues_where_it_was() -> None:
    seen: list[tuple[str, float]] = []

    async def tick(world: World, name: str) -> None:
        while True:
            await trio.sleep(1)
            seen.append((name, world.now))

    async def main(world: World) -> None:
        for name in ("one", "two"):
            world.in_domain(name, world.nursery.start_soon, tick, world, name)
        await trio.sleep(1.5)
        world.freeze("one")
        await trio.sleep(2)
        world.thaw("one")
        await trio.sleep(1.2)

    in_world(main)
    assert [now for name, now in seen if name == "two"] == [1.0, 2.0, 3.0, 4.0]
    assert [now for name, now in seen if name == "one"] == [1.0, 3.5, 4.5]


def test_a_violation_ends_the_run() -> None:
    async def main() -> None:
        world.freeze("someone")
        world.in_domain("someone", world.nursery.start_soon, trio.sleep, 1)
        world.violation("wrong")
        await trio.sleep_forever()

    world = World(0)
    world.run(main)
    assert world.violations == ["at 0.000 s: wrong"]


def test_nothing_due_is_an_error() -> None:
    with pytest.raises(trio.TrioInternalError):
        World(0).run(trio.sleep_forever)


# -- network ---------------------------------------------------------------------------------------------------------


class Two:
    """Hosts a and b; b takes connections, `ends` are its ends of them."""

    def __init__(self, world: World) -> None:
        self.network = Network(world, world.rng("network"))
        self.ends: list[trio.abc.Stream] = []
        for host in ("a", "b"):
            self.network.add(host)
        self.network.listen("b", lambda stream, peer: self.ends.append(stream))

    async def connect(self) -> tuple[Stream, trio.abc.Stream]:
        stream = await self.network.connect("a", "b")
        return stream, self.ends[-1]


async def exactly(stream: trio.abc.Stream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(3)
        assert more, "ended early"
        data += more
    return data


def test_bytes_arrive_in_order_and_take_time() -> None:
    async def main(world: World) -> None:
        one, other = await Two(world).connect()
        begin = world.now
        for number in range(10):
            await one.send_all(bytes([number]) * 5)
        assert world.now == begin, "sending does not wait"
        assert await exactly(other, 50) == b"".join(bytes([n]) * 5 for n in range(10))
        assert world.now > begin
        await other.send_all(b"back")
        assert await exactly(one, 4) == b"back"
        await one.aclose()
        assert await other.receive_some() == b""

    in_world(main)


def test_what_is_sent_over_a_cut_link_arrives_when_it_is_mended() -> None:
    async def main(world: World) -> None:
        two = Two(world)
        one, other = await two.connect()
        two.network.cut("a", "b")
        await one.send_all(b"late")
        await other.send_all(b"soon")
        assert await exactly(one, 4) == b"soon", "the other direction works"
        with trio.move_on_after(5) as limit:
            await other.receive_some()
        assert limit.cancelled_caught
        with trio.move_on_after(5) as limit:
            await two.connect()
        assert limit.cancelled_caught, "connecting waits"
        two.network.mend("a", "b")
        assert await exactly(other, 4) == b"late"

    in_world(main)


def test_no_host_listens() -> None:
    async def main(world: World) -> None:
        two = Two(world)
        with pytest.raises(OSError, match="unknown host"):
            await two.network.connect("a", "c")
        two.network.unlisten("b")
        with pytest.raises(ConnectionRefusedError):
            await two.connect()

    in_world(main)


def test_a_killed_process_resets_its_connections() -> None:
    async def main(world: World) -> None:
        two = Two(world)
        one, other = await two.connect()
        await other.send_all(b"last words")
        two.network.kill("b")
        with pytest.raises(trio.ClosedResourceError):
            await other.send_all(b"from the grave")
        assert await exactly(one, 10) == b"last words"
        with pytest.raises(trio.BrokenResourceError):
            await one.receive_some()

    in_world(main)


def test_a_machine_without_power_says_nothing() -> None:
    async def main(world: World) -> None:
        two = Two(world)
        one, _ = await two.connect()
        two.network.power_off("b")
        await one.send_all(b"hello?")
        with trio.move_on_after(60) as limit:
            await one.receive_some()
        assert limit.cancelled_caught
        two.network.power_on("b")
        await one.send_all(b"hello?")
        with pytest.raises(trio.BrokenResourceError):
            await one.receive_some()

    in_world(main)


def test_slow_links() -> None:
    async def main(world: World) -> None:
        two = Two(world)
        one, other = await two.connect()
        slow, slower = Burden((0.1, 0.1), 1000), Burden((1.0, 1.0), 2000)
        two.network.burden("a", "b", slow)
        two.network.burden("a", "b", slower)
        await one.send_all(bytes(3000))
        await exactly(other, 3000)
        assert 4.0 <= world.now < 4.1, "the worst of both"
        two.network.relieve("a", "b", slower)
        two.network.burden("b", "a", slower)
        await one.send_all(bytes(100_000))
        two.network.relieve("a", "b", slow)
        await exactly(other, 100_000)
        assert world.now < 4.2, "what is queued need not wait any longer"

    in_world(main)


def test_a_sender_waits_for_a_reader_far_away() -> None:
    async def main(world: World) -> None:
        two = Two(world)
        one, other = await two.connect()
        two.network.cut("a", "b")
        with trio.move_on_after(1) as limit:
            for _ in range(100):
                await one.send_all(bytes(10_000))
        assert limit.cancelled_caught
        two.network.mend("a", "b")
        await one.send_all(b"end")
        assert (await exactly(other, 270_003))[-3:] == b"end"

    in_world(main)


# -- disk ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [False, True])
def test_what_a_dead_process_leaves(power: bool) -> None:
    fates = set()
    for seed in range(30):
        machine = SimDisk()
        disk = machine.disk
        disk.make_dir("/data")
        disk.sync_dir("/")
        fd = disk.open("/data/file", create=True)
        disk.pwritev(fd, [b"safe"], 0)
        disk.sync(fd)
        disk.sync_dir("/data")
        disk.pwritev(fd, [b"hope"], 4)
        machine.lost_power(Random(seed)) if power else machine.killed()
        with pytest.raises(OSError, match="gone"):
            disk.pwritev(fd, [b"ghost"], 0)
        disk.close(fd)
        again = machine.disk.open("/data/file")
        content = machine.disk.pread(again, 100, 0)
        assert content[:4] == b"safe"
        fates.add(content[4:])
    assert b"hope" in fates
    assert (len(fates) > 1) == power


# -- store -----------------------------------------------------------------------------------------------------------


class SimHome:
    """The contract tests' face of the simulated store."""

    def __init__(self, world: World) -> None:
        self._store = SimStore(world, world.rng("store"))

    async def connect(self) -> SimSession:
        return self._store.connect("somebody")

    async def close(self, store: SimSession) -> None:
        await store.aclose()

    async def expire(self, store: SimSession) -> None:
        store.expire()
        await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()


def contract_tests() -> Iterator[Any]:
    """Each test of the contract with each set of its parameters."""
    for name, test in inspect.getmembers(contract, inspect.iscoroutinefunction):
        wants = set(inspect.signature(test).parameters)
        if not name.startswith("test_") or not wants & {"store", "connect", "home"}:
            continue
        sets: list[dict[str, Any]] = [{}]
        for mark in getattr(test, "pytestmark", ()):
            if mark.name == "parametrize":
                names = mark.args[0] if isinstance(mark.args[0], tuple) else (mark.args[0],)
                values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
                sets = [{**one, **dict(zip(names, value, strict=True))} for one in sets for value in values]
        for number, arguments in enumerate(sets):
            yield pytest.param(test, arguments, id=f"{name}-{number}")


@pytest.mark.parametrize(("test", "arguments"), list(contract_tests()))
def test_the_contract_of_stores(test: Callable[..., Awaitable[None]], arguments: dict[str, Any]) -> None:
    async def main(world: World) -> None:
        home = SimHome(world)
        given = dict(arguments)
        wants = inspect.signature(test).parameters
        if "home" in wants:
            given["home"] = home
        if "connect" in wants:
            given["connect"] = home.connect
        if "store" in wants:
            given["store"] = await home.connect()
        await test(**given)

    in_world(main)


def two_sessions(world: World) -> tuple[SimSession, SimSession]:
    store = SimStore(world, world.rng("store"), timeout_s=6)
    return store.connect("one"), store.connect("two")


def test_a_short_interruption_is_no_event() -> None:
    async def main(world: World) -> None:
        one, two = two_sessions(world)
        await one.commit([Create("/a"), Create("/mine", ephemeral=True)])
        async with one.changes(["/"]) as changes:
            one.interrupt()
            await two.commit([Create("/b")])
            with trio.move_on_after(4) as limit:
                await one.get("/a")
            assert limit.cancelled_caught, "reads wait"
            one.resume()
            assert await anext(changes) == Changed(frozenset({"/b"})), "and nothing is missed"
        assert await two.get("/mine") is not None
        assert await one.get("/a") is not None

    in_world(main)


def test_commits_under_way_are_in_doubt() -> None:
    """In some runs they were done, in others not; the caller cannot know."""
    done = set()

    for seed in range(30):

        async def main(world: World, seed: int = seed) -> None:
            one, two = two_sessions(world)

            async def cut() -> None:
                await trio.sleep(0.0001 * (seed + 1))
                one.interrupt()

            world.nursery.start_soon(cut)
            try:
                await one.commit([Create("/a")])
            except ConnectionLost:
                done.add(await two.get("/a") is not None)

        in_world(main, seed)
    assert done == {True, False}


def test_an_interruption_that_lasts_ends_the_session() -> None:
    async def main(world: World) -> None:
        one, two = two_sessions(world)
        await one.commit([Create("/mine", ephemeral=True)])
        async with one.changes(["/"]) as changes, two.changes(["/"]) as seen:
            one.interrupt()
            assert await anext(seen) == Changed(frozenset({"/mine"}))
            assert 5.4 <= world.now <= 8
            assert await two.get("/mine") is None
            await trio.sleep(10)
            one.resume()
            assert await anext(changes) == SessionLost()
            with pytest.raises(SessionExpired):
                await one.commit([Create("/mine", ephemeral=True)])
            assert await anext(changes) == SessionBack()
            await one.commit([Create("/mine", ephemeral=True)])

    in_world(main)


def test_a_killed_process_leaves_its_session_behind() -> None:
    async def main(world: World) -> None:
        one, two = two_sessions(world)
        await one.commit([Create("/mine", ephemeral=True)])
        one.kill()
        await one.aclose()
        await trio.sleep(5)
        assert await two.get("/mine") is not None
        await trio.sleep(4)
        assert await two.get("/mine") is None

    in_world(main)


def test_requests_of_a_session_are_done_in_their_order() -> None:
    async def main(world: World) -> None:
        one, _ = two_sessions(world)
        await one.commit([Create("/a")])
        async with trio.open_nursery() as nursery:
            for number in range(20):
                ops = [Create("/b")] if number % 2 == 0 else [Delete("/b")]
                nursery.start_soon(one.commit, ops)
                await trio.testing.wait_all_tasks_blocked()

    in_world(main)
