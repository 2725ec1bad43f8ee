"""Steps that are run: what became of their tests, in numbers, in the summary, and in the exit status."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.runner.lanes import Lanes, Running
from compat_tests.runner.main import run, wanted
from compat_tests.runner.plan import COLLECTING, ENVIRONMENT, PLUGIN, Step
from compat_tests.runner.preflight import Tool, too_full
from compat_tests.runner.report import Report, outcome

MIXED = """
import pytest

def test_passes(): pass
def test_fails(): assert 1 == 2, "so it is"
@pytest.mark.skip(reason="no such thing here")
def test_skipped(): pass
@pytest.fixture
def broken():
    yield
    raise OSError("at the end")
def test_torn_down(broken): pass
"""
ENDLESS = """
import os, subprocess, sys
started = None
try:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open({pid!r} + "~", "w") as file:
        file.write(str(started.pid))
    os.rename({pid!r} + "~", {pid!r})
    started.wait()
finally:
    if started is not None:
        started.kill()
        started.wait()  # as long as nobody has, it is still there as a zombie
"""
WHICH = "import sys; print(sys.executable)"


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pytest processes of these tests start in half of the time so."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def pytest_step(directory: Path, source: str, cases: int, *options: str) -> Step:
    file = directory / "test_it.py"
    file.write_text(source)
    own = ("-p", "no:cacheprovider", "-p", PLUGIN, "-c", "/dev/null", "--rootdir", str(directory))
    return Step("some tests", ("-m", "pytest", *own, *options, str(file)), cases)


def ended(directory: Path, *steps: Step, width: int = 2) -> tuple[Sequence[Running], str, bool]:
    """Run them; what they were at the end, the summary, and whether that is green."""
    out = io.StringIO()
    report = Report(out)
    lanes = Lanes(Path(sys.executable), PROJECT_ROOT, directory, width, report)
    lanes.run(steps)
    green = report.summary(lanes.done, {"not in this tier": 7}, [])
    return lanes.done, out.getvalue(), green


@pytest.mark.parametrize("options", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "workers"])
def test_every_outcome_is_counted(tmp_path: Path, options: tuple[str, ...]) -> None:
    [one], said, green = ended(tmp_path, pytest_step(tmp_path, MIXED, 4, *options))
    assert outcome(one) == "1 passed, 2 FAILED, 1 skipped"
    assert (one.collected, green) == (4, False)
    assert "so it is" in said
    assert "at the end" in said
    assert "skipped: no such thing here" in said
    assert "==== 1 passed, 2 failed, 8 left out, in " in said


def test_tests_that_did_not_run_are_no_success(tmp_path: Path) -> None:
    [one], said, green = ended(tmp_path, pytest_step(tmp_path, "def test_one(): import os; os._exit(0)", 2))
    assert outcome(one) == "0 passed, 2 NOT RUN"
    assert not green
    assert "some tests: 0 passed, 2 NOT RUN" in said


def test_a_file_that_cannot_be_collected_fails(tmp_path: Path) -> None:
    _, said, green = ended(tmp_path, pytest_step(tmp_path, "import nothing_of_the_kind", 1))
    assert not green
    assert "No module named 'nothing_of_the_kind'" in said


def test_steps_run_side_by_side(tmp_path: Path) -> None:
    """Each waits for the other one's file."""
    wait = (
        "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\nwhile not pathlib.Path(sys.argv[2]).exists(): "
    )
    wait += "time.sleep(0.01)"
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    done, said, green = ended(tmp_path, Step("first", ("-c", wait, a, b)), Step("second", ("-c", wait, b, a)))
    assert len(done) == 2
    assert green
    assert "0 passed, 0 failed, 7 left out" in said


def test_a_step_has_its_own_environment(tmp_path: Path) -> None:
    text = "import os; raise SystemExit(os.environ['BARNABAS_PURE'] != '1' or 'PATH' not in os.environ)"
    _, _, green = ended(tmp_path, Step("pure", ("-c", text), environment=(("BARNABAS_PURE", "1"),)))
    assert green


def test_a_step_that_is_no_test_fails_by_its_status(tmp_path: Path) -> None:
    [one], said, green = ended(tmp_path, Step("lint", ("-c", "print('line too long'); raise SystemExit(3)")))
    assert not green
    assert outcome(one) == "FAILED (exit status 3)"
    assert "line too long" in said


