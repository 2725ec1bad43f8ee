"""The log cleaner under virtual time: what is compacted when, what is left of it, and what happens when it fails."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto.messages import DeleteGroupsRequest, OffsetCommitRequest, OffsetFetchRequest
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.logdir import CompactionAborted, CompactionStats, PartitionLog, StorageError
from barnabas.server.broker import broker as app
from barnabas.server.broker.broker import Broker
from barnabas.server.storage.cleaner import Cleaner, Throttle
from barnabas.server.storage.cleaner_process import CannotStart, Done, ProcessCompactor, WorkerDied
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import only, request, topic

SETTINGS = {
    "log_segment_bytes": "1000",
    "log_cleanup_policy": "compact",
    "log_cleaner_backoff_ms": "1000",
    "log_cleaner_min_cleanable_ratio": "0.01",
    "log_initial_task_delay_ms": "0",
}
FILLING = b"x" * 200


@asynccontextmanager
async def compacting(directory: Path | None = None, **settings: str) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker with the compacted topic `t`, and a client."""
    async with (
        embedded_broker(directory, **{**SETTINGS, **settings}) as broker,
        connected(broker) as client,
    ):
        await topic(broker)
        yield broker, client


async def write(broker: Broker, client: Client, key: bytes, value: bytes | None, name: str = "t") -> int:
    """One record in a batch of its own; its offset."""
    record = Record(0, broker.services.wall_ms(), key, None if value is None else value + FILLING, ())
    answer = only(await client.ask(request(build_batch([record]), topic=name), 9))
    assert answer.error_code == 0
    return int(answer.base_offset)


async def overwrite(broker: Broker, client: Client, rounds: int = 10, keys: int = 3, name: str = "t") -> None:
    for number in range(rounds * keys):
        await write(broker, client, b"k%d" % (number % keys), b"%d" % number, name)


def log_of(broker: Broker, name: str = "t") -> PartitionLog:
    return broker.services.partitions.get(name, 0).log


