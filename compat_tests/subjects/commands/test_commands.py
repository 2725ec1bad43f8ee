"""The commands beside kafka-python and confluent-kafka, on one broker."""

from __future__ import annotations

import json
import signal
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as Place

from compat_tests.subjects.commands.conftest import LIMIT_S, Commands, Unique, until

pytestmark = pytest.mark.slow

WAIT_S = 60
START_MS = (int(time.time()) - 60) * 1000
"""Of records whose time matters: not as old as what retention deletes."""
START = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture
def topic(commands: Commands, unique: Unique) -> str:
    """With three partitions."""
    name = unique()
    assert commands("topic", "create", name, "--partitions", "3") == f"topic {name} was created with 3 partitions\n"
    return name


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_life_of_a_topic(commands: Commands, topic: str) -> None:
    assert "TOPIC_ALREADY_EXISTS" in commands.whole("topic", "create", topic, code=1).stderr.decode()
    assert commands("topic", "create", topic, "--if-not-exists") == f"topic {topic} exists already\n"
    commands("topic", "alter", topic, "--partitions", "4", "--set", "retention.ms=12345")

    def described() -> dict[str, Any]:
        (found,) = json.loads(commands("topic", "describe", topic, "--json"))
        return dict(found)

    until(lambda: len(described()["partitions"]) == 4)
    shown = described()
    assert [each["end_offset"] for each in shown["partitions"]] == [0, 0, 0, 0]
    assert shown["settings"]["retention.ms"]["value"] == "12345"
    assert shown["settings"]["retention.ms"]["source"] == "topic"
    assert shown["settings"]["retention.ms"]["documentation"]
    assert "retention.ms=12345\n" in commands("topic", "describe", topic)
    commands("topic", "alter", topic, "--unset", "retention.ms")
    until(lambda: "retention.ms" not in commands("topic", "describe", topic))
    (listed,) = json.loads(commands("topic", "list", "--long", "--json", topic))
    assert (listed["partitions"], listed["records"], listed["under_replicated"]) == (4, 0, 0)
    assert commands("topic", "delete", topic) == f"topic {topic} was deleted\n"
    until(lambda: commands("topic", "list", topic) == "")
    for said in (commands.whole("consume", topic, code=1), commands.whole("produce", topic, code=1)):
        assert f"topic {topic}: there is no such topic" in said.stderr.decode()


def test_keys_go_where_other_clients_put_them(commands: Commands, topic: str, bootstrap: str) -> None:
    """kafka-python's default partitioner is Java's."""
    keys = [f"key-{number}" for number in range(50)]
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    theirs = {key: producer.send(topic, b"theirs", key.encode()).get(WAIT_S).partition for key in keys}
    producer.close()
    pairs = "".join(f"{key}|ours\n" for key in keys).encode()
    commands("produce", topic, "--key-separator", "|", stdin=pairs)
    found = lines(commands("consume", topic, "--from", "earliest", "--json"))
    assert len(found) == 100
    assert {each["key"]: each["partition"] for each in found if each["value"] == "ours"} == theirs


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_we_write_others_read(commands: Commands, topic: str, bootstrap: str, codec: str) -> None:
    values = [f"value {number}".encode() * 20 for number in range(500)]
    arguments = ("--compression", codec, "--header", "source=shop", "--header", "empty=", "--key", "k")
    commands("produce", topic, *arguments, stdin=b"\n".join(values))
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.assign([Place(topic, index) for index in range(3)])
    found: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < 500 and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            found += records
    consumer.close()
    assert [record.value for record in found] == values
    assert {record.key for record in found} == {b"k"}
    assert list(found[0].headers) == [("source", b"shop"), ("empty", b"")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_others_write_we_read(commands: Commands, topic: str, bootstrap: str, codec: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50, "enable.idempotence": True}
    )
    for number in range(500):
        producer.produce(
            topic, f"value {number}" * 20, key=f"{number}", headers={"n": str(number)}, timestamp=START_MS + number
        )
    producer.flush(WAIT_S)
    found = lines(commands("consume", topic, "--from", "earliest", "--json"))
    assert {int(each["key"]): each["value"] for each in found} == {n: f"value {n}" * 20 for n in range(500)}
    assert all(each["timestamp"] == START_MS + int(each["key"]) for each in found)
    assert all(each["headers"] == [{"name": "n", "value": each["key"]}] for each in found)
    newest = lines(commands("consume", topic, "-n", "7", "--json"))
    assert [int(each["key"]) for each in newest] == list(range(493, 500))
    from_time = lines(commands("consume", topic, "--from", f"{START:%Y-%m-%dT%H:%M:%S}.400+00:00", "--json"))
    assert sorted(int(each["key"]) for each in from_time) == list(range(400, 500))
    filtered = commands("consume", topic, "-n", "2", "--filter", "value 123value", "--key", "--meta")
    assert filtered.count("\n") == 1
    assert f"{START:%Y-%m-%d %H:%M:%S}.123\t123\tvalue 123value" in filtered


