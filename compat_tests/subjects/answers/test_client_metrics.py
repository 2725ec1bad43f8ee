"""How Get- and PushTelemetry are answered, step by step (KIP-714): by Apache Kafka with an exporter as by ours.

Five minutes pass between two requests that are not too early, also where a subscription wants an hour, so each step
looks at an instance of its own, or at what is allowed in spite of the interval.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.kproto import ZERO_UUID, ApiKey
from barnabas.kproto.messages import ApiVersionsRequest
from compat_tests.harness.brokers import Broker
from compat_tests.harness.checks import wait_until
from compat_tests.subjects.access.connection import Connection, request

pytestmark = [pytest.mark.slow]

HOUR_MS, DEFAULT_MS, LARGEST = "3600000", 300_000, 1 << 20
OTLP = b"\n\0"
NONE, INVALID_REQUEST, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 0, 42, 76, 87
TOO_EARLY, UNKNOWN_SUBSCRIPTION, TOO_LARGE = 89, 117, 118
RESERVED = ZERO_UUID[:-1] + b"\1"
GZIP, NO_CODEC = 1, 9
NOTHING = {
    "accepted_compression_types": [],
    "client_instance_id": ZERO_UUID,
    "delta_temporality": False,
    "push_interval_ms": 0,
    "requested_metrics": [],
    "subscription_id": 0,
    "telemetry_max_bytes": 0,
    "throttle_time_ms": 0,
}


class Instance:
    """A client that has a connection of its own, and what it was told last."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.id = ZERO_UUID
        self.subscription = 0

    def get(self, instance_id: bytes | None = None) -> Any:
        asked = {"client_instance_id": self.id if instance_id is None else instance_id}
        answer = self.connection.ask(request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, asked), 0)
        if answer.error_code == NONE:
            self.id, self.subscription = answer.client_instance_id, answer.subscription_id
        else:
            assert {name: getattr(answer, name) for name in NOTHING} == NOTHING
        return answer

    def push(self, metrics: bytes = OTLP, **values: Any) -> int:
        """The error code."""
        known = {"client_instance_id": self.id, "subscription_id": self.subscription, "metrics": metrics}
        answer = self.connection.ask(request(ApiKey.PUSH_TELEMETRY, 0, {**known, **values}), 0)
        assert answer.throttle_time_ms == 0
        return int(answer.error_code)


def subscribe(connection: Connection, **settings: str | None) -> None:
    configs = [
        {"name": name.replace("_", "."), "config_operation": 1 if value is None else 0, "value": value}
        for name, value in settings.items()
    ]
    resource = {"resource_type": 16, "resource_name": "answers", "configs": configs}
    answer = connection.ask(request(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]}), 1)
    assert [each.error_code for each in answer.responses] == [NONE]


@pytest.fixture
def instance(collecting: Broker) -> Iterator[Callable[[], Instance]]:
    """Makes instances, each with a connection: what is known of them is forgotten with it."""
    connections: list[Connection] = []

    def make() -> Instance:
        connections.append(Connection(collecting.address))
        return Instance(connections[-1])

    yield make
    for each in connections:
        each.close()


@pytest.fixture
def subscribed(connection: Connection, instance: Callable[[], Instance]) -> Iterator[Callable[[], Instance]]:
    """Makes instances that were told of a subscription."""
    subscribe(connection, metrics="org.apache.kafka.a,org.apache.kafka.b", interval_ms=HOUR_MS)
    wanted = {"org.apache.kafka.a", "org.apache.kafka.b"}
    wait_until(lambda: set(instance().get().requested_metrics) == wanted, "the subscription")

    def make() -> Instance:
        made = instance()
        answer = made.get()
        assert made.id not in (ZERO_UUID, RESERVED)
        assert (answer.error_code, set(answer.requested_metrics)) == (NONE, wanted)
        return made

    yield make
    subscribe(connection, metrics=None, interval_ms=None)
    wait_until(lambda: instance().get().requested_metrics == [], "no subscription")


def test_both_are_advertised(connection: Connection) -> None:
    answer = connection.ask(ApiVersionsRequest(client_software_name="answers", client_software_version="1"), 4)
    assert {(each.api_key, each.min_version, each.max_version) for each in answer.api_keys} > {(71, 0, 0), (72, 0, 0)}


