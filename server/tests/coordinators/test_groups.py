"""The coordinator of groups: real partitions on disk, a virtual clock, no network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinator import OffsetToCommit
from barnabas.coordinator.tests.kit import subscription
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from barnabas.replication import GROUP_METADATA_TOPIC, PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.groups import OPEN_S, GroupCoordinator
from barnabas.server.runtime.timers import Timers
from barnabas.server.tests.apis.data_world import NOW, DataWorld, data_world
from barnabas.server.tests.apis.fakes import at_once

E = ErrorCode
TOPIC = GROUP_METADATA_TOPIC


class Token:
    def __init__(self) -> None:
        self.answers: list[Any] = []

    def reply(self, response: Any) -> None:
        assert not self.answers, "answered twice"
        self.answers.append(response)

    @property
    def waits(self) -> bool:
        return not self.answers

    @property
    def answer(self) -> Any:
        (answer,) = self.answers
        return answer


class Rig:
    """`groups` on the partitions of `world`. `round` ends a round of the reactor."""

    def __init__(self, world: DataWorld, **settings: str) -> None:
        self.world = world
        self.config = BrokerConfig.from_values(
            {
                "group.initial.rebalance.delay.ms": "0",
                **{key.replace("_", "."): value for key, value in settings.items()},
            }
        )
        self.timers = Timers()
        self.created: list[str] = []
        self.create_error: KafkaError | None = None
        self.groups = self.new_groups()
        self.nursery: trio.Nursery | None = None

    def new_groups(self) -> GroupCoordinator:
        ground = CoordinatorGround(
            self.world.partitions,
            self.timers,
            current_image=lambda: self.world.image,
            current_config=lambda: self.config,
            create_topic=self._create_topic,
            now=trio.current_time,
            wall_ms=lambda: NOW + round(trio.current_time() * 1000),
        )
        return GroupCoordinator(ground, random=Random(1))

    async def _create_topic(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.created.append(name)
        if self.create_error is not None:
            raise self.create_error
        self.topic()

    def topic(self, partitions: int = 1) -> None:
        for partition in self.world.topic(TOPIC, partitions, cleanup_policy="compact"):
            self.groups.lead(partition)

    @property
    def partition(self) -> Any:
        return self.world.partitions.get(TOPIC, 0)

    def isr(self, *isr: int) -> None:
        """Followers of the only partition come and go; with any, nothing is committed here."""
        self.partition.lead(PartitionImage(0, 0, 0, 0, (0, 1, 2), isr))

    def round(self) -> None:
        self.world.partitions.write_staged()

    async def restart(self) -> None:
        """A new coordinator over the same partitions, as after a start of the broker; not loaded yet."""
        for index in list(self.groups.runtime.shards):
            self.groups.resign(index)
        self.groups = self.new_groups()
        for partition in self.world.partitions:
            if partition.topic == TOPIC:
                self.groups.lead(partition)

    def commit(self, group: str = "g", offset: int = 1, *, partition: int = 0, metadata: str = "") -> Token:
        token = Token()
        self.groups.commit(group, -1, "", None, -1, [OffsetToCommit("t", partition, offset, -1, metadata)], token)
        return token

    def committed(self, group: str = "g") -> list[int]:
        return [
            each.offset for each in self.groups.fetch(group, self.groups.with_offsets(group), False, only_found=True)
        ]

    def join(self, member_id: str = "", *, version: int = 3, group: str = "g", session_ms: int = 10_000) -> Token:
        token = Token()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("t"))
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        self.groups.join(request, version, "client", "127.0.0.1", token)
        return token

    def sync(self, member_id: str, generation: int) -> Token:
        token = Token()
        given = SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")
        request = SyncGroupRequest(group_id="g", generation_id=generation, member_id=member_id, assignments=[given])
        self.groups.sync(request, 4, token)
        return token

    def heartbeat(self, member_id: str, generation: int) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        return ErrorCode(self.groups.heartbeat(request).error_code)

    def member(self) -> str:
        """One stable member, generation 1."""
        joined = self.join()
        member_id: str = joined.answer.member_id
        synced = self.sync(member_id, 1)
        self.round()
        assert synced.answer.assignment == b"all"
        return member_id


@asynccontextmanager
async def rig(directory: Path, **settings: str) -> AsyncIterator[Rig]:
    with data_world(directory) as world:
        made = Rig(world, **settings)
        async with trio.open_nursery() as nursery:
            made.nursery = nursery
            nursery.start_soon(made.timers.run)
            nursery.start_soon(made.groups.run)
            await trio.testing.wait_all_tasks_blocked()
            yield made
            nursery.cancel_scope.cancel()


async def test_which_broker_coordinates_what(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        assert r.groups.place("g") is None
        with pytest.raises(KafkaError) as raised:
            r.commit()
        assert raised.value.code == E.NOT_COORDINATOR
        assert at_once(r.groups.listed((), ())) == (E.NONE, [])
        r.topic(3)
        assert r.groups.place("g1") == r.world.image.topics[TOPIC].partitions[2]
        with pytest.raises(KafkaError) as raised:
            r.join(group="")
        assert raised.value.code == E.INVALID_GROUP_ID
        r.commit("")  # an old consumer without a group
        r.groups.resign(2)
        with pytest.raises(KafkaError) as raised:
            r.commit("g1")
        assert raised.value.code == E.NOT_COORDINATOR


async def test_commits_of_a_round_share_its_write(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        tokens = [r.commit(f"g{i}", i) for i in range(100)]
        assert all(token.waits for token in tokens)
        assert r.partition.log_end_offset == 0
        r.round()
        assert [token.answer for token in tokens] == [[E.NONE]] * 100
        assert r.partition.log_end_offset == 100
        assert r.committed("g7") == [7]


async def test_records_carry_the_wall_clock_and_survive(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.commit()
        r.round()
        assert r.partition.log.offset_for_timestamp(NOW - 1) is not None
        member_id = r.member()
        await r.restart()
        nursery = r.nursery
        assert nursery is not None
        nursery.start_soon(r.groups.run)
        await trio.testing.wait_all_tasks_blocked()
        assert r.committed() == [1]
        assert r.heartbeat(member_id, 1) == E.NONE


async def test_groups_are_not_served_while_loading(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        for i in range(5000):
            r.commit(f"g{i % 50}", i, partition=i % 7, metadata="x" * 100)
        r.round()
        await r.restart()
        for attempt in (r.commit, r.committed, r.join):
            with pytest.raises(KafkaError) as raised:
                attempt()  # type: ignore[operator]
            assert raised.value.code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert at_once(r.groups.listed((), ())) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
        turns = 0

        async def others() -> None:
            nonlocal turns
            while at_once(r.groups.listed((), ()))[0] != E.NONE:
                turns += 1
                await trio.lowlevel.checkpoint()

        assert r.nursery is not None
        r.nursery.start_soon(r.groups.run)
        await others()
        # The log is a dozen slices long and the loop turned between them.
        assert turns >= 5
        code, listed = at_once(r.groups.listed((), ()))
        assert (code, len(listed)) == (E.NONE, 50)
        assert sorted(r.committed("g0"))[-1] == 4950


async def test_topics_deleted_while_loading_lose_their_offsets(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.commit()
        r.round()
        await r.restart()
        r.groups.topics_deleted(["t"])
        assert r.nursery is not None
        r.nursery.start_soon(r.groups.run)
        await trio.testing.wait_all_tasks_blocked()
        assert at_once(r.groups.listed((), ())) == (E.NONE, [])
        assert r.partition.log_end_offset == 3


async def test_topics_deleted_lose_their_offsets_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.commit("a")
        r.commit("b")
        r.round()
        r.groups.topics_deleted(["t", "u"])
        assert r.committed("a") == r.committed("b") == []
        assert r.partition.log_end_offset == 6


async def test_an_uncommitted_write_is_neither_answered_nor_visible(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.commit(offset=1)
        r.round()
        r.isr(0, 1)
        token = r.commit(offset=2)
        r.round()
        assert token.waits
        assert r.committed() == [1]
        r.isr(0)
        assert token.answer == [E.NONE]
        assert r.committed() == [2]


async def test_a_commit_that_takes_too_long_fails_and_may_yet_hold(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.isr(0, 1)
        first = r.commit(offset=1)
        r.round()
        await trio.sleep(3)
        second = r.commit(offset=2)
        r.round()
        await trio.sleep(2.1)
        assert first.answer == [E.REQUEST_TIMED_OUT]
        assert second.waits
        await trio.sleep(3)
        assert second.answer == [E.REQUEST_TIMED_OUT]
        r.isr(0)
        assert r.committed() == [2]
        third = r.commit(offset=3)
        r.round()
        assert third.answer == [E.NONE]


async def test_an_assignment_that_takes_too_long_makes_the_group_start_over(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        member_id = r.join().answer.member_id
        r.isr(0, 1)
        token = r.sync(member_id, 1)
        r.round()
        await trio.sleep(5.1)
        assert token.answer.error_code == E.REBALANCE_IN_PROGRESS
        assert r.heartbeat(member_id, 1) == E.REBALANCE_IN_PROGRESS


async def test_too_few_replicas_refuse_a_commit(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.world.topic(TOPIC, min_insync_replicas="2")
        r.partition.replicas = (r.partition.leader_id, 99)
        r.groups.lead(r.partition)
        token = r.commit()
        assert token.answer == [E.COORDINATOR_NOT_AVAILABLE]
        assert r.committed() == []


async def test_a_commit_that_too_few_replicas_got_fails_and_leadership_stays(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.world.topic(TOPIC, 1, cleanup_policy="compact", min_insync_replicas="2")
        r.isr(0, 1)
        r.groups.lead(r.partition)
        token = r.commit()
        r.round()
        assert token.waits
        r.partition.isr = (0,)  # it has shrunk when the high watermark passes
        r.partition.leader.maximal_isr = frozenset((0,))
        r.partition._commit_up_to(1)
        await trio.sleep(0.01)
        assert token.answer == [E.COORDINATOR_NOT_AVAILABLE]
        assert r.committed() == [1]  # it is in the log, and safe by now
        assert at_once(r.groups.listed((), ()))[0] == E.NONE


async def test_commits_with_required_acks_1_do_not_wait(tmp_path: Path) -> None:
    async with rig(tmp_path, offsets_commit_required_acks="1") as r:
        r.topic()
        r.isr(0, 1)
        token = r.commit(offset=5)
        assert token.waits
        r.round()
        assert token.answer == [E.NONE]
        assert r.partition.high_watermark == 0
        assert r.committed() == [5]


async def test_a_new_leader_waits_until_its_loaded_records_are_committed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The leader before may have acknowledged more than we know to be committed."""
    async with rig(tmp_path) as r:
        r.topic()
        r.isr(0, 1)
        r.commit(offset=7)
        r.round()
        assert r.partition.high_watermark == 0
        await r.restart()
        assert r.nursery is not None
        r.nursery.start_soon(r.groups.run)
        await trio.sleep(OPEN_S / 2)
        with pytest.raises(KafkaError) as raised:
            r.committed()
        assert raised.value.code == E.COORDINATOR_LOAD_IN_PROGRESS
        r.isr(0)
        r.partition.announce(0)
        await trio.sleep(0.01)
        assert r.committed() == [7]


