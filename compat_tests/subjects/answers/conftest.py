"""A broker that takes what clients push: ours with `metrics.listener`, Apache Kafka with a reporter of our own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.harness.brokers import KAFKA_JARS, Broker, start_barnabas, start_kafka
from compat_tests.harness.jars import NO_JVM, compiled
from compat_tests.harness.ports import free_ports
from compat_tests.subjects.access.connection import Connection

SOURCES = Path(__file__).parent / "src"


def start_collecting(directory: Path, *, is_kafka: bool) -> Broker:
    """Start a broker that is sent metrics."""
    if is_kafka:
        os.environ.pop(NO_JVM, None)
        classes = compiled("answers", sorted(SOURCES.glob("*.java")), KAFKA_JARS)
        return start_kafka(directory, ["metric.reporters=Collector"], classes=str(classes))
    (port,) = free_ports(1)
    settings = [f"log.dirs={directory / 'data'}", f"metrics.listener=http://127.0.0.1:{port}"]
    return start_barnabas(directory, settings)


@pytest.fixture(scope="module")
def collecting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of the kind under test that clients push metrics to."""
    started = start_collecting(
        tmp_path_factory.mktemp("collecting"), is_kafka=request.config.getoption("--peer") == "kafka"
    )
    yield started
    started.stop()


@pytest.fixture
def connection(collecting: Broker) -> Iterator[Connection]:
    connection = Connection(collecting.address)
    yield connection
    connection.close()