def test_a_topic_is_copied_byte_for_byte(commands: Commands, topic: str, bootstrap: str, unique: Unique) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    records = [(b"k", None), (None, b"\xff\x00\n"), (b"\xfe", b"{}"), (b"", b"")]
    records.append(("ключ".encode(), "\u2028\x1b".encode()))
    for number, (key, value) in enumerate(records):
        headers: Any = [("h", b"\x80"), ("h", None)] if number == 1 else []
        producer.produce(topic, value, key, headers=headers, timestamp=START_MS + number)
    producer.flush(WAIT_S)
    other = unique("copy")
    commands("topic", "create", other, "--partitions", "3")
    ended = commands.shell(f"barnabas consume {topic} --from earliest --json | barnabas produce {other} --json")
    assert ended.returncode == 0, ended.stderr
    there, here = (
        [
            {name: value for name, value in each.items() if name not in ("topic", "partition", "offset")}
            for each in sorted(
                lines(commands("consume", name, "--from", "earliest", "--json")), key=lambda each: each["timestamp"]
            )
        ]
        for name in (topic, other)
    )
    assert len(there) == len(records)
    assert here == there


def test_transactions(commands: Commands, topic: str, bootstrap: str, unique: Unique) -> None:
    # The last one stays open while the commands look.
    longest = {"transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("txn"), **longest})
    producer.init_transactions(WAIT_S)
    for value, commits in (("aborted", False), ("committed", True)):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(topic, f"{value} {index}", partition=index)
        producer.flush(WAIT_S)
        if commits:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(WAIT_S)
    all_committed = {f"committed {index}" for index in range(3)}
    for arguments in (["--from", "earliest"], ["-n", "100"], []):
        assert set(commands("consume", topic, *arguments, "--committed").split("\n")) == {*all_committed, ""}
    assert commands("consume", topic, "--from", "earliest").count("\n") == 7
    producer.abort_transaction(WAIT_S)


def test_what_comes_is_followed_until_an_interrupt(commands: Commands, topic: str) -> None:
    commands("produce", topic, stdin=b"before\n")
    follower = commands.start("consume", topic, "--follow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == b"before\n"
    commands("produce", topic, stdin=b"after\n")
    assert follower.stdout.readline() == b"after\n"
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=LIMIT_S)
    assert (out, err, follower.returncode) == (b"", b"", 130)


def test_what_is_typed_goes_out_at_once_until_an_interrupt(commands: Commands, topic: str) -> None:
    writer = commands.start("produce", topic, "-p", "0")
    assert writer.stdin is not None
    follower = commands.start("consume", topic, "--follow", "--from", "earliest", "-n", "2")
    for line in (b"one\n", b"two\n"):
        writer.stdin.write(line)
        writer.stdin.flush()
    assert follower.communicate(timeout=LIMIT_S) == (b"one\ntwo\n", b"")
    writer.send_signal(signal.SIGINT)
    assert writer.wait(LIMIT_S) == 130  # before its standard input ends, which would be the end as well
    assert writer.communicate() == (b"", b"")


def test_a_reader_that_goes_away_is_no_error(commands: Commands, topic: str) -> None:
    commands("produce", topic, stdin=b"x" * 100 + b"\n" + b"y\n" * 50_000)
    ended = commands.shell(f"barnabas consume {topic} --from earliest | head -n 1 > /dev/null")
    assert ended.stderr == b""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups(commands: Commands, topic: str, bootstrap: str, unique: Unique, protocol: str) -> None:
    group = unique("group")
    commands("produce", topic, "-p", "0", stdin=b"a\nb\nc\nd\n")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            break
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)

    def state() -> dict[str, Any]:
        (found,) = json.loads(commands("group", "list", "--long", "--json", group))
        return dict(found)

    until(lambda: state()["state"] == "Stable")
    listed = state()
    assert (listed["kind"], listed["state"], listed["members"], listed["lag"]) == (protocol, "Stable", 1, 1)
    assert 0 <= listed["lag_seconds"] < 600
    (described,) = json.loads(commands("group", "describe", group, "--json"))
    (member,) = described["members"]
    assert (member["client_id"], member["subscribed"]) == ("reader", [topic])
    assert {each["partition"] for each in member["partitions"]} == {0, 1, 2}
    first = described["partitions"][0]
    assert (first["committed"], first["end_offset"], first["lag"]) == (3, 4, 1)
    assert first["member_id"] == member["member_id"]
    assert "reader" in commands("group", "describe", group)
    busy = commands.whole("group", "reset", group, "--to", "earliest", "--yes", code=1).stderr.decode()
    assert f"group {group} has 1 member: reader at " in busy
    assert "NON_EMPTY_GROUP" in commands.whole("group", "delete", group, code=1).stderr.decode()
    consumer.close()
    planned = json.loads(commands("group", "reset", group, "--to", "earliest", "--json"))
    assert planned[0] == {"topic": topic, "partition": 0, "committed": 3, "new": 0, "done": False}
    again = json.loads(commands("group", "reset", group, "--shift", "-1", "--yes", "--json"))
    assert (again[0]["committed"], again[0]["done"]) == (3, True), "the first was a plan only"
    (described,) = json.loads(commands("group", "describe", group, "--json"))
    assert described["partitions"][0]["committed"] == 2
    assert commands("group", "delete", group) == f"group {group} was deleted\n"
    assert "there is no such group" in commands.whole("group", "describe", group, code=1).stderr.decode()


def test_many_records_and_partitions(commands: Commands, unique: Unique) -> None:
    topic = unique()
    commands("topic", "create", topic, "--partitions", "50")
    commands("produce", topic, "--key-separator", ":", stdin=b"".join(b"%d:%d\n" % (n % 997, n) for n in range(20_000)))
    found = commands("consume", topic, "--from", "earliest").split()
    assert sorted(map(int, found)) == list(range(20_000))
    assert commands("consume", topic, "-n", "25").count("\n") == 25


def test_health(commands: Commands, bootstrap: str) -> None:
    assert f"{bootstrap} answers: 1 broker" in commands("health", "--bootstrap", bootstrap)
