"""LeaderAndIsr, UpdateMetadata and StopReplica as a broker takes them from another broker's controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import LeaderAndIsrResponse, MetadataRequest, StopReplicaResponse, UpdateMetadataResponse
from barnabas.replication import (
    BrokerImage,
    Endpoint,
    LeaderAndIsr,
    PartitionChange,
    PartitionImage,
    StoppedPartition,
    StopReplica,
    UpdateMetadata,
)
from barnabas.replication.messages import wire
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster

TOPIC_ID = bytes(range(16))
OTHER = BrokerImage(7, (Endpoint("PLAINTEXT", "seven", 9097),), rack="r7")
EPOCH = 5  # of the controller that speaks here: broker 7, elected after our own


@dataclass
class Peer:
    """The other broker's controller."""

    broker: Broker
    client: Client

    @property
    def broker_epoch(self) -> int:
        return self.broker.services.cluster.broker_epoch

    async def lead_or_follow(
        self, version: int, *changes: PartitionChange, epoch: int = EPOCH, broker_epoch: int | None = None
    ) -> tuple[LeaderAndIsrResponse, dict[tuple[str, int], ErrorCode]]:
        message = LeaderAndIsr(7, epoch, self._epoch(broker_epoch), changes, (OTHER,))
        response = await self.client.ask(wire.leader_and_isr_request(message, version, "PLAINTEXT"), version)
        if version >= 5:
            assert response.partition_errors == []
        else:
            assert response.topics == []
        return response, wire.leader_and_isr_codes(message, response)

    async def tell(
        self, version: int, *changes: PartitionChange, epoch: int = EPOCH, broker_epoch: int | None = None
    ) -> UpdateMetadataResponse:
        brokers = (BrokerImage(1, self.broker.endpoints), OTHER)
        message = UpdateMetadata(7, epoch, self._epoch(broker_epoch), brokers, changes)
        return await self.client.ask(wire.update_metadata_request(message, version), version)  # type: ignore[no-any-return]

    async def stop(
        self, version: int, *stopped: StoppedPartition, epoch: int = EPOCH, broker_epoch: int | None = None
    ) -> tuple[StopReplicaResponse, dict[tuple[str, int], ErrorCode]]:
        message = StopReplica(7, epoch, self._epoch(broker_epoch), stopped)
        [request] = wire.stop_replica_requests(message, version)
        response = await self.client.ask(request, version)
        return response, wire.stop_replica_codes(response)

    def replica(self, index: int) -> Any:
        return self.broker.services.partitions.find("t", index)

    def _epoch(self, given: int | None) -> int:
        return self.broker_epoch if given is None else given


@asynccontextmanager
async def peer() -> AsyncIterator[Peer]:
    with trio.fail_after(600):
        async with embedded_cluster(1) as one, connected(one[1]) as client:
            yield Peer(one[1], client)


def led(index: int, leader: int, leader_epoch: int = 0, partition_epoch: int | None = None) -> PartitionChange:
    version = leader_epoch if partition_epoch is None else partition_epoch
    return PartitionChange("t", TOPIC_ID, PartitionImage(index, leader, leader_epoch, version, (1, 7), (1, 7)))


@pytest.mark.parametrize("version", range(8))
async def test_leading_and_following(version: int, autojump_clock: MockClock) -> None:
    async with peer() as there:
        response, codes = await there.lead_or_follow(version, led(0, 1), led(1, 7), led(2, -1))
        assert response.error_code == 0
        assert codes == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
        assert [there.replica(index).is_leader for index in range(3)] == [True, False, False]
        assert [there.replica(index).leader_id for index in range(3)] == [1, 7, -1]
        assert there.replica(0).topic_id == (TOPIC_ID if version >= 5 else ZERO_UUID)
        _, codes = await there.lead_or_follow(version, led(0, 7, 1), led(1, 1, 1))
        assert codes == {("t", 0): 0, ("t", 1): 0}
        assert [there.replica(index).is_leader for index in range(3)] == [False, True, False]


@pytest.mark.parametrize("version", range(8))
async def test_errors_of_partitions(version: int, autojump_clock: MockClock) -> None:
    async with peer() as there:
        await there.lead_or_follow(version, led(0, 1, 4), led(1, 7, 4))
        strange = replace(led(2, 7), partition=replace(led(2, 7).partition, replicas=(7, 8), isr=(7,)))
        _, codes = await there.lead_or_follow(version, led(0, 1, 4), led(1, 7, 3), strange, led(3, 1))
        assert codes == {
            ("t", 0): ErrorCode.STALE_CONTROLLER_EPOCH,
            ("t", 1): ErrorCode.STALE_CONTROLLER_EPOCH,
            ("t", 2): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("t", 3): ErrorCode.NONE,
        }
        assert there.replica(2) is None
        if version >= 5:
            _, codes = await there.lead_or_follow(version, replace(led(0, 1, 9), topic_id=b"x" * 16))
            assert codes == {("t", 0): ErrorCode.INCONSISTENT_TOPIC_ID}
            assert there.replica(0).leader_epoch == 4


async def test_a_topic_gets_its_id_without_a_new_epoch(autojump_clock: MockClock) -> None:
    async with peer() as there:
        await there.lead_or_follow(4, led(0, 1, 4))
        assert there.replica(0).topic_id == ZERO_UUID
        _, codes = await there.lead_or_follow(7, led(0, 1, 4))
        assert codes == {("t", 0): ErrorCode.NONE}
        assert there.replica(0).topic_id == TOPIC_ID


