"""Trying the cells of a probe on a broker.

The ACLs of all cells that do not disturb each other are put into force at once, each for a user of its own; then each
user asks, version after version; then the ACLs are deleted. What is not `own` shares its topics and groups: a cell does
nothing to them that another would see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from compat_tests.subjects.access.connection import Closed, request
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.outcomes import CLOSED, SILENT, outcome
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.scenarios import Scenario
from compat_tests.subjects.access.world import SUPER, USERS, World

PASSING = ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
"""Answers of a broker that has just begun: it is asked again."""
Outcomes = dict[str, dict[int, str]]
"""Of one probe: by scenario, by version."""
Versions = Callable[[Scenario], Sequence[int]]


def run(world: World, probe: Probe, number: int, scenarios: Sequence[Scenario], versions: Versions) -> Outcomes:
    """number: the probe's own, for names. versions(scenario): which to try."""
    stem = f"p{number}"
    cells = {
        (index, version): world.names(f"{stem}-{index}-{version}" if probe.own else stem)
        for index, scenario in enumerate(scenarios)
        for version in versions(scenario)
    }
    shared = world.names(stem)
    world.make_topics([shared.other_topic, *(names.topic for names in cells.values() if probe.has_topic)])
    cells = {key: world.names(names.stem) for key, names in cells.items()}  # now with the ids
    if probe.prepare is not None:
        for names in {names.stem: names for names in cells.values()}.values():
            probe.prepare(world, names)
        cells = {key: world.names(names.stem) for key, names in cells.items()}
    found: Outcomes = {}
    for stage in _stages(scenarios):
        acls = [
            (user, acl)
            for index, scenario, user in stage
            for version in versions(scenario)
            for acl in scenario.acls(cells[index, version])
        ]
        world.allow(acls)
        for index, scenario, user in stage:
            found[scenario.title] = {
                version: _ask(world, probe, user, version, cells[index, version]) for version in versions(scenario)
            }
        if acls or probe.name.startswith("CreateAcls"):
            world.forget_acls()
    return {scenario.title: found[scenario.title] for scenario in scenarios}


def _stages(scenarios: Sequence[Scenario]) -> Iterator[list[tuple[int, Scenario, str]]]:
    together = []
    for index, scenario in enumerate(scenarios):
        user = SUPER if scenario.is_super else USERS[index]
        if scenario.alone:
            yield [(index, scenario, user)]
        else:
            together.append((index, scenario, user))
    if together:
        yield together


def _ask(world: World, probe: Probe, user: str, version: int, names: Names) -> str:
    connection = world.user(user)
    asked = request(probe.api, version, probe.values(names))
    found = ""

    def is_settled() -> bool:
        nonlocal found
        try:
            if probe.answered:
                answer = connection.ask(asked, version)
                found = outcome(answer, version, names.roles(), of_others=probe.of_others)
            else:
                connection.send(asked, version)
                found = SILENT if connection.still_serves() else CLOSED
        except Closed:
            found = CLOSED
        return not any(each in found for each in PASSING)

    world.wait(is_settled, f"an answer to {probe.name}")
    return found
