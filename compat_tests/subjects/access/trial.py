"""All cells of one broker, or what of them is worth asking twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes import EARLIER, PROBES
from compat_tests.subjects.access.runner import Outcomes, run
from compat_tests.subjects.access.scenarios import Scenario, scenarios, without_lists
from compat_tests.subjects.access.table import CLOSED_WORLD, EARLIER_WORLD, OPEN_WORLD, Table, runs
from compat_tests.subjects.access.world import World

ALL = (*PROBES, *EARLIER)
NUMBERS = {probe.name: number for number, probe in enumerate(ALL)}
SCENARIOS = {CLOSED_WORLD: scenarios, OPEN_WORLD: without_lists, EARLIER_WORLD: scenarios}
assert len(NUMBERS) == len(ALL), "two probes have one name"


def served(world: World, probe: Probe) -> range:
    """The versions of a probe that a broker serves."""
    first, last = world.served.get(probe.api, (0, -1))
    if probe.versions is not None:
        first, last = max(first, probe.versions[0]), min(last, probe.versions[1])
    return range(first, last + 1)


def everything(world: World, which: str) -> Iterator[tuple[str, Outcomes]]:
    """Every cell, probe by probe; in the open world in the last version only. which: CLOSED_WORLD or OPEN_WORLD."""
    for probe in PROBES:
        versions = served(world, probe)
        if which == OPEN_WORLD:
            versions = versions[-1:]
        yield probe.name, run(world, probe, NUMBERS[probe.name], SCENARIOS[which](probe), partial(_all, versions))


def earlier(world: World, now: Table) -> Iterator[tuple[str, Outcomes]]:
    """The cells of an older broker that are not in the table of `now`."""
    for probe in ALL:
        later = {version for by_version in now.get(probe.name, {}).values() for version in by_version}
        versions = [version for version in served(world, probe) if version < min(later, default=99)]
        if versions:
            yield probe.name, run(world, probe, NUMBERS[probe.name], scenarios(probe), partial(_all, versions))


def _all(versions: Sequence[int], scenario: Scenario) -> Sequence[int]:
    return versions


def boundaries(world: World, which: str, probe: Probe, known: Outcomes) -> Outcomes:
    """The cells at which an answer is another than in the version before or behind it, as far as they are known: one
    that changed between them would have been seen by somebody who looks at all (`test_table.py`).
    """
    theirs = served(world, probe)

    def versions(scenario: Scenario) -> Sequence[int]:
        found = runs({version: text for version, text in known[scenario.title].items() if version in theirs})
        return sorted({version for one in found for version in (one.first, one.last)})

    return run(world, probe, NUMBERS[probe.name], SCENARIOS[which](probe), versions)


def cells(table: Table) -> int:
    return sum(len(by_version) for outcomes in table.values() for by_version in outcomes.values())
