"""Share groups of the coordinator: what they want of share coordinators is asked, and they are told."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ShareGroupHeartbeatRequest
from barnabas.replication import GROUP_METADATA_TOPIC
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.groups import GroupCoordinator
from barnabas.server.coordinators.share.persister import GIVE_UP_S
from barnabas.server.coordinators.share.state_wire import Read, Summarize
from barnabas.server.tests.coordinators.share.persister_kit import PersisterRig, persister_rig, settle
from barnabas.server.tests.coordinators.txn_rig import Token

E = ErrorCode


class GroupsRig:
    """`groups` of broker 0 of `at`, with share groups."""

    def __init__(self, at: PersisterRig) -> None:
        self.at = at
        self.groups = GroupCoordinator(at.ground(at.world), random=Random(1), persister=lambda: at.persister)
        for partition in at.world.topic(GROUP_METADATA_TOPIC, 1, cleanup_policy="compact"):
            self.groups.lead(partition)

    def round(self) -> None:
        self.at.world.partitions.write_staged()

    async def heartbeat(self, epoch: int, *topics: str, group: str = "g", member: str = "m") -> Any:
        token = Token()
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        self.groups.shares.heartbeat(request, "client", "127.0.0.1", token)
        self.round()
        await settle()
        return token.answer

    async def told(self, what: str, *args: Any) -> Any:
        token = Token()
        getattr(self.groups.shares, what)(*args, token)
        self.round()
        await settle()
        return token.answer

    async def start_offset(self, partition: int = 0, group: str = "g") -> int:
        return int((await self.at.told(Summarize(), self.at.key(group, partition))).start_offset)

    def restart(self) -> None:
        """A new coordinator; `run` is the caller's to start."""
        self.groups.resign(0)
        self.groups = GroupCoordinator(
            self.at.ground(self.at.world), random=Random(1), persister=lambda: self.at.persister
        )
        self.groups.lead(self.at.world.partitions.get(GROUP_METADATA_TOPIC, 0))


@asynccontextmanager
async def groups_rig(directory: Path, **settings: str) -> AsyncIterator[GroupsRig]:
    async with persister_rig(directory, **settings) as at:
        made = GroupsRig(at)
        assert at.nursery is not None
        at.nursery.start_soon(made.groups.run)
        await settle()
        yield made


def assigned(answer: Any) -> dict[bytes, list[int]] | None:
    if answer.assignment is None:
        return None
    return {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}