def test_an_interruption_ends_the_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(Report):
        def going_on(self, running: Sequence[Running]) -> None:
            if (tmp_path / "pid").exists():
                raise KeyboardInterrupt

    monkeypatch.setattr("compat_tests.runner.lanes.ENDINGS", ((None, 0), (signal.SIGINT, 60), (signal.SIGKILL, 60)))
    lanes = Lanes(Path(sys.executable), PROJECT_ROOT, tmp_path, 2, Impatient(io.StringIO()))
    with pytest.raises(KeyboardInterrupt):
        lanes.run([Step("endless", ("-c", ENDLESS.format(pid=str(tmp_path / "pid"))))])
    [one] = lanes.done
    assert one.process.poll() is not None
    assert not one.well
    with pytest.raises(ProcessLookupError):  # it has ended what it had started
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_what_follows_begins_when_its_step_has_ended(tmp_path: Path) -> None:
    steps = {name: Step(name, ("-c", f"print('== {name} speaks'); print('so it does')")) for name in ("a", "b", "c")}
    order = {"a": ["b"], "b": ["c"]}
    out = io.StringIO()
    lanes = Lanes(Path(sys.executable), PROJECT_ROOT, tmp_path, 2, Report(out))
    lanes.run([steps["a"]], lambda one: [steps[name] for name in order.get(one.step.title, [])])
    assert [one.step.title for one in lanes.done] == ["a", "b", "c"]
    assert [line for line in out.getvalue().splitlines() if "speaks" in line] == [f"== {name} speaks" for name in "abc"]
    assert "so it does" not in out.getvalue()


def test_a_step_that_is_bare_does_without_the_environment(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    lanes = Lanes(python, PROJECT_ROOT, tmp_path, 1, Report(io.StringIO()))
    lanes.run([Step("bare", ("-c", WHICH), bare=True), Step("dressed", ("-c", WHICH))])
    assert [one.log.read_text() for one in lanes.done] == [f"{sys.executable}\n", f"{python}\n"]


def test_nothing_is_left_out_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = [
        Tool("JDK and Maven", "jvm", missing="install it"),
        Tool("network namespaces", "", missing="they need root"),
    ]
    monkeypatch.delenv("CI", raising=False)
    assert wanted(tools) == []
    monkeypatch.setenv("CI", "true")
    assert wanted(tools) == ["JDK and Maven: install it"]


def test_a_full_disk_is_said_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "MiB are free" in too_full([tmp_path], 1 << 60)
    monkeypatch.setattr("compat_tests.runner.main.too_full", lambda directories: "nothing is free")
    monkeypatch.setattr(Lanes, "run", lambda *_: pytest.fail("was begun"))
    assert run(tmp_path, everything=False, python=tmp_path / "python") == 2
    assert "not begun: nothing is free" in capsys.readouterr().err


@pytest.mark.parametrize("well", [True, False])
def test_without_an_environment_nothing_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], well: bool
) -> None:
    """It is made by whatever Python there is; what comes then is run by its own."""
    (tmp_path / "run.py").write_text(
        f"import sys\nprint('== it is made')\nprint('no network')\nsys.exit({0 if well else 1})"
    )
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    monkeypatch.setattr("compat_tests.runner.main.look", list)
    monkeypatch.setattr("compat_tests.runner.main.too_full", lambda directories: "")
    monkeypatch.setattr("compat_tests.runner.main.beginning", lambda tools: [ENVIRONMENT])
    monkeypatch.setattr(
        "compat_tests.runner.main.with_environment", lambda listing, tools: [Step(COLLECTING, ("-c", WHICH))]
    )
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert run(tmp_path, everything=False, python=python) == 1
    said = capsys.readouterr().err
    if well:
        assert "could not be collected" in said
        assert (tmp_path / ".cache" / "test-results" / "collecting-the-tests.log").read_text() == f"{python}\n"
    else:
        assert "there is no environment" in said
        assert "no network" in said
        assert COLLECTING not in said
    assert "== it is made" in said


def test_what_jvms_have_left_behind_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a run that was killed before, and by this one, even if it is interrupted."""
    directory = tmp_path / "cache" / "jvm"
    monkeypatch.setenv("BARNABAS_CACHE", str(directory.parent))
    monkeypatch.setattr("compat_tests.runner.main.too_full", lambda directories: "")
    monkeypatch.setattr("compat_tests.runner.main.look", list)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    directory.mkdir(parents=True)
    (directory / "librocksdbjni1.so").touch()

    def interrupted(*_: object) -> None:
        assert not directory.exists()
        directory.mkdir()
        (directory / "librocksdbjni2.so").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(Lanes, "run", interrupted)
    assert run(tmp_path, everything=False, python=tmp_path / "python") == 1
    assert not directory.exists()
