"""Tests of a transaction with confluent-kafka: records are copied, changed, with the offsets they were read up to, all
or nothing.

    pip install pytest confluent-kafka
    pytest test_confluent_kafka.py
"""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas import Broker

# -- the program under test ------------------------------------------------------------------------------------------


class Shouter:
    """Copies the records of one topic to another in upper case, each exactly once."""

    def __init__(self, bootstrap: str, source: str, target: str) -> None:
        self.target = target
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"shouter-{source}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe([source])
        # The last setting: librdkafka 2.11 and later may otherwise wait for ever for a coordinator that it has given up
        # itself, when no broker is connected for a moment (its issues 5456 and 5511).
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"shouter-{source}",
                "retry.backoff.ms": 50,
                "metadata.recovery.strategy": "none",
            }
        )
        self.producer.init_transactions(30)

    def copy(self, count: int) -> None:
        """Copy the next `count` records in one transaction. Raises KafkaException, and nothing has happened."""
        self.producer.begin_transaction()
        try:
            done = {}
            for _ in range(count):
                message = self.consumer.poll(60)
                assert message is not None
                self.producer.produce(self.target, message.value().upper())
                done[message.topic(), message.partition()] = message.offset() + 1
            places = [TopicPartition(topic, index, offset) for (topic, index), offset in done.items()]
            self.producer.send_offsets_to_transaction(places, self.consumer.consumer_group_metadata(), 30)
            self.producer.commit_transaction(30)
        except KafkaException:
            self.producer.abort_transaction(30)
            raise

    def close(self) -> None:
        self.consumer.close()


# -- its tests -------------------------------------------------------------------------------------------------------


@pytest.fixture
def target(kafka_broker: Broker, kafka_topic: str):
    name = f"{kafka_topic}-loud"
    kafka_broker.create_topic(name)
    yield name
    kafka_broker.delete_topic(name)


@pytest.fixture
def shouter(kafka_broker: Broker, kafka_topic: str, target: str):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
    for value in (b"one", b"two", b"three"):
        producer.produce(kafka_topic, value)
    producer.flush(30)
    made = Shouter(kafka_broker.bootstrap, kafka_topic, target)
    yield made
    made.close()


def values(broker: Broker, topic: str) -> list[bytes]:
    return [record.value for record in broker.topics[topic].records(committed=True)]


def test_copied_in_one_transaction(kafka_broker: Broker, target: str, shouter: Shouter) -> None:
    shouter.copy(3)
    assert values(kafka_broker, target) == [b"ONE", b"TWO", b"THREE"]


def test_answers_that_are_lost_double_nothing(kafka_broker: Broker, target: str, shouter: Shouter) -> None:
    with kafka_broker.faults.produce(topic=target, drop="answer", times=2) as fault:
        shouter.copy(3)
    assert fault.hits == 2
    assert values(kafka_broker, target) == [b"ONE", b"TWO", b"THREE"]


def test_a_refused_transaction_leaves_nothing(kafka_broker: Broker, target: str, shouter: Shouter) -> None:
    denied = "GROUP_AUTHORIZATION_FAILED"
    with kafka_broker.faults.any(api="TxnOffsetCommit", error=denied), pytest.raises(KafkaException):
        shouter.copy(3)
    assert values(kafka_broker, target) == []


def test_the_coordinator_of_transactions_moves(kafka_broker: Broker, target: str, shouter: Shouter) -> None:
    with kafka_broker.faults.any(api="EndTxn", error="NOT_COORDINATOR", times=1) as fault:
        shouter.copy(3)
    assert fault.hits == 1
    assert values(kafka_broker, target) == [b"ONE", b"TWO", b"THREE"]
