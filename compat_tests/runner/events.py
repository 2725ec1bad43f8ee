"""The pytest plugin of `run.py test`: says in a file, a JSON object a line, what is collected and what becomes of it.

    python -m pytest -p compat_tests.runner.events --events FILE …

- `{"collected": 345}`: so many tests will run.
- `{"test": "a/test_b.py::test_c", "outcome": "passed", "seconds": 1.2, "why": ""}`: one has ended, with its set-up and
  tear-down; outcomes are passed, failed, skipped; `why` is a skip's reason, or what a failure printed. A test that says
  which case of which client it is says so here, too, as `"case"`.
- `{"absent": "produce\u001fa case\u001fa client", "why": ""}`: a case that this client cannot express. From this and
  the former `python -m compat_tests.harness.matrix` makes its page.

With `--listing FILE` and `--collect-only`: `{"file": "a/test_b.py", "markers": ["slow"], "count": 3, "limit_s": 600}`
for the tests of a file that have the same of the markers of interest. `limit_s` is the longest time limit that one of
them declares, 0 if none does.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from compat_tests.harness.matrix import PROPERTY, declared_absent

MARKERS = ("slow", "campaign", "jvm", "kcat", "go")
WORST = ("passed", "skipped", "failed")
LONGEST_TEXT = 12_000


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two files."""
    group = parser.getgroup("run.py test")
    group.addoption("--events", metavar="FILE", help="say there what becomes of the tests, a JSON object a line")
    group.addoption("--listing", metavar="FILE", help="say there which files have how many tests with which markers")


def pytest_configure(config: pytest.Config) -> None:
    """Listen, unless this is a worker: its reports reach the process that started it."""
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--events"):
        config.pluginmanager.register(Events(Path(config.getoption("--events"))), "runner-events")
    if config.getoption("--listing"):
        config.pluginmanager.register(Listing(Path(config.getoption("--listing"))), "runner-listing")


class Events:
    """Writes a line for every test that has ended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._running: dict[str, dict[str, Any]] = {}
        self._collected = 0

    def _say(self, **what: object) -> None:
        self._file.write(json.dumps(what) + "\n")

    def _expect(self, count: int) -> None:
        if count > self._collected:
            self._collected = count
            self._say(collected=count)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tests that run in this process."""
        self._expect(len(session.items))
        for absent in declared_absent(session.items):
            self._say(absent=absent.place.encode(), why=absent.reason)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """Tests that run in workers: each has collected all of them."""
        self._expect(len(ids))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be collected has failed."""
        if report.failed:
            self._say(test=report.nodeid, outcome="failed", seconds=0.0, why=report.longreprtext[-LONGEST_TEXT:])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test: the line is written after the last one."""
        one = self._running.setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0, "why": ""})
        one["seconds"] += report.duration
        if WORST.index(report.outcome) > WORST.index(one["outcome"]):
            one["outcome"] = report.outcome
        if report.failed:
            one["why"] = f"{one['why']}\n{report.longreprtext}"[-LONGEST_TEXT:]
        elif report.skipped:
            one["why"] = _reason(report)
        said = dict(report.user_properties)
        if PROPERTY in said:
            one["case"] = said[PROPERTY]
        # A worker that died reports its test in no phase.
        if report.when not in ("setup", "call"):
            del self._running[report.nodeid]
            self._say(test=report.nodeid, **one)


class Listing:
    """Writes which files have how many tests of which kind."""

    def __init__(self, path: Path) -> None:
        self._path = path

    # After the options -m and -k have chosen.
    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """All is collected."""
        found: Counter[tuple[str, tuple[str, ...]]] = Counter()
        limits: dict[tuple[str, tuple[str, ...]], float] = {}
        for item in session.items:
            markers = tuple(name for name in MARKERS if item.get_closest_marker(name) is not None)
            group = item.path.relative_to(session.config.rootpath).as_posix(), markers
            found[group] += 1
            limits[group] = max(limits.get(group, 0), _limit_s(item))
        lines = (
            json.dumps({"file": group[0], "markers": group[1], "count": count, "limit_s": limits[group]})
            for group, count in sorted(found.items())
        )
        self._path.write_text("".join(f"{line}\n" for line in lines))


def _limit_s(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return 0 if limit is None else (*limit.args, *limit.kwargs.values())[0]


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return str(getattr(report, "wasxfail", "") or report.longreprtext)