def content(log: PartitionLog) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of all records."""
    found = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 30, upper_offset=log.log_end_offset, min_one_batch=True)) is not None:
        data = piece.read()
        for position, header in iter_headers(data):
            offset = header.base_offset + header.last_offset_delta + 1
            for record in iter_records(data, position):
                assert record.key is not None
                value = None if record.value is None else bytes(record.value).removesuffix(FILLING)
                found.append((record.offset, bytes(record.key), value))
    return found


def checkpoint(directory: Path) -> dict[str, int]:
    lines = (directory / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
    return {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in lines}


async def test_the_last_value_of_each_key_stays_at_its_offset(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    async with compacting(tmp_path) as (broker, client):
        await overwrite(broker, client)
        log = log_of(broker)
        before = {offset: (key, value) for offset, key, value in content(log)}
        dirty = log.segment_bases[-1]
        await trio.sleep(5)
        after = content(log)
        assert all(before[offset] == (key, value) for offset, key, value in after)
        clean = [key for offset, key, _ in after if offset < dirty]
        assert sorted(clean) == [b"k0", b"k1", b"k2"]
        assert [offset for offset, _, _ in after if offset >= dirty] == list(range(dirty, 30))
        assert checkpoint(tmp_path) == {"t 0": dirty}
        assert list(tmp_path.glob("t-0/*.cleaned")) == list(tmp_path.glob("t-0/*.swap")) == []
        await trio.sleep(120)
        assert list(tmp_path.glob("t-0/*.deleted")) == []
    async with embedded_broker(tmp_path, **SETTINGS) as again:
        assert content(log_of(again)) == after


async def test_tombstones_go_after_their_time(autojump_clock: trio.abc.Clock) -> None:
    async with compacting(log_cleaner_delete_retention_ms="60000") as (broker, client):
        await overwrite(broker, client, 2)
        await write(broker, client, b"k1", None)
        await overwrite(broker, client, 2, 1)
        await write(broker, client, b"other", b"")
        log = log_of(broker)
        await trio.sleep(10)
        assert [value for _, key, value in content(log) if key == b"k1"] == [None]
        await trio.sleep(70)
        for number in range(4):  # a log that does not grow is not compacted again
            await write(broker, client, b"other", b"%d" % number)
        await trio.sleep(10)
        assert [key for _, key, _ in content(log) if key == b"k1"] == []
        assert [key for _, key, _ in content(log) if key == b"k2"] == [b"k2"]


async def test_compact_and_delete_gives_old_segments_up(autojump_clock: trio.abc.Clock) -> None:
    kept = {"log_cleanup_policy": "compact,delete", "log_retention_ms": "3600000", "log_cleaner_backoff_ms": "60000"}
    async with compacting(log_retention_check_interval_ms="1000000000", **kept) as (broker, client):
        for number in range(10):
            await write(broker, client, b"key %d" % number, b"")
        log = log_of(broker)
        await trio.sleep(600)
        assert len(content(log)) == 10
        assert log.segment_count > 1
        await trio.sleep(3700)
        assert (content(log), log.log_start_offset) == ([], 10)


async def test_the_dirtiest_goes_first_and_a_clean_one_waits(
    autojump_clock: trio.abc.Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.cleaner")
    async with compacting(log_cleaner_backoff_ms="60000", log_cleaner_min_cleanable_ratio="0.7") as (broker, client):
        for name in ("half", "dirty"):
            await topic(broker, name)
            await overwrite(broker, client, 5, 10, name=name)
        await trio.sleep(61)
        told = [record.args[0] for record in caplog.records if str(record.msg).startswith("compacted")]
        assert sorted(told) == ["dirty", "half"]
        caplog.clear()
        await overwrite(broker, client, 1, 10, name="half")
        await overwrite(broker, client, 6, 10, name="dirty")
        await overwrite(broker, client, 4, 10)
        await trio.sleep(61)
        assert [record.args[0] for record in caplog.records if str(record.msg).startswith("compacted")] == [
            "t",
            "dirty",
        ]


async def test_lags_decide_when(autojump_clock: trio.abc.Clock) -> None:
    lags = {"log_cleaner_min_compaction_lag_ms": "100000", "log_cleaner_max_compaction_lag_ms": "200000"}
    async with compacting(log_cleaner_min_cleanable_ratio="1", **lags) as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(150)
        assert len(content(log_of(broker))) == 30
        await trio.sleep(60)
        assert len(content(log_of(broker))) < 10


async def test_a_changed_policy_counts_from_the_next_look(autojump_clock: trio.abc.Clock) -> None:
    async with compacting(log_cleanup_policy="delete") as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(10)
        assert len(content(log_of(broker))) == 30
        broker.services.partitions.config_changed("t", {"cleanup.policy": "compact"})
        await trio.sleep(10)
        assert len(content(log_of(broker))) < 10


async def test_the_throttle_holds_for_all_cleaners_together(autojump_clock: trio.abc.Clock) -> None:
    throttle = Throttle(lambda: 1000.0)
    begun = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(throttle.take, 2500)
    assert trio.current_time() - begun == pytest.approx(10.0, abs=0.5)
    await trio.sleep(100)
    begun = trio.current_time()
    await throttle.take(1000)
    assert trio.current_time() - begun == pytest.approx(0.7, abs=0.05)


async def test_a_throttled_compaction_takes_its_time(autojump_clock: trio.abc.Clock) -> None:
    async with compacting(log_cleaner_io_max_bytes_per_second="100") as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(60)
        assert not await log_cleaned(broker)
        await trio.sleep(300)
        assert await log_cleaned(broker)


async def log_cleaned(broker: Broker) -> bool:
    await trio.lowlevel.checkpoint()
    return len(content(log_of(broker))) < 10 and not log_of(broker).compacting


async def test_a_log_that_cannot_be_read_is_left_out_and_said_once(
    autojump_clock: trio.abc.Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with compacting(tmp_path, log_cleaner_min_compaction_lag_ms="60000") as (broker, client):
        await topic(broker, "good")
        await overwrite(broker, client)
        await overwrite(broker, client, name="good")
        bad = sorted(tmp_path.glob("t-0/*.log"))[1]
        data = bytearray(bad.read_bytes())
        data[-5] ^= 1
        bad.write_bytes(data)
        await trio.sleep(200)
        assert len(content(log_of(broker, "good"))) < 10
        said = [record for record in caplog.records if "no more compaction" in record.getMessage()]
        assert len(said) == 1
        assert "t-0" in said[0].getMessage()
        assert list(tmp_path.glob("t-0/*.cleaned")) == []
        # The broker serves it as before.
        assert await write(broker, client, b"k", b"v") == 30


class Scripted:
    """A compactor whose fate the test decides: `act(plan, spend, put_in_place)`."""

    def __init__(self, act: Any) -> None:
        self._act = act
        self.rested = 0

    async def compact(self, disk: Any, plan: Any, limits: Any, spend: Any, put_in_place: Any) -> Done:
        await self._act(plan, spend)
        return plan.first_uncleanable_offset, CompactionStats()

    async def rest(self) -> None:
        self.rested += 1


@asynccontextmanager
async def scripted(
    act: Any, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> AsyncIterator[tuple[Broker, Client, list[Scripted]]]:
    made: list[Scripted] = []

    def make(_: object) -> Scripted:
        made.append(Scripted(act))
        return made[-1]

    monkeypatch.setattr(app, "OffloadCompactor", make)
    async with compacting(**settings) as (broker, client):
        yield broker, client, made


@pytest.mark.parametrize("what", ["deleted", "truncated"])
async def test_a_log_that_is_taken_away_is_given_up(
    what: str, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[str] = []

    async def act(plan: Any, spend: Any) -> None:
        try:
            while True:
                await spend(1)
                await trio.sleep(0.1)
        except CompactionAborted:
            outcomes.append("aborted")
            raise

    async with scripted(act, monkeypatch) as (broker, client, _):
        await overwrite(broker, client)
        log = log_of(broker)
        await trio.sleep(3)
        assert (log.compacting, outcomes) == (True, [])
        if what == "deleted":
            await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
        else:
            log.truncate_to(1, broker.services.wall_ms())
        await trio.sleep(0.2)
        assert (log.compacting, outcomes) == (False, ["aborted"])


@pytest.mark.parametrize(("error", "times"), [(WorkerDied("gone"), 3), (RuntimeError("a bug"), 1)])
async def test_what_always_fails_is_given_up(
    error: Exception, times: int, autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    async def act(plan: Any, spend: Any) -> None:
        tries.append(trio.current_time())
        raise error

    async with scripted(act, monkeypatch) as (broker, client, _):
        await overwrite(broker, client)
        await trio.sleep(60)
        assert len(tries) == times
        assert all(later - earlier >= 1 for earlier, later in pairwise(tries))
        assert not log_of(broker).compacting


async def test_a_full_disk_is_tried_again_another_failure_ends_the_directory(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [OSError(28, "full"), OSError(28, "full"), OSError(5, "broken")]
    failed: list[StorageError] = []

    async def act(plan: Any, spend: Any) -> None:
        raise errors.pop(0) if len(errors) > 1 else errors[0]

    async with scripted(act, monkeypatch) as (broker, client, _):
        (log_dir,) = broker.services.partitions.log_dirs.dirs
        monkeypatch.setattr(log_dir, "storage_failed", failed.append)
        await overwrite(broker, client)
        await trio.sleep(10)
        assert len(errors) == 1
        assert not any(error.is_full for error in failed)
        assert failed


async def test_being_short_of_something_is_no_failure_of_the_disk(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Descriptors, memory, processes: the cleaner rests and tries again, as often as it takes."""
    errors: list[Exception] = [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        OSError(errno.ENFILE, os.strerror(errno.ENFILE)),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        *[CannotStart("the process that compacts cannot be started: too many open files")] * 4,
    ]
    done: list[float] = []

    async def act(plan: Any, spend: Any) -> None:
        if errors:
            raise errors.pop(0)
        done.append(trio.current_time())
        await trio.sleep_forever()

    async with scripted(act, monkeypatch) as (broker, client, _):
        await overwrite(broker, client)
        await trio.sleep(30)
        assert done
        assert not broker.services.partitions.log_dirs.offline
    assert sum("too many open files" in record.getMessage().lower() for record in caplog.records) == 6


