"""Log-ins, denied requests and quotas in metrics."""

from __future__ import annotations

from pathlib import Path

import trio
from trio.testing import MockClock

from barnabas.kproto.messages import AlterClientQuotasRequest, CreateTopicsRequest
from barnabas.server.security.quotas.entities import QuotaEntity, QuotaKey
from barnabas.server.security.quotas.limits import DEFAULT
from barnabas.server.testing import Client
from barnabas.server.tests.apis.records.test_produce import batch, request
from barnabas.server.tests.metrics.kit import dialled, measured_broker, scrape
from barnabas.server.tests.network.sasl_rig import log_in, sasl_broker
from barnabas.server.tests.network.tcp_rig import moved_by_hand


async def test_log_ins_by_listener(tmp_path: Path) -> None:
    settings = {"metrics_listener": "http://127.0.0.1:0", "connection_failed_authentication_delay_ms": "0"}
    async with sasl_broker(tmp_path, **settings) as broker:
        port = broker.endpoints[0].port
        for password in ("secret-of-alice", "wrong", "secret-of-alice"):
            async with await trio.open_tcp_stream("localhost", port) as stream:
                await log_in(Client(stream), password=password)
        page = await scrape(broker)
        for name, counts in (("successful", (2, 0)), ("failed", (1, 0))):
            for listener, count in zip(("CLIENTS", "PLAINTEXT"), counts, strict=True):
                of = {"listener": listener, "networkProcessor": "0"}
                assert page(f"kafka_server_socket_server_metrics_{name}_authentication_total", **of) == count
        # The frames of log-ins are no requests.
        assert page.labelled("kafka_network_requestmetrics_requests_total") == []


async def test_denials() -> None:
    acls = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    async with measured_broker(authorizer_class_name=acls) as broker, dialled(broker) as client:
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        assert answer.topics[0].error_code == 29
        page = await scrape(broker)
        denials = page.labelled("barnabas_authorization_denials_total")
        assert [(labels["operation"].lower(), value) for labels, value in denials] == [("create", 1)]
        # A request that was not admitted counts as any other, once.
        assert page("kafka_network_requestmetrics_requests_total", request="CreateTopics", version="7") == 1


async def test_throttled_clients(mock_clock: MockClock) -> None:
    """What was measured is forgotten in time: none passes."""
    async with measured_broker() as broker, moved_by_hand(mock_clock), dialled(broker) as client:
        await broker.services.topics.auto_create(["t"])
        alter = AlterClientQuotasRequest
        entry = alter.EntryData(
            entity=[alter.EntityData(entity_type="client-id", entity_name="test")],
            ops=[alter.OpData(key="producer_byte_rate", value=1000.0)],
        )
        assert (await client.ask(alter(entries=[entry]), 1)).entries[0].error_code == 0
        for _ in range(2):
            async with dialled(broker) as other:
                answer = await other.ask(request(batch(bytes(30_000))), 9)
        assert answer.throttle_time_ms > 0
        page = await scrape(broker)
        assert page("barnabas_throttled_requests_total", request="Produce") >= 1
        assert page("barnabas_throttle_seconds_total", request="Produce") >= answer.throttle_time_ms / 1000
        assert page("kafka_network_requestmetrics_requests_total", request="Produce", version="9") == 2
        of = {"resource": "Produce", "clientId": "test"}
        assert page("kafka_server_quota_byte_rate", **of) > 1000
        assert page("kafka_server_quota_throttle_time", **of) >= answer.throttle_time_ms / 2
        assert page("barnabas_metrics_quotas_left_out") == 0


async def test_quotas_of_all_kinds(mock_clock: MockClock) -> None:
    """Whose they are is whose the quota is: a user's, a client id's, both. No time passes, and brings tokens back."""
    async with (
        measured_broker(metrics_clients_max="2") as broker,
        moved_by_hand(mock_clock),
        dialled(broker) as client,
    ):
        await broker.services.topics.auto_create(["t"])
        quotas, user = broker.services.quotas, "ANONYMOUS"
        await quotas.alter(QuotaEntity(user=user), {QuotaKey.REQUEST: "50"})
        await quotas.alter(QuotaEntity(client_id=DEFAULT), {QuotaKey.PRODUCE: "1e9"})
        await quotas.alter(QuotaEntity(user, "test"), {QuotaKey.MUTATIONS: "10"})
        for client_id in ("a", "b", "c"):
            await client.ask(request(batch(b"x")), 9, client_id=client_id)
        topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=3, replication_factor=1)
        await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        page = await scrape(broker)
        produced = page.labelled("kafka_server_quota_byte_rate")
        assert [labels for labels, _ in produced] == [
            {"resource": "Produce", "clientId": "a"},
            {"resource": "Produce", "clientId": "b"},
        ]
        assert page("barnabas_metrics_quotas_left_out") == 1
        assert page("kafka_server_quota_request_time", resource="Request", user=user) > 0
        both = {"resource": "ControllerMutation", "user": user, "clientId": "test"}
        assert page("kafka_server_quota_tokens", **both) < 110
        assert {value for _, value in page.labelled("kafka_server_quota_throttle_time")} == {0}
