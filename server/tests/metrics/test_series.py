"""What series say of topics, partitions, groups and the cluster: against what happened."""

from __future__ import annotations

import pytest
import trio

from barnabas.kproto.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    LeaveGroupRequest,
    MetadataRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.server.metrics import group_lag
from barnabas.server.testing import Client, EmbeddedCluster, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.groups.test_consumer_group_apis import Asker as ConsumerAsker
from barnabas.server.tests.apis.groups.test_group_apis import Asker
from barnabas.server.tests.apis.records.test_produce import batch, only, request
from barnabas.server.tests.metrics.kit import OPEN_METRICS, Scraped, dialled, measured_broker, scrape

TRAFFIC = "kafka_server_brokertopicmetrics_{}_total"


async def produced(client: Client, *values: bytes, topic: str = "t", index: int = 0) -> int:
    records = batch(*values)
    assert only(await client.ask(request(records, topic=topic, index=index), 9)).error_code == 0
    return len(records)


async def test_traffic_by_topic_and_of_all() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["t", "u"])
        sizes = [await produced(client, b"a", b"b"), await produced(client, b"c", topic="u")]
        page = await scrape(broker)
        assert page(TRAFFIC.format("messagesin"), topic="t") == 2
        assert page(TRAFFIC.format("messagesin"), topic="u") == 1
        assert page(TRAFFIC.format("messagesin")) == 3
        assert page(TRAFFIC.format("bytesin"), topic="t") == sizes[0]
        assert page(TRAFFIC.format("bytesin")) == sum(sizes)
        assert page(TRAFFIC.format("bytesout")) == 0
        place = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        fetch = FetchRequest(
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic="t", partitions=[place])],
        )
        for _ in range(4):  # by the slow path, and the fast one
            await client.ask(fetch, 12)
        page = await scrape(broker)
        assert page(TRAFFIC.format("bytesout"), topic="t") == 4 * sizes[0]
        assert page(TRAFFIC.format("totalfetchrequests"), topic="t") == 4


async def test_sums_do_not_fall_when_a_topic_goes() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["t", "u"])
        await produced(client, b"a")
        await produced(client, b"a", topic="u")
        assert (await scrape(broker))(TRAFFIC.format("messagesin")) == 2
        deleted = await client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=60_000), 5)
        assert deleted.responses[0].error_code == 0
        await produced(client, b"b", topic="u")
        page = await scrape(broker)
        assert page(TRAFFIC.format("messagesin")) == 3
        assert [labels for labels, _ in page.labelled(TRAFFIC.format("messagesin"))] == [{}, {"topic": "u"}]


async def test_batches_that_are_too_large() -> None:
    async with measured_broker(message_max_bytes="1000") as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["t"])
        records = batch(bytes(5000))
        assert only(await client.ask(request(records), 9)).error_code == 10
        page = await scrape(broker)
        assert page(TRAFFIC.format("bytesrejected"), topic="t") == len(records)
        assert page(TRAFFIC.format("failedproducerequests")) == 0


async def test_partitions_of_a_broker_alone() -> None:
    async with measured_broker(num_partitions="3") as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["t"])
        size = await produced(client, b"a", b"b", index=1)
        page = await scrape(broker)
        of = {"topic": "t", "partition": "1"}
        expected = {
            "kafka_log_log_size": size,
            "kafka_log_log_logstartoffset": 0,
            "kafka_log_log_logendoffset": 2,
            "kafka_log_log_numlogsegments": 1,
            "kafka_cluster_partition_replicascount": 1,
            "kafka_cluster_partition_insyncreplicascount": 1,
            "kafka_cluster_partition_underreplicated": 0,
            "kafka_cluster_partition_underminisr": 0,
            "kafka_cluster_partition_atminisr": 1,
            "kafka_topic_partition_current_offset": 2,
            "kafka_topic_partition_oldest_offset": 0,
            "kafka_topic_partition_leader": 1,
            "kafka_topic_partition_leader_is_preferred": 1,
            "barnabas_partition_high_watermark": 2,
        }
        assert {name: page(name, **of) for name in expected} == expected
        assert page("kafka_server_replicamanager_leadercount") == 3
        assert page("kafka_server_replicamanager_partitioncount") == 3
        assert page("kafka_topic_partitions", topic="t") == 3
        assert page("kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert page("kafka_controller_kafkacontroller_globalpartitioncount") == 3
        assert page("barnabas_log_bytes") == size
        assert [labels["partition"] for labels, _ in page.labelled("kafka_log_log_size")] == ["0", "1", "2"]


async def test_too_many_partitions_have_sums_only() -> None:
    async with measured_broker(num_partitions="3", metrics_partitions_max="2") as broker, dialled(broker) as client:
        await broker.services.topics.auto_create(["t"])
        size = await produced(client, b"a", index=1)
        page = await scrape(broker)
        assert not {name for name in page.names if name.startswith(("kafka_log_log_", "kafka_cluster_partition_"))}
        assert page("barnabas_metrics_partitions_left_out") == 3
        assert page("barnabas_log_bytes") == size
        assert page.labelled(TRAFFIC.format("bytesin")) == [({}, size)]


async def test_replicas_of_a_cluster() -> None:
    async with embedded_cluster(3, metrics_listener="http://127.0.0.1:0") as cluster:
        controller = cluster[next(iter(cluster.running))].services.image.controller_id
        async with connected(cluster[controller]) as client:
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=3, replication_factor=3)
            assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)).topics[
                0
            ].error_code == 0
        leader = await cluster.leader("t", 0)
        pages = await until_each_leads_one(cluster)
        assert sum(page("kafka_controller_kafkacontroller_activecontrollercount") for page in pages.values()) == 1
        assert sum(page("kafka_server_replicamanager_leadercount") for page in pages.values()) == 3
        assert {page("kafka_server_replicamanager_partitioncount") for page in pages.values()} == {3}
        gone = next(broker_id for broker_id in cluster.running if broker_id != leader)
        await cluster.kill(gone)
        of = {"topic": "t", "partition": "0"}
        with trio.fail_after(60):
            while True:
                page = await scrape(cluster[leader])
                if page("kafka_cluster_partition_underreplicated", **of):
                    break
        assert page("kafka_cluster_partition_insyncreplicascount", **of) == 2
        assert page("kafka_cluster_partition_replicascount", **of) == 3
        assert page("kafka_server_replicamanager_underreplicatedpartitions") >= 1


