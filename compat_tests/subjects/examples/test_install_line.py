"""The examples where what they need is not installed: alone they say in one line how to install it, and
`run.py example` does so.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("produce_consume.py", "produce_consume"),
        ("groups.py", "groups"),
        ("topics.py", "topics"),
        ("spark_stream.py", "spark_stream"),
        ("pipeline/run.py", "pipeline"),
        ("daily_log_report.py", "daily_log_report"),
    ],
)
def test_an_example_without_its_packages(program: str, name: str, tmp_path: Path) -> None:
    arguments = ["--logs", str(tmp_path), "--out", str(tmp_path / "out"), "--bootstrap", "127.0.0.1:1"]
    # -S: only what comes with Python can be imported.
    command = [sys.executable, "-S", "-E", str(EXAMPLES / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("No module named ")
    assert f"`python3 run.py example {name}` installs what this needs" in line
    assert "pip install " in line
    assert (EXAMPLES / f"{name}.py").exists() or (EXAMPLES / name / "run.py").exists()


@pytest.fixture
def run_py(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, which installs and starts nothing: `calls` has what it would."""
    spec = importlib.util.spec_from_file_location("run_py", EXAMPLES.parent / "run.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.calls = []
    monkeypatch.setattr(script, "install", lambda extra: script.calls.append(extra))
    monkeypatch.setattr(os, "execv", lambda path, command: script.calls.append(command[1:]))
    return script


def test_run_py_installs_what_an_example_needs_and_starts_it(run_py: ModuleType) -> None:
    run_py.main(["example", "groups", "--topic", "t"])
    run_py.main(["example", "pipeline", "--help"])
    assert run_py.calls == [
        *("[kafka-python]", [str(EXAMPLES / "groups.py"), "--topic", "t"]),
        *("[examples]", [str(EXAMPLES / "pipeline" / "run.py"), "--help"]),
    ]


@pytest.mark.parametrize("arguments", [[], ["no_such"], ["../run"]])
def test_run_py_names_the_examples(
    arguments: list[str], run_py: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_py.main(["example", *arguments]) == 2
    assert run_py.calls == []
    names = "daily_log_report, groups, pipeline, produce_consume, spark_stream, three_brokers, "
    names += "three_brokers_zookeeper, topics"
    assert capsys.readouterr().err.endswith(f"NAME is one of {names}\n")
