"""Which steps a run has: from what pytest collected, what the tier wants and what the machine lacks.

A step is a process of its own with a title, and the number of its tests if it is pytest. Some run side by side, in the
order of the plan: what needs no environment while that is made, then what needs no test to be known, then the tests.
The fast tests are cut into parts that take about as long: workers of pytest-xdist would each collect all of them, and
report every test. The tests that are not fast are one step for each folder: its session-wide brokers, JVMs and Spark
are started once, and what fails is named by where it lies. The tests of a package share nothing: those of its campaign
are another step. A file whose tests may take many minutes, as the marker `timeout` says, is a step of its own.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path, PurePosixPath

from compat_tests.runner.preflight import Tool

FAST = "not slow"
PLUGIN = "compat_tests.runner.events"
PURE = "BARNABAS_PURE"
NOT_HERE = "not in this tier: python3 run.py test --all"
PURE_TOO = ("kproto/tests/records/", "kproto/tests/test_compiled.py", "logdir/tests/")
"""Fast tests of what has two twins: these run once more without `barnabas-native`."""
CALL_PURE = ("server/tests/requests/", "server/tests/storage/", "server/tests/whole/test_fuzz_corpus.py")
"""Fast tests of what calls them: with `--all` these do so, too."""
BUT = ("/test_compiled_", "/requests/faults/")
"""Not these of them: tests that compare the twins, which they can where both are there; and requests that fail as a
test wants it, whatever is in them.
"""
LINKS = "barnabas/"
"""Where the packages are collected through their links."""
PARTS = 4
"""Of the fast tests."""
WAITING = ("compat_tests/subjects/quotas/", "compat_tests/subjects/share_groups/")
"""Few tests, which wait for most of their time until a lock or a window of time ends: they begin early, beside those
that compute.
"""


@dataclass(frozen=True)
class Step:
    """One process. *arguments* are Python's; *cases* is the number of tests, None if it is not pytest. *environment*
    is put over ours. *bare*: any Python does, so that it can run before there is an environment.
    """

    title: str
    arguments: tuple[str, ...]
    cases: int | None = None
    environment: tuple[tuple[str, str], ...] = ()
    bare: bool = False


LONG_S = 2000
"""A file with a test that declares such a time limit is a step of its own, and begins early."""


@dataclass(frozen=True)
class Group:
    """So many tests of one file that have the same markers; *limit_s* is the longest time limit that one declares."""

    file: str
    markers: frozenset[str]
    count: int
    limit_s: float = 0

    @property
    def title(self) -> str:
        """Of its step: where the test lies, a package for the tests of a package, else the file's directory."""
        parts = PurePosixPath(self.file).parent.parts
        if "tests" not in parts:
            return "/".join(parts) or "."
        package = "/".join(parts[: parts.index("tests")])
        return f"{package}: campaign" if "campaign" in self.markers else package


def groups(listing: Path) -> list[Group]:
    """What `events.Listing` wrote."""
    lines = map(json.loads, listing.read_text().splitlines())
    return [Group(line["file"], frozenset(line["markers"]), line["count"], line["limit_s"]) for line in lines]


@dataclass
class Plan:
    """The steps in their order, and what is left out: a count of tests by the reason."""

    steps: list[Step] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


TYPES = Step("types: mypy --strict", ("-m", "mypy"))
ENVIRONMENT = Step("the environment", ("run.py", "install"), bare=True)
COLLECTING = "collecting the tests"
JARS = Step("fetching jars", ("-m", "compat_tests.runner.fetch"), bare=True)
CONNECTOR = Step("fetching Spark's connector", ("-m", "compat_tests.runner.fetch", "--connector"))
FRANZ = Step("building with franz-go", ("-m", "compat_tests.clients.franz.program"), bare=True)


def beginning(tools: Iterable[Tool]) -> list[Step]:
    """What needs nothing but Python itself: the environment, which waits for the network and a disk, and beside it what
    others fetch and compile.
    """
    missing = {tool.marker for tool in tools if tool.missing}
    return [ENVIRONMENT, *([JARS] if "jvm" not in missing else []), *([FRANZ] if "go" not in missing else [])]


def with_environment(listing: Path, tools: Iterable[Tool]) -> list[Step]:
    """What needs no test to be known: collecting them, the types, lint, the jars that only the environment can name."""
    return [
        Step(COLLECTING, _pytest("--collect-only", "-qq", "--listing", str(listing))),
        TYPES,
        *([CONNECTOR] if not any(tool.missing and tool.marker == "jvm" for tool in tools) else []),
        Step("lint: ruff check", ("-m", "ruff", "check", ".")),
        Step("format: ruff format --check", ("-m", "ruff", "format", "--check", ".")),
    ]


