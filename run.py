"""Set up a checkout and use it, with nothing but Python 3.11+ on the machine:

    python3 run.py serve [ARGUMENTS]    start the broker (arguments of `barnabas serve`)
    python3 run.py test                 lint, types, the fast tests, stock clients against one broker: about 15 minutes
    python3 run.py test --all           also clusters, faults, kills, Apache Kafka beside it: 35 to 60 minutes
    python3 run.py test ARGUMENTS       pytest with these
    python3 run.py install              make the environment that the tests want, and nothing else
    python3 run.py example NAME [...]   one of the programs in examples/, with its arguments; without NAME: which

Without a JDK 17+ and Maven the tests with Java, Spark and ZooKeeper are left out, which the summary says; with CI=true
that is a failure.

Makes a virtual environment in `.venv` and installs what the command needs into it, once; a change of pyproject.toml
installs again. Where there is a `cargo` it also builds kproto/native, once for each change of it (docs/native.md);
BARNABAS_PURE=1 leaves that out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
WITHOUT_SPARK = ("groups", "produce_consume", "three_brokers", "topics")
"""Examples that need a small client only."""
# With clients' regular expressions and the faster lz4 where neither need be compiled: google-re2 and lz4 have no wheels
# for musl (Alpine) and 3.15.
_HAS_WHEELS = sys.version_info < (3, 15) and "musl" not in str(sysconfig.get_config_var("SOABI"))
SERVED = "[lz4,regex]" if _HAS_WHEELS else ""
TESTED = f"[console,examples,{'lz4,' if _HAS_WHEELS else ''}oauth,{'regex,' if _HAS_WHEELS else ''}zookeeper-sasl]"
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
NATIVE = ROOT / "kproto" / "native"
CACHE = ROOT / ".cache"
NATIVE_LOG = "native-build.log"
BUILD_TIMEOUT_S = 900


def main(arguments: list[str]) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - the person may have typed an older python3
        print(f"Barnabas needs Python 3.11 or newer; this is {sys.version.split()[0]}", file=sys.stderr)
        return 2
    if sys.platform == "win32":
        print("Barnabas does not run on Windows itself; run it in WSL", file=sys.stderr)
        return 2
    helped = arguments[:1] in (["-h"], ["--help"]) or arguments in (["test", "-h"], ["test", "--help"])
    if helped or not arguments or arguments[0] not in ("serve", "test", "install", "example"):
        print(__doc__, file=sys.stdout if helped else sys.stderr)
        return 0 if helped else 2
    command, rest = arguments[0], arguments[1:]
    try:
        if command == "example":
            return example(rest)
        if command == "test" and rest in ([], ["--all"]):
            return test(everything=bool(rest))
        prepare(os.environ, *((SERVED,) if command == "serve" else (TESTED, "test")))
        if command == "install":
            return 0
        if command == "serve":
            os.execv(PYTHON, [str(PYTHON), "-P", "-m", "barnabas", "serve", *rest])
        os.chdir(ROOT)
        os.execv(PYTHON, [str(PYTHON), "-m", "pytest", *rest])
    except subprocess.CalledProcessError as error:
        print(f"failed with exit code {error.returncode}: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return error.returncode or 1


def prepare(environment: Mapping[str, str], extras: str, group: str = "") -> None:
    """Install the package as `install` does, and barnabas-native, which is built meanwhile."""
    make_environment()
    build = build_native(environment)
    try:
        install(extras, group)
        if build is not None:
            install_native(build)
    finally:
        if build is not None and build.poll() is None:
            build.kill()
            build.wait()


def make_environment() -> None:
    """In `.venv`, unless there is one."""
    if PYTHON.exists():
        return
    say(f"making a virtual environment in {VENV.name}")
    try:
        venv.create(VENV, with_pip=True, symlinks=True)
    except BaseException as error:
        shutil.rmtree(VENV, ignore_errors=True)  # half of one would be taken for a whole one
        if isinstance(error, (subprocess.CalledProcessError, OSError)):
            say("Python's venv module makes no environment here; on Debian or Ubuntu: apt install python3-venv")
        raise


def install(extras: str, group: str = "") -> None:
    """Make the environment hold the package (editable) with the extras, and a group of developers' packages, unless it
    does already. The versions are those that the tests ran with.
    """
    # The tests' environment holds all that anything else needs, so either mark will do for that.
    for had in (extras + group, TESTED + "test"):
        if _mark(had).exists() and _mark(had).read_text() == _wanted(had):
            return
    make_environment()
    say(
        f"installing barnabas{extras}{' and what the tests need' if group else ''}"
        + (", which takes a minute or two and 1.1 GB" if "examples" in extras else "")
    )
    quiet = [] if sys.stderr.isatty() else ["--quiet"]
    pip = _pip("install", *quiet)
    # Python compiles what is imported, then; of a gigabyte that the tests' packages are it is little.
    pip += ["--no-compile"] if group else []
    wanted = ["--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}{extras}", *(_group(group) if group else [])]
    subprocess.run([*pip, *wanted], check=True)
    _mark(extras + group).write_text(_wanted(extras + group))


def build_native(environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Have a wheel made of barnabas-native as its sources are now, where that can be done; None where it cannot or need
    not. Nothing needs it, so nothing fails without it; what did not work once is tried again when the sources have
    changed.
    """
    if environment.get("BARNABAS_PURE", "0") not in ("", "0"):
        return None
    mark = _mark("-native")
    had = mark.read_text() if mark.exists() else ""
    cargo = next(filter(None, (shutil.which("cargo", path=place) for place in _places(environment))), None)
    if cargo is None:
        if not had:
            say("without barnabas-native, which is faster and optional: there is no cargo (Rust) to build it")
            mark.write_text("no cargo")
        return None
    wanted = _native_sources()
    if had == wanted:
        return None
    if had != f"{wanted} failed":
        say("building barnabas-native, which takes half a minute; BARNABAS_PURE=1 does without")
        CACHE.mkdir(exist_ok=True)
        shutil.rmtree(CACHE / "wheels", ignore_errors=True)
        path = f"{Path(cargo).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
        into = {**environment, "PATH": path, "CARGO_TARGET_DIR": str(CACHE / "native")}
        with (CACHE / NATIVE_LOG).open("wb") as out:
            try:
                command = _pip("wheel", "--no-deps", "--wheel-dir", str(CACHE / "wheels"), str(NATIVE))
                return subprocess.Popen(command, env=into, stdout=out, stderr=out)
            except OSError as error:
                out.write(f"{error}\n".encode())
    _native_failed()
    return None