async def test_a_checkpoint_that_cannot_be_read_now_is_read_later(
    autojump_clock: trio.abc.Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not taken for an empty one, which would have everything compacted again."""
    async with compacting(tmp_path) as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(10)
        compacted = checkpoint(tmp_path)["t 0"]
        (log_dir,) = broker.services.partitions.log_dirs.dirs
        svc = broker.services
        cleaner = Cleaner(svc.partitions, svc.current_config, svc.wall_ms, svc.offload, lambda: pytest.fail("not run"))
        with monkeypatch.context() as patched:

            def fails(*arguments: Any) -> None:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            patched.setattr(log_dir.disk, "open", fails)
            with pytest.raises(StorageError):
                cleaner._checkpoint(log_dir)
        assert cleaner._checkpoint(log_dir).offsets == {("t", 0): compacted}


async def test_a_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a word that could be taken for one about the log's disk."""

    async def fails(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(trio.lowlevel, "open_process", fails)
    with pytest.raises(CannotStart, match="cannot be started: too many open files"):
        await ProcessCompactor()._started()


async def test_the_number_of_cleaners_follows_the_setting(
    autojump_clock: trio.abc.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once: list[int] = [0, 0]

    async def act(plan: Any, spend: Any) -> None:
        at_once[0] += 1
        at_once[1] = max(at_once)
        await trio.sleep(10)
        at_once[0] -= 1

    async with scripted(act, monkeypatch, log_cleaner_threads="2") as (broker, client, made):
        for name in ("a", "b", "c"):
            await topic(broker, name)
            await overwrite(broker, client, name=name)
        await trio.sleep(50)
        assert (len(made), at_once) == (2, [0, 2])
        broker._apply_broker_configs({"<default>": {"log.cleaner.threads": "1"}})
        at_once[1] = 0
        await trio.sleep(5)
        for name in ("a", "b"):
            await overwrite(broker, client, name=name)
        await trio.sleep(50)
        assert at_once == [0, 1]
        assert made[1].rested > 0


async def test_without_a_cleaner_nothing_is_compacted(autojump_clock: trio.abc.Clock) -> None:
    async with compacting(log_cleaner_enable="false") as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(100)
        assert len(content(log_of(broker))) == 30


async def commit(client: Client, group: str, offset: int) -> None:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    asked = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])]
    )
    answer = await client.ask(asked, 7)
    assert answer.topics[0].partitions[0].error_code == 0


