"""kcat, found or fetched: on PATH, else from the Debian/Ubuntu archive into `.cache/kcat`, unpacked without root.

The packages are those `apt-get install --simulate` would install (kcat, librdkafka1, libyajl2 on a bare Debian 12);
they are downloaded with `apt-get download`, unpacked with `dpkg -x` and run with LD_LIBRARY_PATH. Only when the lists
of packages are absent is `apt-get update` needed, and only that needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from compat_tests.harness.jars import ToolMissing, cache_root, locked

APT_TIMEOUT_S = 300
_INSTALL_IT = "install kcat (Debian, Ubuntu: apt-get install kcat) or put it on PATH"


@dataclass(frozen=True)
class Program:
    """A program and the environment variables it needs on top of ours."""

    path: str
    extra_environment: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Return the whole environment to start it with."""
        return {**os.environ, **self.extra_environment}


def kcat() -> Program:
    """Return kcat, fetching it if need be. Raises ToolMissing with what to install."""
    found = shutil.which("kcat") or shutil.which("kafkacat")
    if found:
        return Program(found)
    target = cache_root() / "kcat"
    with locked(target.parent / "kcat.lock"):
        mark = target / ".complete"
        if not mark.exists():
            _fetch_kcat(target)
            mark.write_text("")
    libraries = sorted({str(path.parent) for path in target.rglob("*.so*")})
    return Program(str(target / "usr" / "bin" / "kcat"), {"LD_LIBRARY_PATH": ":".join(libraries)})


def _fetch_kcat(target: Path) -> None:
    if not (shutil.which("apt-get") and shutil.which("dpkg")):
        raise ToolMissing(f"kcat is not on PATH and this is no Debian or Ubuntu: {_INSTALL_IT}")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    packages = _packages_to_fetch()
    if not packages:
        if os.geteuid() != 0:
            raise ToolMissing(
                f"kcat is not on PATH and apt has no package lists; as root run `apt-get update`, or {_INSTALL_IT}"
            )
        _apt(["apt-get", "-qq", "update"])
        packages = _packages_to_fetch()
    if not packages:
        raise ToolMissing(f"the package archive of this machine has no kcat: {_INSTALL_IT}")
    done = _apt(["apt-get", "download", *packages], cwd=target)
    if done.returncode != 0 and os.geteuid() == 0:
        # Lists older than the archive name versions that are gone by now.
        _apt(["apt-get", "-qq", "update"])
        done = _apt(["apt-get", "download", *packages], cwd=target)
    if done.returncode != 0:
        raise ToolMissing(
            f"`apt-get download {' '.join(packages)}` failed: {done.stderr.strip()[-500:]}; {_INSTALL_IT}"
        )
    for package in sorted(target.glob("*.deb")):
        _apt(["dpkg", "-x", str(package), str(target)], check=True)
        package.unlink()


def _packages_to_fetch() -> list[str]:
    done = _apt(["apt-get", "install", "--simulate", "--no-install-recommends", "kcat"])
    return re.findall(r"^Inst (\S+)", done.stdout, re.MULTILINE) if done.returncode == 0 else []


def _apt(command: list[str], *, cwd: Path | None = None, check: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=APT_TIMEOUT_S, check=check
    )