def install_native(build: subprocess.Popen[bytes]) -> None:
    """Wait for the wheel, and install it if there is one."""
    with (CACHE / NATIVE_LOG).open("ab") as out:
        try:
            is_there = build.wait(BUILD_TIMEOUT_S) == 0
        except subprocess.TimeoutExpired as error:
            out.write(f"{error}\n".encode())
            is_there = False
        if is_there:
            wheels = map(str, CACHE.glob("wheels/*.whl"))
            command = _pip("install", "--no-deps", "--no-index", "--force-reinstall", *wheels)
            is_there = subprocess.run(command, stdout=out, stderr=out, check=False).returncode == 0
    if is_there:
        _mark("-native").write_text(_native_sources())
    else:
        _native_failed()


def _native_failed() -> None:
    mark = _mark("-native")
    mark.write_text(f"{_native_sources()} failed")
    say(
        "without barnabas-native, which is faster and optional: it could not be built here; "
        f"{(CACHE / NATIVE_LOG).relative_to(ROOT)} says why, and without {mark.relative_to(ROOT)} it is tried again"
    )


def _pip(command: str, *options: str) -> list[str]:
    return [str(PYTHON), "-m", "pip", command, "--disable-pip-version-check", *options]


def _places(environment: Mapping[str, str]) -> list[str]:
    """Where a cargo may be: rustup's own folder is not always on the path."""
    return [environment.get("PATH", os.defpath), str(Path.home() / ".cargo" / "bin")]


def _native_sources() -> str:
    """Stands for what barnabas-native is made from."""
    digest = hashlib.sha256()
    for path in sorted([*NATIVE.glob("*.*"), *NATIVE.glob("src/**/*.rs")]):
        digest.update(f"{path.relative_to(NATIVE)} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _group(name: str) -> list[str]:
    """The requirements of a dependency group. (pip knows of groups as of 25.1, which Python may not come with.)"""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    found = []
    for each in groups[name]:
        found += [each] if isinstance(each, str) else _group(each["include-group"])
    return found


def _mark(what: str) -> Path:
    """The file that says that this was installed, and from what."""
    return VENV / f".installed{what}"


def _wanted(what: str) -> str:
    return hashlib.sha256((ROOT / "pyproject.toml").read_bytes() + CONSTRAINTS.read_bytes() + what.encode()).hexdigest()


def example(arguments: list[str]) -> int:
    """Run one of the examples in this process's place. Returns only if there is none of that name."""
    folder = ROOT / "examples"
    programs = {path.stem: path for path in folder.glob("*.py")}
    programs |= {path.parent.name: path for path in folder.glob("*/run.py")}
    if not arguments or arguments[0] not in programs:
        print(f"run.py example NAME [ARGUMENTS], where NAME is one of {', '.join(sorted(programs))}", file=sys.stderr)
        return 2
    name, *rest = arguments
    install("[kafka-python]" if name in WITHOUT_SPARK else "[examples]")
    os.execv(PYTHON, [str(PYTHON), str(programs[name]), *rest])


def test(*, everything: bool) -> int:
    """Lint, types and the tests of a tier; all run even when an earlier one fails."""
    from compat_tests.runner.main import run

    return run(ROOT, everything, PYTHON)


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
