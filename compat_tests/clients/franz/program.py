"""The program in `src`, built by `go` into `.cache/franz` when it has changed."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from compat_tests.harness.jars import ToolMissing, cache_root, locked
from compat_tests.harness.members import Members

SOURCES = Path(__file__).parent / "src"
BUILD_TIMEOUT_S = 600
NAME = "franz-go"


def built() -> Path:
    """The program. Raises ToolMissing, also if it does not build."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()))).hexdigest()
    target = cache_root() / "franz"
    program, mark = target / "franz", target / ".complete"
    with locked(target.parent / "franz.lock"):
        if mark.exists() and mark.read_text() == digest:
            return program
        go = shutil.which("go")
        if go is None:
            raise ToolMissing("no `go` found: install Go 1.26 or newer")
        target.mkdir(parents=True, exist_ok=True)
        # Not optimized: it builds in two thirds of the time, nearly all of which the packages of others take.
        options = ["-trimpath", "-buildvcs=false", "-gcflags=all=-N -l"]
        command = [go, "build", *options, "-o", str(program), "."]
        done = subprocess.run(
            command, cwd=SOURCES, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise ToolMissing(f"`go build` in {SOURCES}:\n{done.stdout}{done.stderr}")
        mark.write_text(digest)
    return program


def franz(log: Path) -> Members:
    """A process with clients; *log* gets what it says besides."""
    return Members([str(built())], log)


if __name__ == "__main__":
    print(built())
