"""The share coordinator: real partitions on disk, a virtual clock, no network."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.coordinator.share import ShareKey, StateBatch, StateRead, Stored, WriteState, coordinator_key
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import SHARE_GROUP_STATE_TOPIC, PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.ground import CoordinatorGround
from barnabas.server.coordinators.share_states import ShareStateCoordinator
from barnabas.server.runtime.timers import Timers
from barnabas.server.tests.apis.data_world import NOW, DataWorld, data_world
from barnabas.server.tests.coordinators.txn_rig import Token

E = ErrorCode
OK = Stored(E.NONE)
TOPIC = SHARE_GROUP_STATE_TOPIC


class ShareRig:
    """`states` on the partitions of `world`. `round` ends a round of the reactor."""

    def __init__(self, world: DataWorld, **settings: str) -> None:
        self.world = world
        self.config = BrokerConfig.from_values({key.replace("_", "."): value for key, value in settings.items()})
        self.timers = Timers()
        self.created: list[str] = []
        self.nursery: trio.Nursery | None = None
        world.topic("first")  # whose id is zero
        world.topic("t", 3)
        self.key = ShareKey("g", world.image.topics["t"].topic_id, 0)
        self.states = self.new_states()

    def new_states(self) -> ShareStateCoordinator:
        return ShareStateCoordinator(
            CoordinatorGround(
                self.world.partitions,
                self.timers,
                current_image=lambda: self.world.image,
                current_config=lambda: self.config,
                create_topic=self._create_topic,
                now=trio.current_time,
                wall_ms=lambda: NOW + round(trio.current_time() * 1000),
            )
        )

    async def _create_topic(self, name: str) -> None:
        await trio.lowlevel.checkpoint()
        self.created.append(name)

    def topic(self, partitions: int = 1) -> None:
        for partition in self.world.topic(TOPIC, partitions, cleanup_policy="delete"):
            self.states.lead(partition)

    @property
    def partition(self) -> Any:
        return self.world.partitions.get(TOPIC, 0)

    def isr(self, *isr: int, epoch: int = 0) -> None:
        """Followers of the only partition come and go; with any, nothing is committed here."""
        self.partition.lead(PartitionImage(0, 0, epoch, epoch, (0, 1, 2), isr))

    def round(self) -> None:
        self.world.partitions.write_staged()

    async def restart(self) -> None:
        """A new coordinator over the same partitions, loaded when this returns."""
        assert self.nursery is not None
        for index in list(self.states.runtime.shards):
            self.states.resign(index)
        self.states = self.new_states()
        for partition in self.world.partitions:
            if partition.topic == TOPIC:
                self.states.lead(partition)
        self.nursery.start_soon(self.states.run)
        await trio.testing.wait_all_tasks_blocked()

    def ask(self, what: str, *args: Any, key: ShareKey | None = None) -> Token:
        token = Token()
        getattr(self.states, what)(key or self.key, *args, token)
        return token

    def told(self, what: str, *args: Any, key: ShareKey | None = None) -> Any:
        """The answer at the end of the round."""
        token = self.ask(what, *args, key=key)
        self.round()
        return token.answer

    def write(self, *batches: tuple[int, int, int, int], key: ShareKey | None = None, start: int = -1) -> Any:
        changed = tuple(StateBatch(*each) for each in batches)
        return self.told("write", WriteState(1, -1, start, 0, changed), key=key)


@asynccontextmanager
async def share_rig(directory: Path, **settings: str) -> AsyncIterator[ShareRig]:
    with data_world(directory) as world:
        made = ShareRig(world, **settings)
        async with trio.open_nursery() as nursery:
            made.nursery = nursery
            nursery.start_soon(made.timers.run)
            nursery.start_soon(made.states.run)
            await trio.testing.wait_all_tasks_blocked()
            yield made
            nursery.cancel_scope.cancel()


async def test_what_is_stored_outlives_a_coordinator(tmp_path: Path) -> None:
    async with share_rig(tmp_path) as r:
        r.topic()
        waiting = r.ask("initialize", 1, -1)
        assert waiting.waits
        r.round()
        assert waiting.answer == OK
        assert r.told("read", 5) == StateRead(E.NONE, None, 1, -1, ())
        assert r.write((0, 9, 2, 1), (10, 11, 0, 2), start=0) == OK
        await r.restart()
        batches = (StateBatch(0, 9, 2, 1), StateBatch(10, 11, 0, 2))
        assert r.told("read", 5) == StateRead(E.NONE, None, 1, 0, batches)
        assert r.told("read", 4).code == E.FENCED_LEADER_EPOCH
        assert r.told("summary").start_offset == 0
        assert r.told("delete") == OK
        await r.restart()
        assert r.told("read", 5).code == E.INVALID_REQUEST


async def test_which_broker_coordinates_what(tmp_path: Path) -> None:
    async with share_rig(tmp_path) as r:
        assert r.states.place(coordinator_key(r.key)) is None
        with pytest.raises(KafkaError) as raised:
            r.ask("read", 0)
        assert raised.value.code == E.NOT_COORDINATOR
        r.states.want_topic()
        await trio.testing.wait_all_tasks_blocked()
        assert r.created == [TOPIC]
        r.topic(4)
        keys = [ShareKey(f"g{n}", r.key.topic_id, 0) for n in range(20)]
        assert all(r.told("initialize", 1, 7, key=key) == OK for key in keys)
        assert {len(led.shard.store.partitions) > 0 for led in r.states.runtime.shards.values()} == {True}
        place = r.states.place(coordinator_key(keys[0]))
        assert place is not None
        r.states.resign(place.index)
        with pytest.raises(KafkaError) as raised:
            r.ask("read", 0, key=keys[0])
        assert raised.value.code == E.NOT_COORDINATOR


async def test_nothing_is_told_before_the_followers_have_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with share_rig(tmp_path) as r:
        r.topic()
        assert r.told("initialize", 1, 0) == OK
        r.isr(0, 1, epoch=1)
        write = r.ask("write", WriteState(1, 0, 0, 1, (StateBatch(0, 0, 2, 1),)))
        read = r.ask("read", 0)
        r.round()
        assert write.waits
        assert read.waits
        await trio.sleep(6)
        assert write.answer.code == E.COORDINATOR_NOT_AVAILABLE
        assert read.answer.code == E.COORDINATOR_NOT_AVAILABLE


async def test_the_log_is_kept_short(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    settings = {"share_coordinator_snapshot_update_records_per_snapshot": "3"}
    async with share_rig(tmp_path, **settings) as r:
        r.topic()
        at_rest = r.key._replace(partition=1)
        assert r.told("initialize", 1, 0, key=at_rest) == OK
        assert r.told("initialize", 1, 0) == OK
        for offset in range(9):
            assert r.write((offset, offset, 2, 1)) == OK
        assert r.partition.log_start_offset == 0
        await trio.sleep(299)
        assert r.write((9, 9, 2, 1)) == OK
        assert r.write((10, 10, 2, 1)) == OK
        assert r.write((11, 11, 2, 1)) == OK, "its snapshot is young"
        await trio.sleep(2)
        await trio.sleep(300)
        assert r.partition.log_start_offset > 9
        before = {key: found.state for key, found in r.states.runtime.shards[0].shard.store.partitions.items()}
        await r.restart()
        assert {key: found.state for key, found in r.states.runtime.shards[0].shard.store.partitions.items()} == before
        assert set(before) == {r.key, at_rest}


async def test_deleted_topics_are_forgotten(tmp_path: Path) -> None:
    async with share_rig(tmp_path) as r:
        r.topic()
        assert r.told("initialize", 1, 0) == OK
        topics = {name: topic for name, topic in r.world.image.topics.items() if name != "t"}
        r.world.image = dataclasses.replace(r.world.image, topics=topics)
        assert r.told("read", 0).code == E.UNKNOWN_TOPIC_OR_PARTITION
        r.states.topics_deleted({r.key.topic_id})
        assert r.told("read", 0).code == E.INVALID_REQUEST
        await r.restart()
        assert not r.states.runtime.shards[0].shard.store.partitions


async def test_settings(tmp_path: Path) -> None:
    async with share_rig(tmp_path) as r:
        r.topic()
        assert r.told("initialize", 1, 0) == OK
        name = "share.coordinator.snapshot.update.records.per.snapshot"
        r.config = BrokerConfig.from_values({name: "0"})
        r.states.config_changed()
        assert r.write((0, 0, 2, 1)) == OK
        (found,) = r.states.runtime.shards[0].shard.store.partitions.values()
        assert (found.state.snapshot_epoch, found.updates) == (1, 0)