def plan(found: Sequence[Group], tools: Iterable[Tool], *, everything: bool, has_native: bool = False) -> Plan:
    """What comes when the tests are known: the fast ones, with `has_native` some of them once more, without it; then
    the folders of the others.
    """
    made = Plan()
    missing = {tool.marker: tool for tool in tools if tool.missing and tool.marker}
    fast = [group for group in found if "slow" not in group.markers]
    computing = _fast(fast)
    if has_native:
        computing += _again(made, fast, everything=everything)
    alone = {group.file for group in found if group.limit_s >= LONG_S}
    chosen: dict[str, list[Group]] = defaultdict(list)
    for group in found:
        if "slow" not in group.markers:
            continue
        lacks = sorted(group.markers & missing.keys())
        if not everything and "campaign" in group.markers:
            made.left_out[NOT_HERE] += group.count
        elif lacks:
            made.left_out[_without(missing[lacks[0]])] += group.count
        else:
            chosen[group.file.removesuffix(".py") if group.file in alone else group.title].append(group)
    # The longest must not begin last. How long a step takes is not known beforehand; those that start JVMs, clusters
    # and brokers of their own take the longest for a test.
    order = sorted(chosen, key=lambda title: (-_weight(chosen[title]), title))
    waiting = [
        Step(
            title,
            _pytest("-m", _expression(chosen[title], missing), *sorted({group.file for group in chosen[title]})),
            sum(group.count for group in chosen[title]),
        )
        for title in order
    ]
    # One that computes all the time, then one that waits for a third of it, for others' processes and for time-outs.
    made.steps += [step for pair in zip_longest(computing, waiting) for step in pair if step is not None]
    return made


def _fast(fast: Iterable[Group]) -> list[Step]:
    """The parts: files that lie beside each other, as they import the same."""
    counts: Counter[str] = Counter()
    for group in fast:
        counts[group.file] += group.count
    # Those of the server have a broker each: they take three times as long.
    costs = {file: count * (3 if file.startswith(f"{LINKS}server/") else 1) for file, count in counts.items()}
    parts: list[list[str]] = [[] for _ in range(PARTS)]
    begins_at, whole = 0, sum(costs.values())
    for file in sorted(costs):
        parts[begins_at * PARTS // whole].append(file)
        begins_at += costs[file]
    return [
        Step(f"fast tests, part {number}", _pytest("-m", FAST, *files), sum(counts[file] for file in files))
        for number, files in enumerate(parts, 1)
        if files
    ]


def _again(made: Plan, fast: Iterable[Group], *, everything: bool) -> list[Step]:
    """The step without `barnabas-native`."""
    counts: Counter[str] = Counter()
    for group in fast:
        file = group.file.removeprefix(LINKS)
        if any(part in file for part in BUT) or not file.startswith(PURE_TOO + CALL_PURE):
            continue
        if everything or file.startswith(PURE_TOO):
            counts[group.file] += group.count
        else:
            made.left_out[NOT_HERE] += group.count
    if not counts:
        return []
    title, arguments = "fast tests, without barnabas-native", _pytest("-m", FAST, *sorted(counts))
    return [Step(title, arguments, counts.total(), ((PURE, "1"),))]


def _without(tool: Tool) -> str:
    """Why tests are left out; what else is, which has no number."""
    also = " (nor does DumpLogSegments look through what brokers have left)" if tool.marker == "jvm" else ""
    return f"without {tool.name}{also}: {tool.missing}"


def _weight(chosen: Iterable[Group]) -> float:
    return sum(
        group.count
        * (10 if "campaign" in group.markers else 1)
        * (3 if "jvm" in group.markers or group.file.startswith(LINKS) else 1)
        * (4 if group.file.startswith(WAITING) else 1)
        + group.limit_s / 3
        for group in chosen
    )


def _expression(chosen: Sequence[Group], missing: Iterable[str]) -> str:
    """What chooses these tests and no others of their files."""
    campaign = {"campaign" in group.markers for group in chosen}
    which = "slow" if len(campaign) == 2 else "campaign" if campaign == {True} else "slow and not campaign"
    return " and ".join([which, *(f"not {one}" for one in missing)])


def _pytest(*arguments: str) -> tuple[str, ...]:
    return ("-m", "pytest", "-p", PLUGIN, *arguments)
