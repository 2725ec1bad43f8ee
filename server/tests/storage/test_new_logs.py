"""New partitions are led at once, their files come later: from housekeeping, or with the first record."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.logdir.dirs.new_logs import NewLogs
from barnabas.server.runtime.offload import inline
from barnabas.server.storage.housekeeping import MADE_AT_ONCE
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.storage.two_dirs import World, two_dirs
from barnabas.server.tests.whole.faulty_disk import FaultyDisk

E = ErrorCode
T = TypeVar("T")
COUNT = 3 * MADE_AT_ONCE + 1


class Stuck:
    """An offload whose calls that make files wait until they may go on, as if the disk had other work."""

    def __init__(self) -> None:
        self.free = trio.Event()
        self.made: list[int] = []

    async def __call__(self, fn: Callable[..., T], *args: Any) -> T:
        if fn is NewLogs.make:
            self.made.append(len(args[0]))
            await self.free.wait()
        return await inline(fn, *args)


class Silent(FaultyDisk):
    """Counts the directories of partitions that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.dirs_made: list[str] = []

    def make_dir(self, path: str) -> None:
        if "-" in Path(path).name:
            self.dirs_made.append(Path(path).name)
        super().make_dir(path)


async def test_a_busy_disk_keeps_nobody_waiting(autojump_clock: MockClock, tmp_path: Path) -> None:
    stuck, disk = Stuck(), Silent()
    async with embedded_broker(tmp_path, stuck, disk=disk) as broker, connected(broker) as client:
        world = World(broker, client, disk, tmp_path, tmp_path)
        await world.topic("t", COUNT)
        assert {partition.leader_id for partition in await world.metadata("t")} == {1}
        assert disk.dirs_made == []
        assert await world.values("t", 5) == []
        assert await world.produce("t", 5, b"first") == (E.NONE, 0)
        assert disk.dirs_made == ["t-5"], "what is written to is made"
        assert await world.values("t", 5) == [b"first"]
        stuck.free.set()
        await trio.sleep(1)
        assert sorted(disk.dirs_made) == sorted(f"t-{index}" for index in range(COUNT))
        assert (sum(stuck.made), max(stuck.made)) == (COUNT, MADE_AT_ONCE), "a few at a time"
        kinds = {path.suffix for path in (tmp_path / "t-7").iterdir()}
        assert kinds == {".log", ".index", ".timeindex", ".metadata"}
        assert await world.produce("t", 5, b"second") == (E.NONE, 1)


async def test_a_stop_makes_what_is_lacking(autojump_clock: MockClock, tmp_path: Path) -> None:
    disk = Silent()
    async with embedded_broker(tmp_path, Stuck(), disk=disk) as broker, connected(broker) as client:
        await World(broker, client, disk, tmp_path, tmp_path).topic("t", 3)
        assert disk.dirs_made == []
    assert sorted(disk.dirs_made) == ["t-0", "t-1", "t-2"]
    async with embedded_broker(tmp_path, disk=disk) as broker, connected(broker) as client:
        world = World(broker, client, disk, tmp_path, tmp_path)
        assert len(disk.dirs_made) == 3
        assert await world.produce("t", 2) == (E.NONE, 0)


@pytest.mark.parametrize("written", [False, True])
async def test_killed_before_the_files_were_made(autojump_clock: MockClock, tmp_path: Path, written: bool) -> None:
    """The topic is in the metadata: its partitions are there, empty, and what was acknowledged is too."""
    stuck, disk = Stuck(), FaultyDisk()
    live, copy = tmp_path / "live", tmp_path / "copy"
    async with embedded_broker(live, stuck, disk=disk) as broker, connected(broker) as client:
        world = World(broker, client, disk, live, live)
        await world.topic("t", 3)
        if written:
            assert await world.produce("t", 1, b"kept") == (E.NONE, 0)
        shutil.copytree(live, copy)
        stuck.free.set()
    async with embedded_broker(copy, disk=disk) as broker, connected(broker) as client:
        world = World(broker, client, disk, copy, copy)
        assert [await world.values("t", index) for index in range(3)] == [[], [b"kept"] if written else [], []]
        for index in range(3):
            assert (await world.produce("t", index))[0] == E.NONE


async def test_a_lack_of_descriptors_is_made_up_for(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stuck, disk = Stuck(), Silent()
    async with embedded_broker(tmp_path, stuck, disk=disk) as broker, connected(broker) as client:
        world = World(broker, client, disk, tmp_path, tmp_path)
        await world.topic("t", 3)
        disk.break_below(tmp_path / "t-1", errno.EMFILE)
        stuck.free.set()
        await trio.sleep(0.5)
        assert sorted(path.name for path in tmp_path.glob("t-*/*.log")) == [f"{0:020d}.log"] * 2
        assert caplog.text.count("the files of 1 new logs could not be made, retrying") == 1
        assert await world.produce("t", 1) == (E.KAFKA_STORAGE_ERROR, -1)
        disk.heal()
        await trio.sleep(2)
        assert len(list(tmp_path.glob("t-*/*.log"))) == 3
        assert await world.produce("t", 1) == (E.NONE, 0)


async def test_a_disk_that_fails_under_new_partitions(autojump_clock: MockClock, tmp_path: Path) -> None:
    """They are created in the other directory, where they keep their leader; those that were used are offline."""
    disk = FaultyDisk()
    async with two_dirs(tmp_path, disk) as world:
        await world.topic("old", 2)
        used = world.in_dir(world.b, "old")
        assert await world.produce("old", used) == (E.NONE, 0)
        await trio.sleep(1)
        disk.break_below(world.b, errno.EIO)
        await world.topic("new", 6)
        await trio.sleep(1)
        assert {world.home("new", index) for index in range(6)} == {world.a}
        for index in range(6):
            assert await world.produce("new", index, b"%d" % index) == (E.NONE, 0)
        assert await world.produce("old", used) == (E.KAFKA_STORAGE_ERROR, -1)
        await world.until_told("old", used)
        disk.heal()
    async with two_dirs(tmp_path, disk) as world:
        assert [await world.values("new", index) for index in range(6)] == [[b"%d" % index] for index in range(6)]
        assert await world.values("old", used) == [b"v"]


async def test_deleted_before_its_files_were_made(autojump_clock: MockClock, tmp_path: Path) -> None:
    stuck, disk = Stuck(), Silent()
    async with embedded_broker(tmp_path, stuck, disk=disk) as broker, connected(broker) as client:
        world = World(broker, client, disk, tmp_path, tmp_path)
        await world.topic("t", 2)
        await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
        await world.topic("t", 1)
        stuck.free.set()
        await trio.sleep(1)
        assert disk.dirs_made == ["t-0"]
        assert not list(tmp_path.glob("*-delete"))
        assert await world.produce("t", 0) == (E.NONE, 0)
