"""The settings file among the examples: a broker starts with it and does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.clients.spark.topics import Topics, numbered
from compat_tests.harness.brokers import Broker, wait_until_open
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports
from compat_tests.subjects.examples.programs import EXAMPLES

pytestmark = [pytest.mark.slow]
FILE = EXAMPLES / "server.properties"


@pytest.mark.case("Examples", "server.properties", client="kafka-python")
def test_broker_with_the_file(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    if pytestconfig.getoption("--bootstrap") or pytestconfig.getoption("--peer"):
        pytest.skip("the file is for our broker")
    port = free_ports(1)[0]
    program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")}
    environment["PYTHONPATH"] = str(PROJECT_ROOT)
    checked = subprocess.run(
        [*program, "config", "--check", str(FILE)], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked
    assert "without effect" not in checked.stdout + checked.stderr
    assert "unknown" not in checked.stdout + checked.stderr
    settings = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={tmp_path / 'data'}"]
    log = tmp_path / "broker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*program, "serve", str(FILE), *(word for setting in settings for word in ("--set", setting))],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    broker = Broker(f"127.0.0.1:{port}", "Barnabas", process, log)
    try:
        wait_until_open(broker)
        topics = Topics(broker.bootstrap)
        topic = topics.create("settings")
        assert topics.read(topic) == []
        sent = topics.send(topic, numbered(10))
        assert topics.read(topic) == sent
        described = topics.admin.describe_cluster()
        assert [node["broker_id"] for node in described["brokers"]] == [1]
        topics.close()
        assert (tmp_path / "data" / f"{topic}-0" / "00000000000000000000.log").stat().st_size > 0
    finally:
        broker.stop()
    assert process.returncode == 0, broker.log_tail()
