"""barnabas-native: what `run.py` does about it, that both sides name one version, and that it can be built and used."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from compat_tests.runner.preflight import cargos, is_working_cargo
from compat_tests.subjects.install.test_install import ROOT, environment, run

NATIVE = ROOT / "kproto" / "native"
CARGO = next((each for each in cargos(os.environ) if is_working_cargo(each, os.environ)), None)
with_cargo = pytest.mark.skipif(CARGO is None, reason="there is no cargo that answers")


def test_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = {
        project["version"],
        tomllib.loads((NATIVE / "pyproject.toml").read_text())["project"]["version"],
        tomllib.loads((NATIVE / "Cargo.toml").read_text())["package"]["version"],
    }
    assert len(versions) == 1
    assert project["optional-dependencies"]["fast"] == [f"barnabas-native=={versions.pop()}"]


def test_one_face() -> None:
    theirs = re.search(r"const FACE: u32 = (\d+);", (NATIVE / "src" / "lib.rs").read_text())
    ours = re.search(r"^FACE: Final = (\d+)$", (ROOT / "kproto" / "compiled.py").read_text(), re.MULTILINE)
    assert theirs is not None
    assert ours is not None
    assert theirs[1] == ours[1]


def test_no_line_of_it_is_unsafe() -> None:
    assert "#![forbid(unsafe_code)]" in (NATIVE / "src" / "lib.rs").read_text()


# ---- run.py


class Build:
    """A process that pip is: it ends when somebody waits for it, or kills it."""

    def __init__(self, status: int | Exception) -> None:
        self.status = status
        self.ended = ""

    def wait(self, _timeout_s: float = 0) -> int:
        if self.ended:
            return 0
        if isinstance(self.status, Exception):
            raise self.status
        self.ended = "by itself"
        return self.status

    def poll(self) -> int | None:
        return 0 if self.ended else None

    def kill(self) -> None:
        self.ended = "killed"


class Machine:
    """A checkout, an environment and programs that run.py finds; `said` and `built` are what it said and did."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = importlib.util.spec_from_file_location("run_py", ROOT / "run.py")
        assert spec is not None
        assert spec.loader is not None
        self.script: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.script)
        self.path = tmp_path / "bin"
        self.source = tmp_path / "kproto" / "native" / "src" / "lib.rs"
        self.source.parent.mkdir(parents=True)
        self.source.write_text("// 1")
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "python").write_text("")
        places = {"ROOT": ".", "VENV": ".venv", "PYTHON": ".venv/python", "NATIVE": "kproto/native", "CACHE": ".cache"}
        for name, place in places.items():
            monkeypatch.setattr(self.script, name, tmp_path / place)
        monkeypatch.setattr(self.script, "say", lambda text: self.said.append(text))
        monkeypatch.setattr(subprocess, "Popen", self._build)
        monkeypatch.setattr(subprocess, "run", self._install_wheel)
        monkeypatch.setattr(self.script, "install", self._install)
        monkeypatch.setenv("HOME", str(tmp_path))
        self.said: list[str] = []
        self.built: list[dict[str, str]] = []
        self.status: int | Exception = 0
        self.fails = ""
        self.build: Build | None = None
        self.installed: list[str] = []

    def has_cargo(self) -> None:
        self.path.mkdir()
        (self.path / "cargo").write_text("#!/bin/sh\n")
        (self.path / "cargo").chmod(0o755)

    def _build(self, command: list[str], *, env: dict[str, str], **_: Any) -> Build:
        assert command[-1].endswith("kproto/native")
        self.built.append(env)
        if isinstance(self.status, OSError):
            raise self.status
        wheels = Path(command[command.index("--wheel-dir") + 1])
        wheels.mkdir(parents=True)
        (wheels / "native.whl").write_bytes(b"")
        self.build = Build(self.status)
        return self.build

    def _install(self, *_: str) -> None:
        """The rest, while the build goes on."""
        assert self.build is None or not self.build.ended
        self.installed.append("the rest")
        if self.fails == "the rest":
            raise subprocess.CalledProcessError(1, "pip")

    def _install_wheel(self, command: list[str], **_: Any) -> Any:
        assert self.build is not None
        assert self.build.ended == "by itself"
        assert command[-1].endswith("native.whl")
        self.installed.append("native")
        return SimpleNamespace(returncode=1 if self.fails == "native" else 0)

    def install(self, **more: str) -> None:
        self.build, self.installed = None, []
        self.script.prepare({"PATH": str(self.path), **more}, "[x]")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_it_is_built_once_for_each_state_of_its_sources(machine: Machine, tmp_path: Path) -> None:
    machine.has_cargo()
    machine.install()
    machine.install()
    (environment,) = machine.built
    assert environment["CARGO_TARGET_DIR"] == str(tmp_path / ".cache" / "native")
    assert environment["PATH"].startswith(f"{machine.path}:")
    assert machine.installed == ["the rest"]
    (line,) = machine.said
    assert line.startswith("building barnabas-native")
    machine.source.write_text("// 2")
    machine.install()
    assert len(machine.built) == 2
    assert machine.installed == ["the rest", "native"]


