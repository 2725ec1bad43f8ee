"""The matrix says what the tests said, also when several processes ran them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.harness import matrix

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from compat_tests.harness.matrix import Absent, Place

ABSENT = [Absent(Place("produce", "acks=7", "C"), "seven is not known")]

@pytest.mark.case("produce", "acks=0", client="A")
def test_passes(): pass

@pytest.mark.case("produce", "acks=0", client="B")
def test_fails(): assert False

@pytest.mark.case("produce", "acks=1", client="A")
def test_left_out(): pytest.skip("not here")

def test_without_a_place(): pass
"""


def test_from_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("from compat_tests.conftest import MatrixPlugin\n" + CONFTEST)
    events = tmp_path / "it.events"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "compat_tests.runner.events", "-p", "no:cacheprovider"]
    where = ["--events", str(events), "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1, done.stdout
    matrix.main("a broker", str(events))
    assert capsys.readouterr().out == PAGE
    matrix.main("a broker", str(events), str(events))
    assert capsys.readouterr().out == PAGE, "a run that was there already changes nothing"


CONFTEST = """
class Options:
    def getoption(self, name): return None

def pytest_configure(config):
    config.addinivalue_line("markers", "case: a place")
    config.pluginmanager.register(MatrixPlugin(config), "compat-matrix")
"""
PAGE = """\
# Stock clients against a broker

1 cases passed, 1 failed.

## produce

| case | A | B | C |
| --- | --- | --- | --- |
| acks=0 | pass | FAIL |  |
| acks=7 |  |  | - |

## What `-` stands for

- C: seven is not known (acks=7)
"""
