"""docs/log-directories.md: looking into the directory of a broker, from the command line, Python and Spark."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from compat_tests.harness.jars import PROJECT_ROOT, jvm_options_line
from compat_tests.subjects.documents.stranger import Stranger, texts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
PAGE = "docs/log-directories.md"


def fill(bootstrap: str) -> None:
    """A thousand orders and some, and what a group has committed."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "enable.idempotence": True})
    for number in range(1020):
        producer.produce("orders", b"order %d" % number, b"key %d" % (number % 7))
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1000)], asynchronous=False)
    consumer.close()


def test_looking_into_one(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    data = tmp_path / "data"
    line = f"barnabas serve --set listeners=PLAINTEXT://localhost:9092 --set log.dirs={data}"
    with stranger.keeps_running(f"{line} --set offsets.topic.num.partitions=1", "serves "):
        fill(stranger.text("localhost:9092"))

    def here(text: str) -> str:
        return text.replace("/data", str(data)).replace("__consumer_offsets-12", "__consumer_offsets-0")

    (commands,) = texts(PAGE, "Look into one", "sh")
    stats, verify, dump, decoded = commands.splitlines()
    shown = stranger.types(here(stats)).stdout.splitlines()
    assert max(map(len, shown)) <= 100
    assert [row.split()[0] for row in shown[:3]] == ["partition", "orders-0", "__consumer_offsets-0"]
    stranger.types(here(verify))
    values = re.findall(r"order (\d+)", stranger.types(here(dump)).stdout)
    assert values == [str(number) for number in range(1000, 1010)]
    assert [json.loads(each) for each in re.findall(r"^\{.*?^\}", stranger.types(here(decoded)).stdout, re.M | re.S)]

    (program,) = texts(PAGE, "Look into one", "python")
    (stranger.here / "look.py").write_text(here(program))
    said = stranger.types("python3 look.py").stdout.splitlines()
    assert said[0] == "1000 b'key 6' b'order 1000'"
    assert sum(int(line) for line in said[20:]) == 1020

    example = PROJECT_ROOT / "examples" / "daily_log_report.py"
    assert "usage:" in stranger.types(f"python3 {example} --help").stdout


@pytest.mark.campaign
@pytest.mark.jvm
def test_spark(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    data = tmp_path / "data"
    line = f"barnabas serve --set listeners=PLAINTEXT://localhost:9092 --set log.dirs={data}"
    with stranger.keeps_running(line, "serves "):
        fill(stranger.text("localhost:9092"))
    (program,) = texts(PAGE, "Spark on files", "python")
    session = (
        "from pyspark.sql import SparkSession\n"
        'spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")'
        f'.config("spark.driver.extraJavaOptions", {jvm_options_line()!r})'
        '.config("spark.sql.shuffle.partitions", "1").getOrCreate()\n'
    )
    text = session + program.replace("/copy/of/kafka-logs", str(data)).replace("2026-11-21", "2020-01-01")
    (stranger.here / "day.py").write_text(text)
    said = stranger.types("python3 day.py").stdout
    assert [int(count) for count in re.findall(r"\| *(\d+)\|$", said, re.M)] == [146] * 5 + [145] * 2
