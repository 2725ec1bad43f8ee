"""kafka-transactions: list, describe, describe-producers, find-hanging, abort, forceTerminateTransaction."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.harness.brokers import Broker
from compat_tests.harness.checks import wait_until
from compat_tests.subjects.wire.raw import Wire, batch, produce_answer, produce_body, record

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]

TRANSACTION_TIMEOUT_MS = 123_000
ANSWER_TIMEOUT_S = 60
TRANSACTIONAL = 16
"""The bit of a batch's attributes."""
VERIFICATION = "transaction.partition.verification.enable"
INVALID_TXN_STATE = 48


def transactional(bootstrap: str, transactional_id: str) -> Producer:
    """A producer that may begin a transaction."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    made = Producer({**settings, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS})
    made.init_transactions(ANSWER_TIMEOUT_S)
    return made


def begin(producer: Producer, topic: str, *partitions: int) -> None:
    """Begin a transaction with a record in each of the partitions."""
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"in a transaction", partition=partition)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of a table by the names of its columns; an empty last column is missing."""
    header, *rows = [line.split() for line in text.splitlines() if line.strip()]
    return [dict(zip(header, row, strict=False)) for row in rows]


def end(admin: AdminClient, topic: str, isolation: IsolationLevel) -> int:
    """The end of the topic's first partition for readers with this isolation level."""
    place = TopicPartition(topic, 0)
    found = admin.list_offsets({place: OffsetSpec.latest()}, isolation_level=isolation)
    return int(found[place].result(ANSWER_TIMEOUT_S).offset)


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    """An admin client."""
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(admin: AdminClient, unique: Names) -> str:
    """A topic of two partitions."""
    name = unique()
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(ANSWER_TIMEOUT_S)
    return name


@case("kafka-transactions: list, with filters")
def test_list(tools: Tools, bootstrap: str, topic: str, unique: Names) -> None:
    stem = unique("id")
    states = {"done": "CompleteCommit", "up": "CompleteAbort", "open": "Ongoing", "idle": "Empty"}
    done, given_up, open_, _idle = (transactional(bootstrap, f"{stem}.{name}") for name in states)
    begin(open_, topic, 0)
    begin(done, topic, 0)
    done.commit_transaction(ANSWER_TIMEOUT_S)
    begin(given_up, topic, 1)
    since = time.monotonic()
    given_up.abort_transaction(ANSWER_TIMEOUT_S)

    def listed(*filters: str) -> dict[str, str]:
        rows = table(tools("kafka-transactions", "list", *filters))
        assert all(int(row["ProducerId"]) >= 0 and int(row["Coordinator"]) >= 0 for row in rows)
        found = {row["TransactionalId"]: row["TransactionState"] for row in rows}
        return {name: state for name, state in found.items() if name.startswith(stem)}

    expected = {f"{stem}.{name}": state for name, state in states.items()}
    wait_until(lambda: listed() == expected, f"{expected} in the list")
    matching = listed("--transactional-id-pattern", f"{stem.replace('.', '[.]')}[.](done|idle)")
    assert matching == {f"{stem}.{name}": states[name] for name in ("done", "idle")}
    assert listed("--transactional-id-pattern", f"{stem}.do") == {}, "the pattern is that of the whole id"
    wait_until(lambda: time.monotonic() > since + 1, "a second since the last one began")
    # It counts from the begin of the last transaction, open or not; without one from very long ago.
    assert listed("--duration-filter", "1000") == expected
    assert listed("--duration-filter", "1000000") == {f"{stem}.idle": "Empty"}
    open_.abort_transaction(ANSWER_TIMEOUT_S)


