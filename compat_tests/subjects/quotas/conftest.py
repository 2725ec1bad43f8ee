"""The broker of this folder, and how limits are set."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.subjects.quotas import limited as brokers
from compat_tests.subjects.quotas.limited import Limited

IN_FORCE_WITHIN_S = 60


@pytest.fixture(scope="package")
def limited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    """Ours, or Apache Kafka with `--peer kafka`."""
    if request.config.getoption("--bootstrap"):
        pytest.skip("a broker whose listeners are not ours to choose")
    peer = request.config.getoption("--peer") == "kafka"
    started = brokers.start(tmp_path_factory.mktemp("quotas"), peer=peer)
    yield started
    started.broker.stop()


@pytest.fixture
def tools(limited: Limited, warm_jvms: WarmJvms) -> Tools:
    return Tools(limited.plaintext, warm_jvms)


@pytest.fixture
def topic(limited: Limited, unique: Callable[..., str]) -> str:
    """Of one partition."""
    name = unique()
    admin = AdminClient({"bootstrap.servers": limited.plaintext})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(60)
    return name


@pytest.fixture
def limit(tools: Tools) -> Iterator[Callable[..., None]]:
    """limit(rates, *entity) sets limits, `key=value,…`, until the test ends."""
    done: list[tuple[str, tuple[str, ...]]] = []

    def limit(rates: str, *entity: str) -> None:
        tools("kafka-configs", *entity, "--alter", "--add-config", rates)
        done.append((rates, entity))
        deadline = time.monotonic() + IN_FORCE_WITHIN_S
        while rates.split("=")[0] not in tools("kafka-configs", *entity, "--describe"):
            assert time.monotonic() < deadline
        time.sleep(1)  # described is not yet in force in Apache Kafka

    yield limit
    for rates, entity in done:
        keys = ",".join(pair.partition("=")[0] for pair in rates.split(","))
        tools("kafka-configs", *entity, "--alter", "--delete-config", keys)
