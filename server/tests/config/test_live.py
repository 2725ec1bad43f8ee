"""Settings of a running broker: changed over the protocol, in force at once, and kept over a restart."""

from pathlib import Path
from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ProduceRequest,
)
from barnabas.kproto.records import Record, build_batch
from barnabas.server.testing import Client, connected, embedded_broker

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


async def create(client: Client, name: str, **configs: str) -> Any:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=1,
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    response = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    return response.topics[0]


async def alter(client: Client, kind: int, name: str, key: str, value: str | None) -> int:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=DELETE if value is None else SET, value=value
            )
        ],
    )
    response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    return int(response.responses[0].error_code)


async def described(client: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    response = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    (config,) = response.results[0].configs
    return config.value, config.config_source


async def produce(client: Client, topic: str, size: int) -> int:
    records = build_batch([Record(0, 1_700_000_000_000, None, b"x" * size, [])])
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    response = await client.ask(request, 9)
    return int(response.responses[0].partition_responses[0].error_code)


async def test_a_topics_limit_changes_at_once() -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        assert (await create(client, "orders")).error_code == 0
        assert await produce(client, "orders", 1000) == 0
        assert await alter(client, TOPIC, "orders", "max.message.bytes", "500") == 0
        assert await described(client, TOPIC, "orders", "max.message.bytes") == ("500", 1)
        assert await produce(client, "orders", 1000) == ErrorCode.MESSAGE_TOO_LARGE
        assert await alter(client, TOPIC, "orders", "max.message.bytes", None) == 0
        assert await produce(client, "orders", 1000) == 0


async def test_a_brokers_limit_counts_for_topics_without_one() -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await create(client, "plain")
        await create(client, "own", max_message_bytes="5000")
        assert await alter(client, BROKER, "", "message.max.bytes", "500") == 0
        assert await produce(client, "plain", 1000) == ErrorCode.MESSAGE_TOO_LARGE
        assert await produce(client, "own", 1000) == 0
        assert await described(client, TOPIC, "plain", "max.message.bytes") == ("500", 3)
        assert await alter(client, BROKER, "1", "message.max.bytes", "2000") == 0
        assert await produce(client, "plain", 1000) == 0
        assert await described(client, TOPIC, "plain", "max.message.bytes") == ("2000", 2)


async def test_changes_outlive_a_restart(tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        assert (await create(client, "orders", retention_ms="1000")).error_code == 0
        assert await alter(client, TOPIC, "orders", "segment.bytes", "2000") == 0
        assert await alter(client, BROKER, "", "log.retention.ms", "3000") == 0
        assert await alter(client, BROKER, "1", "message.max.bytes", "4000") == 0
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        assert await described(client, TOPIC, "orders", "retention.ms") == ("1000", 1)
        assert await described(client, TOPIC, "orders", "segment.bytes") == ("2000", 1)
        assert await described(client, BROKER, "", "log.retention.ms") == ("3000", 3)
        assert await described(client, BROKER, "1", "message.max.bytes") == ("4000", 2)
        assert await produce(client, "orders", 5000) == ErrorCode.MESSAGE_TOO_LARGE


async def test_refused_topics_are_not_made() -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        topic = await create(client, "orders", retention_ms="soon")
        assert topic.error_code == ErrorCode.INVALID_CONFIG
        assert topic.error_message == "retention.ms=soon is refused: it must be a whole number."
        topic = await create(client, "orders", no_such="1")
        assert topic.error_code == ErrorCode.INVALID_CONFIG
        assert (await create(client, "orders")).error_code == 0


async def test_replacing_the_settings_of_a_topic() -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        await create(client, "orders", retention_ms="1000", max_message_bytes="500")
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name="orders",
            configs=[AlterConfigsRequest.AlterableConfig(name="retention.ms", value="7")],
        )
        response = await client.ask(AlterConfigsRequest(resources=[resource]), 2)
        assert response.responses[0].error_code == 0
        assert await described(client, TOPIC, "orders", "retention.ms") == ("7", 1)
        assert await described(client, TOPIC, "orders", "max.message.bytes") == ("1048588", 5)
        assert await produce(client, "orders", 1000) == 0
