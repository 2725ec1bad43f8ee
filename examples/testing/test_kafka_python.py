"""Tests of a producer with kafka-python: what it wrote, and what it does when the broker is in trouble.

To run them where Barnabas is installed:

    pip install pytest kafka-python
    pytest test_kafka_python.py
"""

from __future__ import annotations

import json

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaError

from barnabas import Broker

# -- the program under test ------------------------------------------------------------------------------------------


class Orders:
    """Puts orders into a topic, those of a customer in their order."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self.producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retry_backoff_ms=50)

    def place(self, customer: str, item: str) -> bool:
        """True when the order is safe; False when it was refused for good."""
        try:
            self.producer.send(self.topic, key=customer.encode(), value=json.dumps({"item": item}).encode()).get(30)
        except KafkaError:
            return False
        return True

    def close(self) -> None:
        self.producer.close()


# -- its tests -------------------------------------------------------------------------------------------------------


@pytest.fixture
def orders(kafka_broker: Broker, kafka_topic: str):
    made = Orders(kafka_broker.bootstrap, kafka_topic)
    yield made
    made.close()


def test_orders_have_their_customer_as_key(kafka_broker: Broker, kafka_topic: str, orders: Orders) -> None:
    assert orders.place("ada", "book")
    assert orders.place("bob", "pen")
    written = kafka_broker.topics[kafka_topic].records()
    assert [(record.key, json.loads(record.value)) for record in written] == [
        (b"ada", {"item": "book"}),
        (b"bob", {"item": "pen"}),
    ]


def test_a_new_leader_costs_no_order_and_doubles_none(kafka_broker: Broker, kafka_topic: str, orders: Orders) -> None:
    with kafka_broker.faults.produce(topic=kafka_topic, error="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        assert orders.place("ada", "book")
    assert fault.hits == 2
    assert len(kafka_broker.topics[kafka_topic].records()) == 1


def test_a_lost_answer_doubles_no_order(kafka_broker: Broker, kafka_topic: str, orders: Orders) -> None:
    """The broker has written the order; the producer cannot know, and sends it again."""
    with kafka_broker.faults.produce(topic=kafka_topic, drop="answer", times=1) as fault:
        assert orders.place("ada", "book")
    assert fault.hits == 1
    assert len(kafka_broker.topics[kafka_topic].records()) == 1


def test_an_order_that_is_refused_is_reported(kafka_broker: Broker, kafka_topic: str, orders: Orders) -> None:
    with kafka_broker.faults.produce(topic=kafka_topic, error="MESSAGE_TOO_LARGE"):
        assert not orders.place("ada", "elephant")
    assert kafka_broker.topics[kafka_topic].records() == []
