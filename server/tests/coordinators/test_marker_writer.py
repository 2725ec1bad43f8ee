"""Markers in partitions: answered when committed or refused, each partition by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.replication import GROUP_METADATA_TOPIC, PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.marker_writer import MarkerWriter
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.timers import Timers
from barnabas.server.tests.apis.data_world import NOW, DataWorld, data_world

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


class Groups:
    """Stands for the groups of this broker; records the notifications."""

    def __init__(self) -> None:
        self.loaded = {0}
        self.ended: list[tuple[int, int, bool, int]] = []

    def is_loaded(self, index: int) -> bool:
        return index in self.loaded

    def marker_appended(self, index: int, producer_id: int, committed: bool, offset: int) -> None:
        self.ended.append((index, producer_id, committed, offset))


class Token:
    def __init__(self) -> None:
        self.answer: WriteTxnMarkersResponse | None = None

    def reply(self, response: WriteTxnMarkersResponse) -> None:
        assert self.answer is None, "answered twice"
        self.answer = response

    @property
    def codes(self) -> dict[tuple[int, str, int], ErrorCode]:
        assert self.answer is not None
        return {
            (marker.producer_id, topic.name, each.partition_index): ErrorCode(each.error_code)
            for marker in self.answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }


class Rig:
    def __init__(self, world: DataWorld) -> None:
        self.world = world
        self.timers = Timers()
        self.groups = Groups()
        config = BrokerConfig.from_values({})
        self.writer = MarkerWriter(
            world.partitions,
            self.groups,  # type: ignore[arg-type]
            self.timers,
            current_config=lambda: config,
            wall_ms=lambda: NOW,
        )

    def partition(self, index: int) -> Partition:
        return self.world.partitions.get("t", index)

    def open(self, index: int, producer_id: int = 7) -> None:
        self.world.append(
            self.partition(index), NOW, producer_id=producer_id, producer_epoch=3, base_sequence=0, transactional=True
        )

    def write(self, *markers: WriteTxnMarkersRequest.WritableTxnMarker, stage_only: bool = False) -> Token:
        token = Token()
        self.writer.write(WriteTxnMarkersRequest(markers=list(markers)), token)
        if not stage_only:
            self.world.partitions.write_staged()
        return token


def marker(*partitions: tuple[str, int], producer_id: int = 7, epoch: int = 3, **fields: Any) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=fields.pop("commit", True),
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in topics.items()
        ],
        **{"coordinator_epoch": 0, **fields},
    )


@asynccontextmanager
async def rig(directory: Path) -> AsyncIterator[Rig]:
    with data_world(directory) as world:
        made = Rig(world)
        world.topic("t", 3, elsewhere=1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.timers.run)
            yield made
            nursery.cancel_scope.cancel()


async def test_each_partition_gets_its_marker_and_its_answer(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.open(0)
        r.open(1)
        assert r.partition(0).last_stable_offset == 0
        staged = r.write(marker(T0, T1, ("t", 2), ("u", 0)), stage_only=True)
        assert staged.answer is None
        r.world.partitions.write_staged()
        assert staged.codes == {
            (7, "t", 0): E.NONE,
            (7, "t", 1): E.NONE,
            (7, "t", 2): E.NOT_LEADER_OR_FOLLOWER,
            (7, "u", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert [r.partition(i).last_stable_offset for i in (0, 1)] == [2, 2]
        assert r.partition(0).log.producers.entries[7].txn_start == -1


async def test_nothing_to_write_is_answered_too(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        assert r.write().codes == {}
        assert r.write(marker(("u", 0))).codes == {(7, "u", 0): E.UNKNOWN_TOPIC_OR_PARTITION}


async def test_several_producers_in_one_request(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.open(0, 7)
        r.open(0, 8)
        token = r.write(marker(T0, producer_id=7), marker(T0, producer_id=8, commit=False))
        assert token.codes == {(7, "t", 0): E.NONE, (8, "t", 0): E.NONE}
        aborted = r.partition(0).log.aborted_transactions(0, 10)
        assert [each.producer_id for each in aborted] == [8]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"epoch": 2}, E.INVALID_PRODUCER_EPOCH),
        ({"transaction_version": 2}, E.INVALID_PRODUCER_EPOCH),
        ({"epoch": 4, "transaction_version": 2}, E.NONE),
        ({"coordinator_epoch": 4}, E.TRANSACTION_COORDINATOR_FENCED),
        ({"coordinator_epoch": 5}, E.NONE),
    ],
)
async def test_old_epochs_are_fenced(fields: dict[str, int], code: ErrorCode, tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.open(0)
        r.write(marker(T0, coordinator_epoch=5))
        r.world.append(r.partition(0), NOW, producer_id=7, producer_epoch=3, base_sequence=1, transactional=True)
        assert r.write(marker(T0, **{"coordinator_epoch": 5, **fields})).codes == {(7, "t", 0): code}
        assert (r.partition(0).log.producers.entries[7].txn_start == -1) == (code == E.NONE)


def replicate(r: Rig, *isr: int) -> Partition:
    """Partition 0 gets followers, and from then on commits nothing by itself."""
    partition = r.partition(0)
    partition.lead(PartitionImage(0, 0, 1, 1, (0, 1, 2), isr))
    return partition


async def test_a_marker_is_answered_when_it_is_committed(autojump_clock: Any, tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.open(0)
        partition = replicate(r, 0, 1)
        token = r.write(marker(T0, T1))
        assert token.answer is None
        partition.follower_fetched(1, -1, 2, 0, 0.0)
        assert token.codes == {(7, "t", 0): E.NONE, (7, "t", 1): E.NONE}


async def test_a_marker_not_committed_in_time_is_answered_with_a_retriable_error(
    autojump_clock: Any, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        r.open(0)
        partition = replicate(r, 0, 1)
        token = r.write(marker(T0, T1))
        await trio.sleep(29)
        assert token.answer is None
        await trio.sleep(2)
        assert token.codes == {(7, "t", 0): E.REQUEST_TIMED_OUT, (7, "t", 1): E.NONE}
        partition.follower_fetched(1, -1, 2, 0, 0.0)  # too late to answer anybody


async def test_leadership_is_lost_meanwhile(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.open(0)
        partition = replicate(r, 0, 1)
        token = r.write(marker(T0))
        partition.resign()
        assert token.codes == {(7, "t", 0): E.NOT_LEADER_OR_FOLLOWER}


async def test_too_few_replicas(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.open(0)
        partition = replicate(r, 0)
        partition.log.config = r.world._config({"min.insync.replicas": "2"})
        assert r.write(marker(T0)).codes == {(7, "t", 0): E.NOT_ENOUGH_REPLICAS}


async def test_groups_apply_markers_in_the_order_of_the_log(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        r.world.topic(GROUP_METADATA_TOPIC, 2)
        of_groups = (GROUP_METADATA_TOPIC, 0)
        first = r.write(marker(of_groups), marker(of_groups, producer_id=8, commit=False), stage_only=True)
        assert r.groups.ended == [(0, 7, True, 0), (0, 8, False, 1)]
        r.world.partitions.write_staged()
        assert set(first.codes.values()) == {E.NONE}
        # While they are being loaded their part in transactions is not known.
        loading = r.write(marker((GROUP_METADATA_TOPIC, 1)))
        assert set(loading.codes.values()) == {E.NOT_LEADER_OR_FOLLOWER}
        assert len(r.groups.ended) == 2
