"""Where the JVMs of the tests put their temporary files, and who deletes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compat_tests.harness import jars
from compat_tests.harness.jars import PROJECT_ROOT, empty_jvm_directory, java, jvm_options

STARTS_JVMS = """
from compat_tests.harness.jars import jvm_options
print(jvm_options()[0], flush=True)
input()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """It is not made yet."""
    monkeypatch.setenv("BARNABAS_CACHE", str(tmp_path / "our cache"))
    return tmp_path / "our cache" / "jvm"


def left_in(directory: Path) -> Path:
    """What a killed JVM leaves behind."""
    library = directory / "spark-1" / "liblz4-java-1.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (directory / "librocksdbjni-1.so").touch()
    return library


@pytest.mark.parametrize("ends", ["by itself", "killed"])
def test_it_is_not_emptied_under_a_process_that_starts_jvms(ends: str, directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_JVMS], cwd=PROJECT_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == f"-Djava.io.tmpdir={directory}\n"
        library = left_in(directory)
        empty_jvm_directory()
        assert library.exists()
        if ends == "killed":
            other.kill()
        else:
            other.communicate("\n", timeout=60)
    assert directory.exists() == (ends == "killed")
    empty_jvm_directory()
    assert not directory.exists()


def test_there_need_be_nothing_to_empty(directory: Path) -> None:
    empty_jvm_directory()
    assert not directory.parent.exists()


def test_options_on_one_line_are_quoted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_hold", lambda directory: directory.parent.mkdir(parents=True, exist_ok=True))
    assert jars.jvm_options_line() == f'"-Djava.io.tmpdir={directory}" "-XX:-UsePerfData"'
    assert directory.is_dir()


@pytest.mark.slow
@pytest.mark.jvm
def test_a_jvm_leaves_nothing_elsewhere(tmp_path: Path) -> None:
    """It is killed while it has a temporary file."""
    program = tmp_path / "Leaves.java"
    program.write_text(
        "class Leaves { public static void main(String[] a) throws Exception {"
        ' System.out.println(java.io.File.createTempFile("left", ".so")); System.in.read(); } }'
    )
    with subprocess.Popen([*java(), str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdout is not None
        left = Path(jvm.stdout.readline().strip())
        files = list(Path("/tmp").glob(f"hsperfdata_*/{jvm.pid}"))
        jvm.kill()
    assert left.exists()
    assert jvm_options()[0] == f"-Djava.io.tmpdir={left.parent}"
    assert files == []
