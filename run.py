"""Set up a checkout and use it, with nothing but Python 3.11+ on the machine:

    python3 run.py serve [ARGUMENTS]    start the broker (arguments of `barnabas serve`)
    python3 run.py test [ARGUMENTS]     lint, type check and all tests, or with arguments: pytest with these;
                                        needs a JDK 17+ and Maven for the Java, Spark and ZooKeeper parts

Makes a virtual environment in `.venv` and installs what the command needs into it, once; a change of pyproject.toml
installs again.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - the person may have typed an older python3
        print(f"Barnabas needs Python 3.11 or newer; this is {sys.version.split()[0]}", file=sys.stderr)
        return 2
    if not arguments or arguments[0] not in ("serve", "test"):
        print(__doc__, file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    command, rest = arguments[0], arguments[1:]
    try:
        install("" if command == "serve" else "[test]")
        if command == "serve":
            os.execv(PYTHON, [str(PYTHON), "-P", "-m", "server", "serve", *rest])
        return test(rest)
    except subprocess.CalledProcessError as error:
        print(f"failed with exit code {error.returncode}: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return error.returncode or 1


def install(extra: str) -> None:
    """Make the environment hold the package (editable) with the extra, unless it does already."""
    # The tests' environment holds all that serving needs, so either mark will do for `serve`.
    if any(_mark(had).exists() and _mark(had).read_text() == _wanted(had) for had in {extra, "[test]"}):
        return
    if not PYTHON.exists():
        say(f"making a virtual environment in {VENV.name}")
        try:
            venv.create(VENV, with_pip=True, symlinks=True)
        except (subprocess.CalledProcessError, OSError):
            say("Python's venv module cannot make an environment here; on Debian or Ubuntu: apt install python3-venv")
            raise
    say(f"installing barnabas{extra}")
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--editable", f"{ROOT}{extra}"], check=True)
    _mark(extra).write_text(_wanted(extra))


def _mark(extra: str) -> Path:
    """The file that says that this extra was installed, and from which pyproject.toml."""
    return VENV / f".installed{extra}"


def _wanted(extra: str) -> str:
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + extra.encode()).hexdigest()


def test(rest: list[str]) -> int:
    """Lint, types, tests; all run even when an earlier one fails, and the worst result counts."""
    steps: list[tuple[str, list[str]]] = [("pytest", ["-m", "pytest", *rest])]
    if not rest:
        steps = [
            ("ruff check", ["-m", "ruff", "check", "."]),
            ("ruff format --check", ["-m", "ruff", "format", "--check", "."]),
            ("mypy", ["-m", "mypy"]),
            # The fast ones share the cores; the slow ones start brokers, clusters and JVMs that want them whole.
            ("the fast tests", ["-m", "pytest", "-m", "not slow"]),
            ("the slow tests", ["-m", "pytest", "-m", "slow"]),
        ]
    failed = []
    for name, arguments in steps:
        say(name)
        if subprocess.run([str(PYTHON), *arguments], cwd=ROOT).returncode:
            failed.append(name)
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
