"""Standard files as commands may find them: closed, full, not for UTF-8; and arguments that are no text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.logdir.tests.offline.offline_kit import make_dir
from barnabas.server.cli import main as cli
from barnabas.server.cli.client.client_results import print_json
from barnabas.server.tests.test_layers import ROOT


def ran(line: str, redirected: str = "", **environ: str) -> subprocess.CompletedProcess[bytes]:
    """As a shell runs it."""
    command = f"exec '{sys.executable}' -P '{ROOT}/barnabas/__main__.py' {line} {redirected}"
    environment = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=120, env=environment, check=False)


@pytest.mark.parametrize("redirected", [">&-", "<&-", ">&- <&-"])
@pytest.mark.parametrize(("line", "code"), [("topic list -b 127.0.0.1:1", 1), ("config num.partitions", 0)])
def test_closed_files(line: str, code: int, redirected: str) -> None:
    done = ran(line, redirected)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == code
    assert b"Traceback" not in done.stderr


def test_nothing_at_all_is_open() -> None:
    assert ran("--version", ">&- <&- 2>&-").returncode == 0
    assert ran("topic list -b 127.0.0.1:1", ">&- <&- 2>&-").returncode == 1
    assert ran("topic describe \\'\udcff", ">&- <&- 2>&-").returncode == 2


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("line", ["--version", "--help", "topic list --help", "config --all", "log verify --list"])
def test_output_without_room(line: str, unbuffered: str) -> None:
    done = ran(line, "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    assert done.stderr.decode() == "barnabas: standard output cannot be written: no space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("action", ["dump", "verify", "stats"])
def test_output_of_logs_without_room(action: str, tmp_path: Path) -> None:
    make_dir(tmp_path / "logs", rounds=2)
    done = ran(f"log {action} '{tmp_path}/logs'", "> /dev/full")
    assert done.stderr.decode() == "barnabas: standard output cannot be written: no space left on device\n"
    assert done.returncode == 1


def test_output_that_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("broker.rack=\u00e9\n", encoding="utf-8")
    done = ran(f"config broker.rack --file '{tmp_path}/file'", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"broker.rack=\\xe9  # static broker\n")


def test_json_stays_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    print_json("\u00e9")
    assert capsys.readouterr().out == '"\u00e9"\n'
    with open(os.devnull, "w", encoding="ascii") as ascii_only:
        written: list[str] = []
        monkeypatch.setattr(ascii_only, "write", written.append)
        monkeypatch.setattr(sys, "stdout", ascii_only)
        print_json("\u00e9")
        monkeypatch.undo()
    assert "".join(written).isascii()
    assert json.loads("".join(written)) == "\u00e9"


@pytest.mark.parametrize(
    ("line", "argument"),
    [
        ("topic describe \udcff", "TOPIC"),
        ("topic create \udcff", "TOPIC"),
        ("topic create t --set a=\udcff", "--set"),
        ("topic delete t \udcff", "TOPIC"),
        ("group describe \udcff", "GROUP"),
        ("group reset g --topic \udcff --to 1", "--topic"),
        ("consume \udcff", "TOPIC"),
        ("produce \udcff", "TOPIC"),
    ],
)
def test_names_that_are_not_utf_8(line: str, argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(line.split(), {})
    assert ended.value.code == 2
    assert f"error: argument {argument}: " in (err := capsys.readouterr().err)
    assert err.endswith("\\udcff' is not UTF-8\n")
