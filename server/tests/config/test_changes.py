"""What may be changed while the broker runs, and what is stored then."""

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.changes import (
    CHANGES_MAX,
    Change,
    apply,
    broker_row,
    check_broker,
    check_count,
    check_request,
    topic_row,
)

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.mark.parametrize(
    ("stored", "change", "after"),
    [
        ({}, Change("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "1"}, Change("retention.ms", SET, "5"), {"retention.ms": "5"}),
        ({"retention.ms": "1", "a": "b"}, Change("retention.ms", DELETE, None), {"a": "b"}),
        ({}, Change("retention.ms", DELETE, None), {}),
        ({}, Change("no.such", DELETE, None), {}),
        ({}, Change("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "delete,compact"}),
        ({"cleanup.policy": "compact"}, Change("cleanup.policy", APPEND, "compact"), {"cleanup.policy": "compact"}),
        (
            {"leader.replication.throttled.replicas": "0:1"},
            Change("leader.replication.throttled.replicas", APPEND, "1:1,0:1,2:1"),
            {"leader.replication.throttled.replicas": "0:1,1:1,2:1"},
        ),
        (
            {"leader.replication.throttled.replicas": "0:1, 1:1,2:1"},
            Change("leader.replication.throttled.replicas", SUBTRACT, "1:1,9:9"),
            {"leader.replication.throttled.replicas": "0:1,2:1"},
        ),
        ({}, Change("cleanup.policy", SUBTRACT, "delete"), {"cleanup.policy": ""}),
    ],
)
def test_operations(stored: dict[str, str], change: Change, after: dict[str, str]) -> None:
    before = dict(stored)
    assert apply(stored, [change], topic_row) == after
    assert stored == before


def test_a_list_grows_to_the_length_of_a_message_and_no_further() -> None:
    name = "leader.replication.throttled.replicas"
    stored: dict[str, str] = {}
    portions = [",".join(f"{100 * portion + number}:1" for number in range(100)) for portion in range(60)]
    while len(stored.get(name, "")) < 32_000:
        stored = apply(stored, [Change(name, APPEND, portions.pop(0))], topic_row)
    with pytest.raises(KafkaError, match="32767") as caught:
        apply(stored, [Change(name, APPEND, ",".join(portions))], topic_row)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert len(stored[name]) <= 32_767
    assert apply(stored, [Change(name, SUBTRACT, "0:1,1:1")], topic_row)[name].startswith("2:1,")


def test_one_request_changes_so_many_settings_of_a_resource_and_no_more() -> None:
    check_count(CHANGES_MAX)
    with pytest.raises(KafkaError, match="10001 settings") as caught:
        check_count(CHANGES_MAX + 1)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


class Counted(str):
    """Notes how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_names_are_looked_up_not_compared_with_each_other() -> None:
    changes = [Change(Counted(f"key{number}"), SET, "x") for number in range(500)]
    with pytest.raises(KafkaError, match="once in a request: key0"):
        check_request([*changes, Change(Counted("key0"), SET, "y")])
    assert Counted.compared < 10_000


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (Change("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (Change("retention.ms", SUBTRACT, "5"), ErrorCode.INVALID_CONFIG),
        (Change("no.such", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (Change("retention.ms", 4, "5"), ErrorCode.INVALID_REQUEST),
        (Change("retention.ms", -1, "5"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_operations_refused(change: Change, code: ErrorCode) -> None:
    with pytest.raises(KafkaError, match=change.name) as caught:
        apply({}, [change], topic_row)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([Change("a", SET, "1"), Change("b", SET, "1"), Change("a", DELETE, None)], "a"),
        ([Change("a", SET, None), Change("b", DELETE, None), Change("c", APPEND, None)], "a, c"),
    ],
)
def test_requests_that_make_no_sense(changes: list[Change], named: str) -> None:
    with pytest.raises(KafkaError, match=f": {named}$") as caught:
        check_request(changes)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_sensible_requests() -> None:
    check_request([])
    check_request([Change("a", SET, ""), Change("b", DELETE, None)])


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize(
    "after",
    [
        {},
        {"message.max.bytes": "5", "log.retention.ms": "-1"},
        {"num.io.threads": "3"},
        {"leader.replication.throttled.rate": "1000"},
        {"vendor.key": "x"},
        {"max.connections": "10"},
        {"listener.name.plaintext.max.connection.creation.rate": "10", "listener.name.plaintext.max.connections": "1"},
    ],
    ids=str,
)
def test_broker_settings_that_may_change(after: dict[str, str], per_broker: bool) -> None:
    check_broker(BrokerConfig.from_values({}), after, per_broker=per_broker)


@pytest.mark.parametrize("per_broker", [True, False])
@pytest.mark.parametrize(
    ("after", "text"),
    [
        ({"num.partitions": "5"}, "num.partitions=5 is refused: it cannot be changed while the broker runs"),
        ({"inter.broker.listener.name": "PLAINTEXT"}, "inter.broker.listener.name=PLAINTEXT is refused: it cannot be"),
        ({"log.retention.hours": "5"}, "log.retention.hours=5 is refused: it cannot be changed"),
        ({"message.max.bytes": "x"}, "message.max.bytes=x is refused: it must be a whole number"),
        ({"message.max.bytes": "-1"}, "message.max.bytes=-1 is refused: it must be at least 0"),
        ({"max.connection.creation.rate": "0"}, "while the broker runs it must be at least 1"),
        ({"listener.name.plaintext.max.connections": "0"}, "while the broker runs it must be at least 1"),
        ({"ssl.keystore.password": "hunter2"}, "ssl.keystore.password=[hidden] is refused"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip=0 is refused"),
        (
            {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"},
            "must not be above log.cleaner.max.compaction.lag.ms=8",
        ),
        ({"log.cleaner.threads": "0"}, "log.cleaner.threads=0 is refused: while the broker runs with 1 it can be"),
        ({"log.cleaner.threads": "3"}, "changed to 1 at least and 2 at most"),
        (
            {"log.cleaner.dedupe.buffer.size": "1048576"},
            "it must be above 1 MiB (1048576) for each of log.cleaner.threads=1",
        ),
    ],
    ids=lambda value: str(value),
)
def test_broker_settings_that_may_not(after: dict[str, str], text: str, per_broker: bool) -> None:
    with pytest.raises(KafkaError) as caught:
        check_broker(BrokerConfig.from_values({}), after, per_broker=per_broker)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert text in (caught.value.message or "")


STORE = "listener.name.plaintext.ssl.keystore.location"


def test_settings_of_one_broker_only() -> None:
    with pytest.raises(KafkaError, match="for one broker"):
        check_broker(BrokerConfig.from_values({}), {STORE: "/k"}, per_broker=False)
    check_broker(BrokerConfig.from_values({}), {STORE: "/k"}, per_broker=True)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("ssl.keystore.location", "/k", "must be set for one listener, as listener.name.<name>.ssl.keystore.location"),
        ("ssl.keystore.password", "x", "passwords and keys cannot be set while the broker runs"),
        ("listener.name.plaintext.ssl.keystore.key", "x", "passwords and keys cannot be set while the broker runs"),
        ("listener.name.plaintext.ssl.client.auth", "required", "cannot be changed while the listener is open"),
    ],
)
def test_of_an_open_listener_only_the_files_of_its_stores_can_be_set(key: str, value: str, why: str) -> None:
    with pytest.raises(KafkaError, match=why):
        check_broker(BrokerConfig.from_values({}), {key: value}, per_broker=True)


def test_the_other_dynamic_layer_counts() -> None:
    config = BrokerConfig.from_values({}).with_dynamic(broker={"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(KafkaError):
        check_broker(config, {"log.cleaner.min.compaction.lag.ms": "6"}, per_broker=False)
    check_broker(config, {"log.cleaner.min.compaction.lag.ms": "5"}, per_broker=False)
    check_broker(config, {"log.cleaner.min.compaction.lag.ms": "6"}, per_broker=True)


def test_rows() -> None:
    assert topic_row("cleanup.policy") is not None
    assert topic_row("log.cleanup.policy") is None
    assert broker_row("log.cleanup.policy") is not None
