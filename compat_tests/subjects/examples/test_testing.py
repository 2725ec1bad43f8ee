"""The test modules of `examples/testing`, run as their reader would: by pytest, in a folder of their own."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from compat_tests.clients.spark.session import connector_jars, environment
from compat_tests.subjects.examples.programs import EXAMPLES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FOLDER = EXAMPLES / "testing"
MODULES = {
    "test_kafka_python.py": 4,
    "test_aiokafka.py": 3,
    "test_confluent_kafka.py": 4,
    "test_faststream.py": 2,
    "test_pyspark.py": 2,
}


def test_all_are_run() -> None:
    assert sorted(MODULES) == sorted(path.name for path in FOLDER.glob("test_*.py"))


@pytest.mark.parametrize(
    "module",
    [pytest.param(name, marks=[pytest.mark.jvm, pytest.mark.campaign] if "spark" in name else []) for name in MODULES],
)
def test_an_example_of_tests(module: str, tmp_path: Path) -> None:
    assert _passed(tmp_path, module) == MODULES[module]


@pytest.mark.campaign
def test_they_run_side_by_side(tmp_path: Path) -> None:
    """With pytest-xdist each worker has a broker of its own."""
    modules = ["test_kafka_python.py", "test_aiokafka.py", "test_confluent_kafka.py"]
    assert _passed(tmp_path, *modules, "-n", "4") == sum(MODULES[name] for name in modules)


def _passed(tmp_path: Path, *arguments: str) -> int:
    """How many tests passed; all must."""
    folder = tmp_path / "project"
    folder.mkdir()
    for path in FOLDER.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    variables = environment()
    variables["PYTHONDONTWRITEBYTECODE"] = "1"
    if any("spark" in each for each in arguments):
        variables["SPARK_KAFKA_JARS"] = ",".join(map(str, connector_jars()))
    if not any(point.name == "barnabas" for point in entry_points(group="pytest11")):
        variables["PYTEST_ADDOPTS"] = "-p barnabas.pytest_plugin"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    last = done.stdout.splitlines()[-1]
    assert " passed" in last, last
    assert "failed" not in last
    return int(last.split(" passed")[0].split()[-1])
