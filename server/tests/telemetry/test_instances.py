"""GetTelemetrySubscriptions and PushTelemetry as a machine: who may do what, and when."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.kproto import ZERO_UUID, ErrorCode, KafkaError
from barnabas.server.telemetry import instances
from barnabas.server.telemetry.instances import Instances
from barnabas.server.telemetry.subscribers import Caller, subscribed, subscription_id, subscriptions_of

ID = bytes(range(1, 17))
JAVA = Caller("app", "apache-kafka-java", "4.3.1", "10.0.0.1", 4711)
OK = ErrorCode.NONE


class Link:
    closed = False


class Rig:
    """One client, over one connection."""

    def __init__(self, **subscriptions: Mapping[str, str]) -> None:
        self.stored: dict[str, Mapping[str, str]] = dict(subscriptions)
        self.made = 0
        self.machine = Instances(lambda: self.stored, self._new_id)
        self.link = Link()
        self.now_ms = 0.0

    def _new_id(self) -> bytes:
        self.made += 1
        return self.made.to_bytes(16, "big")

    def change(self, **subscriptions: Mapping[str, str]) -> None:
        self.stored = dict(subscriptions)

    def get(self, instance_id: bytes = ID) -> ErrorCode:
        try:
            self.answer = self.machine.get(instance_id, JAVA, self.link, self.now_ms)
        except KafkaError as error:
            return error.code
        return OK

    def push(
        self,
        instance_id: bytes = ID,
        *,
        old: bool = False,
        terminating: bool = False,
        codec: int = 4,
        size: int = 10,
    ) -> ErrorCode:
        told = subscribed(subscriptions_of(self.stored), instance_id, JAVA)
        try:
            self.machine.push(
                instance_id,
                JAVA,
                self.link,
                self.now_ms,
                subscription_id=told.subscription_id ^ old,
                terminating=terminating,
                codec=codec,
                size=size,
                size_max=100,
            )
        except KafkaError as error:
            return error.code
        return OK


ALL = {"metrics": "*", "interval.ms": "1000"}


def test_a_client_is_given_an_id_that_nobody_has() -> None:
    rig = Rig()
    assert rig.get(ZERO_UUID) is OK
    instance_id, told = rig.answer
    assert instance_id == (2).to_bytes(16, "big")  # 1 is reserved
    assert (told.metrics, told.interval_ms) == ((), 300_000)
    assert rig.get(ZERO_UUID) is OK
    assert rig.answer[0] == (3).to_bytes(16, "big")
    assert rig.machine.count(0) == 2


def test_once_in_an_interval() -> None:
    rig = Rig(all=ALL)
    assert rig.get() is OK
    assert rig.answer[1].metrics == ("*",)
    rig.now_ms = 999
    assert rig.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert rig.push() is OK  # the first after a Get may come sooner: clients wait 0.5 to 1.5 intervals
    rig.now_ms = 1998
    assert rig.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert rig.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    rig.now_ms = 1999
    assert rig.push() is OK
    assert rig.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert rig.machine.throttled == 4
    rig.now_ms = 2999
    assert rig.get() is OK


def test_what_a_client_does_wrong() -> None:
    rig = Rig(all=ALL)
    for reserved in (ZERO_UUID, (1).to_bytes(16, "big")):
        assert rig.push(reserved) is ErrorCode.INVALID_REQUEST
    assert list(rig.machine) == []
    assert rig.push(old=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert rig.machine.unknown_subscriptions == 1
    assert rig.get() is OK  # at once
    rig.now_ms += 1000
    assert rig.push(codec=5) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert rig.get() is OK  # at once
    for codec in range(5):
        rig.now_ms += 1000
        assert rig.push(codec=codec, size=100) is OK
    rig.now_ms += 1000
    assert rig.push(size=101) is ErrorCode.TELEMETRY_TOO_LARGE
    assert rig.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_the_last_push_may_come_at_any_time_and_is_the_last() -> None:
    rig = Rig(all=ALL)
    rig.get()
    assert rig.push() is OK
    assert rig.push(terminating=True) is OK
    rig.now_ms = 5000
    assert rig.push() is ErrorCode.INVALID_REQUEST
    assert rig.push(terminating=True) is OK  # as Apache Kafka: see the module
    assert rig.push(terminating=True) is ErrorCode.INVALID_REQUEST


def test_a_change_of_subscriptions_is_told_at_the_next_push() -> None:
    rig = Rig(all=ALL)
    rig.get()
    before = rig.answer[1]
    assert rig.push() is OK
    rig.change(all=ALL, less={"metrics": "org.apache.kafka.producer.", "interval.ms": "500"})
    assert rig.push(old=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert rig.get() is OK
    after = rig.answer[1]
    assert (after.metrics, after.interval_ms) == (("*",), 500)
    assert after.subscription_id != before.subscription_id
    rig.change()
    assert rig.push(old=True) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert rig.get() is OK
    assert rig.answer[1].metrics == ()


def test_a_client_is_forgotten_with_its_connection() -> None:
    rig = Rig(all=ALL)
    rig.get()
    assert rig.get() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    rig.link.closed = True
    assert rig.machine.count(rig.now_ms) == 0
    rig.link = Link()
    assert rig.get() is OK
    rig.link = Link()  # the old one is collected
    assert rig.machine.count(rig.now_ms) == 0


def test_a_client_is_forgotten_when_it_is_silent() -> None:
    rig = Rig(all=ALL)
    rig.get()
    rig.now_ms = 59_999
    assert rig.machine.count(rig.now_ms) == 1
    rig.now_ms = 60_000
    assert rig.machine.count(rig.now_ms) == 0
    rig.change()  # an interval of five minutes
    rig.get()
    rig.now_ms += 899_999
    assert rig.machine.count(rig.now_ms) == 1
    rig.now_ms += 1
    assert rig.machine.count(rig.now_ms) == 0
    assert rig.push() is OK  # the id of its subscription is the same


def test_the_oldest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "INSTANCES_MAX", 3)
    rig = Rig(all=ALL)
    ids = [bytes([n]) * 16 for n in range(2, 6)]
    for instance_id in ids[:3]:
        rig.get(instance_id)
    rig.get(ids[0])  # used last
    rig.get(ids[3])
    assert [each for each, _ in rig.machine] == [ids[2], ids[0], ids[3]]


def test_who_matches() -> None:
    def told(**match: str) -> bool:
        text = ",".join(f"{name}={value}" for name, value in match.items())
        return bool(subscribed(subscriptions_of({"s": {"metrics": "*", "match": text}}), ID, JAVA).metrics)

    assert told()
    assert told(client_id="a.*", client_software_name="apache-kafka-java", client_software_version="4[.].*")
    assert not told(client_id="ap")
    assert not told(client_id="app", client_source_address="10.0.0.2")
    assert told(client_source_address="10.0.0.1", client_source_port="47(11|12)")
    assert told(client_instance_id="AQIDBAUGBwgJCgsMDQ4PEA")
    nobody = Caller(None, "", "", "::1", 0)
    for name, expression, matches in (
        ("client_id", ".*", False),
        ("client_source_port", ".*", False),
        ("client_software_name", "unknown", True),
    ):
        stored = {"s": {"metrics": "*", "match": f"{name}={expression}"}}
        assert bool(subscribed(subscriptions_of(stored), ID, nobody).metrics) is matches


def test_subscriptions_are_put_together() -> None:
    stored = {
        "a": {"metrics": "p.,q.", "interval.ms": "60000"},
        "b": {"metrics": "q.,r.", "interval.ms": "600000"},
        "not mine": {"metrics": "*", "interval.ms": "100", "match": "client_id=other"},
        "unreadable": {"metrics": "*", "interval.ms": "soon"},
    }
    told = subscribed(subscriptions_of(stored), ID, JAVA)
    assert (told.metrics, told.interval_ms) == (("p.", "q.", "r."), 60_000)
    longer = subscribed(subscriptions_of({"a": {"metrics": "p.", "interval.ms": "3600000"}}), ID, JAVA)
    assert longer.interval_ms == 300_000  # the default is the longest, as in Apache Kafka


@pytest.mark.parametrize(
    ("metrics", "interval_ms"),
    [
        ((), 300_000),
        (("*",), 1000),
    ],
)
def test_the_subscription_id_is_a_signed_number(metrics: tuple[str, ...], interval_ms: int) -> None:
    plain = subscription_id(metrics, interval_ms, bytes(16))
    assert -(2**31) <= plain < 2**31
    # What Java makes of one prefix.
    assert subscription_id(("org.apache.kafka.",), 100, ID) == -1691476333
    # Java's hash of a UUID: both halves of the XOR of its halves.
    other = subscription_id(metrics, interval_ms, b"\0\0\0\1" + b"\0\0\0\2" + b"\0\0\0\4" + b"\0\0\0\x08")
    assert other == plain ^ 0xF
