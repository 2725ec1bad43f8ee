"""Three brokers under a mock clock; one loses one of its two log directories, and others take over what was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import MetadataRequest
from barnabas.replication import Image
from barnabas.server.testing import embedded_cluster
from barnabas.server.tests.whole import cluster_users as members
from barnabas.server.tests.whole.faulty_disk import FaultyDisk

E = ErrorCode
BROKEN = 3
PARTITIONS = 6


async def test_others_take_over_what_lay_in_a_failed_directory(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: Any
) -> None:
    monkeypatch.setattr(members, "RETRIABLE", {*members.RETRIABLE, E.KAFKA_STORAGE_ERROR})
    disk = FaultyDisk()
    settings = {"log_dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    with trio.fail_after(600):
        async with embedded_cluster(2, None, replica_lag_time_max_ms="3000") as cluster:  # type: ignore[arg-type]
            await cluster.start(BROKEN, disk=disk, **settings)
            await cluster.all_alive()
            user = members.User(cluster)
            await user.topic("t", PARTITIONS)
            dirs = cluster[BROKEN].services.partitions.log_dirs
            lost = {index for index in range(PARTITIONS) if dirs.dirs[1] is dirs.home("t", index)}
            assert len(lost) == 3
            for index in range(PARTITIONS):
                assert await user.produce("t", b"before", index) == 0
                await cluster.partition_until("t", index, lambda state: set(state.isr) == {1, 2, 3})
            led = [index for index in lost if await cluster.leader("t", index) == BROKEN]
            kept_epochs = {index: _epoch(cluster[1].services.image, index) for index in set(range(PARTITIONS)) - lost}

            disk.break_below(tmp_path / "b")
            for index in lost:
                # As a leader it finds out when it writes, as a follower too.
                assert await user.produce("t", b"after", index) == 1
            for index in lost:
                await cluster.partition_until(
                    "t", index, lambda state: state.leader in (1, 2) and BROKEN not in state.isr
                )
                assert await user.end_offset("t", index) == 2
            assert led, "it led one of them, or the test shows less than it should"
            for index, epoch in kept_epochs.items():
                assert await user.produce("t", b"after", index) == 1
                assert _epoch(cluster[1].services.image, index) == epoch, "the other directory was not touched"
            assert cluster[BROKEN].is_open
            for broker_id in (1, 2, 3):
                answer = await user.ask(broker_id, MetadataRequest(topics=None), 8)
                (topic,) = [each for each in answer.topics if each.name == "t"]
                told = {each.partition_index: each.offline_replicas for each in topic.partitions}
                assert told == {index: [BROKEN] if index in lost else [] for index in range(PARTITIONS)}
            assert await cluster.store.connect().children("/log_dir_event_notification") == []

            await cluster.stop(BROKEN)
            disk.heal()
            await cluster.start(BROKEN, disk=disk, **settings)
            for index in range(PARTITIONS):
                await cluster.partition_until(
                    "t", index, lambda state: set(state.isr) == {1, 2, 3} and not state.offline_replicas
                )
                assert await user.produce("t", b"again", index) == 2


def _epoch(image: Image, index: int) -> int:
    partition = image.partition("t", index)
    assert partition is not None
    return partition.leader_epoch