async def committed(client: Client, group: str) -> int:
    asked = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    )
    answer = await client.ask(asked, 7)
    assert answer.error_code == 0
    return int(answer.topics[0].partitions[0].committed_offset)


async def test_committed_offsets_shrink_and_survive(autojump_clock: trio.abc.Clock, tmp_path: Path) -> None:
    """Commits that were overwritten, groups that were deleted, and offsets that expired leave the disk."""
    settings = {
        "offsets_topic_segment_bytes": "2000",
        "offsets_topic_num_partitions": "1",
        "offsets_retention_minutes": "10",
        "offsets_retention_check_interval_ms": "60000",
        "log_cleaner_delete_retention_ms": "60000",
        "log_cleaner_backoff_ms": "30000",
    }
    async with compacting(tmp_path, log_cleanup_policy="delete", **settings) as (broker, client):
        await broker.services.topics.auto_create(["__consumer_offsets"])
        for number in range(100):
            await commit(client, "kept", number)
            await commit(client, "deleted", number)
            await commit(client, "expired", number)
        log = log_of(broker, "__consumer_offsets")
        grown = log.size
        assert (await client.ask(DeleteGroupsRequest(groups_names=["deleted"]), 1)).results[0].error_code == 0
        for _ in range(5):
            await trio.sleep(150)
            await commit(client, "kept", 1000)
        for number in range(30):  # so that the tombstones are in closed segments
            await commit(client, "kept", 2000 + number)
        await trio.sleep(120)
        for number in range(30):
            await commit(client, "kept", 3000 + number)
        await trio.sleep(120)
        assert log.size < grown / 4
        keys = [key for offset, key, _ in content(log) if offset < log.segment_bases[-1]]
        assert not [key for key in keys if b"deleted" in key or b"expired" in key]
    async with embedded_broker(tmp_path, **{**SETTINGS, **settings}) as again, connected(again) as client:
        await trio.sleep(5)  # they are loaded
        assert await committed(client, "kept") == 3029
        assert await committed(client, "deleted") == await committed(client, "expired") == -1


async def test_a_topic_made_anew_is_dirty_from_its_start(autojump_clock: trio.abc.Clock) -> None:
    async with compacting(log_cleaner_backoff_ms="60000") as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(61)
        assert len(content(log_of(broker))) < 10
        await broker.services.topics.delete_topics(["t"], timeout_ms=1000)
        await topic(broker)
        await overwrite(broker, client, 20)
        await trio.sleep(121)
        assert len(content(log_of(broker))) < 10


async def test_a_log_that_moved_is_as_clean_as_before(
    autojump_clock: trio.abc.Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.cleaner")
    places = [tmp_path / "one", tmp_path / "two"]
    async with compacting(log_dirs=f"{places[0]},{places[1]}") as (broker, client):
        await overwrite(broker, client)
        await trio.sleep(5)
        partition = broker.services.partitions.get("t", 0)
        dirs = broker.services.partitions.log_dirs
        home = dirs.home("t", 0)
        assert home is not None
        (target,) = [each for each in dirs.online if each is not home]
        known = checkpoint(Path(home.path))["t 0"]
        before = content(partition.log)
        compacted = len(caplog.records)
        broker.services.partitions.move(partition, target)
        await trio.sleep(5)
        assert dirs.home("t", 0) is target
        assert content(partition.log) == before
        assert len(caplog.records) == compacted
        await overwrite(broker, client)
        await trio.sleep(5)
        assert len(content(partition.log)) < 10
        assert "t 0" not in checkpoint(Path(home.path))
        assert checkpoint(Path(target.path))["t 0"] > known
