"""The console and verifiable clients, kafka-get-offsets, kafka-delete-records, the performance tools."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import RUN_TIMEOUT_S, Tools
from compat_tests.harness.checks import wait_until
from compat_tests.harness.processes import Background

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@case("kafka-console-producer and -consumer: lines in, lines out")
def test_console(tools: Tools, topic: str) -> None:
    lines = [f"line {n}" for n in range(200)]
    tools.produce(topic, lines)
    assert sorted(tools.consume(topic, 200, "--from-beginning")) == sorted(lines)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@case("kafka-console-producer: every codec")
def test_console_codec(tools: Tools, topic: str, codec: str) -> None:
    lines = [f"compressible line {n} " * 10 for n in range(100)]
    tools.produce(topic, lines, "--compression-codec", codec)
    assert sorted(tools.consume(topic, 100, "--from-beginning")) == sorted(lines)


@case("kafka-console-consumer: keys, headers, offsets, partitions, timestamps")
def test_console_properties(tools: Tools, topic: str) -> None:
    reader = ("parse.key=true", "parse.headers=true", "key.separator==", "headers.delimiter=|")
    properties = [part for one in reader for part in ("--reader-property", one)]
    tools.produce(topic, ["a:1,b:2|key=value"], *properties)
    shown = ("print.key", "print.headers", "print.offset", "print.partition", "print.timestamp")
    properties = [part for one in shown for part in ("--formatter-property", f"{one}=true")]
    (line,) = tools.consume(topic, 1, "--from-beginning", *properties)
    stamp, partition, offset, headers, key, value = line.split("\t")
    assert abs(int(stamp.removeprefix("CreateTime:")) / 1000 - time.time()) < 120
    assert partition in ("Partition:0", "Partition:1")
    assert (offset, headers, key, value) == ("Offset:0", "a:1,b:2", "key", "value")


@case("kafka-console-consumer: one partition from an offset; a group goes on")
def test_console_offsets(tools: Tools, unique: Names) -> None:
    name, group = unique(), unique("group")
    tools("kafka-topics", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
    lines = [f"{n}" for n in range(20)]
    tools.produce(name, lines)
    assert tools.consume(name, 5, "--partition", "0", "--offset", "15") == lines[15:]
    assert tools.consume(name, 8, "--from-beginning", "--group", group) == lines[:8]
    assert tools.consume(name, 12, "--group", group) == lines[8:]


@case("kafka-get-offsets: latest, earliest, for a time, of the largest timestamp")
def test_get_offsets(tools: Tools, topic: str) -> None:
    tools.produce(topic, [f"{n}" for n in range(30)])

    def total(*arguments: str) -> int:
        text = tools("kafka-get-offsets", "--topic", topic, *arguments)
        return sum(int(offset) for offset in re.findall(rf"^{re.escape(topic)}:\d+:(\d+)$", text, re.MULTILINE))

    assert total() == 30
    assert total("--time", "-1") == total("--time", "latest") == 30
    assert total("--time", "earliest") == 0
    assert total("--time", str(int(time.time() * 1000) - 3_600_000)) == 0
    assert 0 <= total("--time", "max-timestamp") < 30


@case("kafka-delete-records")
def test_delete_records(tools: Tools, topic: str, tmp_path: Path) -> None:
    tools.produce(topic, [f"{n}" for n in range(30)])
    before = tools("kafka-get-offsets", "--topic-partitions", f"{topic}:0,{topic}:1")
    ends = {int(part): int(offset) for part, offset in re.findall(r":(\d+):(\d+)$", before, re.MULTILINE)}
    assert sum(ends.values()) == 30
    filled = max(ends, key=lambda part: ends[part])
    wanted = {"partitions": [{"topic": topic, "partition": filled, "offset": ends[filled] - 1}], "version": 1}
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps(wanted))
    text = tools("kafka-delete-records", "--offset-json-file", str(file))
    assert f"partition: {topic}-{filled}\tlow_watermark: {ends[filled] - 1}" in text
    after = tools("kafka-get-offsets", "--topic-partitions", f"{topic}:{filled}", "--time", "earliest")
    assert after.strip() == f"{topic}:{filled}:{ends[filled] - 1}"


@case("kafka-verifiable-producer and -consumer")
def test_verifiable(tools: Tools, topic: str, unique: Names) -> None:
    text = tools("kafka-verifiable-producer", "--topic", topic, "--max-messages", "500", "--acks", "-1")
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    sent = [one for one in events if one["name"] == "producer_send_success"]
    assert sorted(int(one["value"]) for one in sent) == list(range(500))
    assert [one for one in events if one["name"] == "producer_send_error"] == []
    text = tools(
        *("kafka-verifiable-consumer", "--topic", topic, "--group-id", unique("group")),
        *("--max-messages", "500", "--verbose", "--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    data = [one for one in events if one["name"] == "record_data"]
    assert sorted(int(one["value"]) for one in data) == list(range(500))
    committed = [one for one in events if one["name"] == "offsets_committed"]
    assert committed
    assert all(one["success"] for one in committed)


def assigned(member: Background) -> set[int]:
    """The partitions that it was given last. On a busy machine a group may need another rebalance."""
    last = [json.loads(line) for line in member.lines if "partitions_assigned" in line][-1:]
    return {one["partition"] for event in last for one in event["partitions"]}


@case("kafka-verifiable-consumer: two members share, one is stopped")
def test_verifiable_members(tools: Tools, topic: str, unique: Names) -> None:
    arguments = ("--topic", topic, "--group-id", unique("group"))
    with tools.background("kafka-verifiable-consumer", *arguments) as stays:
        wait_until(lambda: assigned(stays) == {0, 1}, "one member has both partitions", RUN_TIMEOUT_S)
        with tools.background("kafka-verifiable-consumer", *arguments) as goes:
            both = ({0}, {1}), ({1}, {0})
            wait_until(lambda: (assigned(stays), assigned(goes)) in both, "two members share them", RUN_TIMEOUT_S)
        wait_until(lambda: assigned(stays) == {0, 1}, "the one that stays has both again", RUN_TIMEOUT_S)


@case("kafka-producer-perf-test and kafka-consumer-perf-test")
def test_performance(tools: Tools, topic: str, unique: Names) -> None:
    text = tools(
        *("kafka-producer-perf-test", "--topic", topic, "--num-records", "20000", "--record-size", "200"),
        *("--throughput", "-1", "--command-property", "linger.ms=5", "compression.type=lz4"),
    )
    assert "20000 records sent" in text
    text = tools(
        *("kafka-consumer-perf-test", "--topic", topic, "--num-records", "20000", "--timeout", "120000"),
        *("--group", unique("group"), "--hide-header"),
    )
    fields = [line.split(", ") for line in text.splitlines() if line.count(", ") >= 9][-1]
    assert int(fields[4]) == 20000
    assert float(fields[2]) == pytest.approx(20000 * 200 / 1048576, rel=0.05)
