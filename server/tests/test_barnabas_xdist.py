"""pytest-xdist with eight workers: no two have a port, a directory or a process in common, and nothing is left over.

`BARNABAS_XDIST_RUNS=50` makes so many runs, one after another; one is made without it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from barnabas.server.tests.test_barnabas_process import gone
from barnabas.server.tests.test_barnabas_pytest import suite  # noqa: F401  # a fixture

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]
RUNS = int(os.environ.get("BARNABAS_XDIST_RUNS", "1"))
WORKERS = 8

# Each test says which broker it had. A broker of the test's own comes and goes beside, and is killed and started again:
# its port must still be its own. Whoever had another one's broker would find its records.
SUITE = """
import json, os
from pathlib import Path

import pytest
from confluent_kafka import Producer

def written(broker, topic):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 2})
    producer.produce(topic, os.environ["PYTEST_XDIST_WORKER"].encode())
    assert producer.flush(60) == 0
    (record,) = broker.topics[topic].records()
    return record.value.decode()

def told(kind, broker):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    said = {"worker": worker, "kind": kind, "port": broker.bootstrap, "data": str(broker.data), "pid": broker.pid}
    with (Path(os.environ["TOLD"]) / worker).open("a") as file:
        print(json.dumps(said), file=file)

@pytest.mark.parametrize("number", range(24))
def test_shared(number, kafka_broker, kafka_topic):
    assert written(kafka_broker, kafka_topic) == os.environ["PYTEST_XDIST_WORKER"]
    told("shared", kafka_broker)

@pytest.mark.parametrize("number", range(8))
def test_fresh(number, kafka_broker_fresh):
    broker = kafka_broker_fresh
    broker.create_topic("same-name-everywhere")
    broker.kill()
    broker.start()
    assert written(broker, "same-name-everywhere") == os.environ["PYTEST_XDIST_WORKER"]
    told("fresh", broker)
"""


@pytest.mark.parametrize("run", range(RUNS))
def test_eight_workers(
    run: int,
    suite: pytest.Pytester,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("TOLD", str(tmp_path))
    suite.makepyfile(SUITE)
    suite.runpytest_subprocess("-n", str(WORKERS), "--dist", "load").assert_outcomes(passed=32)
    told = [json.loads(line) for path in sorted(tmp_path.iterdir()) for line in path.read_text().splitlines()]
    assert len(told) == 32
    shared = {(each["worker"], each["port"], each["data"], each["pid"]) for each in told if each["kind"] == "shared"}
    assert len({worker for worker, *_ in shared}) == len(shared) > 1  # one each
    for what in range(1, 4):
        assert len({each[what] for each in shared}) == len(shared)
    fresh = [each for each in told if each["kind"] == "fresh"]
    assert not {each["port"] for each in fresh} & {port for _, port, *_ in shared}
    assert len({each["data"] for each in told}) == len(shared) + len(fresh)
    assert all(gone(each["pid"]) for each in told)
    assert not [each["data"] for each in told if Path(each["data"]).exists()]
