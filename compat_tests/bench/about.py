"""Which brokers, clients and machine are measured: what the heading of a table says, and what files are merged by."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from compat_tests.bench.brokers import KAFKA, Side
from compat_tests.harness.brokers import KAFKA_JARS, KAFKA_VERSION
from compat_tests.harness.jars import java

QUESTION = """
import importlib.metadata, json, platform, sysconfig
try:
    from barnabas.kproto.compiled import CHOICE
    native = CHOICE.version
except ImportError:
    native = ""
options = sysconfig.get_config_var("CONFIG_ARGS") or ""
print(json.dumps({
    "python": platform.python_implementation() + " " + platform.python_version(),
    "pgo": "--enable-optimizations" in options or "deb_system" in sysconfig.get_scheme_names(),
    "native": native,
    "version": importlib.metadata.version("barnabas"),
}))
"""
"""What a broker's interpreter says of itself: `native` is the version of the distribution `barnabas-native`, which
`barnabas[fast]` brings, if the broker would use it; without it, and in a checkout that does not know it, nothing.
Debian and Ubuntu build Python with PGO by a make target, of which no option tells: they are known by their own scheme.
"""


def about(ours: Side, other: Side, rounds: int, *, quick: bool, part: float) -> dict[str, Any]:
    """`other`: whose values stand beside ours. BARNABAS_PURE in this process's environment is the brokers' too."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "rounds": rounds,
        "quick": quick,
        "part": part,
        "other": other.name,
        "peer": f"Apache Kafka {KAFKA_VERSION}" if other.name == KAFKA else f"Barnabas ({commit(other.checkout)})",
        "ours": {**built(ours), "commit": commit(ours.checkout)},
        "java": _java(),
        "clients": f"Java clients {KAFKA_JARS.partition('-')[2]}, confluent-kafka {version('confluent-kafka')}",
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "processor": _processor(),
            "kernel": platform.release().partition("-")[0],
            "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        },
    }


def built(side: Side) -> dict[str, Any]:
    """The interpreter that runs a broker of ours, and whether the native module is used."""
    environment = {**os.environ, "PYTHONPATH": str(side.checkout)}
    done = subprocess.run(
        [side.python, "-P", "-c", QUESTION], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return dict(json.loads(done.stdout))


def commit(checkout: Path) -> str:
    """The commit that is checked out, with a `+` if files differ from it but for documents, where results go; empty
    where there is no git.
    """
    command = ["git", "-C", str(checkout)]
    try:
        head = subprocess.run(
            [*command, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=60, check=True
        )
        changed = subprocess.run(
            [*command, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout else "")


def _java() -> str:
    done = subprocess.run([*java(), "-version"], capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r'version "([^"]+)"', done.stderr)
    return f"Java {found[1]}" if found else "Java"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.machine()