@pytest.mark.parametrize("version", range(8))
async def test_whole_messages_that_are_refused(version: int, autojump_clock: MockClock) -> None:
    async with peer() as there:
        await there.lead_or_follow(version, led(0, 1))
        response, codes = await there.lead_or_follow(version, led(0, 1, 1), led(1, 1), epoch=EPOCH - 1)
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert codes == dict.fromkeys((("t", 0), ("t", 1)), ErrorCode.STALE_CONTROLLER_EPOCH)
        if version >= 2:
            before = there.broker_epoch - 1
            response, codes = await there.lead_or_follow(version, led(0, 1, 1), led(1, 1), broker_epoch=before)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
            assert codes == dict.fromkeys((("t", 0), ("t", 1)), ErrorCode.STALE_BROKER_EPOCH)
        assert there.replica(1) is None
        assert there.replica(0).leader_epoch == 0
        _, codes = await there.lead_or_follow(version, led(1, 1), broker_epoch=there.broker_epoch + 9)
        assert codes == {("t", 1): 0}, "an epoch of a registration that this broker has not heard of yet"


@pytest.mark.parametrize("version", range(9))
async def test_update_metadata(version: int, autojump_clock: MockClock) -> None:
    async with peer() as there:
        told = led(1, 7, 3, 8)
        assert (await there.tell(version, led(0, 1), told)).error_code == 0
        image = there.broker.services.image
        assert (image.controller_id, image.controller_epoch) == (7, EPOCH)
        assert sorted(image.brokers) == [1, 7]
        assert image.brokers[7] == (OTHER if version >= 2 else replace(OTHER, rack=None))
        assert image.topics["t"].partitions[1] == told.partition
        assert image.topics["t"].topic_id == (TOPIC_ID if version >= 7 else ZERO_UUID)
        answer = await there.client.ask(MetadataRequest(topics=None), 8)
        assert {(b.node_id, b.host) for b in answer.brokers} >= {(7, "seven")}
        assert [(p.leader_id, p.leader_epoch) for p in answer.topics[0].partitions] == [(1, 0), (7, 3)]
        assert (await there.tell(version, epoch=EPOCH - 1)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        if version >= 5:
            stale = await there.tell(version, broker_epoch=there.broker_epoch - 1)
            assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        gone = [replace(c, partition=replace(c.partition, leader=-2, leader_epoch=-2)) for c in (led(0, 1), told)]
        await there.tell(version, *gone, epoch=EPOCH + 1)
        assert "t" not in there.broker.services.image.topics


@pytest.mark.parametrize("version", range(5))
async def test_stop_replica(version: int, autojump_clock: MockClock) -> None:
    async with peer() as there:
        await there.lead_or_follow(7, led(0, 7), led(1, 1), led(2, 7, 6))
        directory = Path(there.broker.services.partitions.log_dirs.dirs[0].path)
        response, codes = await there.stop(version, *(StoppedPartition("t", index, -2, False) for index in range(3)))
        assert response.error_code == 0
        assert codes == {("t", 0): 0, ("t", 1): 0, ("t", 2): 0}
        assert there.replica(0) is not None
        unknown = StoppedPartition("no", 3, -2, True)
        response, codes = await there.stop(version, StoppedPartition("t", 0, -2, True), unknown)
        assert codes == {("t", 0): 0, ("no", 3): 0}
        assert there.replica(0) is None
        old = StoppedPartition("t", 2, 5, True)
        response, codes = await there.stop(version, old)
        if version >= 3:
            assert codes == {("t", 2): ErrorCode.FENCED_LEADER_EPOCH}
            assert there.replica(2) is not None
            response, codes = await there.stop(version, replace(old, leader_epoch=6))
        assert codes == {("t", 2): 0}
        assert there.replica(2) is None
        assert [path.name for path in sorted(directory.glob("t-?"))] == ["t-1"]


@pytest.mark.parametrize("version", range(5))
async def test_stop_replica_messages_that_are_refused(version: int, autojump_clock: MockClock) -> None:
    async with peer() as there:
        await there.lead_or_follow(7, led(0, 1))
        doomed = StoppedPartition("t", 0, -2, True)
        response, codes = await there.stop(version, doomed, epoch=EPOCH - 1)
        assert (response.error_code, codes) == (ErrorCode.STALE_CONTROLLER_EPOCH, {})
        if version >= 1:
            response, codes = await there.stop(version, doomed, broker_epoch=there.broker_epoch - 1)
            assert (response.error_code, codes) == (ErrorCode.STALE_BROKER_EPOCH, {})
        assert there.replica(0) is not None


async def test_any_of_the_three_raises_the_controller_epoch(autojump_clock: MockClock) -> None:
    async with peer() as there:
        await there.stop(4, epoch=EPOCH + 1)
        assert (await there.tell(8)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        await there.lead_or_follow(7, epoch=EPOCH + 2)
        assert (await there.tell(8, epoch=EPOCH + 1)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        assert (await there.tell(8, epoch=EPOCH + 2)).error_code == 0


async def test_a_broker_that_runs_alone_takes_none_of_them(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker:
        for request, version in (
            (wire.leader_and_isr_request(LeaderAndIsr(7, EPOCH, -1, ()), 7, "PLAINTEXT"), 7),
            (wire.update_metadata_request(UpdateMetadata(7, EPOCH, -1, ()), 8), 8),
            (wire.stop_replica_requests(StopReplica(7, EPOCH, -1, (StoppedPartition("t", 0, -2, True),)), 4)[0], 4),
        ):
            async with connected(broker) as client:
                with pytest.raises(EOFError):
                    await client.ask(request, version)
        assert broker.services.image.controller_epoch == 1
