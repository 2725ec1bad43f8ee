"""Stock clients push their metrics (KIP-714): Java 4.3.1 and librdkafka, told by nothing but a subscription, and what
they push is in our metrics, compressed as they like.
"""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness.broker_process import Server
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports

pytestmark = pytest.mark.slow

TOPIC = "watched"
WAIT_S = 120


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (port,) = free_ports(1)
    server = Server(tmp_path, **{"metrics.listener": f"http://127.0.0.1:{port}", "num.partitions": "2"})
    server.start()
    yield server
    server.stop()


def scraped(server: Server) -> str:
    with urllib.request.urlopen(server.settings["metrics.listener"] + "/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def until(server: Server, pattern: str) -> str:
    """A scrape with a line that matches."""
    deadline = time.monotonic() + WAIT_S
    while True:
        text = scraped(server)
        if re.search(pattern, text, re.MULTILINE):
            return text
        assert time.monotonic() < deadline, f"no {pattern} in\n" + "\n".join(
            line for line in text.splitlines() if "client" in line or line.startswith("org_")
        )
        time.sleep(0.2)


def sample(text: str, name: str, client_id: str) -> list[float]:
    """The values of a client's samples."""
    found = re.findall(
        rf'^{name}\{{client_instance_id="[\w-]{{22}}",client_id="{client_id}"[^}}]*\}} (\S+)$', text, re.M
    )
    return [float(value) for value in found]


def on_the_dashboard(kind: str) -> list[str]:
    """What our dashboard asks of producers or consumers."""
    text = (PROJECT_ROOT / "docs" / "grafana" / "barnabas.json").read_text(encoding="utf-8")
    found = sorted(set(re.findall(rf"\borg_apache_kafka_{kind}_\w+", text)))
    assert found
    return found


@pytest.mark.jvm
def test_java(server: Server, warm_jvms: WarmJvms) -> None:
    """A console consumer and producers: the same client as in every Java program."""
    tools = Tools(server.bootstrap, warm_jvms)
    tools("kafka-client-metrics", "--alter", "--name", "all", "--metrics", "*", "--interval", "1000")
    consumer = ("--topic", TOPIC, "--group", "readers", "--from-beginning", "--command-property", "client.id=reader")
    with tools.background("kafka-console-consumer", *consumer) as reading:
        tools.produce(TOPIC, [f"line {number}" for number in range(50)])
        reading.wait_for("line 49")
        text = until(server, r'^org_apache_kafka_consumer_fetch_manager_fetch_latency_avg\{.*client_id="reader"')
        first = sum(sample(text, "org_apache_kafka_consumer_poll_total", "reader") or [0])
        assert 'client_software_name="apache-kafka-java",client_software_version="4.3.1"' in text
        for name in on_the_dashboard("consumer"):
            until(server, rf'^{name}\{{.*client_id="reader"')
        info = next(line for line in text.splitlines() if line.startswith("barnabas_client_info{"))
        assert "group_id" in text, info
        # Once a second, for as long as it lives: counters go on.
        deadline = time.monotonic() + WAIT_S
        while int(re.findall(r"^kafka_server_client_metrics_plugin_export_total (\d+)", scraped(server), re.M)[0]) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert sum(sample(scraped(server), "org_apache_kafka_consumer_poll_total", "reader") or [0]) >= first
        # Less is asked for, and the client keeps to it without being told but by an error.
        only = "org.apache.kafka.consumer.coordinator."
        tools("kafka-client-metrics", "--alter", "--name", "all", "--metrics", only, "--interval", "1000")
        until(server, r"^kafka_server_client_metrics_unknown_subscription_request_total [1-9]")
        tools("kafka-client-metrics", "--delete", "--name", "all")
    text = scraped(server)
    assert "kafka_server_client_metrics_plugin_error_total 0\n" in text
    assert "ERROR" not in server.log_text()


@pytest.mark.jvm
def test_librdkafka(server: Server, warm_jvms: WarmJvms) -> None:
    """Each of its codecs: it takes the first of ours that it was built with."""
    tools = Tools(server.bootstrap, warm_jvms)
    tools("kafka-client-metrics", "--alter", "--name", "all", "--metrics", "*", "--interval", "1000")
    producer = ck.Producer({"bootstrap.servers": server.bootstrap, "client.id": "writer", "enable.metrics.push": True})
    deadline = time.monotonic() + WAIT_S
    pattern = re.compile(r'^org_apache_kafka_producer_\w+\{client_instance_id="[\w-]{22}",client_id="writer"', re.M)
    while not pattern.search(scraped(server)):
        assert time.monotonic() < deadline, scraped(server)[-3000:]
        producer.produce(TOPIC, b"x")
        producer.poll(0.2)
    producer.flush(60)
    for name in on_the_dashboard("producer"):
        until(server, rf'^{name}\{{.*client_id="writer"')
    text = until(server, 'client_software_name="librdkafka"|confluent-kafka-python')
    assert "kafka_server_client_metrics_plugin_error_total 0\n" in text
    del producer
    assert "ERROR" not in server.log_text()
