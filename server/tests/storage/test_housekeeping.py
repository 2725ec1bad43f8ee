"""What time asks for, under virtual time: retention, checkpoints, flushes, forgotten producers, removed files."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import Checkpoint, Checkpoints, Disk, PartitionLog, StorageError
from barnabas.server.storage.housekeeping import Housekeeping
from barnabas.server.storage.retention import AT_ONCE, retain
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import Session, fetch, flat
from barnabas.server.tests.apis.records.test_produce import NOW_MS, batch, only, request, topic

HOUR = 3600.0


async def test_old_segments_go_by_time_and_their_files_later(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path, log_retention_ms="7200000", log_segment_bytes="1000") as broker:
        await topic(broker)
        async with connected(broker) as client:
            for _ in range(5):
                await client.ask(request(batch(b"x" * 600)), 9)
            assert len(list(tmp_path.glob("t-0/*.log"))) == 5
            await trio.sleep(1.5 * HOUR)
            await client.ask(request(build_batch([Record(0, broker.services.wall_ms(), None, b"n" * 600, ())])), 9)
            await trio.sleep(1 * HOUR)
            data = flat(await client.ask(fetch(("t", 0, 0)), 12))[0]
            assert (data.error_code, data.log_start_offset) == (1, -1)
            data = flat(await client.ask(fetch(("t", 0, 5)), 12))[0]
            assert (data.error_code, data.log_start_offset, len(data.records) > 0) == (0, 5, True)
            await trio.sleep(120)
            assert [path.name for path in tmp_path.glob("t-0/*.log*")] == [f"{5:020}.log"]


async def test_delete_records_survives_a_crash_through_the_checkpoint(
    autojump_clock: trio.abc.Clock, tmp_path: Path
) -> None:
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        await topic(broker)
        await client.ask(request(batch(b"a", b"b", b"c")), 9)
        broker.services.partitions.get("t", 0).log.delete_records(2, 3)
        await trio.sleep(120)
        assert (tmp_path / "log-start-offset-checkpoint").read_text().split("\n")[2] == "t 0 2"


async def test_checkpoints_are_written_in_time(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path, log_initial_task_delay_ms="0") as broker, connected(broker) as client:
        await topic(broker)
        await client.ask(request(batch(b"a", b"b")), 9)
        await trio.sleep(6)
        assert "t 0 2" in (tmp_path / "replication-offset-checkpoint").read_text()
        broker.services.partitions.get("t", 0).log.flush()
        await trio.sleep(61)
        assert "t 0 2" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


async def test_a_topic_made_anew_gets_its_own_log_start(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """The checkpoint was rewritten when it was made; the same numbers as before must be written again all the same."""
    async with embedded_broker(tmp_path, log_initial_task_delay_ms="0") as broker, connected(broker) as client:
        for _ in range(2):
            await topic(broker)
            await client.ask(request(batch(b"a", b"b", b"c")), 9)
            broker.services.partitions.get("t", 0).log.delete_records(2, 3)
            await trio.sleep(61)
            assert "t 0 2" in (tmp_path / "log-start-offset-checkpoint").read_text()
            await broker.services.topics.delete_topics(["t"], timeout_ms=1000)


async def test_a_rolled_segment_is_flushed(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path, log_segment_bytes="1000") as broker, connected(broker) as client:
        await topic(broker)
        log = broker.services.partitions.get("t", 0).log
        await client.ask(request(batch(b"x" * 600)), 9)
        assert log.recovery_point == 0
        await client.ask(request(batch(b"x" * 600)), 9)
        await trio.sleep(0.1)
        assert log.recovery_point >= 1
        # Long before the next round of checkpoints.
        assert f"t 0 {log.recovery_point}" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


async def test_flush_ms(autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[float] = []
    original = PartitionLog.flush

    def flush(self: PartitionLog) -> None:
        flushed.append(trio.current_time())
        original(self)

    monkeypatch.setattr(PartitionLog, "flush", flush)
    async with embedded_broker(log_flush_interval_ms="5000", log_initial_task_delay_ms="0") as broker:
        await topic(broker)
        async with connected(broker) as client:
            await trio.sleep(6)
            flushed.clear()
            written = trio.current_time()
            await client.ask(request(batch(b"a")), 9)
            await trio.sleep(20)
            assert len(flushed) == 1
            assert flushed[0] - written <= 10.1
            assert broker.services.partitions.get("t", 0).log.recovery_point == 1


async def test_silent_producers_are_forgotten(autojump_clock: trio.abc.Clock) -> None:
    def numbered(sequence: int) -> bytes:
        return build_batch([Record(0, NOW_MS, None, b"x", ())], producer_id=7, producer_epoch=0, base_sequence=sequence)

    async with embedded_broker(producer_id_expiration_ms=str(3_600_000)) as broker, connected(broker) as client:
        await topic(broker)
        assert only(await client.ask(request(numbered(0)), 9)).error_code == 0
        assert only(await client.ask(request(numbered(5)), 9)).error_code == 45
        await trio.sleep(1.3 * HOUR)
        # Nothing is known of it any more, so any sequence is taken.
        assert only(await client.ask(request(numbered(5)), 9)).error_code == 0


async def test_a_deleted_topic_leaves_the_disk(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as broker:
        await topic(broker)
        assert (tmp_path / "t-0").is_dir()
        await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
        assert not (tmp_path / "t-0").exists()
        assert len(list(tmp_path.glob("t-0.*-delete"))) == 1
        await trio.sleep(70)
        assert list(tmp_path.glob("t-0*")) == []


async def test_partitions_that_are_deleted_while_retention_goes_over_all(
    autojump_clock: trio.abc.Clock, tmp_path: Path
) -> None:
    """Between two partitions others work: what is deleted then is no failure of the disk."""
    async with embedded_broker(tmp_path, log_retention_ms="1000") as broker, connected(broker) as client:
        for name in ("gone", "stays"):
            await topic(broker, name)
            assert only(await client.ask(request(batch(b"a"), topic=name), 9)).error_code == 0
        chosen = list(broker.services.partitions)
        await broker.services.topics.delete_topics(["gone"], timeout_ms=1000)
        for partition in chosen:
            await retain(partition, broker.services.wall_ms() + 10_000)
            with suppress(StorageError):
                partition.log.roll(broker.services.wall_ms())
        assert only(await client.ask(request(batch(b"b"), topic="stays"), 9)).error_code == 0
        data = flat(await client.ask(fetch(("stays", 0, 1)), 12))[0]
        assert (data.error_code, data.log_start_offset) == (0, 1)


@pytest.mark.parametrize("what", ["retain", "expire_producers"])
async def test_trouble_with_one_log_is_not_the_others(
    what: str, monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], autojump_clock: trio.abc.Clock
) -> None:
    """Every time that it comes; those behind it have their turn in the same round."""
    async with embedded_broker() as broker:
        for name in ("bad", "good"):
            await topic(broker, name)
        bad, good = (broker.services.partitions.get(name, 0).log for name in ("bad", "good"))
        calls: list[PartitionLog] = []
        does = getattr(PartitionLog, what)

        def noted(self: PartitionLog, *args: object) -> object:
            calls.append(self)
            if self is bad:
                raise ValueError("by the test")
            return does(self, *args)

        monkeypatch.setattr(PartitionLog, what, noted)
        await trio.sleep(1 * HOUR)
        assert len(calls) > 4
        assert calls.count(bad) == calls.count(good) == len(trouble)
        assert {calls.index(bad), calls.index(good)} == {0, 1}


async def test_trouble_in_one_duty_is_not_the_others(
    monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], autojump_clock: trio.abc.Clock
) -> None:
    """They go on as they are, and are not begun again with it."""
    rounds = 0

    async def fails(self: Housekeeping) -> None:
        raise ValueError("by the test")

    async def counts(self: Housekeeping) -> None:
        nonlocal rounds
        rounds += 1

    monkeypatch.setattr(Housekeeping, "retain", fails)
    monkeypatch.setattr(Housekeeping, "checkpoint_high_watermarks", counts)
    async with embedded_broker(log_initial_task_delay_ms="30000", log_retention_check_interval_ms="1000"):
        await trio.sleep(130)
        assert 19 <= rounds <= 21, "one in 5 s"
        assert 90 <= len(trouble) <= 101


async def test_unused_fetch_sessions_are_closed(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await topic(broker)
        sessions = broker.services.fetch_sessions
        left = Session(client)
        await left.ask(("t", 0, 0), max_wait_ms=0)
        used = Session(client)
        await used.ask(("t", 0, 0), max_wait_ms=0)
        assert len(sessions) == 2
        for _ in range(4):
            await trio.sleep(50)
            await used.ask(max_wait_ms=0)
        assert len(sessions) == 1
        assert sessions.size == 1


class Steps(trio.abc.Instrument):
    """The most of something that one step of a task does; `count` is for who does it."""

    def __init__(self) -> None:
        self.count = 0
        self.most = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, self.count)
        self.count = 0


async def test_many_old_segments_go_a_few_at_a_time(
    autojump_clock: trio.abc.Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each has files to be renamed: a thousand at once would keep everybody else waiting."""
    caplog.set_level(logging.INFO, "barnabas.housekeeping")
    disk, steps = RenamesCounted(), Steps()
    async with embedded_broker(tmp_path, disk=disk, log_segment_bytes="1000") as broker, connected(broker) as client:
        await topic(broker)
        for _ in range(5 * AT_ONCE):
            await client.ask(request(batch(b"x" * 600)), 9)
        partition = broker.services.partitions.get("t", 0)
        assert partition.log.segment_count == 5 * AT_ONCE
        partition.log.config = replace(partition.log.config, retention_bytes=1000)
        disk.on_deleted = lambda: setattr(steps, "count", steps.count + 1)
        trio.lowlevel.add_instrument(steps)
        await retain(partition, NOW_MS)
        trio.lowlevel.remove_instrument(steps)
        assert partition.log.segment_count == 2
        assert steps.most == AT_ONCE
        assert f"retention removed {5 * AT_ONCE - 2} segments" in caplog.text


