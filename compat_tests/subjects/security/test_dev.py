"""`barnabas dev --security`: the files of settings that it writes are good for the commands of Apache Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.harness.brokers import KAFKA_JARS
from compat_tests.harness.jars import PROJECT_ROOT, classpath, java
from compat_tests.harness.processes import run

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_command_config(protocol: str) -> None:
    command = [sys.executable, "-P", "-m", "barnabas", "dev", "--security", protocol, "--topic", "orders"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            bootstrap = process.stdout.readline().strip().removeprefix("bootstrap=")
            files = Path(process.stdout.readline().strip().removeprefix("security="))
            tool = [*java(), "-Xmx256m", "-cp", classpath(KAFKA_JARS), "org.apache.kafka.tools.TopicCommand"]
            settings = ["--bootstrap-server", bootstrap, "--command-config", str(files / "alice.properties")]
            assert run([*tool, *settings, "--list"], timeout=300).stdout.decode().split() == ["orders"]
        finally:
            process.terminate()