async def test_lag_where_other_brokers_lead() -> None:
    async with embedded_cluster(3, metrics_listener="http://127.0.0.1:0") as cluster:
        async with connected(cluster[1]) as client:
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=6, replication_factor=1)
            assert (await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)).topics[
                0
            ].error_code == 0
            coordinator = (await Asker(cluster[1], client).coordinator()).node_id
        for index in range(6):
            leader = await cluster.leader("t", index)
            async with connected(cluster[leader]) as client:
                await produced(client, *[b"x"] * (index + 2), index=index)
        async with connected(cluster[coordinator]) as client:
            asker = Asker(cluster[coordinator], client)
            with trio.fail_after(60):
                while (await asker.commit(dict.fromkeys(range(6), 1)))[0]:
                    await trio.lowlevel.checkpoint()
        await scrape(cluster[coordinator])
        # Other brokers tell where their partitions end; of one that is late the lag is missing.
        with trio.fail_after(60):
            while True:
                page = await scrape(cluster[coordinator])
                lags = {int(labels["partition"]): lag for labels, lag in page.labelled("kafka_consumergroup_lag")}
                if len(lags) == 6:
                    break
        assert lags == {index: index + 1 for index in range(6)}
        assert page("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == 21
        assert 1 <= len(page.labelled("kafka_consumergroup_lag_seconds")) < 6
        # A broker that does not answer costs its partitions' lags, and nothing else.
        gone = next(broker_id for broker_id in cluster.running if broker_id != coordinator)
        await cluster.kill(gone)
        page = await scrape(cluster[coordinator])
        assert 2 <= len(page.labelled("kafka_consumergroup_lag")) < 6
        assert len(page.labelled("kafka_consumergroup_current_offset")) == 6


async def until_each_leads_one(cluster: EmbeddedCluster) -> dict[int, Scraped]:
    with trio.fail_after(60):
        while True:
            pages = {broker_id: await scrape(cluster[broker_id]) for broker_id in cluster.running}
            if all(page("kafka_server_replicamanager_leadercount") == 1 for page in pages.values()):
                return pages


async def test_a_classic_group_from_beginning_to_end() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        await asker.topic("t")
        await asker.coordinator()
        asker.session_timeout_ms = 300_000
        member = await asker.member()
        page = await scrape(broker)
        assert page("barnabas_group_info", consumergroup="g", state="Stable", type="classic") == 1
        assert page("kafka_consumergroup_members", consumergroup="g") == 1
        assert page("barnabas_group_rebalances_total", consumergroup="g", reason="member joined") == 1
        assert page("kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
        await asker.commit({0: 0}, member_id=member, generation=1)
        who = LeaveGroupRequest.MemberIdentity(member_id=member)
        await asker.ask(LeaveGroupRequest(group_id="g", members=[who]), 5)
        page = await scrape(broker)
        assert page("barnabas_group_info", consumergroup="g", state="Empty", type="classic") == 1
        assert page("barnabas_group_rebalances_total", consumergroup="g", reason="member left") == 1
        assert page("kafka_coordinator_group_groupmetadatamanager_numoffsets") == 1
        assert page("barnabas_groups", state="Empty") == 1


async def test_a_consumer_group() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        asker = ConsumerAsker(client)
        await asker.topic("t")
        await asker.coordinator()
        await asker.join("a", "t")
        await asker.join("b", "t")
        await asker.beat("b", -1)
        page = await scrape(broker)
        assert page.labelled("barnabas_group_info")[0][0]["type"] == "consumer"
        assert page("kafka_consumergroup_members", consumergroup="g") == 1
        assert page("barnabas_group_rebalances_total", consumergroup="g", reason="member joined") == 2
        assert page("barnabas_group_rebalances_total", consumergroup="g", reason="member left") == 1


async def test_lag_in_records_and_seconds() -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        await asker.topic("t")
        await asker.coordinator()
        now_ms = broker.services.wall_ms()
        for age_s in (30, 20, 10):
            records = build_batch([Record(n, now_ms - age_s * 1000, None, b"x", []) for n in range(2)])
            assert only(await client.ask(request(records), 9)).error_code == 0
        seen = {}
        for committed, age_s in {0: 30, 1: 30, 2: 20, 5: 10, 6: 0, 9: 0}.items():
            await asker.commit({0: committed, 1: 0})
            page = await scrape(broker, OPEN_METRICS)
            of = {"consumergroup": "g", "topic": "t", "partition": "0"}
            assert page("kafka_consumergroup_current_offset", **of) == committed
            lag = page("kafka_consumergroup_lag", **of)
            assert page("kafka_consumergroup_lag_sum", consumergroup="g", topic="t") == lag
            seen[committed] = lag
            passed_s = (broker.services.wall_ms() - now_ms) / 1000 if age_s else 0
            assert age_s <= page("kafka_consumergroup_lag_seconds", **of) <= age_s + passed_s
            assert page("kafka_consumergroup_current_offset_sum", consumergroup="g", topic="t") == committed
        assert seen == {0: 6, 1: 5, 2: 4, 5: 1, 6: 0, 9: 0}
        of["partition"] = "1"
        assert page("kafka_consumergroup_lag", **of) == 0
        assert page("kafka_consumergroup_lag_seconds", **of) == 0


async def test_look_ups_of_times_are_kept_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = group_lag.first_time_ms
    monkeypatch.setattr(group_lag, "first_time_ms", lambda *of: asked.append(of[1]) or real(*of))
    monkeypatch.setattr(group_lag, "LOOK_UPS_MAX", 2)
    async with measured_broker(num_partitions="3") as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        await asker.topic("t", 3)
        await asker.coordinator()
        for index in range(3):
            await produced(client, b"a", b"b", index=index)
        await asker.commit({0: 0, 1: 0, 2: 0})
        page = await scrape(broker)
        assert len(page.labelled("kafka_consumergroup_lag")) == 3
        assert len(page.labelled("kafka_consumergroup_lag_seconds")) == 2
        assert len(asked) == 2
        page = await scrape(broker)
        assert len(page.labelled("kafka_consumergroup_lag_seconds")) == 3
        assert len(asked) == 3
        await scrape(broker)
        assert len(asked) == 3


async def test_too_many_groups() -> None:
    async with measured_broker(metrics_groups_max="2") as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        await asker.topic("t")
        await asker.coordinator()
        for group in ("c", "a", "b"):
            await asker.commit({0: 0}, group=group)
        page = await scrape(broker)
        groups = [labels["consumergroup"] for labels, _ in page.labelled("kafka_consumergroup_members")]
        assert groups == ["a", "b"]
        assert page("barnabas_metrics_groups_left_out") == 1
        assert page("kafka_coordinator_group_groupmetadatamanager_numgroups") == 3


async def test_names_of_clients_and_groups_are_escaped() -> None:
    nasty = 'a"} 1\nkafka_brokers 666 \\'
    async with measured_broker() as broker, dialled(broker) as client:
        asker = Asker(broker, client)
        await asker.topic("t")
        await asker.coordinator()
        await asker.commit({0: 0}, group=nasty)
        await client.ask(MetadataRequest(topics=[]), 12, client_id=nasty)
        for accept in ("", OPEN_METRICS):
            page = await scrape(broker, accept)
            assert page("kafka_brokers") == 1
            assert page("kafka_consumergroup_members", consumergroup=nasty) == 0
            assert page("barnabas_client_requests_total", client_id=nasty) == 1


async def test_connections_by_listener_and_software() -> None:
    async with measured_broker() as broker, dialled(broker) as client, dialled(broker):
        from barnabas.kproto.messages import ApiVersionsRequest

        named = ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.3.1")
        await client.ask(named, 3)
        page = await scrape(broker)
        of = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        assert page("kafka_server_socket_server_metrics_connection_count", **of) == 2
        assert page("kafka_server_socket_server_metrics_connection_creation_total", **of) == 2
        software = {
            (labels["clientSoftwareName"], labels["clientSoftwareVersion"]): value
            for labels, value in page.labelled("kafka_server_socket_server_metrics_connections_software")
        }
        assert software == {("apache-kafka-java", "4.3.1"): 1, ("unknown", "unknown"): 1}


async def test_two_brokers_in_one_process_count_apart() -> None:
    async with measured_broker() as one, embedded_broker(metrics_listener="http://127.0.0.1:0") as other:
        async with dialled(one) as client:
            await client.ask(MetadataRequest(topics=[]), 12)
        assert (await scrape(one)).labelled("kafka_network_requestmetrics_requests_total") != []
        assert (await scrape(other)).labelled("kafka_network_requestmetrics_requests_total") == []
