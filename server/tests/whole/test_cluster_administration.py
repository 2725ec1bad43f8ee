"""Four brokers in one process: partitions move, leaders are elected and balanced; by requests, by old tools' nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from barnabas.kproto.records import iter_headers, iter_records
from barnabas.replication.store.store import Create, Store
from barnabas.replication.tree.paths import (
    PREFERRED_ELECTION,
    REASSIGNMENTS,
    encode_log_dir_event,
    encode_partitions,
    encode_reassignments,
)
from barnabas.server.testing import EmbeddedCluster, embedded_cluster
from barnabas.server.tests.whole.cluster_users import User

_Topic = AlterPartitionReassignmentsRequest.ReassignableTopic
_Wish = AlterPartitionReassignmentsRequest.ReassignablePartition


class Admin(User):
    """Asks the controller."""

    async def reassign(self, targets: Mapping[int, Sequence[int] | None], topic: str = "t") -> list[int]:
        """Error codes per partition."""
        wishes = [
            _Wish(partition_index=index, replicas=None if target is None else list(target))
            for index, target in targets.items()
        ]
        request = AlterPartitionReassignmentsRequest(topics=[_Topic(name=topic, partitions=wishes)])
        answer = await self.ask(self.cluster.controller(), request, 0)
        assert answer.error_code == 0
        return [partition.error_code for one in answer.responses for partition in one.partitions]

    async def moving(self) -> dict[int, tuple[list[int], list[int], list[int]]]:
        answer = await self.ask(self.cluster.controller(), ListPartitionReassignmentsRequest(), 0)
        assert answer.error_code == 0
        return {
            p.partition_index: (p.replicas, p.adding_replicas, p.removing_replicas)
            for topic in answer.topics
            for p in topic.partitions
        }

    async def arrived(self) -> None:
        while True:
            if not await self.moving():
                return
            await trio.sleep(0.1)

    async def fill(self, count: int, index: int = 0) -> None:
        for number in range(count):
            await self.produce("t", b"%d" % number, index)

    def contents(self, broker_id: int, index: int = 0) -> list[bytes | None]:
        """What a replica holds."""
        log = self.cluster[broker_id].services.partitions.get("t", index).log
        found = log.read(0, 1 << 20, upper_offset=log.log_end_offset, min_one_batch=True)
        assert found is not None
        data = found.read()
        values = [record.value for at, _ in iter_headers(data) for record in iter_records(data, at)]
        assert len(values) == log.log_end_offset
        return values

    def holds(self, broker_id: int, index: int = 0) -> bool:
        return any(
            (partition.topic, partition.index) == ("t", index)
            for partition in self.cluster[broker_id].services.partitions
        )


@asynccontextmanager
async def four_brokers() -> AsyncIterator[Admin]:
    with trio.fail_after(2000):
        async with embedded_cluster(4) as cluster:
            yield Admin(cluster)


def replicas(cluster: EmbeddedCluster, index: int = 0) -> tuple[int, ...]:
    partition = cluster[cluster.running[0]].services.image.partition("t", index)
    assert partition is not None
    return partition.replicas


async def gone(session: Store, path: str) -> None:
    """Until there is no such node."""
    while True:
        if await session.get(path) is None:
            return
        await trio.sleep(0.1)


async def settled(cluster: EmbeddedCluster, *wanted: int, index: int = 0) -> None:
    """Until every broker sees these replicas, all in sync."""
    await cluster.partition_until("t", index, lambda p: p.replicas == wanted and set(p.isr) == set(wanted))


async def test_a_partition_moves_with_all_it_has(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        cluster = admin.cluster
        await admin.topic("t", 2, 2)
        await admin.fill(20)
        old = replicas(cluster)
        new = tuple(sorted({1, 2, 3, 4} - set(old)))
        assert await admin.reassign({0: new, 1: [9]}) == [0, 39]
        await admin.fill(5)
        await admin.arrived()
        await settled(cluster, *new)
        assert await cluster.leader("t", 0) == new[0]
        for broker_id in new:
            assert len(admin.contents(broker_id)) == 25
        assert not any(admin.holds(broker_id) for broker_id in old)
        await admin.fill(5)
        assert [len(admin.contents(broker_id)) for broker_id in new] == [30, 30]


async def test_a_move_is_called_off(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        cluster = admin.cluster
        await admin.topic("t", 4, 2)
        controller = cluster.controller()
        leaders = [await cluster.leader("t", index) for index in range(4)]
        index = next(index for index in range(4) if leaders[index] != controller)
        await admin.fill(5, index)
        old = replicas(cluster, index)
        new = [broker for broker in (1, 2, 3, 4) if broker not in old]
        late = next(broker for broker in new if broker != controller)
        assert await admin.reassign({index: None}) == [85]
        await cluster.cut(late, leaders[index])  # it cannot catch up
        assert await admin.reassign({index: new}) == [0]
        await trio.sleep(5)
        assert await admin.moving() == {index: ([*new, *old], new, list(old))}
        assert await admin.reassign({index: None}) == [0]
        assert await admin.moving() == {}
        cluster.heal(late, leaders[index])
        await settled(cluster, *old, index=index)
        await trio.sleep(5)
        assert not any(admin.holds(broker_id, index) for broker_id in new)
        await admin.fill(5, index)


async def test_moves_survive_the_controller_and_a_target(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        cluster = admin.cluster
        await admin.topic("t", 1, 3)
        await admin.fill(10)
        first, second, third = replicas(cluster)
        (fourth,) = {1, 2, 3, 4} - {first, second, third}
        controller = cluster.controller()
        target = (fourth, *[broker for broker in (first, second, third) if broker != controller][:2])
        assert await admin.reassign({0: target}) == [0]
        await cluster.kill(controller)
        await cluster.all_alive()
        await admin.fill(10)
        if controller == fourth:
            await cluster.start(fourth)
        await admin.arrived()
        await settled(cluster, *target)
        if controller != fourth:
            await cluster.start(controller)
            await cluster.all_alive()
        await admin.fill(10)
        assert [len(admin.contents(broker_id)) for broker_id in target] == [30, 30, 30]


async def test_old_tools_nodes(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        cluster = admin.cluster
        session: Store = cluster.store.connect()
        await admin.topic("t", 2, 2)
        await admin.fill(10)
        target = replicas(cluster)[::-1]
        new = tuple(sorted({1, 2, 3, 4} - set(replicas(cluster, 1))))
        await session.commit([Create(REASSIGNMENTS, encode_reassignments({("t", 0): target, ("t", 1): new}))])
        await settled(cluster, *target)
        await settled(cluster, *new, index=1)
        await gone(session, REASSIGNMENTS)
        assert await cluster.leader("t", 0) == target[1], "the leader stays"
        await session.commit([Create(PREFERRED_ELECTION, encode_partitions([("t", 0)]))])
        await cluster.partition_until("t", 0, lambda p: p.leader == target[0])
        await gone(session, PREFERRED_ELECTION)


async def test_leaders_return_by_election_and_by_balance(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        cluster = admin.cluster
        await admin.topic("t", 4, 2)
        by_leader = {await cluster.leader("t", index): index for index in range(4)}
        away = next(broker for broker in by_leader if broker != cluster.controller())
        index = by_leader[away]
        _Elect = ElectLeadersRequest.TopicPartitions
        request = ElectLeadersRequest(
            topic_partitions=[_Elect(topic="t", partitions=[0, 1, 2, 3])], timeout_ms=10_000, election_type=0
        )
        for by_request in (True, False):
            await cluster.kill(away)
            assert await cluster.leader("t", index, but=away) != away
            await cluster.start(away)
            await cluster.partition_until("t", index, lambda p: len(p.isr) == 2)
            if not by_request:  # after five seconds of a term, and every five minutes
                await cluster.partition_until("t", index, lambda p: p.leader == away)
                break
            answer = await admin.ask(cluster.controller(), request, 2)
            codes = [result.error_code for result in answer.replica_election_results[0].partition_result]
            assert codes.count(84) == 3
            assert codes[index] == 0
            await cluster.partition_until("t", index, lambda p: p.leader == away)


async def test_other_brokers_answer_not_controller(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        other = next(broker for broker in (1, 2, 3, 4) if broker != admin.cluster.controller())
        requests = [
            (AlterPartitionReassignmentsRequest(), 1),
            (ListPartitionReassignmentsRequest(), 0),
            (ElectLeadersRequest(topic_partitions=[]), 2),
            (AlterPartitionRequest(broker_id=other), 3),
            (ControlledShutdownRequest(broker_id=other), 3),
            (AllocateProducerIdsRequest(broker_id=other), 0),
        ]
        for request, version in requests:
            assert (await admin.ask(other, request, version)).error_code == 41, request


async def test_outdated_and_unknown_broker_registrations(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        controller = admin.cluster.controller()
        epoch = admin.cluster[controller].services.image.brokers[2].epoch
        requests = [
            (AlterPartitionRequest(broker_id=2, broker_epoch=epoch - 1), 3, 77),
            (AlterPartitionRequest(broker_id=9, broker_epoch=epoch), 3, 77),
            (AlterPartitionRequest(broker_id=2, broker_epoch=epoch), 3, 0),
            (ControlledShutdownRequest(broker_id=2, broker_epoch=epoch - 1), 3, 77),
            (ControlledShutdownRequest(broker_id=9), 0, 8),
            (AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch + 1), 0, 77),
            (AllocateProducerIdsRequest(broker_id=9, broker_epoch=epoch), 0, 102),
            (AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch), 0, 0),
        ]
        for request, version, code in requests:
            assert (await admin.ask(controller, request, version)).error_code == code, request


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_alter_partition_as_every_version_sees_it(version: int, autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        cluster = admin.cluster
        await admin.topic("t", 1, 2)
        await cluster.partition_until("t", 0, lambda p: len(p.isr) == 2)
        controller = cluster.controller()
        image = cluster[controller].services.image
        topic = image.topics["t"]
        state = topic.partitions[0]
        leader = state.leader
        data, one = AlterPartitionRequest.TopicData, AlterPartitionRequest.PartitionData
        dead = [leader, 9]

        def partition(isr: list[int]) -> AlterPartitionRequest.PartitionData:
            told = one(partition_index=0, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch)
            if version >= 3:
                told.new_isr_with_epochs = [AlterPartitionRequest.BrokerState(broker_id=broker) for broker in isr]
            else:
                told.new_isr = isr
            return told

        def request(isr: list[int], topic_id: bytes = topic.topic_id) -> AlterPartitionRequest:
            where = {"topic_id": topic_id} if version >= 2 else {"topic_name": "t"}
            epoch = image.brokers[leader].epoch
            return AlterPartitionRequest(
                broker_id=leader,
                broker_epoch=epoch,
                topics=[data(partitions=[partition(isr)], **where)],
            )

        answer = await admin.ask(controller, request(dead), version)
        assert answer.topics[0].partitions[0].error_code == 42, "not one of its replicas"
        answer = await admin.ask(controller, request([leader]), version)
        [told] = answer.topics[0].partitions
        assert (told.error_code, told.leader_id, told.isr) == (0, leader, [leader])
        assert told.partition_epoch == state.partition_epoch + 1
        if version >= 2:
            assert answer.topics[0].topic_id == topic.topic_id
            answer = await admin.ask(controller, request([leader], b"x" * 16), version)
            assert answer.topics[0].partitions[0].error_code == 100
        else:
            assert answer.topics[0].topic_name == "t"


async def test_notifications_of_older_brokers_are_read_and_removed(autojump_clock: MockClock) -> None:
    """A lost log directory: ours say that they have everything. An ISR that is there already: nothing changes."""
    async with four_brokers() as admin:
        session: Store = admin.cluster.store.connect()
        await admin.topic("t", 1, 2)
        places = ("/log_dir_event_notification", "/isr_change_notification")
        for place, name, data in zip(
            places,
            ("log_dir_event_", "isr_change_"),
            (encode_log_dir_event(2), encode_partitions([("t", 0)])),
            strict=True,
        ):
            await session.commit([Create(f"{place}/{name}", data, sequential=True)])
        for place in places:
            while True:
                if not await session.children(place):
                    break
                await trio.sleep(0.1)
        await admin.fill(3)


async def test_the_node_of_features_is_there(autojump_clock: MockClock) -> None:
    async with four_brokers() as admin:
        node = await admin.cluster.store.connect().get("/feature")
        assert node is not None
        assert node.data == b'{"version":2,"status":1,"features":{}}'
