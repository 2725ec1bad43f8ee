"""A broker of a test's own that is killed or stopped and comes back on the same port and the same data.

Ours (`serve`), or Apache Kafka 4.3.1 with `--peer kafka`; a test that uses it cannot run with `--bootstrap`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from compat_tests.harness.brokers import Broker, start_kafka, wait_for_groups, wait_until_open
from compat_tests.harness.jars import NO_JVM, PROJECT_ROOT
from compat_tests.harness.ports import free_ports


class Restartable:
    """A broker with a fixed port and lasting data, to be killed and started again. *data* is its log directory."""

    def __init__(
        self, broker: Broker, command: list[str], directory: Path, environment: dict[str, str], data: Path
    ) -> None:
        self.broker = broker
        self.data = data
        self._command = command
        self._directory = directory
        self._environment = environment

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, the same after a restart."""
        return self.broker.bootstrap

    def start(self) -> None:
        """Start it; returns when it accepts connections."""
        assert self.broker.log is not None
        with self.broker.log.open("ab") as output:
            self.broker.process = subprocess.Popen(
                self._command,
                cwd=self._directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until_open(self.broker)

    def kill(self) -> None:
        """End it without any chance to tidy up."""
        assert self.broker.process is not None
        self.broker.process.kill()
        self.broker.process.wait()

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        self.broker.stop()


def start_restartable(config: pytest.Config, directory: Path, settings: Sequence[str] = ()) -> Restartable:
    """Start the broker that the options choose, with *settings* (`key=value`) and those of `--broker-set`.

    Skips the test if the options name a broker that runs already. Whoever starts it stops it.
    """
    if config.getoption("--bootstrap"):
        pytest.skip("a broker that is not ours to kill")
    settings = [*settings, *config.getoption("--broker-set")]
    data = directory / "data"
    if config.getoption("--peer") == "kafka":
        os.environ.pop(NO_JVM, None)  # whoever chooses this broker has a JVM, also for tests that start none
        broker = start_kafka(directory, settings)
        wait_for_groups(broker.bootstrap)
        assert broker.process is not None
        return Restartable(broker, list(broker.process.args), directory, dict(os.environ), data)  # type: ignore[arg-type]
    directory.mkdir(parents=True, exist_ok=True)
    port = free_ports(1)[0]
    program = os.environ.get("BARNABAS_COMMAND", "").split() or [sys.executable, "-P", "-m", "barnabas"]
    own = [f"listeners=PLAINTEXT://127.0.0.1:{port}", f"log.dirs={data}", *settings]
    command = [*program, "serve", "--no-env", *(word for setting in own for word in ("--set", setting))]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT_ROOT)}
    broker = Broker(f"127.0.0.1:{port}", "Barnabas", None, directory / "broker.log")
    made = Restartable(broker, command, directory, environment, data)
    made.start()
    return made
