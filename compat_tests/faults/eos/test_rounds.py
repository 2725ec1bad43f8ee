"""A few rounds of kills under transactions: on a broker alone, in a cluster of ours, and with Apache Kafka 3.9.1 in it.

Each in a process of its own, as it has many clients, some of which are left standing. More rounds:
`python -m compat_tests.faults.eos --place ours3 --rounds 20`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.harness.jars import PROJECT_ROOT

pytestmark = pytest.mark.campaign


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("place", "kinds"),
    [
        ("alone", "kill"),
        pytest.param("ours3", "coordinator,leader", marks=pytest.mark.jvm),
        pytest.param("mixed", "hand over", marks=pytest.mark.jvm),
    ],
)
def test_rounds(place: str, kinds: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    rounds = pytestconfig.getoption("--rounds") or (1 if place == "mixed" else 2)
    report = tmp_path / "report.txt"
    command = [sys.executable, "-m", "compat_tests.faults.eos", "--place", place, "--kinds", kinds]
    command += ["--rounds", str(rounds), "--report", str(report), "--directory", str(tmp_path / "brokers")]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=1480, check=False)
    text = report.read_text() if report.exists() else done.stdout[-3000:] + done.stderr[-3000:]
    print(text)
    assert done.returncode == 0, text