async def test_a_new_leader_without_followers_waits_for_a_limited_time(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.isr(0, 1)
        r.commit(offset=7)
        r.round()
        await r.restart()
        assert r.nursery is not None
        r.nursery.start_soon(r.groups.run)
        await trio.sleep(OPEN_S + 0.01)
        assert r.committed() == [7]  # an acknowledged offset is not forgotten
        r.commit(offset=8)
        r.round()
        assert r.committed() == [7]  # and one of our own not told before it is safe


async def test_waiting_clients_get_an_error_when_leadership_is_lost(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.member()
        r.isr(0, 1)
        commit = r.commit("other")
        joining = r.join()
        r.round()
        assert commit.waits
        assert joining.waits
        r.partition.resign()
        assert commit.answer == [E.NOT_COORDINATOR]
        assert joining.answer.error_code == E.NOT_COORDINATOR
        with pytest.raises(KafkaError) as raised:
            r.commit()
        assert raised.value.code == E.NOT_COORDINATOR
        r.groups.resign(0)  # told by the controller as well: nothing left to do


async def test_a_new_epoch_of_the_same_leader_keeps_all_state(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        member_id = r.member()
        r.world.new_epoch(r.partition, 5)
        r.groups.lead(r.partition)
        assert r.heartbeat(member_id, 1) == E.NONE


async def test_sessions_end_by_the_clock(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        member_id = r.member()
        for _ in range(10):
            await trio.sleep(9)
            assert r.heartbeat(member_id, 1) == E.NONE
        await trio.sleep(10.1)
        assert r.heartbeat(member_id, 1) == E.UNKNOWN_MEMBER_ID
        # The empty generation was written by the timer itself, without a round.
        assert r.partition.log_end_offset == 2


async def test_many_groups_keep_one_timer_per_partition(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        for i in range(300):
            r.join(group=f"g{i}", session_ms=6000 + i)
        assert len(r.timers._heap) < 10
        await trio.sleep(30)
        _, groups = at_once(r.groups.listed({"Empty"}, ()))
        assert len(groups) == 300


async def test_offsets_expire_by_the_clock(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with rig(tmp_path, offsets_retention_minutes="60") as r:
        r.topic()
        r.commit()
        r.round()
        await trio.sleep(59 * 60)
        assert r.committed() == [1]
        await trio.sleep(12 * 60)
        assert at_once(r.groups.listed((), ())) == (E.NONE, [])


async def test_the_topic_is_created_when_it_is_first_wanted(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with rig(tmp_path) as r:
        r.create_error = KafkaError(E.INVALID_REPLICATION_FACTOR)
        r.groups.want_topic()
        r.groups.want_topic()
        await trio.sleep(0.5)
        assert len(r.created) == 1
        await trio.sleep(1)
        r.create_error = None
        r.groups.want_topic()
        await trio.sleep(0.1)
        r.groups.want_topic()
        await trio.sleep(0.1)
        assert r.created == [TOPIC, TOPIC]
        r.commit()


async def test_new_settings_hold_for_groups_that_exist(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        r.member()
        r.config = BrokerConfig.from_values({"group.max.size": "1"})
        r.groups.config_changed()
        assert r.join().answer.error_code == E.GROUP_MAX_SIZE_REACHED


async def test_leaving_is_answered_though_nothing_can_be_written(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.topic()
        member_id = r.member()
        r.isr(0, 1)
        token = Token()
        r.groups.leave(LeaveGroupRequest(group_id="g", member_id=member_id), 1, token)
        assert token.answer.error_code == E.NONE


async def test_a_log_that_clients_wrote_into_is_loaded_too(tmp_path: Path) -> None:
    # Whatever is in the topic, loading must come to its end.
    async with rig(tmp_path) as r:
        (partition,) = r.world.topic(TOPIC)
        r.world.append(partition, NOW, value=b"not a group's record")
        r.groups.lead(partition)
        await trio.testing.wait_all_tasks_blocked()
        assert at_once(r.groups.listed((), ())) == (E.NONE, [])
        token = r.commit()
        r.round()
        assert token.answer == [E.NONE]