class RenamesCounted(Disk):
    def __init__(self) -> None:
        self.on_deleted: Callable[[], None] | None = None

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        Disk.rename(source, target)
        if target.endswith(".log.deleted") and self.on_deleted is not None:
            self.on_deleted()


async def test_high_watermarks_at_rest_are_looked_at_only(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ten thousand partitions, of which nobody wants anything: nothing is put together, nothing written."""
    asked: list[int] = []
    high_watermarks = Checkpoints.high_watermarks

    def counted(self: Checkpoints, offsets: Mapping[tuple[str, int], int]) -> Checkpoint:
        asked.append(len(offsets))
        return high_watermarks(self, offsets)

    monkeypatch.setattr(Checkpoints, "high_watermarks", counted)
    path = tmp_path / "replication-offset-checkpoint"
    async with embedded_broker(tmp_path, log_initial_task_delay_ms="0") as broker, connected(broker) as client:
        for name in ("t", "u", "v"):
            await topic(broker, name)
        await trio.sleep(60)
        assert sum(asked) == 3, "each once"
        asked.clear()
        await client.ask(request(batch(b"a", b"b"), topic="u"), 9)
        await trio.sleep(60)
        assert asked == [1], "only what has moved"
        assert "u 0 2" in path.read_text()
        await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
        await trio.sleep(60)
        assert "t 0" not in path.read_text()
        asked.clear()
        await trio.sleep(60)
        assert asked == []
        await topic(broker, "t")
        fails = StorageError("writing", OSError(errno.EMFILE, "said the test"))
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "write", raises(fails))
            await trio.sleep(12)
        await trio.sleep(12)
        assert "t 0 0" in path.read_text(), "what could not be written is tried again"


def raises(error: Exception) -> Callable[..., None]:
    def call(*_: object) -> None:
        raise error

    return call
