"""Partitions that move from one log directory to another while they are used."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import DeleteTopicsRequest
from barnabas.server.storage import dir_moves as moves
from barnabas.server.tests.storage.two_dirs import LONG_MS, World, two_dirs

E = ErrorCode
SEGMENTS = {"log_segment_bytes": "2000", "log_initial_task_delay_ms": "100"}


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two or three batches at a time, so that there is a middle of a move."""
    monkeypatch.setattr(moves, "PIECE_BYTES", 500)


def names(path: Path, topic: str = "t") -> list[str]:
    """Directories of a topic's partitions, without what makes them unique."""
    found = [each.name.partition(".") for each in path.iterdir() if each.name.startswith(f"{topic}-")]
    return sorted(name + (unique[32:] if unique else "") for name, _, unique in found)


async def filled(world: World, count: int = 40) -> list[bytes]:
    """Topic t with one partition, in `a`, and a lot in it."""
    await world.topic("t")
    assert world.home("t", 0) == world.a
    values = [b"%03d" % number + b"v" * 100 for number in range(count)]
    for value in values:
        assert (await world.produce("t", 0, value))[0] == E.NONE
    return values


async def test_a_partition_is_used_while_it_moves(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path, **SEGMENTS) as world:
        values = await filled(world)
        await world.throttle(1000)
        assert await world.move("t", 0, world.b) == E.NONE
        began = trio.current_time()
        lags = []
        while len(places := await world.places("t", 0)) > 1:
            (original, copy) = places
            assert (original, copy[0], copy[2]) == (("a", 0, False), "b", True)
            lags.append(copy[1])
            values.append(b"during")
            assert (await world.produce("t", 0, b"during"))[0] == E.NONE
            assert await world.values("t", 0) == values
            await trio.sleep(0.5)
        assert trio.current_time() - began > 2, "throttled"
        assert len(lags) > 4
        assert lags[0] > 20 > lags[-1]
        assert places == [("b", 0, False)]
        await world.until_moved("t", 0)
        assert (names(world.a), names(world.b)) == (["t-0-delete"], ["t-0"])
        assert await world.values("t", 0) == values
        epochs = world.broker.services.partitions.get("t", 0).log.epochs.latest
        await trio.sleep(70)
        assert names(world.a) == []
    async with two_dirs(tmp_path) as world:
        assert world.home("t", 0) == world.b
        assert await world.values("t", 0) == values
        assert world.broker.services.partitions.get("t", 0).log.epochs.latest == epochs
        assert (await world.produce("t", 0))[1] == len(values)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_move_goes_on_after_a_restart(tmp_path: Path, autojump_clock: MockClock, clean: bool) -> None:
    async with two_dirs(tmp_path, **SEGMENTS) as world:
        values = await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        await trio.sleep(3)
        lag = (await world.places("t", 0))[1][1]
        assert 0 < lag < 40
    assert names(tmp_path / "b") == ["t-0-future"]
    if not clean:
        for each in ("a", "b"):
            (tmp_path / each / ".kafka_cleanshutdown").unlink()
    async with two_dirs(tmp_path) as world:
        places = await world.places("t", 0)
        assert (places[1][0], places[1][2]) == ("b", True)
        assert 0 < places[1][1] <= lag, "what was copied is not copied again"
        await world.throttle(10**9)
        await world.until_moved("t", 0)
        assert world.home("t", 0) == world.b
        assert await world.values("t", 0) == values


async def test_a_move_is_called_off(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        values = await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        assert await world.move("t", 0, world.b) == E.NONE  # as it is
        assert names(world.b) == ["t-0-future"]
        assert await world.move("t", 0, world.a) == E.NONE
        assert await world.places("t", 0) == [("a", 0, False)]
        assert names(world.b) == ["t-0-delete"]
        assert await world.move("t", 0, world.a) == E.NONE  # there it is
        await world.throttle(10**9)
        assert await world.move("t", 0, world.b) == E.NONE  # and once more, from the beginning
        await world.until_moved("t", 0)
        assert await world.values("t", 0) == values


async def test_a_topic_is_deleted_while_it_moves(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        answer = await world.client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=LONG_MS), 3)
        assert answer.responses[0].error_code == E.NONE
        assert await world.places("t", 0) == []
        assert (names(world.a), names(world.b)) == (["t-0-delete"], ["t-0-delete"])
        await trio.sleep(100)
        assert (names(world.a), names(world.b)) == ([], [])


async def test_the_target_fails(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The partition stays where it is; when the disk is back, the next start goes on."""
    async with two_dirs(tmp_path) as world:
        values = await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        await trio.sleep(2)
        world.disk.break_below(world.b)
        await world.throttle(10**9)
        await trio.sleep(2)
        assert await world.places("t", 0) == [("a", 0, False)]
        assert world.broker.services.partitions.log_dirs.offline
        assert await world.values("t", 0) == values
        assert await world.move("t", 0, world.b) == E.KAFKA_STORAGE_ERROR
    async with two_dirs(tmp_path) as world:
        await world.until_moved("t", 0)
        assert world.home("t", 0) == world.b
        assert await world.values("t", 0) == values


async def test_an_interrupted_move_rests_and_goes_on(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        values = await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        await trio.sleep(2)
        world.disk.break_below(world.b, errno.EINTR)
        await world.throttle(10**9)
        await trio.sleep(20)
        assert not world.broker.services.partitions.log_dirs.offline
        world.disk.heal()
        await world.until_moved("t", 0)
        assert await world.values("t", 0) == values


async def test_a_full_target_fails_and_the_original_is_kept(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        values = await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        await trio.sleep(2)
        world.disk.break_below(world.b, errno.ENOSPC)
        await world.throttle(10**9)
        await trio.sleep(20)
        assert [each.path for each in world.broker.services.partitions.log_dirs.offline] == [str(world.b)]
        assert await world.values("t", 0) == values
        assert world.home("t", 0) == world.a


async def test_what_cannot_be_moved(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        await world.topic("t")
        assert await world.move("t", 0, tmp_path / "nowhere") == E.LOG_DIR_NOT_FOUND
        assert await world.move("t", 0, f"{world.b}/../b") == E.LOG_DIR_NOT_FOUND
        assert await world.move("x" * 240, 0, world.b) == E.INVALID_TOPIC_EXCEPTION
        # Not here yet; when it comes, it goes where it was wished.
        for index in range(4):
            assert await world.move("u", index, world.a) == E.REPLICA_NOT_AVAILABLE
        await world.topic("u", 4)
        assert {world.home("u", index) for index in range(4)} == {world.a}
        world.disk.break_below(world.b)
        await world.topic("v")  # it would have been made there
        assert await world.move("t", 0, world.b) == E.KAFKA_STORAGE_ERROR
        assert await world.move("t", 0, world.a) == E.NONE


async def test_a_copy_of_an_earlier_topic_is_not_gone_on_with(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with two_dirs(tmp_path) as world:
        await filled(world)
        await world.throttle(500)
        assert await world.move("t", 0, world.b) == E.NONE
        await trio.sleep(3)
    (copy,) = (tmp_path / "b").glob("t-0.*-future")
    kept = copy.rename(tmp_path / "away")
    async with two_dirs(tmp_path, seed=1) as world:
        answer = await world.client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=LONG_MS), 3)
        assert answer.responses[0].error_code == E.NONE
        values = await filled(world, 3)
    kept.rename(copy)
    async with two_dirs(tmp_path, seed=2) as world:
        assert await world.places("t", 0) == [("a", 0, False)]
        assert await world.values("t", 0) == values