@case("kafka-transactions: describe a transactional id, one that nobody knows")
def test_describe(tools: Tools, admin: AdminClient, bootstrap: str, topic: str, unique: Names) -> None:
    name = unique("id")
    producer = transactional(bootstrap, name)
    before_ms = int(time.time() * 1000)
    begin(producer, topic, 0, 1)
    (row,) = table(tools("kafka-transactions", "describe", "--transactional-id", name))
    assert (row["TransactionalId"], row["TransactionState"]) == (name, "Ongoing")
    assert row["TransactionTimeoutMs"] == str(TRANSACTION_TIMEOUT_MS)
    assert sorted(row["TopicPartitions"].split(",")) == [f"{topic}-0", f"{topic}-1"]
    assert int(row["CoordinatorId"]) in admin.list_topics(timeout=ANSWER_TIMEOUT_S).brokers
    # Clocks of two machines may differ a little.
    assert abs(int(row["CurrentTransactionStartTimeMs"]) - before_ms) < 60_000
    assert 0 <= int(row["TransactionDurationMs"]) < 60_000
    producer.commit_transaction(ANSWER_TIMEOUT_S)

    def ended() -> bool:
        (row,) = table(tools("kafka-transactions", "describe", "--transactional-id", name))
        return row["TransactionState"] == "CompleteCommit" and "TopicPartitions" not in row

    wait_until(ended, f"CompleteCommit of {name}")
    said = tools("kafka-transactions", "describe", "--transactional-id", unique("nobody"), expect=1)
    assert "Failed to describe transaction state" in said


@case("kafka-transactions: describe the producers of a partition")
def test_describe_producers(tools: Tools, bootstrap: str, topic: str, unique: Names) -> None:
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(3):
        plain.produce(topic, b"%d" % number, partition=0)
    assert plain.flush(ANSWER_TIMEOUT_S) == 0
    producer = transactional(bootstrap, unique("id"))
    begin(producer, topic, 0)
    arguments = ("kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0")
    first, second = sorted(table(tools(*arguments)), key=lambda row: int(row["LastSequence"]))
    assert (first["CurrentTransactionStartOffset"], first["LastSequence"]) == ("3", "0")
    assert (second["CurrentTransactionStartOffset"], second["LastSequence"]) == ("None", "2")
    assert first["ProducerId"] != second["ProducerId"]
    assert {row["LatestCoordinatorEpoch"] for row in (first, second)} == {"-1"}
    assert all(abs(int(row["LastTimestamp"]) / 1000 - time.time()) < 120 for row in (first, second))
    producer.commit_transaction(ANSWER_TIMEOUT_S)
    ended = none_open(tools, arguments)
    (first,) = [row for row in ended if row["ProducerId"] == first["ProducerId"]]
    assert int(first["LatestCoordinatorEpoch"]) >= 0
    assert table(tools(*arguments[:-1], "1")) == []


def none_open(tools: Tools, describe: tuple[str, ...]) -> list[dict[str, str]]:
    """A partition's producers, when none has an open transaction: a marker may come after the answer to a commit."""
    found: list[dict[str, str]] = []

    def ended() -> bool:
        found[:] = table(tools(*describe))
        return all(row["CurrentTransactionStartOffset"] == "None" for row in found)

    wait_until(ended, "the transaction's marker")
    return found


def produce_late(broker: Broker, topic: str, producer: dict[str, str]) -> int:
    """Send what a producer's old request would bring that was held up for a day, until its transaction had ended: a
    batch with the next sequence number. Returns the error code.
    """
    a_day_ago_ms = int(time.time() * 1000) - 86_400_000  # retention does not delete it
    number = (int(producer["ProducerId"]), int(producer["ProducerEpoch"]), int(producer["LastSequence"]) + 1)
    late = batch([record(0, b"late")], attributes=TRANSACTIONAL, producer=number, timestamp_ms=a_day_ago_ms)
    with Wire(broker.address) as wire:
        wire.request(0, 3, produce_body(topic, 0, late, acks=-1, transactional_id=producer["id"]))
        return produce_answer(wire.answer())[0]


def set_verification(admin: AdminClient, broker_id: int, value: str | None) -> None:
    """Set or delete the setting on a broker."""
    kind = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(VERIFICATION, value or "", incremental_operation=kind)
    asked = ConfigResource(ResourceType.BROKER, str(broker_id), incremental_configs=[entry])
    for done in admin.incremental_alter_configs([asked]).values():
        done.result(ANSWER_TIMEOUT_S)


