"""Tests of a consumer with aiokafka: a worker that puts what it cannot use aside, and commits what it is done with.

    pip install pytest aiokafka
    pytest test_aiokafka.py

The fixtures and faults are plain calls, which work inside a running event loop too; so each test runs its own loop.
With pytest-asyncio or anyio's plugin the tests would be coroutines.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from barnabas import Broker

# -- the program under test ------------------------------------------------------------------------------------------


async def work(bootstrap: str, topic: str, dead_letters: str, count: int) -> list[int]:
    """Take `count` records of a topic; returns the amounts in them. What has none goes to `dead_letters`."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="workers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=50,
        session_timeout_ms=45_000,  # as Java's clients; with 10 s a machine that pauses makes it read records twice
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, retry_backoff_ms=50)
    amounts = []
    async with consumer, producer:
        for _ in range(count):
            record = await consumer.getone()
            try:
                amounts.append(int(json.loads(record.value)["amount"]))
            except (ValueError, KeyError, TypeError) as error:
                why = [("error", repr(error).encode())]
                await producer.send_and_wait(dead_letters, record.value, headers=why)
            await consumer.commit()
    return amounts


# -- its tests -------------------------------------------------------------------------------------------------------


@pytest.fixture
def dead_letters(kafka_broker: Broker, kafka_topic: str):
    name = f"{kafka_topic}-dead"
    kafka_broker.create_topic(name)
    yield name
    kafka_broker.delete_topic(name)


async def send(broker: Broker, topic: str, *values: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)


def test_what_cannot_be_read_is_put_aside(kafka_broker: Broker, kafka_topic: str, dead_letters: str) -> None:
    async def run() -> list[int]:
        await send(kafka_broker, kafka_topic, b'{"amount": 3}', b"garbage", b'{"amount": 4}')
        return await work(kafka_broker.bootstrap, kafka_topic, dead_letters, 3)

    assert asyncio.run(run()) == [3, 4]
    (letter,) = kafka_broker.topics[dead_letters].records()
    assert letter.value == b"garbage"
    ((name, why),) = letter.headers
    assert name == "error"
    assert b"JSONDecodeError" in why


def test_the_group_moves_to_another_coordinator(kafka_broker: Broker, kafka_topic: str, dead_letters: str) -> None:
    async def run() -> list[int]:
        await send(kafka_broker, kafka_topic, b'{"amount": 3}', b'{"amount": 4}')
        with kafka_broker.faults.any(api="OffsetCommit", group="workers", error="NOT_COORDINATOR", times=1) as fault:
            amounts = await work(kafka_broker.bootstrap, kafka_topic, dead_letters, 2)
        assert fault.hits == 1
        return amounts

    assert asyncio.run(run()) == [3, 4]


def test_a_slow_broker(kafka_broker: Broker, kafka_topic: str, dead_letters: str) -> None:
    async def run() -> list[int]:
        await send(kafka_broker, kafka_topic, b'{"amount": 3}')
        with kafka_broker.faults.fetch(topic=kafka_topic, delay_s=0.5, times=1) as fault:
            amounts = await work(kafka_broker.bootstrap, kafka_topic, dead_letters, 1)
        assert fault.hits == 1
        return amounts

    assert asyncio.run(run()) == [3]