def test_what_is_told_without_a_subscription_and_with_one(
    connection: Connection, instance: Callable[[], Instance], subscribed: Callable[[], Instance]
) -> None:
    told = instance().get()
    assert sorted(told.requested_metrics) == ["org.apache.kafka.a", "org.apache.kafka.b"]
    assert (told.accepted_compression_types, told.telemetry_max_bytes) == ([4, 3, 1, 2], LARGEST)
    assert (told.push_interval_ms, told.delta_temporality, told.throttle_time_ms) == (DEFAULT_MS, True, 0)
    subscribe(connection, metrics=None, interval_ms=None)
    wait_until(lambda: instance().get().requested_metrics == [], "no subscription")
    assert instance().get().push_interval_ms == DEFAULT_MS
    subscribe(connection, metrics="org.apache.kafka.a,org.apache.kafka.b", interval_ms=HOUR_MS)


def test_who_asks_again_is_too_early(subscribed: Callable[[], Instance]) -> None:
    client = subscribed()
    assert client.get().error_code == TOO_EARLY
    assert client.push() == NONE  # the first one after a Get is allowed
    assert client.push() == TOO_EARLY
    assert client.get().error_code == TOO_EARLY


def test_another_subscription_is_asked_for_at_once(subscribed: Callable[[], Instance]) -> None:
    client = subscribed()
    before = client.subscription
    assert client.push(subscription_id=before ^ 1) == UNKNOWN_SUBSCRIPTION
    assert client.get().error_code == NONE
    assert client.subscription == before
    assert client.push() == TOO_EARLY  # it has pushed in this interval


def test_an_unknown_codec(subscribed: Callable[[], Instance]) -> None:
    client = subscribed()
    assert client.push(compression_type=NO_CODEC) == UNSUPPORTED_COMPRESSION
    assert client.get().error_code == NONE


@pytest.mark.parametrize(
    ("metrics", "codec", "code"),
    [
        (b"", 0, NONE),
        (OTLP, 0, NONE),
        (gzip.compress(OTLP), GZIP, NONE),
        (gzip.compress(b""), GZIP, NONE),
        (b"x" * (LARGEST + 1), 0, TOO_LARGE),
        (b"not gzip", GZIP, INVALID_RECORD),
        (b"not OTLP", 0, INVALID_RECORD),
    ],
    ids=["nothing", "OTLP", "gzip", "gzip of nothing", "too large", "not gzip", "not OTLP"],
)
def test_what_is_pushed(subscribed: Callable[[], Instance], metrics: bytes, codec: int, code: int) -> None:
    client = subscribed()
    assert client.push(metrics, compression_type=codec) == code
    assert client.push() == TOO_EARLY
    assert client.get().error_code == TOO_EARLY


def test_the_last_push(subscribed: Callable[[], Instance]) -> None:
    client = subscribed()
    assert client.push() == NONE
    assert client.push(terminating=True) == NONE
    assert client.push() == INVALID_REQUEST
    assert client.get().error_code == TOO_EARLY


@pytest.mark.parametrize(
    ("metrics", "wrong", "code"), [(b"x" * (LARGEST + 1), 0, TOO_LARGE), (OTLP, 1, UNKNOWN_SUBSCRIPTION)]
)
def test_a_last_push_that_fails_was_the_last(
    subscribed: Callable[[], Instance], metrics: bytes, wrong: int, code: int
) -> None:
    client = subscribed()
    assert client.push(metrics, terminating=True, subscription_id=client.subscription ^ wrong) == code
    assert client.push() == INVALID_REQUEST


def test_ids(subscribed: Callable[[], Instance], instance: Callable[[], Instance]) -> None:
    client = subscribed()
    for reserved in (ZERO_UUID, RESERVED):
        assert client.push(client_instance_id=reserved) == INVALID_REQUEST
    assert instance().get(RESERVED).error_code == NONE
    own = b"of the client".ljust(16)
    stranger = instance()
    assert stranger.push(client_instance_id=own) == UNKNOWN_SUBSCRIPTION
    assert stranger.get(own.upper()).client_instance_id == own.upper()
    assert stranger.push() == NONE


def test_a_changed_subscription(
    connection: Connection, subscribed: Callable[[], Instance], instance: Callable[[], Instance]
) -> None:
    client = subscribed()
    before = client.subscription
    subscribe(connection, metrics="*")
    wait_until(lambda: instance().get().requested_metrics == ["*"], "the changed subscription")
    assert client.push() == UNKNOWN_SUBSCRIPTION
    assert client.get().requested_metrics == ["*"]
    assert client.subscription != before
