"""Barnabas installed into fresh environments, as users do it, beside a project that has packages of the same names.

pip fetches what is needed; BARNABAS_INSTALL_PYTHON names another Python (its program) than the one that runs the tests.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("coordinator", "kproto", "logdir", "replication", "server")
EXAMPLES = ROOT / "examples" / "testing"
PYTHON = os.environ.get("BARNABAS_INSTALL_PYTHON", sys.executable)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]  # pip fetches from the network

# A user's project: packages of our names, and a test that uses the fixture.
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "mine"
version = "1"
[tool.hatch.build.targets.wheel]
packages = ["src/coordinator", "src/kproto", "src/logdir", "src/replication", "src/server"]
"""
# Their `server` and the others are theirs, not ours by a bare name.
SUITE = """
import sys, coordinator, kproto, logdir, replication, server
from kafka import KafkaProducer

def test_mine(kafka_broker):
    assert all(each.mine for each in (coordinator, kproto, logdir, replication, server))
    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    assert producer.send("words", b"hello").get(60).offset == 0
    producer.close()
"""
TYPED = """
import barnabas
from barnabas.logdir import open_log

def use(settings: dict[str, int]) -> str:
    with barnabas.Broker(settings, data="/tmp/x") as broker:
        broker.restart()
        reveal_type(broker)
        for record in open_log("/tmp/x/words-0").records(start_offset=5):
            reveal_type(record.offset)
        return broker.bootstrap
"""


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """What the command printed. The environment has nothing of this checkout, and `variables` beside."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST"))}
    environment |= variables
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(place: Path, *requirements: str | Path) -> Path:
    """A fresh virtual environment with these; its folder of programs."""
    run(PYTHON, "-m", "venv", "--without-pip", place)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python", place / "bin" / "python")
    run(*pip, "install", "--constraint", ROOT / ".ci" / "constraints.txt", *requirements, cwd=place)
    return place / "bin"


def project(place: Path) -> Path:
    """The user's project."""
    for name in NAMES:
        (place / "src" / name).mkdir(parents=True)
        (place / "src" / name / "__init__.py").write_text("mine = True\n")
    (place / "pyproject.toml").write_text(PROJECT)
    (place / "test_mine.py").write_text(SUITE)
    return place


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT, cwd=directory)
    (path,) = directory.glob("barnabas-*.whl")
    return path


def test_the_wheel_has_one_name_at_its_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {
        "barnabas",
        "-".join(wheel.stem.split("-")[:2]) + ".dist-info",
    }
    assert {f"barnabas/{name}/__init__.py" for name in NAMES} <= set(names)
    assert {"barnabas/py.typed", "barnabas/kproto/messages.pyi", "barnabas/kproto/schema/01_fetch.api"} <= set(names)
    console = {f"barnabas/server/console/{name}" for name in ("templates/layout.html", "static/console.css")}
    assert console <= set(names)
    assert not [name for name in names if "/tests/" in name or "conftest" in name]
    assert not [name for name in names if "/native/" in name]  # a distribution of its own


@pytest.mark.campaign
def test_beside_packages_of_our_names_and_with_types(wheel: Path, tmp_path: Path) -> None:
    home = project(tmp_path / "project")
    programs = environment(tmp_path / "venv", wheel, "--editable", home, "pytest", "kafka-python", "mypy")
    assert "1 passed" in run(programs / "pytest", "-q", cwd=home)
    assert run(programs / "barnabas", "--version", cwd=home / "src").startswith("barnabas ")
    # Nothing of theirs is hidden by what is not there.
    shutil.rmtree(home / "src" / "server")
    without = "import importlib.util; print(importlib.util.find_spec('server'))"
    assert run(programs / "python", "-c", without, cwd=tmp_path).strip() == "None"

    (tmp_path / "typed.py").write_text(TYPED)
    said = run(programs / "mypy", "--strict", "--cache-dir", tmp_path / "cache", "typed.py", cwd=tmp_path)
    assert 'Revealed type is "barnabas.process.Broker"' in said
    assert re.search(r'Revealed type is "(builtins\.)?int"', said)
    assert "Success: no issues found in 1 source file" in said


@pytest.mark.campaign
@pytest.mark.parametrize(
    "module",
    [
        pytest.param(path.name, marks=[pytest.mark.jvm] if "spark" in path.name else [], id=path.stem)
        for path in sorted(EXAMPLES.glob("test_*.py"))
    ],
)
def test_an_example_of_tests_in_an_empty_project(module: str, wheel: Path, tmp_path: Path) -> None:
    """The wheel, what the example says is to be installed beside it, its file, and nothing else."""
    said = re.search(r"^    pip install (.+)$", (EXAMPLES / module).read_text(), re.MULTILINE)
    assert said is not None
    programs = environment(tmp_path / "venv", wheel, *shlex.split(said[1]))
    home = tmp_path / "project"
    home.mkdir()
    shutil.copy(EXAMPLES / module, home)
    variables = {}
    if "spark" in module:  # where it is not fetched by Spark, it is by Maven
        from compat_tests.clients.spark.session import connector_jars
        from compat_tests.harness.jars import jvm_options_line

        variables = {"SPARK_KAFKA_JARS": ",".join(map(str, connector_jars())), "SPARK_LOCAL_IP": "127.0.0.1"}
        variables["SPARK_SUBMIT_OPTS"] = jvm_options_line()
    printed = run(programs / "pytest", "-q", cwd=home, **variables)
    assert re.fullmatch(r"[1-9][0-9]* passed(, [0-9]+ warnings?)? in .*", printed.splitlines()[-1]), printed


@pytest.mark.campaign
@pytest.mark.parametrize("kind", ["source distribution", "editable", "git"])
def test_other_ways_to_install(kind: str, tmp_path: Path) -> None:
    """The wheel made from a source distribution, the checkout itself, and what is committed in it."""
    if kind == "editable":
        what: list[str | Path] = ["--editable", ROOT]
    elif kind == "git":
        if not (ROOT / ".git").exists():
            pytest.skip("this is no clone")
        what = [f"git+file://{ROOT}"]
    else:
        build = environment(tmp_path / "build", "hatchling", "hatch-fancy-pypi-readme")
        run(build / "hatchling", "build", "--target", "sdist", "--directory", tmp_path / "dist", cwd=ROOT)
        what = list((tmp_path / "dist").glob("barnabas-*.tar.gz"))
    programs = environment(tmp_path / "venv", *what, "pytest", "kafka-python")
    home = project(tmp_path / "project")
    (home / "pyproject.toml").write_text("[tool.pytest.ini_options]\npythonpath = 'src'\n")
    assert "1 passed" in run(programs / "pytest", "-q", cwd=home)
    assert run(programs / "barnabas", "--version", cwd=home / "src").startswith("barnabas ")