def test_a_cargo_that_is_not_on_the_path(machine: Machine, tmp_path: Path) -> None:
    machine.has_cargo()
    (tmp_path / ".cargo").mkdir()
    machine.path.rename(tmp_path / ".cargo" / "bin")
    machine.install()
    assert machine.built[0]["PATH"].startswith(str(tmp_path / ".cargo" / "bin"))


def test_without_cargo_one_line_says_so(machine: Machine) -> None:
    machine.install()
    machine.install()
    assert machine.built == []
    assert machine.said == [
        "without barnabas-native, which is faster and optional: there is no cargo (Rust) to build it"
    ]
    machine.has_cargo()
    machine.install()
    assert len(machine.built) == 1
    # And if cargo goes, what was built stays.
    shutil.rmtree(machine.path)
    machine.install()
    assert len(machine.said) == 2


@pytest.mark.parametrize("status", [1, OSError("no such program"), subprocess.TimeoutExpired("pip", 900)])
def test_what_cannot_be_built_stops_nothing(machine: Machine, status: int | Exception) -> None:
    machine.has_cargo()
    machine.status = status
    machine.install()
    machine.install()
    assert len(machine.built) == 1
    why = "without barnabas-native, which is faster and optional: it could not be built here; .cache/native-build.log "
    why += "says why, and without .venv/.installed-native it is tried again"
    assert machine.said[1:] == [why, why]
    assert machine.installed == ["the rest"]
    machine.source.write_text("// mended")
    machine.status = 0
    machine.install()
    machine.install()
    assert len(machine.built) == 2


def test_a_wheel_that_cannot_be_installed_stops_nothing(machine: Machine) -> None:
    machine.has_cargo()
    machine.fails = "native"
    machine.install()
    assert machine.installed == ["the rest", "native"]
    assert "it could not be built here" in machine.said[1]


def test_the_build_ends_with_what_it_is_for(machine: Machine) -> None:
    machine.has_cargo()
    machine.fails = "the rest"
    with pytest.raises(subprocess.CalledProcessError):
        machine.install()
    assert machine.build is not None
    assert machine.build.ended == "killed"
    machine.fails = ""
    machine.install()
    assert machine.installed == ["the rest", "native"]


def test_it_is_not_built_when_it_is_turned_off(machine: Machine) -> None:
    machine.has_cargo()
    machine.install(BARNABAS_PURE="1")
    assert (machine.built, machine.said) == ([], [])


# ---- for real


@pytest.fixture
def cargo(monkeypatch: pytest.MonkeyPatch) -> str:
    """Builds where `run.py` does, so that little is left to be done."""
    assert CARGO is not None
    monkeypatch.setenv("PATH", f"{Path(CARGO).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(ROOT / ".cache" / "native"))
    return CARGO


@with_cargo
@pytest.mark.campaign
@pytest.mark.timeout(2400)
def test_its_own_tests(cargo: str) -> None:
    done = subprocess.run(
        [cargo, "test", "--quiet", "--locked"], cwd=NATIVE, capture_output=True, text=True, check=False, timeout=2000
    )
    assert done.returncode == 0, done.stdout + done.stderr


@with_cargo
@pytest.mark.campaign
@pytest.mark.timeout(2400)
@pytest.mark.usefixtures("cargo")
def test_barnabas_with_the_extra(tmp_path: Path) -> None:
    programs = environment(tmp_path / "venv", f"{ROOT}[fast]", NATIVE)
    text = "from barnabas.kproto import compiled; print(compiled.CHOICE.version, compiled.scan is not None)"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert run(programs / "python", "-c", text, cwd=tmp_path).split() == [version, "True"]
