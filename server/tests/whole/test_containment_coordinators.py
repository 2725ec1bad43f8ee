"""Groups and transactional ids do not share each other's trouble: what a machine, a token or a helper raises for one of
them is that one's alone. Under virtual time, each place made to fail.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinator import GroupShard, Record, Reply, Result
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.store import GroupStore
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.time_outs import TimeOuts
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import AddPartitionsToTxnRequest
from barnabas.server.coordinators.loader import LOAD_RETRY_S
from barnabas.server.coordinators.pattern_resolver import ToResolve
from barnabas.server.tests.coordinators.test_groups import Rig, Token, rig
from barnabas.server.tests.coordinators.test_verification import T0, VERIFY
from barnabas.server.tests.coordinators.test_verification import Rig as VerificationRig
from barnabas.server.tests.coordinators.txn_rig import txn_rig

E = ErrorCode


class Failing(Token):
    """The token of the client that the trouble is about."""

    def __init__(self) -> None:
        super().__init__()
        self.is_released = False

    def reply(self, response: Any) -> None:
        raise ValueError("by the test")

    def release_waiters(self) -> str:
        self.is_released = True
        return "the client in trouble"


async def virtual(seconds: float) -> None:
    await trio.sleep(seconds)
    await trio.testing.wait_all_tasks_blocked()


# -- deadlines ---------------------------------------------------------------------------------------------------------


def fails_for(monkeypatch: pytest.MonkeyPatch, *group_ids: str) -> set[str]:
    """Every step of these groups that is due fails, until they are taken out."""
    troubled = set(group_ids)
    expire = ClassicGroup.expire

    def raises(self: ClassicGroup, *args: Any) -> None:
        if self.group_id in troubled:
            raise ValueError("by the test")
        expire(self, *args)

    monkeypatch.setattr(ClassicGroup, "expire", raises)
    return troubled


async def test_a_step_that_fails_every_time(
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The members of the group that is in trouble come again; another group's dead member is noticed in time."""
    async with rig(tmp_path, group_initial_rebalance_delay_ms="3000") as r:
        troubled = fails_for(monkeypatch, "bad")
        r.topic()
        stuck, other = r.join(group="bad"), r.join(group="good")
        await virtual(3.1)
        assert stuck.answer.error_code == E.NOT_COORDINATOR
        assert other.answer.error_code == E.NONE
        (record,) = trouble
        assert "__consumer_offsets-0: what is due for ('bad', " in record.getMessage()
        await virtual(300)  # it is tried every minute, and not told again; its member's session ends as well
        assert len(trouble) == 2
        assert r.groups.describe("good", 5).group_state == "Empty"
        troubled.clear()
        again = r.join(group="bad")
        await virtual(70)
        assert again.answer.error_code == E.NONE
        assert len(trouble) == 2


