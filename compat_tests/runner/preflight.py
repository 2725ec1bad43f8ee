"""What this machine has of what the tests want beyond Python: looked up in less than a second, nothing is changed.

A tool's `marker` is the pytest marker of the tests that cannot run without it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compat_tests.harness.jars import NO_PERF_DATA

NATIVE = "barnabas-native"
JAVA_WANTED = 17
GO_WANTED = (1, 26)
"""What franz-go asks for (`compat_tests/clients/franz/src/go.mod`)."""
DISK_WANTED_BYTES = 4 << 30
"""The environment and the jars take 1.4 GB, what brokers leave behind for the look at the end up to 2."""
LOOK_TIMEOUT_S = 60
_VERSION = re.compile(r'version "(?:1\.)?([0-9]+)')
_GO_VERSION = re.compile(r"go version go([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class Tool:
    """One thing the tests want. *missing* says what is not there and what to do about it; empty if all is there."""

    name: str
    marker: str
    found: str = ""
    missing: str = ""


def look(environment: Mapping[str, str] | None = None) -> list[Tool]:
    """All tools, those that are there and those that are not."""
    env = os.environ if environment is None else environment
    return [jdk(env), kcat(env), go(env), rust(env), namespaces(env)]


def jdk(env: Mapping[str, str]) -> Tool:
    """A JDK (JAVA_HOME's, else PATH's) that is new enough, and Maven, which fetches the jars."""
    programs = {}
    for name in ("java", "javac"):
        at_home = Path(env.get("JAVA_HOME") or "/nonexistent") / "bin" / name
        programs[name] = str(at_home) if at_home.exists() else shutil.which(name, path=env.get("PATH"))
    lacks = [name for name, found in programs.items() if found is None]
    if shutil.which("mvn", path=env.get("PATH")) is None:
        lacks.append("mvn")
    version = _java_version(programs["java"], env) if programs["java"] else 0
    if programs["java"] and version < JAVA_WANTED:
        lacks.append(f"Java {JAVA_WANTED} or newer (this is {version or 'none that says its version'})")
    if lacks:
        return Tool(
            "JDK and Maven",
            "jvm",
            missing=f"no {', '.join(lacks)}: install a JDK {JAVA_WANTED}+ and Maven "
            "(Debian, Ubuntu: apt-get install openjdk-17-jdk-headless maven)",
        )
    return Tool("JDK and Maven", "jvm", found=f"Java {version}, Maven")


def _java_version(java: str, env: Mapping[str, str]) -> int:
    try:
        done = subprocess.run(
            [java, NO_PERF_DATA, "-version"],
            env=env,
            capture_output=True,
            text=True,
            timeout=LOOK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    said = _VERSION.search(done.stderr + done.stdout)
    return int(said[1]) if said and done.returncode == 0 else 0


def kcat(env: Mapping[str, str]) -> Tool:
    """kcat, or what `compat_tests.harness.tools` needs to fetch it."""
    path = env.get("PATH")
    for name in ("kcat", "kafkacat"):
        if shutil.which(name, path=path):
            return Tool("kcat", "kcat", found=name)
    if shutil.which("apt-get", path=path) and shutil.which("dpkg", path=path):
        lists = Path("/var/lib/apt/lists")
        if os.geteuid() == 0 or (lists.is_dir() and any(lists.glob("*_Packages*"))):
            return Tool("kcat", "kcat", found="from the archive, by apt-get")
    return Tool("kcat", "kcat", missing="no kcat: install it (Debian, Ubuntu: apt-get install kcat)")


def go(env: Mapping[str, str]) -> Tool:
    """A Go that builds the program with franz-go, without asking for a newer one."""
    wanted = "{}.{}".format(*GO_WANTED)
    program = shutil.which("go", path=env.get("PATH"))
    if program is None:
        return Tool("Go", "go", missing=f"no go: install Go {wanted} or newer")
    try:
        done = subprocess.run(
            [program, "version"], env=env, capture_output=True, text=True, timeout=LOOK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return Tool("Go", "go", missing=f"{program} does not answer")
    said = _GO_VERSION.match(done.stdout)
    if said is None or (int(said[1]), int(said[2])) < GO_WANTED:
        found = done.stdout.strip() or "one that does not say its version"
        return Tool("Go", "go", missing=f"Go {wanted} or newer is wanted, this is {found}")
    return Tool("Go", "go", found=f"Go {said[1]}.{said[2]}")


def rust(env: Mapping[str, str]) -> Tool:
    """cargo, which builds barnabas-native: then the tests run with it, and some of them without it, too."""
    if env.get("BARNABAS_PURE", "0") not in ("", "0"):
        return Tool(NATIVE, "", missing="BARNABAS_PURE is set")
    found = cargos(env)
    if any(is_working_cargo(each, env) for each in found):
        return Tool(NATIVE, "", found="cargo builds it")
    if found:
        why = f"{found[0]} does not answer (rustup's has no toolchain until `rustup default stable` was typed)"
        return Tool(NATIVE, "", missing=why)
    return Tool(NATIVE, "", missing="no cargo: install Rust (Debian, Ubuntu: apt-get install cargo)")


def cargos(env: Mapping[str, str]) -> list[str]:
    """Where there is a cargo: on the path, or where rustup puts it."""
    places = (env.get("PATH"), str(Path.home() / ".cargo" / "bin"))
    return [found for place in places if (found := shutil.which("cargo", path=place)) is not None]


def is_working_cargo(cargo: str, env: Mapping[str, str]) -> bool:
    """rustup's is there before any toolchain is, and for each user again."""
    try:
        done = subprocess.run([cargo, "--version"], env=env, capture_output=True, timeout=LOOK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def namespaces(env: Mapping[str, str]) -> Tool:
    """Network namespaces; the tests that want them look once more, and skip themselves."""
    name = "network namespaces"
    if shutil.which("ip", path=env.get("PATH")) is None:
        return Tool(name, "", missing="no `ip` (Debian, Ubuntu: apt-get install iproute2)")
    if os.geteuid() != 0:
        return Tool(name, "", missing="they need root")
    return Tool(name, "", found="root and ip")


def too_full(directories: Sequence[Path], wanted_bytes: int = DISK_WANTED_BYTES) -> str:
    """Why the tests cannot have the space they want in one of these directories; empty if they can."""
    for directory in directories:
        free = shutil.disk_usage(directory).free
        if free < wanted_bytes:
            return f"{free >> 20:,} MiB are free in {directory}; the tests want {wanted_bytes >> 20:,}"
    return ""
