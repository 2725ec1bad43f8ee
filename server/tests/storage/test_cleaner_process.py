"""The process that compacts: it gives what compacting in this process gives, and ends in every way it should."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import KafkaError, compiled
from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import (
    AppendOrigin,
    CleanedSegment,
    CompactionAborted,
    CompactionLimits,
    LogConfig,
    LogDir,
    PartitionLog,
)
from barnabas.server.runtime.offload import inline
from barnabas.server.storage import cleaner_process
from barnabas.server.storage.cleaner_process import OffloadCompactor, ProcessCompactor, WorkerDied

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
NOW_MS = 1_750_000_000_000
LIMITS = CompactionLimits(4 << 20, 0.9, 65536)
CONFIG = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20, file_delete_delay_ms=0)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a process ended is known once the machine has had time for its end."""
    monkeypatch.setattr(cleaner_process, "END_S", 60.0)


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[LogDir]:
    """With the log of t-0: four mebibytes, of which a hundredth is worth keeping."""
    made = LogDir(str(tmp_path), wall_ms=lambda: NOW_MS)
    made.open()
    fill(made)
    yield made
    made.close()


def fill(log_dir: LogDir) -> PartitionLog:
    log = log_dir.open_or_create("t", 0, b"t" * 16, CONFIG)
    for number in range(400):
        records = [Record(at, NOW_MS, b"%d" % (at + number % 4), bytes(1000), ()) for at in range(10)]
        log.append(bytearray(build_batch(records)), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    log.write()
    log.flush()
    return log


class Run:
    """One compaction of t-0 with everything noted. `act(bytes)` is called for what is spent."""

    def __init__(self, log_dir: LogDir, act: Any = None) -> None:
        self.log_dir = log_dir
        self.log = log_dir.logs["t", 0]
        self.act = act
        self.spent: list[int] = []
        state = self.log.compaction_state(None, NOW_MS, self.log.log_end_offset)
        self.plan = self.log.begin_compaction(state, NOW_MS)

    async def through(self, compactor: Any) -> Any:
        try:
            return await compactor.compact(self.log_dir.disk, self.plan, LIMITS, self.spend, self.put_in_place)
        finally:
            self.log.end_compaction(self.plan)

    async def spend(self, size: int) -> None:
        self.spent.append(size)
        if self.act is not None:
            await self.act(size)

    async def put_in_place(self, cleaned: CleanedSegment) -> None:
        self.log.swap_in(self.plan, cleaned, NOW_MS)


def files(log_dir: LogDir) -> dict[str, bytes]:
    found = sorted(Path(log_dir.path, "t-0").iterdir())
    return {path.name: path.read_bytes() for path in found if not path.name.endswith(".deleted")}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_both_give_the_same(log_dir: LogDir, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = LogDir(str(tmp_path_factory.mktemp("other")), wall_ms=lambda: NOW_MS)
    other.open()
    fill(other)
    before = sum(map(len, files(log_dir).values()))
    compactor = ProcessCompactor()
    run = Run(log_dir)
    end, stats = await run.through(compactor)
    pid = compactor.pid
    assert pid is not None
    links = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    assert not [link for link in links if "socket" in link or str(log_dir.path) in link], links
    await compactor.rest()
    assert not alive(pid)
    again = Run(other)
    assert await again.through(OffloadCompactor(inline)) == (end, stats)
    assert files(log_dir) == files(other)
    assert sum(map(len, files(log_dir).values())) < before / 2
    assert len(run.spent) > 3
    assert sum(run.spent) <= sum(again.spent)
    assert end == run.plan.first_uncleanable_offset
    other.close()


@pytest.mark.parametrize("pure", ["", "1"])
async def test_it_chooses_between_twins_as_the_broker_does(
    pure: str, log_dir: LogDir, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(compiled.PURE, pure)
    compactor = ProcessCompactor()
    with caplog.at_level(logging.DEBUG, "barnabas.cleaner"):
        await Run(log_dir).through(compactor)
        await Run(log_dir).through(compactor)
    pid = compactor.pid
    await compactor.rest()
    _, choice = compiled.choose(pure, lambda: importlib.import_module("barnabas_native"))
    what = f"with barnabas-native {choice.version}" if choice.version else f"in Python ({choice.why_not})"
    assert [record.getMessage() for record in caplog.records] == [f"the process that compacts (pid {pid}) runs {what}"]
    assert bool(choice.version) == (not pure and importlib.util.find_spec("barnabas_native") is not None)


async def test_a_process_that_is_killed_is_noticed_and_replaced(log_dir: LogDir) -> None:
    compactor = ProcessCompactor()

    async def kill(size: int) -> None:
        assert compactor.pid is not None
        os.kill(compactor.pid, signal.SIGKILL)

    before = files(log_dir)
    with pytest.raises(WorkerDied, match="signal 9"):
        await Run(log_dir, kill).through(compactor)
    assert files(log_dir) == before
    await Run(log_dir).through(compactor)
    assert files(log_dir) != before
    await compactor.rest()


async def test_giving_up_cancelling_and_bad_records(log_dir: LogDir) -> None:
    compactor = ProcessCompactor()
    before = files(log_dir)

    async def give_up(size: int) -> None:
        raise CompactionAborted("enough")

    with pytest.raises(CompactionAborted):
        await Run(log_dir, give_up).through(compactor)
    assert files(log_dir) == before
    pid = compactor.pid
    assert pid is not None
    assert alive(pid)

    async def cancel(size: int) -> None:
        scope.cancel()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        await Run(log_dir, cancel).through(compactor)
    assert scope.cancelled_caught
    assert not alive(pid)
    assert files(log_dir) == before

    bad = sorted(Path(log_dir.path, "t-0").glob("*.log"))[1]
    data = bytearray(bad.read_bytes())
    data[-5] ^= 1
    bad.write_bytes(data)
    with pytest.raises(KafkaError, match="checksum"):
        await Run(log_dir).through(compactor)
    await compactor.rest()


PARENT = """
import sys, trio
sys.path.insert(0, {root!r})
from barnabas.logdir import LogConfig, LogDir
from barnabas.server.tests.storage.test_cleaner_process import Run, fill
from barnabas.server.storage.cleaner_process import ProcessCompactor

log_dir = LogDir({path!r}, wall_ms=lambda: 0)
log_dir.open()
fill(log_dir)
compactor = ProcessCompactor()

async def hold(size):
    print(compactor.pid, flush=True)
    await trio.sleep_forever()

trio.run(Run(log_dir, hold).through, compactor)
"""


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    program = PARENT.format(root=str(ROOT), path=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)