async def test_a_transaction_whose_end_fails(
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with txn_rig(tmp_path) as r:
        time_out = TimeOuts.time_out

        def raises(self: TimeOuts, entry: Any, *args: Any) -> Any:
            if entry.transactional_id == "bad":
                raise ValueError("by the test")
            return time_out(self, entry, *args)

        monkeypatch.setattr(TimeOuts, "time_out", raises)
        r.topic()
        for name in ("bad", "good"):
            added = r.add(await r.init(name), T0, name=name)
            r.round()
            assert r.added(added) == [E.NONE]
        await virtual(500)
        assert r.state("good") == "CompleteAbort"
        assert r.state("bad") == "Ongoing"
        assert len(trouble) == 1


async def test_a_machine_that_does_not_get_on(
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its deadline stays in the past: it is asked once a second, and the loop is free meanwhile."""
    calls = []

    def raises(self: GroupShard, now: Any) -> Result:
        calls.append(now.seconds)
        raise ValueError("by the test")

    async with rig(tmp_path) as r:
        r.topic()
        r.member()
        monkeypatch.setattr(GroupShard, "expire", raises)
        await virtual(20)
    assert 5 <= len(calls) <= 12


# -- answers, and what follows from writes -----------------------------------------------------------------------------


UNKNOWN = Record(b"\x7f\0", b"")
"""A record that no group reads anything out of."""


def fails(*_: Any) -> Any:
    raise ValueError("by the test")


def write(r: Rig, first: Token, second: Token, **result: Any) -> None:
    """Two results of one partition; what the first one's machine says of a failure fails."""
    (led,) = r.groups.runtime.shards.values()
    r.groups.runtime.results.apply(led, Result((UNKNOWN,), held=(Reply(first, "done"),), **result))
    r.groups.runtime.results.apply(led, Result((UNKNOWN,), held=(Reply(second, "done"),), failed=refused(second)))
    r.round()


def refused(token: Token) -> Any:
    return lambda code, appended, now: Result(replies=(Reply(token, code),))


@pytest.mark.parametrize("place", ["committed", "not in time", "leadership lost", "too few replicas"])
async def test_held_answers(
    place: str, trouble: list[logging.LogRecord], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        if place != "committed":
            r.isr(0, 1, 2)
        first, second = Failing(), Token()
        write(r, first, second, failed=fails)
        expected: object = "done"
        if place == "not in time":
            await virtual(6)
            expected = E.REQUEST_TIMED_OUT
        elif place == "leadership lost":
            r.groups.resign(0)
            expected = E.NOT_LEADER_OR_FOLLOWER
        elif place == "too few replicas":
            (led,) = r.groups.runtime.shards.values()
            r.partition.high_watermark = r.partition.log_end_offset
            r.groups.runtime.results.committed(led, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            expected = E.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert first.is_released
        assert second.answer == expected
        assert len(trouble) == 1


async def test_what_follows_from_a_write(trouble: list[logging.LogRecord], tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        (led,) = r.groups.runtime.shards.values()
        token = Token()
        r.groups.runtime.results.later(led, fails)
        r.groups.runtime.results.later(led, lambda now: Result(replies=(Reply(token, "done"),)))
        r.round()
        assert token.answer == "done"
        assert len(trouble) == 1


async def test_resigning(monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], tmp_path: Path) -> None:
    """The answer of one waiting client fails, and no other's."""
    async with rig(tmp_path, group_initial_rebalance_delay_ms="3000") as r:
        r.topic()
        first = Failing()
        r.join(group="first").reply = first.reply  # type: ignore[method-assign]
        second = r.join(group="second")
        r.groups.resign(0)
        assert second.answer.error_code == E.NOT_COORDINATOR
        assert len(trouble) == 1
        r.groups.lead(r.partition)
        monkeypatch.setattr(GroupShard, "unload", fails)
        r.groups.resign(0)  # nor does the machine's own end
        assert len(trouble) == 2
        with pytest.raises(KafkaError):
            r.commit()


async def test_records_that_cannot_be_replayed(
    monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], tmp_path: Path
) -> None:
    """What is in the log counts: the shard is loaded again, without them, and its groups are served."""
    async with rig(tmp_path) as r:
        r.topic()
        before = r.commit("good")
        r.round()
        assert before.answer == [E.NONE]
        replay, replay_commit = GroupStore._replay_offset, GroupStore._replay_commit

        def raises(self: GroupStore, record: Any, *args: Any) -> None:
            if record.group_id == "bad":
                raise ValueError("by the test")
            replay(self, record, *args)

        def raises_at_once(self: GroupStore, commit: Any, *args: Any) -> None:
            if commit.layout.group_id == "bad":
                raise ValueError("by the test")
            replay_commit(self, commit, *args)

        monkeypatch.setattr(GroupStore, "_replay_offset", raises)
        monkeypatch.setattr(GroupStore, "_replay_commit", raises_at_once)
        token = r.commit("bad")
        r.round()
        assert token.answer == [E.NOT_COORDINATOR]
        await trio.testing.wait_all_tasks_blocked()
        assert [record.getMessage() for record in trouble] == [
            "replaying what is being written to __consumer_offsets-0 failed",
            "replaying record 1 of __consumer_offsets, which is skipped, failed",
        ]
        assert r.committed("good") == [1]
        after = r.commit("good", 2)
        r.round()
        assert after.answer == [E.NONE]


# -- tasks -------------------------------------------------------------------------------------------------------------


async def test_a_partition_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with rig(tmp_path) as r:
        r.topic(3)
        for name in "abcdefgh":
            r.commit(name)
        r.round()
        for index in list(r.groups.runtime.shards):
            r.groups.resign(index)
        loaded = GroupShard.loaded
        tries = []

        def raises(self: GroupShard, now: Any) -> Result:
            tries.append(self)
            if len(tries) == 1:
                raise ValueError("by the test")
            return loaded(self, now)

        monkeypatch.setattr(GroupShard, "loaded", raises)
        for partition in r.world.partitions:
            r.groups.lead(partition)
        await trio.testing.wait_all_tasks_blocked()
        assert len(trouble) == 1
        assert len(tries) == 3
        await virtual(LOAD_RETRY_S)
        assert all(r.groups.is_loaded(index) for index in range(3))
        assert r.committed("a") == [1]


async def test_a_group_that_cannot_be_brought_back(
    monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], tmp_path: Path
) -> None:
    """Its members get no NOT_COORDINATOR either: those of its partition's other groups do."""
    async with rig(tmp_path) as r:
        r.topic()
        r.commit("bad")
        r.commit("good")
        r.round()
        restore, unload = ClassicGroup.restore, ClassicGroup.unload

        def raises(self: ClassicGroup, *args: Any, then: Any) -> None:
            if self.group_id == "bad":
                raise ValueError("by the test")
            then(self, *args)

        monkeypatch.setattr(ClassicGroup, "restore", lambda *args: raises(*args, then=restore))
        monkeypatch.setattr(ClassicGroup, "unload", lambda *args: raises(*args, then=unload))
        r.groups.resign(0)
        r.groups.lead(r.partition)
        await trio.testing.wait_all_tasks_blocked()
        assert r.committed("bad") == r.committed("good") == [1]
        stuck, other = r.join(group="bad"), r.join(group="good")
        assert stuck.answer.error_code == other.answer.error_code == E.NONE
        r.join(group="bad", member_id=stuck.answer.member_id)
        assert len(trouble) == 2


async def test_a_transaction_that_cannot_be_brought_back(
    monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], tmp_path: Path
) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        for name in ("bad", "good"):
            await r.init(name)
        follow_up = Changes.follow_up

        def raises(self: Changes, entry: Any, *args: Any) -> None:
            if entry.transactional_id == "bad":
                raise ValueError("by the test")
            follow_up(self, entry, *args)

        monkeypatch.setattr(Changes, "follow_up", raises)
        await r.restart()
        assert len(trouble) == 1
        assert (await r.init("good"))[1] == 1


async def test_expressions(monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        (led,) = r.groups.runtime.shards.values()
        seen: list[str] = []

        async def resolve(wanted: ToResolve) -> None:
            seen.append(wanted.effect.group_id)
            await trio.lowlevel.checkpoint()
            if len(seen) == 1:
                raise ValueError("by the test")

        monkeypatch.setattr(r.groups._patterns, "_resolve", resolve)
        for name in ("first", "second"):
            r.groups._patterns.add(ToResolve(led, led.shard, SimpleNamespace(group_id=name)))  # type: ignore[arg-type]
        await trio.testing.wait_all_tasks_blocked()
        assert seen == ["first", "second"]
        assert len(trouble) == 1


async def test_the_topic_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with rig(tmp_path) as r:
        r.create_error = ValueError("by the test")  # type: ignore[assignment]
        r.groups.want_topic()
        await virtual(0.1)
        r.create_error = None
        await virtual(2)
        assert len(r.created) == 2
        assert len(trouble) == 1
        r.commit()


@pytest.mark.parametrize("given", ["no id", "an id"])
async def test_a_producer_id(given: str, trouble: list[logging.LogRecord], tmp_path: Path) -> None:
    """Fetching it fails, or what the machine does with it: that client is refused, the next one gets its id."""
    async with txn_rig(tmp_path) as r:
        r.topic()
        if given == "no id":
            r.producer_ids.failure = ValueError("by the test")  # type: ignore[assignment]
        else:
            r.producer_ids.next = 1 << 70  # which no record can hold
        first = r.ask_init("first")
        await r.settle()
        assert first.answer.error_code == E.UNKNOWN_SERVER_ERROR
        assert len(trouble) == 1
        r.producer_ids.failure = None
        r.producer_ids.next = 4000
        assert await r.init("second") == (4000, 0)


# -- brokers among each other ------------------------------------------------------------------------------------------


async def test_markers_that_this_broker_cannot_write(
    trouble: list[logging.LogRecord], tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        write_markers, calls = r._write_markers, []

        def raises(request: Any, token: Any) -> None:
            calls.append(request)
            if len(calls) == 1:
                raise ValueError("by the test")
            write_markers(request, token)

        r.transactions._write_markers = raises
        r.topic()
        who = await r.ongoing(T0)
        ended = r.end(who)
        r.round()
        assert ended.answer.error_code == E.NONE
        await virtual(60)
        assert len(r.markers) == 1
        assert len(trouble) == 1


async def test_a_coordinator_that_fails_during_a_verification(trouble: list[logging.LogRecord]) -> None:
    """The partition's client gets an error; the next verification is made."""
    r = VerificationRig()
    told: list[Any] = []
    add, calls = r.add_partitions, []

    def raises(request: AddPartitionsToTxnRequest, version: int, token: Any) -> None:
        calls.append(request)
        if len(calls) == 1:
            raise ValueError("by the test")
        add(request, version, token)

    r.add_partitions = raises  # type: ignore[method-assign]
    r.verification.check("id", 1, 0, [T0], VERIFY, told.append)
    assert told == [{T0: E.NETWORK_EXCEPTION}]
    r.verification.check("id", 1, 0, [T0], VERIFY, told.append)
    assert len(r.owed) == 1
    assert len(trouble) == 1
