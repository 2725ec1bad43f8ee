"""Runs the example programs as child processes. Times are seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from compat_tests.clients.spark.session import connector_jars, environment
from compat_tests.clients.spark.topics import wait_for
from compat_tests.harness.jars import PROJECT_ROOT

EXAMPLES = PROJECT_ROOT / "examples"


def run(program: str, *arguments: str, timeout: float, spark: bool = False) -> str:
    """Run an example to its end and return what it printed; it must succeed."""
    done = attempt(program, *arguments, timeout=timeout, spark=spark)
    assert done.returncode == 0, f"{program} ended with {done.returncode}:\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout


def attempt(program: str, *arguments: str, timeout: float, spark: bool = False) -> subprocess.CompletedProcess[str]:
    """Run an example to its end, however it ends."""
    return subprocess.run(
        [sys.executable, str(EXAMPLES / program), *arguments],
        env=_environment(spark),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_and_kill(program: str, *arguments: str, when: Callable[[], bool], log: Path, timeout: float) -> None:
    """Start an example that uses Spark and kill it, with the JVM it has started, as soon as *when* is true, as it must
    be in time.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / program), *arguments],
            env=_environment(spark=True),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:

        def ready() -> bool:
            assert process.poll() is None, f"{program} ended too early:\n{log.read_text()[-4000:]}"
            return when()

        wait_for(ready, timeout)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(spark: bool) -> dict[str, str]:
    if not spark:
        return dict(os.environ)
    return {**environment(), "SPARK_KAFKA_JARS": ",".join(str(jar) for jar in connector_jars())}
