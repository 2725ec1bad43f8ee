"""Three brokers in one process, on one tree, under a mock clock: what clients see while brokers come and go."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto.messages import (
    ApiVersionsRequest,
    ControlledShutdownRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
)
from barnabas.replication import GROUP_METADATA_TOPIC
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.whole.cluster_users import E, User, three_brokers

# -- who is who ----------------------------------------------------------------------------------------------------


async def test_every_broker_describes_the_same_cluster(autojump_clock: MockClock) -> None:
    async with three_brokers(broker_rack="r") as cluster:
        user = User(cluster)
        await user.topic("t", 3)
        await user.commit("g", 1)
        await cluster.partition_until(GROUP_METADATA_TOPIC, 0, lambda p: len(p.isr) == 3)
        told = []
        for broker_id in cluster.running:
            metadata = await user.ask(broker_id, MetadataRequest(topics=None), 12)
            assert [(b.node_id, b.rack) for b in metadata.brokers] == [(1, "r"), (2, "r"), (3, "r")]
            ports = {b.node_id: b.port for b in metadata.brokers}
            assert ports == {i: cluster[i].endpoints[0].port for i in (1, 2, 3)}
            assert metadata.controller_id == cluster.controller()
            (topic,) = [each for each in metadata.topics if each.name == "t"]
            assert sorted(p.leader_id for p in topic.partitions) == [1, 2, 3]
            described = await user.ask(broker_id, DescribeClusterRequest(), 1)
            assert (described.controller_id, len(described.brokers)) == (cluster.controller(), 3)
            asked = DescribeTopicPartitionsRequest.TopicRequest(name="t")
            pages = await user.ask(broker_id, DescribeTopicPartitionsRequest(topics=[asked]), 0)
            batch = FindCoordinatorRequest(coordinator_keys=["g", "h", "i"])
            found = await user.ask(broker_id, batch, 4)
            assert [c.error_code for c in found.coordinators] == [0, 0, 0]
            assert all(c.port == ports[c.node_id] for c in found.coordinators)
            told.append((topic, pages.topics, [(c.key, c.node_id) for c in found.coordinators]))
        assert told[0] == told[1] == told[2]


async def test_each_listener_advertises_its_own_addresses(autojump_clock: MockClock) -> None:
    async with three_brokers(
        listeners="OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
        listener_security_protocol_map="OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    ) as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.produce("t", b"v")  # so the followers have found the leader
        await user.commit("g", 1)
        for number, listener in enumerate(("OUTSIDE", "INSIDE")):
            ports = {i: cluster[i].endpoints[number].port for i in (1, 2, 3)}
            async with connected(cluster[2], listener) as client:
                metadata = await client.ask(MetadataRequest(topics=[]), 12)
                assert {b.node_id: b.port for b in metadata.brokers} == ports
                found = await client.ask(FindCoordinatorRequest(key="g"), 3)
                assert found.port == ports[found.node_id]
                described = await client.ask(DescribeClusterRequest(), 1)
                assert {b.broker_id: b.port for b in described.brokers} == ports


async def test_replicas_on_dead_brokers_are_offline(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        gone = await cluster.leader("t")
        await cluster.kill(gone)
        leader = await cluster.leader("t", but=gone)
        metadata = await user.ask(leader, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 12)
        (partition,) = metadata.topics[0].partitions
        assert partition.error_code == E.NONE
        assert partition.offline_replicas == [gone]
        assert gone not in partition.isr_nodes
        old = await user.ask(leader, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), 0)
        assert old.topics[0].partitions[0].error_code == E.REPLICA_NOT_AVAILABLE


async def test_a_partition_without_live_replicas_has_no_leader(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t", replicas=1)
        gone = await cluster.leader("t")
        await cluster.kill(gone)
        await cluster.image_until(lambda image: image.topics["t"].partitions[0].leader == -1)
        for broker_id in cluster.running:
            wanted = [MetadataRequest.MetadataRequestTopic(name="t")]
            metadata = await user.ask(broker_id, MetadataRequest(topics=wanted), 12)
            (partition,) = metadata.topics[0].partitions
            assert (partition.error_code, partition.leader_id) == (E.LEADER_NOT_AVAILABLE, -1)
        await cluster.start(gone)
        assert await cluster.leader("t") == gone


async def test_topics_are_made_by_the_controller_alone(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        other = next(i for i in cluster.running if i != cluster.controller())
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        answer = await user.ask(other, CreateTopicsRequest(topics=[topic]), 5)
        assert answer.topics[0].error_code == E.NOT_CONTROLLER
        deletion = await user.ask(other, DeleteTopicsRequest(topic_names=["t"]), 5)
        assert deletion.responses[0].error_code == E.NOT_CONTROLLER


async def test_any_broker_has_missing_topics_created(autojump_clock: MockClock) -> None:
    async with three_brokers(num_partitions="2") as cluster:
        user = User(cluster)
        other = next(i for i in cluster.running if i != cluster.controller())
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="wanted")])
        answer = await user.ask(other, request, 12)
        assert answer.topics[0].error_code in (E.LEADER_NOT_AVAILABLE, E.UNKNOWN_TOPIC_OR_PARTITION)
        await cluster.leader("wanted", 1)
        answer = await user.ask(other, request, 12)
        assert [len(p.replica_nodes) for p in answer.topics[0].partitions] == [3, 3]


BETWEEN_BROKERS = (4, 5, 6, 7, 56, 67)


async def test_members_of_a_cluster_list_the_apis_between_brokers(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        answer = await User(cluster).ask(1, ApiVersionsRequest(), 0)
        assert {key.api_key for key in answer.api_keys} >= set(BETWEEN_BROKERS)


async def test_a_broker_alone_does_not(autojump_clock: MockClock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        answer = await client.ask(ApiVersionsRequest(), 0)
        assert not {key.api_key for key in answer.api_keys} & set(BETWEEN_BROKERS)
        with pytest.raises((EOFError, trio.BrokenResourceError)):
            await client.ask(ControlledShutdownRequest(broker_id=1), 1)


# -- producer ids ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["3.9", "2.8"])
async def test_producer_ids_are_unique_in_the_cluster(protocol: str, autojump_clock: MockClock) -> None:
    async with three_brokers(inter_broker_protocol_version=protocol) as cluster:
        user = User(cluster)
        ids: list[int] = []

        async def take(broker_id: int) -> None:
            async with connected(cluster[broker_id]) as client:
                for _ in range(1100):
                    answer = await client.ask(InitProducerIdRequest(transactional_id=None), 4)
                    assert answer.error_code == E.NONE
                    ids.append(answer.producer_id)

        async with trio.open_nursery() as nursery:
            for broker_id in cluster.running:
                nursery.start_soon(take, broker_id)
        assert len(set(ids)) == 3300
        controller = cluster.controller()
        await cluster.kill(controller)
        left = cluster.running[0]
        answer = await user.ask(left, InitProducerIdRequest(transactional_id=None), 4)
        assert answer.producer_id not in ids


async def test_settings_for_all_brokers_reach_all(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        await User(cluster).configure(2, 4, "", "message.max.bytes", "12345")
        await trio.sleep(1)
        assert [cluster[i].config.get_int("message.max.bytes") for i in cluster.running] == [12345] * 3
        await cluster.stop(3)
        await cluster.start(3)
        assert cluster[3].config.get_int("message.max.bytes") == 12345


# -- stopping --------------------------------------------------------------------------------------------------------


async def test_a_broker_stops_in_order_without_an_error_to_clients(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t", 6)
        for index in range(6):
            await user.produce("t", b"before", index)
        leaving = await cluster.leader("t", 0)
        began = trio.current_time()
        await cluster.stop(leaving)
        assert trio.current_time() - began < 2  # nobody had to be waited for
        for index in range(6):
            partition = cluster[cluster.running[0]].services.image.topics["t"].partitions[index]
            assert partition.leader in cluster.running
            assert leaving not in partition.isr
            assert (await user.produce("t", b"after", index), user.retried) == (1, set())
        assert cluster[leaving].services.partitions.log_dirs.offline == []


async def test_a_rolling_restart_loses_nothing(autojump_clock: MockClock) -> None:
    async with three_brokers(min_insync_replicas="2") as cluster:
        user = User(cluster)
        await user.topic("t")
        stop = False
        offsets: list[int] = []

        async def produce() -> None:
            while not stop:
                offsets.append(await user.produce("t", b"%d" % len(offsets)))
                await user.commit("g", offsets[-1] + 1)
                await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            for broker_id in (1, 2, 3, 1):
                await trio.sleep(2)
                await cluster.stop(broker_id)
                await trio.sleep(2)
                await cluster.start(broker_id)
                await cluster.all_alive()
                await cluster.partition_until("t", 0, lambda p: len(p.isr) == 3)
                for index in range(3):
                    await cluster.partition_until(GROUP_METADATA_TOPIC, index, lambda p: len(p.isr) == 3)
            stop = True
        assert len(offsets) > 100
        assert offsets == sorted(set(offsets))
        assert await user.end_offset("t") >= len(offsets)
        assert await user.committed("g") == offsets[-1] + 1


async def test_the_last_broker_stops_without_a_successor(autojump_clock: MockClock) -> None:
    async with three_brokers(controlled_shutdown_retry_backoff_ms="1000") as cluster:
        user = User(cluster)
        await user.topic("t")
        await cluster.stop(1)
        await cluster.stop(2)
        began = trio.current_time()
        await cluster.stop(3)
        assert trio.current_time() - began < 10


async def test_a_broker_asked_twice_to_stop_stops_immediately(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        await cluster.stop(1)
        await cluster.stop(2)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stop, 3)
            await trio.sleep(1)
            await cluster[3].stop(now=True)
        assert trio.current_time() - began < 1.5


async def test_without_a_controlled_shutdown_leaders_move_when_the_broker_is_gone(autojump_clock: MockClock) -> None:
    async with three_brokers(controlled_shutdown_enable="false") as cluster:
        user = User(cluster)
        await user.topic("t")
        leaving = await cluster.leader("t")
        await cluster.stop(leaving)
        assert await cluster.leader("t", but=leaving) != leaving


# -- records that are given up ---------------------------------------------------------------------------------------


async def test_records_are_deleted_on_all_replicas(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        for _ in range(10):
            await user.produce("t", b"v")
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=4)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
        leader = await cluster.leader("t")
        answer = await user.ask(leader, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 1)
        (result,) = answer.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (E.NONE, 4)
        for broker_id in cluster.running:
            assert cluster[broker_id].services.partitions.get("t", 0).log_start_offset == 4
        follower = next(i for i in cluster.running if i != leader)
        answer = await user.ask(follower, DeleteRecordsRequest(topics=[topic], timeout_ms=30_000), 1)
        assert answer.topics[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER


async def test_delete_records_waits_for_a_silent_replica_up_to_its_time_out(autojump_clock: MockClock) -> None:
    async with three_brokers(replica_lag_time_max_ms="600000") as cluster:
        user = User(cluster)
        await user.topic("t")
        for _ in range(3):
            await user.produce("t", b"v")
        leader = await cluster.leader("t")
        follower = next(i for i in cluster.running if i != leader)
        await cluster.cut(leader, follower)
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=1)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
        began = trio.current_time()
        answer = await user.ask(leader, DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), 1)
        assert answer.topics[0].partitions[0].error_code == E.REQUEST_TIMED_OUT
        assert answer.topics[0].partitions[0].low_watermark == 0
        assert 4.9 < trio.current_time() - began < 6


async def test_any_replica_describes_its_producers(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.produce("t", b"v", producer_id=77)
        await trio.sleep(1)
        topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0])
        for broker_id in cluster.running:
            answer = await user.ask(broker_id, DescribeProducersRequest(topics=[topic]), 0)
            (partition,) = answer.topics[0].partitions
            assert [producer.producer_id for producer in partition.active_producers] == [77]


# -- sessions --------------------------------------------------------------------------------------------------------


async def test_a_broker_whose_session_ends_comes_back_with_another_epoch(autojump_clock: MockClock) -> None:
    async with three_brokers() as cluster:
        user = User(cluster)
        await user.topic("t")
        await user.produce("t", b"1")
        for broker_id in (2, cluster.controller(), await cluster.leader("t")):
            before = cluster[broker_id].services.cluster.broker_epoch
            await cluster.expire(broker_id)
            await trio.sleep(5)
            assert cluster[broker_id].services.cluster.broker_epoch > before
            await cluster.all_alive()
            await cluster.partition_until("t", 0, lambda p: len(p.isr) == 3)
        assert await user.produce("t", b"2") == 1
