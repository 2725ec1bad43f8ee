"""Coordinators whose write fails: no client sees what was never written, not even in between."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.logdir import PartitionLog, StorageError
from barnabas.logdir.logs.roller import Roller
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.roles import RoleListeners
from barnabas.server.tests.coordinators.test_groups import Rig, rig
from barnabas.server.tests.coordinators.txn_rig import txn_rig

E = ErrorCode
BROKEN = (errno.EIO, errno.ENOSPC)
LACKING = (errno.EMFILE, errno.EINTR)
FAILED = [E.NOT_COORDINATOR]


def fail_next_write(log: PartitionLog, code: int) -> None:
    write = log.writer.pwritev

    def fail(*_: Any) -> int:
        log.writer.pwritev = write
        raise OSError(code, "said the test")

    log.writer.pwritev = fail


def with_offset_7(r: Rig, *, rolls: bool = False) -> None:
    """A group whose offset is 7. rolls: the segment takes one more commit."""
    r.topic()
    r.world.partitions.listen(RoleListeners(groups=r.groups))
    log = r.partition.log
    for _ in range(2):
        before = log.size
        settled = r.commit(offset=7)
        r.round()
        assert settled.answer == [E.NONE]
    if rolls:
        log.config = dataclasses.replace(log.config, segment_bytes=log.size * 2 - before + 20)


def _flushed(partition: Partition, flush: Callable[[], None]) -> None:
    error = None
    try:
        flush()
    except StorageError as caught:
        error = caught
    partition.flushed(error)


def code_of(act: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        act()
    return raised.value.code


@pytest.mark.parametrize("acks", ["-1", "1", "0"])
@pytest.mark.parametrize("code", BROKEN + LACKING)
async def test_a_commit_whose_write_fails(code: int, acks: str, tmp_path: Path) -> None:
    async with rig(tmp_path, offsets_commit_required_acks=acks) as r:
        with_offset_7(r)
        fail_next_write(r.partition.log, code)
        first, second = r.commit(offset=8), r.commit("other", 9)
        assert r.committed() == [7], "what is not written is not told"
        r.round()
        assert (first.answer, second.answer) == (FAILED, FAILED)
        if code in BROKEN:
            assert code_of(r.committed) == E.NOT_COORDINATOR
            return
        assert code_of(r.committed) == E.COORDINATOR_LOAD_IN_PROGRESS
        await trio.testing.wait_all_tasks_blocked()
        assert (r.committed(), r.committed("other")) == ([7], [])
        again = r.commit(offset=10)
        r.round()
        assert (again.answer, r.committed()) == ([E.NONE], [10])


@pytest.mark.parametrize("acks", ["-1", "1"])
@pytest.mark.parametrize("code", BROKEN + LACKING)
async def test_a_commit_that_another_ones_roll_loses(code: int, acks: str, tmp_path: Path) -> None:
    async with rig(tmp_path, offsets_commit_required_acks=acks) as r:
        with_offset_7(r, rolls=True)
        fail_next_write(r.partition.log, code)
        first = r.commit(offset=8)
        assert first.waits
        second = r.commit("other", 9)
        assert second.answer == FAILED
        assert code_of(r.committed) == E.COORDINATOR_LOAD_IN_PROGRESS, "nobody sees what is lost, nor in this round"
        assert code_of(r.commit) == E.COORDINATOR_LOAD_IN_PROGRESS
        r.round()
        assert first.answer == FAILED
        if code in BROKEN:
            assert code_of(r.committed) == E.NOT_COORDINATOR
            return
        await trio.testing.wait_all_tasks_blocked()
        assert (r.committed(), r.committed("other")) == ([7], [])


async def test_a_roll_that_fails_behind_the_write_loses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        with_offset_7(r, rolls=True)

        def failing(*_: Any) -> None:
            raise OSError(errno.EMFILE, "said the test")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Roller, "_start_segment", failing)
            first, second = r.commit(offset=8), r.commit("other", 9)
            assert second.answer == FAILED
            r.round()
        assert first.answer == [E.NONE]
        assert (r.committed(), r.committed("other")) == ([8], [])


async def test_members_whose_group_was_never_written_join_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        with_offset_7(r)
        joined = r.join(group="g")
        member_id = joined.answer.member_id
        fail_next_write(r.partition.log, errno.EINTR)
        synced = r.sync(member_id, 1)
        r.round()
        assert synced.answer.error_code == E.NOT_COORDINATOR
        await trio.testing.wait_all_tasks_blocked()
        assert r.heartbeat(member_id, 1) == E.UNKNOWN_MEMBER_ID
        assert r.committed() == [7]
        r.member()


@pytest.mark.parametrize("code", BROKEN + LACKING)
async def test_a_decision_that_is_not_written_sends_no_markers(
    code: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        r.world.partitions.listen(RoleListeners(transactions=r.transactions))
        who = await r.init()
        added = r.add(who, ("t", 0))
        r.round()
        assert r.added(added) == [E.NONE]
        fail_next_write(r.partition.log, code)
        ended = r.end(who)
        r.round()
        assert ended.answer.error_code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
        assert not r.markers
        if code in BROKEN:
            assert r.state() == "NOT_COORDINATOR"
            return
        assert r.state() == "COORDINATOR_LOAD_IN_PROGRESS"
        await trio.testing.wait_all_tasks_blocked()
        assert r.state() == "Ongoing"
        assert not r.markers
        ended = r.end(who)
        r.round()
        assert ended.answer.error_code == E.NONE
        assert r.markers == [(*who, True, 0, ("t", 0))]


async def test_a_commit_whose_flush_fails_gets_an_error_and_the_shard_continues(tmp_path: Path) -> None:
    """`flush.messages` of the offsets' topic: a commit counts when it is synced."""
    async with rig(tmp_path) as r:
        with_offset_7(r)
        partition = r.partition
        partition.log.config = dataclasses.replace(partition.log.config, flush_messages=1)
        flushes = 0

        def flush() -> None:
            nonlocal flushes
            flushes += 1
            if flushes == 1:
                raise StorageError("flushing", OSError(errno.EMFILE, "said the test"))
            PartitionLog.flush(partition.log)

        with r.world.partitions.flushing_by(lambda each: _flushed(each, flush)):
            commit = r.commit(offset=8)
            r.round()
            assert commit.answer == FAILED
            await trio.testing.wait_all_tasks_blocked()
            assert partition.held_at is not None
            partition.flush_again()
        assert (flushes, partition.held_at) == (2, None)
        await trio.testing.wait_all_tasks_blocked()
        await trio.sleep(0.01)
        assert r.committed() == [8], "it is in the log for good"
