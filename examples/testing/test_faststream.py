"""Tests of a FastStream application on a real broker, where its own test broker in memory knows no faults.

To run them where Barnabas is installed:

    pip install pytest "faststream[kafka]"
    pytest test_faststream.py
"""

from __future__ import annotations

import asyncio
import json

from aiokafka import AIOKafkaConsumer
from faststream.kafka import KafkaBroker
from pydantic import BaseModel

from barnabas import Broker

# -- the application under test --------------------------------------------------------------------------------------


class Reading(BaseModel):
    sensor: str
    celsius: float


class Alarm(BaseModel):
    sensor: str


def application(bootstrap: str, readings: str, alarms: str) -> KafkaBroker:
    """Raises an alarm for each reading that is too hot."""
    app = KafkaBroker(bootstrap, retry_backoff_ms=50)
    publisher = app.publisher(alarms)

    # A session as Java's clients have: with 10 s a machine that pauses makes it read records twice.
    @app.subscriber(readings, group_id="thermometer", auto_offset_reset="earliest", session_timeout_ms=45_000)
    async def watch(reading: Reading) -> None:
        if reading.celsius > 90:
            await publisher.publish(Alarm(sensor=reading.sensor), key=reading.sensor.encode())

    return app


# -- its tests -------------------------------------------------------------------------------------------------------


async def alarms_of(broker: Broker, readings: list[Reading], topic: str, alarms: str, count: int) -> list[str]:
    """Run the application until it has raised `count` alarms."""
    app = application(broker.bootstrap, topic, alarms)
    consumer = AIOKafkaConsumer(alarms, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    async with app, consumer, asyncio.timeout(60):
        await app.start()
        for reading in readings:
            await app.publish(reading, topic)
        for _ in range(count):
            await consumer.getone()
    return [json.loads(record.value)["sensor"] for record in broker.topics[alarms].records()]


READINGS = [Reading(sensor="a", celsius=20), Reading(sensor="b", celsius=95), Reading(sensor="c", celsius=99)]


def test_hot_sensors_raise_an_alarm(kafka_broker: Broker, kafka_topic: str) -> None:
    alarms = f"{kafka_topic}-alarms"
    kafka_broker.create_topic(alarms)
    assert asyncio.run(alarms_of(kafka_broker, READINGS, kafka_topic, alarms, 2)) == ["b", "c"]


def test_no_alarm_is_lost_or_doubled_when_answers_are(kafka_broker: Broker, kafka_topic: str) -> None:
    alarms = f"{kafka_topic}-alarms"
    kafka_broker.create_topic(alarms)
    with kafka_broker.faults.produce(topic=alarms, error="NOT_ENOUGH_REPLICAS", times=2) as fault:
        assert asyncio.run(alarms_of(kafka_broker, READINGS, kafka_topic, alarms, 2)) == ["b", "c"]
    assert fault.hits == 2