@pytest.mark.parametrize("leader", [0, 1], ids=["here", "on another broker"])
async def test_a_member_gets_partitions_that_are_initialized(
    leader: int, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with groups_rig(tmp_path) as r:
        r.at.topic(leader)
        joined = await r.heartbeat(0, "t")
        assert (joined.error_code, joined.member_epoch, assigned(joined)) == (E.NONE, 2, {})
        assert r.groups.shares.initialized_partitions("g") == {r.at.topic_id: {0, 1, 2}}
        assert (await r.at.told(Read(0), r.at.key(partition=2))).start_offset == -1
        await trio.sleep(1)
        answer = await r.heartbeat(2)
        assert (answer.member_epoch, assigned(answer)) == (3, {r.at.topic_id: [0, 1, 2]})
        described = r.groups.shares.describe("g")
        assert (described.group_state, described.assignor_name) == ("Stable", "simple")
        r.restart()
        assert r.at.nursery is not None
        r.at.nursery.start_soon(r.groups.run)
        await settle()
        assert (await r.heartbeat(3)).member_epoch == 3
        assert r.groups.shares.initialized_partitions("g") == {r.at.topic_id: {0, 1, 2}}


async def test_a_share_coordinator_that_is_away(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with groups_rig(tmp_path) as r:
        r.at.topic(1)
        r.at.is_away = True
        assert (await r.heartbeat(0, "t")).error_code == E.NONE
        await trio.sleep(GIVE_UP_S + 1)
        assert r.groups.shares.initialized_partitions("g") == {}
        r.at.is_away = False
        assert (await r.heartbeat(2)).error_code == E.NONE
        await trio.sleep(1)
        assert r.groups.shares.initialized_partitions("g") == {r.at.topic_id: {0, 1, 2}}


async def test_offsets_are_altered_and_deleted(tmp_path: Path) -> None:
    async with groups_rig(tmp_path) as r:
        r.at.topic(1)
        first, second = (r.at.topic_id, 0), (r.at.topic_id, 1)
        assert await r.told("alter_offsets", "g", {first: 5, second: 6}) == {first: E.NONE, second: E.NONE}
        assert (await r.start_offset(0), await r.start_offset(1)) == (5, 6)
        assert await r.told("alter_offsets", "g", {first: 3}) == {first: E.NONE}
        assert (await r.start_offset(0), await r.start_offset(1)) == (3, 6)
        assert set((await r.told("delete_offsets", "g", {r.at.topic_id})).values()) == {E.NONE}
        assert await r.start_offset(0) == -1
        assert r.groups.shares.initialized_partitions("g") == {}
        assert (await r.heartbeat(0, "t")).error_code == E.NONE
        assert await r.told("alter_offsets", "g", {first: 3}) == E.NON_EMPTY_GROUP
        assert await r.told("delete_offsets", "g", {r.at.topic_id}) == E.NON_EMPTY_GROUP


async def test_a_group_is_deleted_with_what_is_stored_of_it(tmp_path: Path) -> None:
    async with groups_rig(tmp_path) as r:
        r.at.topic(1)
        place = (r.at.topic_id, 0)
        assert await r.told("alter_offsets", "g", {place: 5}) == {place: E.NONE}
        token = Token()
        r.groups.delete_group("g", token)
        r.round()
        await settle()
        assert token.answer == E.NONE
        assert await r.start_offset() == -1
        assert r.groups.shares.describe("g").error_code == E.GROUP_ID_NOT_FOUND


async def test_who_waits_is_told_when_the_group_has_moved(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with groups_rig(tmp_path) as r:
        r.at.topic(1)
        place = (r.at.topic_id, 0)
        assert await r.told("alter_offsets", "g", {place: 5}) == {place: E.NONE}
        r.at.is_silent = True
        altering, deleting = Token(), Token()
        r.groups.shares.alter_offsets("h", {place: 5}, altering)
        r.groups.delete_group("g", deleting)
        r.round()
        await settle()
        assert altering.waits
        assert deleting.waits
        r.groups.resign(0)
        await trio.sleep(GIVE_UP_S + 1)
        assert altering.answer == {place: E.NOT_COORDINATOR}
        assert deleting.answer == E.NOT_COORDINATOR


async def test_settings_of_a_group(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with groups_rig(tmp_path) as r:
        r.at.topic(0)
        own = MappingProxyType({"g": {"share.heartbeat.interval.ms": "9000"}})
        r.at.world.image = dataclasses.replace(r.at.world.image, group_configs=own)
        await r.heartbeat(0, "t")
        await trio.sleep(1)
        await r.heartbeat(2)
        await trio.sleep(44)
        assert (await r.heartbeat(3)).heartbeat_interval_ms == 9000
        r.at.config = BrokerConfig.from_values({"group.share.max.size": "1"})
        r.groups.config_changed()
        assert (await r.heartbeat(0, "t", member="n")).error_code == E.GROUP_MAX_SIZE_REACHED
        await trio.sleep(46)
        assert r.groups.shares.describe("g").group_state == "Empty"


async def test_what_is_refused(tmp_path: Path) -> None:
    async with groups_rig(tmp_path) as r:
        r.groups.resign(0)
        for operation in (r.groups.shares.describe, r.groups.shares.initialized_partitions):
            with pytest.raises(KafkaError) as raised:
                operation("g")
            assert raised.value.code == E.NOT_COORDINATOR
            with pytest.raises(KafkaError) as raised:
                operation("")
            assert raised.value.code == E.INVALID_GROUP_ID
        with pytest.raises(KafkaError) as raised:
            await r.heartbeat(-2, "t")
        assert raised.value.code == E.INVALID_REQUEST
