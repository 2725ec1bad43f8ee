"""Jars by coordinates: a committed pom.xml is resolved once by Maven into `.cache/jars/<name>` at the project root.

The cache directory is git-ignored; the environment variable BARNABAS_CACHE names another one. Two processes may ask at
the same time: a lock file makes the second wait. The mark written last holds a digest of the pom, so a half-copied
directory is never used and an edited pom is resolved anew.

The programs of the JDK are named here, too, with what makes every JVM put its temporary files into `.cache/jvm`: many
are killed before they can delete them, and native libraries alone are tens of megabytes each.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT_ROOT = HERE.parents[1]
MAVEN_TIMEOUT_S = 900
COMPILE_TIMEOUT_S = 600
NO_JVM = "BARNABAS_NO_JVM"
"""This variable names the running test where that may not use a JVM (conftest.py at the project root)."""
NO_PERF_DATA = "-XX:-UsePerfData"
"""A JVM's file for `jps` and `jstat` lies where no option puts it, so there is none."""
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For a JVM that ends before the compiler of what runs for long has earned its time, and that is not alone here."""


class ToolMissing(Exception):
    """Something the suite needs is not on this machine and could not be fetched; the message says what to install."""


def cache_root() -> Path:
    """Return the directory for everything fetched or compiled: BARNABAS_CACHE, else `.cache` at the project root."""
    return Path(os.environ.get("BARNABAS_CACHE") or PROJECT_ROOT / ".cache")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file *path* (made if absent): one process at a time fills a cache entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def java() -> list[str]:
    """Return the words that start a JVM: the `java` to run (JAVA_HOME's, else PATH's), with jvm_options. Raises
    ToolMissing.
    """
    return [_jdk_program("java"), *jvm_options()]


def javac() -> list[str]:
    """Return the words that start the compiler (JAVA_HOME's `javac`, else PATH's), as java. Raises ToolMissing."""
    return [_jdk_program("javac"), *(f"-J{option}" for option in (*jvm_options(), *SHORT_LIVED))]


def jvm_options() -> list[str]:
    """Return the options that keep a JVM's files out of the system's directory for temporary ones: they go into
    `.cache/jvm`, which is not emptied while this process lives.
    """
    directory = _jvm_directory()
    _hold(directory)
    directory.mkdir(exist_ok=True)
    return [f"-Djava.io.tmpdir={directory}", NO_PERF_DATA]


def jvm_options_line() -> str:
    """Return jvm_options as the environment variables JDK_JAVA_OPTIONS and SPARK_SUBMIT_OPTS have them, and Spark's
    settings: for a JVM whose command line is not ours.
    """
    return " ".join(f'"{option}"' for option in jvm_options())


def empty_jvm_directory() -> None:
    """Delete what JVMs have left behind, unless a process is there that starts some: the last one does it."""
    directory = _jvm_directory()
    if not directory.exists():
        return
    with directory.with_suffix(".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(directory, ignore_errors=True)


def _jvm_directory() -> Path:
    return cache_root().absolute() / "jvm"


@functools.cache
def _hold(directory: Path) -> None:
    """Share the lock of the directory until this process has ended; then empty it, if that was the last one."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    file = directory.with_suffix(".lock").open("w")
    fcntl.flock(file, fcntl.LOCK_SH)

    def let_go() -> None:
        file.close()
        empty_jvm_directory()

    atexit.register(let_go)


def _jdk_program(name: str) -> str:
    if NO_JVM in os.environ:
        raise ToolMissing(f"{os.environ[NO_JVM]} wants `{name}` without having the marker `jvm`")
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise ToolMissing(f"no `{name}` found: install a JDK 17 (Debian: openjdk-17-jdk-headless) or set JAVA_HOME")
    return found


def jar_directory(name: str, pom: Path | None = None) -> Path:
    """Return the directory holding every jar the pom asks for, resolving them by Maven when it is not filled yet.

    *name* is the cache entry; *pom* defaults to `compat_tests/harness/poms/<name>.xml`. Raises ToolMissing.
    """
    pom = pom or HERE / "poms" / f"{name}.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()
    target = cache_root() / "jars" / name
    mark = target / ".complete"
    with locked(target.parent / f"{name}.lock"):
        if mark.exists() and mark.read_text() == digest:
            return target
        maven = shutil.which("mvn")
        if maven is None:
            raise ToolMissing(f"no `mvn` found to resolve {pom.name}: install Maven (Debian: maven)")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        # Maven writes a `target` folder beside the pom it reads: give it a copy, so that the checkout stays clean.
        copy = target / "pom.xml"
        copy.write_bytes(pom.read_bytes())
        command = [maven, "-q", "-B", "-f", str(copy), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        options = {"MAVEN_OPTS": f"{os.environ.get('MAVEN_OPTS', '')} {NO_PERF_DATA} {' '.join(SHORT_LIVED)}"}
        done = subprocess.run(
            command, env=os.environ | options, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise ToolMissing(f"Maven could not resolve {pom}:\n{done.stdout[-3000:]}{done.stderr[-2000:]}")
        mark.write_text(digest)
    return target


def classpath(name: str, pom: Path | None = None) -> str:
    """Return the class path (`dir/*`) of a set of jars; see jar_directory."""
    return f"{jar_directory(name, pom)}/*"


def compiled(name: str, sources: Sequence[Path], jars: str) -> Path:
    """Compile Java sources against a set of jars (see classpath), once; return the class directory.

    *name* is the cache entry, *jars* the set's name. Raises ToolMissing, also when the sources do not compile.
    """
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    target = cache_root() / "classes" / name
    mark = target / ".complete"
    with locked(target.parent / f"{name}.lock"):
        if mark.exists() and mark.read_text() == digest:
            return target
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        command = [*javac(), "-nowarn", "-d", str(target), "-cp", classpath(jars), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise ToolMissing(f"the Java sources of {name} do not compile against {jars}:\n{done.stderr}")
        mark.write_text(digest)
    return target