@case("kafka-transactions: find a hanging transaction and abort it")
def test_hanging(tools: Tools, broker: Broker, admin: AdminClient, topic: str, unique: Names) -> None:
    name = unique("id")
    producer = transactional(broker.bootstrap, name)
    begin(producer, topic, 0)
    producer.commit_transaction(ANSWER_TIMEOUT_S)
    place = ("--topic", topic, "--partition", "0")
    (known,) = none_open(tools, ("kafka-transactions", "describe-producers", *place))
    known["id"] = name
    begin(producer, topic, 1)
    # Since KIP-890 the broker asks the coordinator, which knows that there is no transaction any more in partition 0…
    assert produce_late(broker, topic, known) == INVALID_TXN_STATE
    high = end(admin, topic, IsolationLevel.READ_UNCOMMITTED)
    (leader,) = {one.leader for one in admin.list_topics(topic, ANSWER_TIMEOUT_S).topics[topic].partitions.values()}
    set_verification(admin, leader, "false")
    try:
        # …and before that, nothing ends what such a request begins.
        wait_until(lambda: produce_late(broker, topic, known) == 0, "the broker takes what it does not verify")
    finally:
        set_verification(admin, leader, None)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    plain.produce(topic, b"waits", partition=0)
    assert plain.flush(ANSWER_TIMEOUT_S) == 0
    assert end(admin, topic, IsolationLevel.READ_COMMITTED) == high
    assert end(admin, topic, IsolationLevel.READ_UNCOMMITTED) == high + 2

    # The batch has the time stamp of a day ago. An open transaction that the coordinator knows does not hang, though.
    (found,) = table(tools("kafka-transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "0"))
    assert (found["Topic"], found["Partition"]) == (topic, "0")
    assert (found["ProducerId"], found["ProducerEpoch"]) == (known["ProducerId"], known["ProducerEpoch"])
    assert (found["StartOffset"], found["CoordinatorEpoch"]) == (str(high), known["LatestCoordinatorEpoch"])
    of_broker = table(tools("kafka-transactions", "find-hanging", "--broker-id", str(leader)))
    assert [row["Partition"] for row in of_broker if row["Topic"] == topic] == ["0"]

    said = tools("kafka-transactions", "abort", *place, "--start-offset", str(high + 1), expect=1)
    assert f"Could not find any open transactions starting at offset {high + 1}" in said
    tools("kafka-transactions", "abort", *place, "--start-offset", str(high))
    assert end(admin, topic, IsolationLevel.READ_COMMITTED) == high + 3
    assert table(tools("kafka-transactions", "find-hanging", "--topic", topic)) == []
    assert values(broker.bootstrap, topic) == [b"in a transaction", b"waits"]
    producer.commit_transaction(ANSWER_TIMEOUT_S)


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """The values that a reader with read_committed finds in the first partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    reader = confluent_kafka.Consumer(
        {**settings, "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "error"}
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    try:
        while time.monotonic() < deadline:
            message = reader.poll(1)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append(message.value())
    finally:
        reader.close()
    raise AssertionError(f"the end was not reached: {found}")


@case("kafka-transactions: force the end of a transaction")
def test_force_terminate(tools: Tools, admin: AdminClient, bootstrap: str, topic: str, unique: Names) -> None:
    name = unique("id")
    producer = transactional(bootstrap, name)
    begin(producer, topic, 0)
    tools("kafka-transactions", "forceTerminateTransaction", "--transactionalId", name)
    high = end(admin, topic, IsolationLevel.READ_UNCOMMITTED)
    assert (high, end(admin, topic, IsolationLevel.READ_COMMITTED)) == (2, 2)
    assert values(bootstrap, topic) == []
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(ANSWER_TIMEOUT_S)
    assert refused.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED), refused.value
    (row,) = table(tools("kafka-transactions", "describe", "--transactional-id", name))
    assert row["TransactionState"] in ("Empty", "CompleteAbort")
