"""What docs/testing.md says of records, faults and the control channel is true: its tests are run, and those of the
README; its faults are made, and its list of routes is the channel's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.kproto import ApiKey
from barnabas.server.control.fault_routes import fault_of
from barnabas.server.control.fields import Fields
from barnabas.server.control.routes import ROUTES
from barnabas.server.tests.test_barnabas_pytest import patient, suite  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "testing.md"
TEXT = PAGE.read_text(encoding="utf-8")
pytest_plugins = ["pytester"]


def section(title: str) -> str:
    """What stands below a heading."""
    return re.split(r"^## ", TEXT.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_routes() -> None:
    listed = set(re.findall(r"(GET|POST|PUT|DELETE) `(/v1[^`]*)`", section("From other languages")))
    assert listed == {(route.method, route.path) for route in ROUTES}


def test_the_faults_of_the_channel() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", section("From other languages"), re.DOTALL)
    faults = [fault_of(Fields(json.loads(line)), list(ApiKey)) for line in block.splitlines()]
    assert len(faults) == len(set(faults)) == 6


def test_the_tables_name_all_that_there_is() -> None:
    text = section("Faults")
    named = set(re.findall(r"\b([a-z_]+)=", text)) | set(re.findall(r"`([a-z_]+)`", text))
    fields = {"api", "topic", "partition", "group", "transactional_id", "client_id", "nth", "times"}
    assert named >= {*fields, "error", "stale", "drop", "half", "delay_s"}
    from barnabas.faults import Faults

    calls = {name for name in vars(Faults) if not name.startswith("_")} - {"clear"}
    assert set(re.findall(r"\| `faults\.([a-z_]+)\(", text)) == calls


@pytest.mark.slow
@pytest.mark.parametrize(
    "title",
    [
        "pytest",
        "What was written",
        "Faults",
        pytest.param("Clusters", marks=pytest.mark.campaign),
        "TLS, log-ins and access control",
    ],
)
def test_the_tests_pass(title: str, suite: pytest.Pytester) -> None:  # noqa: F811
    blocks = re.findall(r"```python\n(.*?)```", section(title), re.DOTALL)
    assert blocks
    imports = "import pytest\nfrom confluent_kafka import Producer\nfrom kafka import KafkaProducer\n\n\n"
    suite.makepyfile(imports + patient("\n\n".join(blocks)))
    suite.runpytest_subprocess().assert_outcomes(passed=sum(block.count("def test_") for block in blocks))


@pytest.mark.slow
def test_those_of_the_readme_pass(suite: pytest.Pytester) -> None:  # noqa: F811
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Test suites\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    suite.makepyfile(patient(block))
    suite.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.slow
def test_without_pytest() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", section("Without pytest"), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert re.fullmatch(r"127\.0\.0\.1:[0-9]+\n", done.stdout), (done.stdout, done.stderr)


@pytest.mark.slow
def test_from_other_languages() -> None:
    """The lines that a program waits for, and that the broker ends with it."""
    command = [sys.executable, "-P", str(ROOT / "barnabas" / "__main__.py"), "dev", "--exit-with-parent", "--control"]
    more = ["--topic", "orders:3", "--set", "metrics.listener=http://127.0.0.1:0"]
    with subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        lines = [broker.stdout.readline() for _ in range(3)]
        assert [line.partition("=")[0] for line in lines] == ["bootstrap", "metrics", "control"]
        broker.stdin.close()
        assert broker.wait(60) == 0
