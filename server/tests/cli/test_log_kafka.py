"""`barnabas log` over directories that Apache Kafka filled, against Apache Kafka's own tool.

Needs a JVM and the jars of Apache Kafka 4.3.1, as `logdir/tests/test_kafka_files.py` does.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from barnabas.logdir.tests.test_kafka_files import dump, produce
from barnabas.server.cli import main as cli
from compat_tests.harness.brokers import Broker, start_kafka

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]

SETTINGS = (
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "log.cleaner.backoff.ms=200",
    "log.index.interval.bytes=1000",
)


def fill(kafka: Broker) -> None:
    """Beside what `produce` makes: a compacted topic, a group with committed offsets."""
    produce(kafka)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "delete.retention.ms": "1000000",
    }
    admin.create_topics([confluent_kafka.admin.NewTopic("c", 1, 1, config=config)])["c"].result(60)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "compression.type": codec}
        )
        for number in range(4000 if codec == "none" else 400):
            value = None if number % 50 == 7 else b"%d " % number * 200
            producer.produce("c", value, b"key %d" % (number % 300), partition=0, headers=[("h", b"\xff"), ("n", None)])
        assert producer.flush(120) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["u"])
    assert consumer.poll(120) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    """What a command prints as JSON; it must end well."""
    capsys.readouterr()
    assert cli.main(["log", *map(str, arguments), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_directory_of_apache_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kafka = start_kafka(tmp_path, SETTINGS)
    data = tmp_path / "data"
    try:
        fill(kafka)
        cleaned = data / "cleaner-offset-checkpoint"
        deadline = time.monotonic() + 120
        while not (cleaned.exists() and re.search(r"^c 0 [1-9]", cleaned.read_text(), re.MULTILINE)):
            assert time.monotonic() < deadline, "the cleaner did not run"
            time.sleep(0.2)
        # In use: its last segments may be just being written.
        assert all(found["level"] == "warning" for found in lines(capsys, "verify", data))
    finally:
        kafka.stop()
    # What the cleaner replaced is there for a minute longer, also over a stop.
    assert {(found["kind"], Path(found["path"]).suffix) for found in lines(capsys, "verify", data)} <= {
        ("leftover", ".deleted")
    }

    texts = {}
    for name in ("t-0", "u-1", "c-0", "__consumer_offsets-0", "__transaction_state-0", "__cluster_metadata-0"):
        files = sorted((data / name).glob("*.log"))
        theirs = dump(files, "--deep-iteration", "--print-data-log")
        texts[name] = compare(theirs, lines(capsys, "dump", "--records", "--keys", "--values", data / name))
    assert texts["t-0"] > 3000
    assert texts["c-0"] > 600
    sizes = [len(sorted((data / name).glob("*.log"))) for name in ("t-0", "c-0")]
    assert min(sizes) > 1

    commits = [
        (found["decoded"]["key"]["group"], found["decoded"]["key"]["topic"], found["decoded"]["value"]["offset"])
        for found in lines(capsys, "dump", "--records", data / "__consumer_offsets-0")
        if found.get("decoded", {}).get("kind") == "offset_commit"
    ]
    assert set(commits) == {("readers", "u", 1)}, "one record was polled"
    states = [
        found["decoded"]["value"]["transaction_status"]
        for found in lines(capsys, "dump", "--records", data / "__transaction_state-0")
        if found["type"] == "record"
    ]
    assert {"Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"} <= set(states)

    found = {(one["topic"], one["partition"]): one for one in lines(capsys, "stats", data)}
    assert (found["t", 0]["records"], found["t", 0]["control_records"]) == (3036, 6)
    assert found["t", 0]["transactional_records"] == 30
    assert {"snappy", "lz4", "zstd"} <= set(found["c", 0]["codecs"])
    assert found["c", 0]["distinct_keys"] == 300
    assert found["c", 0]["records"] < 5000


BATCH = re.compile(
    r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) isControl: (\w+) "
    r"deleteHorizonMs: \S+ position: (\d+) (\w+): (-?\d+) size: (\d+) magic: 2 compresscodec: (\w+) crc: (\d+) "
    r"isvalid: true"
)
RECORD = re.compile(
    r"^\| offset: (\d+) \w+: (-?\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: (-?\d+) headerKeys: \[(.*?)\](.*)$"
)
MARKER = re.compile(r" endTxnMarker: (\w+) coordinatorEpoch: (\d+)")
CONTENT = re.compile(r"(?: key: (.*?))?(?: payload: (.*))?")
FIELDS = (
    *("base_offset", "last_offset", "record_count", "base_sequence", "last_sequence", "producer_id", "producer_epoch"),
    *("leader_epoch", "is_transactional", "is_control", "position", "timestamp_type", "max_timestamp", "size", "codec"),
    "crc",
)


def compare(theirs: str, ours: list[dict[str, Any]]) -> int:
    """Every batch and record that their tool prints, in the same order, with the same facts; how many keys and values
    were compared as text.
    """
    mine = iter(ours)
    batches = records = texts = 0
    for line in theirs.split("\n"):
        if match := BATCH.match(line):
            found = next(mine)
            assert found["type"] == "batch"
            shown = [str(found[name]).lower() if name.startswith("is_") else str(found[name]) for name in FIELDS]
            assert shown == list(match.groups()), line
            batches += 1
        elif match := RECORD.match(line):
            found = next(mine)
            offset, timestamp, key_size, value_size, sequence, headers, rest = match.groups()
            assert found["type"] == "record"
            assert found["offset"] == int(offset)
            assert found["timestamp"] == int(timestamp)
            assert (found["key_size"], found["value_size"]) == (int(key_size), int(value_size))
            assert found.get("sequence", -1) == int(sequence)
            assert [header["key"] for header in found["headers"]] == [name for name in headers.split(",") if name]
            marker, content = MARKER.fullmatch(rest), CONTENT.fullmatch(rest)
            if marker is not None:
                assert found["decoded"] == {"kind": marker[1].lower(), "coordinator_epoch": int(marker[2])}
            elif content is not None:
                for ours_too, theirs_too in zip((found["key"], found["value"]), content.groups(), strict=True):
                    if isinstance(ours_too, str) and ours_too.isprintable():
                        assert ours_too == theirs_too
                        texts += 1
            records += 1
    assert next(mine, None) is None
    assert batches
    assert records
    return texts
