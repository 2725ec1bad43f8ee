"""docs/wire.md: each command, and what is printed has the shape of what the page shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.subjects.documents.stranger import Running, Stranger, blocks

pytestmark = pytest.mark.slow
PAGE = "docs/wire.md"
TAP, ODD, RECORDING = blocks(PAGE, "sh")
REQUEST_AND_ANSWER, LISTENING, EXCHANGE = blocks(PAGE, "json")
Event = dict[str, Any]


def shown(text: str) -> list[Event]:
    """The lines of JSON of a block, which are broken to fit the page."""
    return [json.loads(line) for line in re.sub(r",\n +", ", ", text).splitlines()]


def said(running: Running) -> list[Event]:
    return [json.loads(line) for line in running.output.splitlines()]


def shape(event: Event) -> list[Any]:
    """The fields in their order, with the kinds of values; what a mapping maps is the case's."""
    nested = ("then", "now")
    return [
        (name, shape(value) if name in nested else type(value).__name__.replace("float", "int"))
        for name, value in event.items()
    ]


def write_and_read(bootstrap: str) -> None:
    """There is an error on the way: the topic is not there at first."""
    settings = {"bootstrap.servers": bootstrap, "client.id": "app"}
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True})
    for partition in range(3):
        producer.produce("orders", b"hello", partition=partition)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    for _ in range(3):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
    consumer.close()


def test_one_broker(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    with stranger.keeps_running("barnabas dev --port 9092 --set num.partitions=3", "bootstrap="):
        with stranger.keeps_running(f"{TAP.text.strip()} --no-body", "connect to") as tap:
            write_and_read(stranger.text("localhost:9093"))
        request, answer = shown(REQUEST_AND_ANSWER.text)
        events = said(tap)
        assert shape(request) in [shape(event) for event in events if event.get("request") == "Fetch"]
        assert shape(answer) in [shape(event) for event in events if "answer" in event]
        assert all(event["answer"] for event in events if "ms" in event)
        (listening,) = shown(LISTENING.text)
        assert shape(events[0]) == shape(listening)
        # The table has every field that is printed.
        named = set(re.findall(r"^\| (`.*`) \|", (PROJECT_ROOT / PAGE).read_text(), re.MULTILINE))
        named = {name for row in named for name in re.findall(r"`(\w+)`", row)} | request.keys() | answer.keys()
        assert {name for event in events for name in event} <= named

        line = ODD.text.strip().replace("jq ", "jq --unbuffered ")  # as it is on a terminal
        with stranger.keeps_running(line, "connect to") as odd:
            write_and_read(stranger.text("localhost:9093"))
            odd.wait_for("MEMBER_ID_REQUIRED")
        assert "JoinGroup" in [json.loads(line)[1] for line in odd.output.splitlines()]


CLUSTER = "barnabas cluster --brokers 2 --port 0 --set num.partitions=3"


def brokers(cluster: Running) -> list[str]:
    """Their addresses."""
    return cluster.output.splitlines()[0].removeprefix("bootstrap=").split(",")


def test_recording_and_saying_it_again(tmp_path: Path) -> None:
    """What a cluster of two was asked, to another one, whose brokers have the names b1 and b2 on the page; and to a
    broker alone.
    """
    tap, again, among_several = RECORDING.text.splitlines()
    stranger = Stranger(tmp_path)
    with stranger.keeps_running(CLUSTER, "bootstrap=") as cluster:
        first, second = brokers(cluster)
        stranger.ports["9092"], stranger.ports["9094"] = (each.rpartition(":")[2] for each in (first, second))
        with stranger.keeps_running(tap, "connect to") as recorded:
            write_and_read(stranger.text("localhost:9093"))
        listening = [event for event in said(recorded) if "listening" in event]
        assert [event["broker"] for event in listening][1:] == [second]
        assert (stranger.here / "orders.tape").stat().st_mode & 0o077 == 0
    with stranger.keeps_running(CLUSTER, "bootstrap=") as cluster:
        first, second = brokers(cluster)
        line = stranger.text(among_several.replace("b1:9092", "B1").replace("b2:9092", "B2"))
        line = line.replace("B1", first).replace("B2", second)
        events = [json.loads(each) for each in stranger.types(f"{line} || test $? = 1").stdout.splitlines()]
        assert {event["broker"] for event in events if "opened" in event} == {first, second}
    with stranger.keeps_running("barnabas dev --port 9092 --set num.partitions=3", "bootstrap="):
        done = stranger.types(f"{again} || test $? = 1")
        events = [json.loads(each) for each in done.stdout.splitlines()]
        (exchange,) = shown(EXCHANGE.text)
        assert shape(exchange) in [shape(event) for event in events]
        assert re.search(r"^barnabas: \d+ requests sent, \d+ answered as then", done.stderr, re.MULTILINE)
