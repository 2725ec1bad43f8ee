"""How the tests of this checkout run: on whose cores, and where their files lie.

Fast tests wait for disks half of their time, and what they show does not depend on one: their files lie in memory where
the system offers that. Slow tests, with brokers as processes, have the disk. `pytest -m "not slow"` over everything
runs on all cores, unless `-n` says how many.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

FAST = "not slow"
NO_JVM = "BARNABAS_NO_JVM"
"""Names the running test where that may not use a JVM; `compat_tests.harness.jars` obeys."""
MOST_WORKERS = 4
MEMORY = Path("/dev/shm")
MEMORY_WANTED_BYTES = 2 << 30
_DIRECTORY = pytest.StashKey[Path]()

# They are collected through their links, in `barnabas/`.
collect_ignore = ["kproto", "logdir", "coordinator", "replication", "server"]


def memory() -> Path | None:
    """A new directory whose files lie in memory; None where there is no room for that."""
    try:
        if shutil.disk_usage(MEMORY).free < MEMORY_WANTED_BYTES:
            return None
        return Path(tempfile.mkdtemp(prefix="barnabas-tests-", dir=MEMORY))
    except OSError:
        return None


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """The fast tests, all of them: a worker per core."""
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    here = not hasattr(config, "workerinput") and not config.option.collectonly and not config.option.usepdb
    if whole and here and config.option.markexpr == FAST and getattr(config.option, "numprocesses", 0) is None:
        config.option.numprocesses = min(os.cpu_count() or 1, MOST_WORKERS)


def pytest_configure(config: pytest.Config) -> None:
    # Brokers and helpers start hundreds of times: compiling all modules again is half of each start. So it is with the
    # tests themselves, whose assertions pytest compiles: 17 of 27 s for all of them, in every process that collects.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    directory = memory()
    if directory is not None:
        config.stash[_DIRECTORY] = directory


def pytest_unconfigure(config: pytest.Config) -> None:
    directory = config.stash.get(_DIRECTORY, None)
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What belongs to a campaign is slow; before `-m` chooses."""
    for item in items:
        if item.get_closest_marker("campaign") is not None and item.get_closest_marker("slow") is None:
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test without the marker `jvm` cannot use a JVM: where there is none, `run.py test` goes by the marker."""
    if item.get_closest_marker("jvm") is not None:
        return (yield)
    os.environ[NO_JVM] = item.nodeid
    try:
        return (yield)
    finally:
        os.environ.pop(NO_JVM, None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What has been collected lives to the end: the garbage collector need not look through it again and again. And it
    looks at the young as seldom as in a broker, which is a fifteenth of the fast tests' time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)


def _in_memory(request: pytest.FixtureRequest) -> Path | None:
    slow = request.node.get_closest_marker("slow") is not None
    return None if slow else request.config.stash.get(_DIRECTORY, None)


@pytest.fixture(autouse=True)
def _temporary_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `tempfile` makes what a test asks it for."""
    directory = _in_memory(request)
    if directory is not None:
        monkeypatch.setattr(tempfile, "tempdir", str(directory))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory of the test's own."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    directory = _in_memory(request)
    if directory is None:
        yield tmp_path_factory.mktemp(name, numbered=True)
    else:
        yield Path(tempfile.mkdtemp(prefix=f"{name}-", dir=directory))
