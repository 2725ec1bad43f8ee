"""GetTelemetrySubscriptions and PushTelemetry over the wire, from the subscription to `/metrics`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, uuid_to_text
from barnabas.kproto.compression import compress
from barnabas.kproto.messages import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    IncrementalAlterConfigsRequest,
    PushTelemetryRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.api import TELEMETRY
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.metrics.kit import OPEN_METRICS, dialled, measured_broker, scrape
from barnabas.server.tests.telemetry.otlp_kit import counter, gauge, metrics_data, point

CLIENT_METRICS = 16
EVERY_100_MS = {"metrics": "org.apache.kafka.", "interval.ms": "100"}


async def subscribe(client: Client, name: str, **settings: str | None) -> None:
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."), config_operation=int(value is None), value=value
        )
        for key, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configs=configs
    )
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer


async def asked(client: Client, instance_id: bytes = ZERO_UUID) -> GetTelemetrySubscriptionsResponse:
    answer = await client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id), 0)
    assert isinstance(answer, GetTelemetrySubscriptionsResponse)
    return answer


async def pushed(
    client: Client,
    told: GetTelemetrySubscriptionsResponse,
    data: bytes,
    *,
    codec: int = 0,
    terminating: bool = False,
    subscription_id: int | None = None,
) -> int:
    """The error code."""
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id if subscription_id is None else subscription_id,
        terminating=terminating,
        compression_type=codec,
        metrics=data,
    )
    answer = await client.ask(request, 0)
    assert answer.throttle_time_ms == 0
    return int(answer.error_code)


async def offered(broker: Broker) -> set[int]:
    async with connected(broker) as client:
        answer = await client.ask(ApiVersionsRequest(), 0)
    return {each.api_key for each in answer.api_keys} & TELEMETRY


async def test_offered_only_where_it_is_shown() -> None:
    async with embedded_broker() as broker:
        assert await offered(broker) == set()
        async with connected(broker) as client:
            with pytest.raises(EOFError):
                await asked(client)
    async with measured_broker() as broker:
        assert await offered(broker) == TELEMETRY
    async with measured_broker(metrics_telemetry_series_max="0") as broker:
        assert await offered(broker) == set()
        assert "kafka_server_client_metrics_instance_count" not in (await scrape(broker)).names


async def test_without_subscriptions_a_client_pushes_nothing() -> None:
    async with measured_broker() as broker, connected(broker) as client:
        told = await asked(client)
        assert told.error_code == 0
        assert told.client_instance_id != ZERO_UUID
        assert told.requested_metrics == []
        assert told.push_interval_ms == 300_000
        assert told.accepted_compression_types == [4, 3, 1, 2]
        assert told.telemetry_max_bytes == 1048576
        assert told.delta_temporality
        again = await asked(client, told.client_instance_id)
        assert again == GetTelemetrySubscriptionsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)


@pytest.mark.parametrize("codec", range(5))
async def test_from_a_subscription_to_a_scrape(codec: int) -> None:
    async with measured_broker() as broker, dialled(broker) as client:
        await client.ask(ApiVersionsRequest(client_software_name="lib", client_software_version="1.2"), 3)
        port = client.stream.socket.getsockname()[1]  # type: ignore[attr-defined]
        only_me = (
            f"client_id=test,client_software_version=1.2,client_source_address=127.0.0.1,client_source_port={port}"
        )
        await subscribe(client, "mine", **EVERY_100_MS, match=only_me)
        await subscribe(client, "not mine", metrics="*", match="client_id=other")
        told = await asked(client)
        assert (told.requested_metrics, told.push_interval_ms) == (["org.apache.kafka."], 100)
        data = metrics_data(
            gauge("org.apache.kafka.consumer.fetch.manager.records.lag", point(12.5, topic='t"\n', partition="0")),
            counter("org.apache.kafka.consumer.poll.total", point(3)),
            group_id="g",
        )
        assert await pushed(client, told, compress(codec, data), codec=codec) == 0
        assert await pushed(client, told, compress(codec, data), codec=codec, terminating=True) == 0
        for accept in ("", OPEN_METRICS):
            page = await scrape(broker, accept)
            who = {"client_instance_id": uuid_to_text(told.client_instance_id), "client_id": "test"}
            lag = "org_apache_kafka_consumer_fetch_manager_records_lag"
            assert page(lag, **who, topic='t"\n', partition="0") == 12.5
            assert page("org_apache_kafka_consumer_poll_total", **who) == 6
            says = {"client_software_name": "lib", "client_software_version": "1.2", "group_id": "g"}
            assert page("barnabas_client_info", **who, **says, client_source_address="127.0.0.1") == 1
            assert page("kafka_server_client_metrics_plugin_export_total") == 2
            assert page("kafka_server_client_metrics_instance_count") == 1
            assert page("barnabas_client_series") == 2


async def test_errors_of_pushes(caplog: pytest.LogCaptureFixture) -> None:
    async with measured_broker(telemetry_max_bytes="1000") as broker:
        async with connected(broker) as client:
            await subscribe(client, "all", **EVERY_100_MS)
            told = await asked(client)
            assert told.telemetry_max_bytes == 1000
        E = ErrorCode

        async def once(
            data: bytes, *, codec: int = 0, subscription_id: int | None = None, instance_id: bytes | None = None
        ) -> int:
            """Of a client of its own."""
            async with connected(broker) as client:
                told = await asked(client)
                told.client_instance_id = told.client_instance_id if instance_id is None else instance_id
                return await pushed(client, told, data, codec=codec, subscription_id=subscription_id)

        assert await once(b"", instance_id=ZERO_UUID) == E.INVALID_REQUEST
        assert await once(b"", subscription_id=1) == E.UNKNOWN_SUBSCRIPTION_ID
        assert await once(b"", codec=9) == E.UNSUPPORTED_COMPRESSION_TYPE
        assert await once(bytes(1001)) == E.TELEMETRY_TOO_LARGE
        assert await once(b"") == 0
        with caplog.at_level(logging.INFO, "barnabas.telemetry"):
            assert await once(compress(1, bytes(8001)), codec=1) == E.TELEMETRY_TOO_LARGE
            assert await once(b"not compressed", codec=4) == E.INVALID_RECORD
            assert await once(b"no protobuf") == E.INVALID_RECORD
        lines = [record.getMessage() for record in caplog.records if record.name == "barnabas.telemetry"]
        assert len(lines) == 3
        assert all("PUSH_TELEMETRY v0 of client 'test' at 127.0.0.1 pushed what cannot be read" in x for x in lines)
        page = await scrape(broker)
        assert page("kafka_server_client_metrics_plugin_error_total") == 3
        assert page("kafka_server_client_metrics_unknown_subscription_request_total") == 1


async def test_too_soon(autojump_clock: trio.abc.Clock) -> None:
    async with measured_broker() as broker, connected(broker) as client:
        await subscribe(client, "all", metrics="*", interval_ms="60000")
        told = await asked(client)
        data = metrics_data(gauge("org.apache.kafka.x", point(1.0)))
        await trio.sleep(31)
        assert await pushed(client, told, data) == 0
        await trio.sleep(59)
        assert await pushed(client, told, data) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        await trio.sleep(1)
        assert await pushed(client, told, data) == 0
        telemetry = broker.services.telemetry
        assert telemetry is not None
        now_ms = trio.current_time() * 1000
        assert len(telemetry.clients(now_ms + 179_000)) == 1
        assert telemetry.clients(now_ms + 181_000) == []


async def test_a_change_is_told(autojump_clock: trio.abc.Clock) -> None:
    async with measured_broker() as broker, connected(broker) as client:
        await subscribe(client, "s", metrics="*", interval_ms="1000")
        told = await asked(client)
        await subscribe(client, "s", metrics="org.apache.kafka.producer.")
        assert await pushed(client, told, b"") == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        told = await asked(client, told.client_instance_id)
        assert told.requested_metrics == ["org.apache.kafka.producer."]
        await subscribe(client, "s", metrics=None, interval_ms=None)
        await trio.sleep(2)
        assert await pushed(client, told, b"") == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        told = await asked(client, told.client_instance_id)
        assert (told.requested_metrics, told.push_interval_ms) == ([], 300_000)


async def test_a_stranger_cannot_speak_in_the_broker_s_name() -> None:
    async with measured_broker() as broker, connected(broker) as client:
        await subscribe(client, "all", metrics="*", interval_ms="100")
        told = await asked(client)
        evil = 'barnabas_build_info 9\n# TYPE "x"'
        data = metrics_data(
            gauge("kafka_server_kafkaserver_brokerstate", point(9.0)),
            counter("process_cpu_seconds", point(9.0)),
            gauge("org.apache.kafka.x.total", point(1.0)),
            counter("org.apache.kafka.x", point(2.0)),  # the same sample, of another kind
            counter("org.apache.kafka.y", point(3.0)),
            gauge("org.apache.kafka.y", point(4.0)),  # the same family
            gauge(evil, point(float("nan"), **{"__name__": "up", "client_id": "root", "a b": evil})),
        )
        assert await pushed(client, told, data) == 0
        for accept in ("", OPEN_METRICS):
            page = await scrape(broker, accept)
            assert page("kafka_server_kafkaserver_brokerstate") == 3
            assert len([each for each in page.samples if each.labels.get("client_id") == "root"]) == 0
            assert [value for _, value in page.labelled("org_apache_kafka_x_total")] == [1.0]
            assert [value for _, value in page.labelled("org_apache_kafka_y_total")] == [3.0]
            assert page.labelled("org_apache_kafka_y") == []
            pushed_names = {name for name in page.names if name.startswith("client_pushed_")}
            assert pushed_names == {
                "client_pushed_kafka_server_kafkaserver_brokerstate",
                "client_pushed_process_cpu_seconds_total",
                "client_pushed_barnabas_build_info_9_TYPE_x",
            }


async def test_subscriptions_are_the_cluster_s(autojump_clock: trio.abc.Clock) -> None:
    """Made at one broker, stored, told by all, also after a restart."""
    async with embedded_cluster(2, metrics_listener="http://127.0.0.1:0") as cluster:
        first, second = cluster[1], cluster[2]
        async with connected(first) as client:
            await subscribe(client, "a/b ü", **EVERY_100_MS)
        async with connected(second) as client:
            for _ in range(100):
                told = await asked(client)
                if told.requested_metrics:
                    break
                await trio.sleep(0.1)
            assert told.requested_metrics == ["org.apache.kafka."]
            await subscribe(client, "a/b ü", **dict.fromkeys(EVERY_100_MS))
        store = first.services.cluster.store
        assert await store.children("/config/client-metrics") == []


async def test_subscriptions_outlive_the_broker(tmp_path: Path) -> None:
    for name in ("first", "second"):
        async with measured_broker(tmp_path) as broker, connected(broker) as client:
            await subscribe(client, name, metrics=f"{name}.")
    async with measured_broker(tmp_path) as broker, connected(broker) as client:
        assert (await asked(client)).requested_metrics == ["first.", "second."]


def test_the_pair() -> None:
    assert {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY} == TELEMETRY
