"""The cases with Apache Kafka's Java clients: each version runs all of them in one JVM, four at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat_tests.clients.java.runner import RUN_TIMEOUT_S, JavaCase, JavaRun, java_cases
from compat_tests.harness.matrix import Absent, Place

VERSIONS = ("4.3.1", "3.9.1")
ABSENT = [
    Absent(Place(one.area, one.title, f"Java {version}"), "it has no such call")
    for version in VERSIONS
    for one in java_cases()
    if one not in java_cases(version)
]


def _parameters() -> Iterator[Any]:
    for version in VERSIONS:
        for one in java_cases(version):
            identity = re.sub("[^a-z0-9]+", "-", f"{version} {one.area} {one.title}".lower()).strip("-")
            place = pytest.mark.case(one.area, one.title, f"Java {version}")
            yield pytest.param(version, one, id=identity, marks=place)


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[JavaRun, Path]]]:
    """The JVMs by version, filled on demand: the second starts when the first has ended."""
    started: dict[str, tuple[JavaRun, Path]] = {}
    yield started
    for run, _ in started.values():
        run.stop()


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.timeout(RUN_TIMEOUT_S + 60)
@pytest.mark.parametrize(("version", "one"), list(_parameters()))
def test_case(
    version: str,
    one: JavaCase,
    runs: dict[str, tuple[JavaRun, Path]],
    request: pytest.FixtureRequest,
    bootstrap: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if version not in runs:
        log = tmp_path_factory.mktemp(f"java-{version}") / "stderr.log"
        wanted = [item.callspec.params["one"] for item in request.session.items if _of_this(item, request, version)]
        chosen = len(wanted) < len(java_cases(version))
        only = "|".join(f"^{re.escape(f'{case.area} / {case.title}')}$" for case in wanted) if chosen else ""
        runs[version] = (JavaRun.start(version, bootstrap, log, only), log)
    run, log = runs[version]
    passed, detail = run.outcome(one)
    if not passed:
        pytest.fail(f"{detail}\n--- the JVM's log ---\n{log.read_text()[-3000:]}", pytrace=False)


def _of_this(item: pytest.Item, request: pytest.FixtureRequest, version: str) -> bool:
    callspec = getattr(item, "callspec", None)
    mine = item.path == request.node.path and callspec is not None
    return mine and callspec.params.get("version") == version
