"""The stored table: what Apache Kafka 4.3.1 answered in every cell.

Scenarios of a probe that are answered alike in all versions stand together, with a row for each range of versions:

    "Heartbeat": [{"who": ["nothing", "from another host"], "0-4": "GROUP_AUTHORIZATION_FAILED"}, …]
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from compat_tests.subjects.access.runner import Outcomes

STORED = Path(__file__).with_name("apache_kafka.json")
CLOSED_WORLD, OPEN_WORLD = "nothing is allowed without an ACL", "allow.everyone.if.no.acl.found=true"
EARLIER_WORLD = "3.9.1 with ZooKeeper: what 4.3.1 does not serve any more"
Table = dict[str, Outcomes]


class Run(NamedTuple):
    """Versions, first and last, that are answered alike."""

    first: int
    last: int
    outcome: str

    def __str__(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def runs(by_version: dict[int, str]) -> list[Run]:
    """The ranges of versions of one scenario, in order."""
    found: list[Run] = []
    for version, outcome in sorted(by_version.items()):
        if found and found[-1].outcome == outcome and found[-1].last == version - 1:
            found[-1] = found[-1]._replace(last=version)
        else:
            found.append(Run(version, version, outcome))
    return found


def alike(outcomes: Outcomes) -> list[tuple[list[str], list[Run]]]:
    """Scenarios that are answered alike, and how."""
    groups: dict[tuple[Run, ...], list[str]] = {}
    for title, by_version in outcomes.items():
        groups.setdefault(tuple(runs(by_version)), []).append(title)
    return [(titles, list(key)) for key, titles in groups.items()]


def store(tables: dict[str, Table]) -> None:
    """A line for each group of scenarios, so that changes can be read."""
    worlds = []
    for world, table in tables.items():
        probes = []
        for name, outcomes in table.items():
            rows = [
                json.dumps({"who": titles, **{str(run): run.outcome for run in found}}, ensure_ascii=False)
                for titles, found in alike(outcomes)
            ]
            probes.append(f"{json.dumps(name)}: [\n  " + ",\n  ".join(rows) + "\n ]")
        worlds.append(f"{json.dumps(world)}: {{\n " + ",\n ".join(probes) + "\n}")
    STORED.write_text("{" + ",\n".join(worlds) + "}\n", encoding="utf-8")


def stored() -> dict[str, Table]:
    """By world, by probe, by scenario, by version."""
    tables: dict[str, Table] = {}
    for world, probes in json.loads(STORED.read_text(encoding="utf-8")).items():
        table = tables[world] = {}
        for name, rows in probes.items():
            outcomes: Outcomes = {}
            for row in rows:
                by_version: dict[int, str] = {}
                for versions, outcome in row.items():
                    if versions != "who":
                        first, _, last = versions.partition("-")
                        by_version.update(dict.fromkeys(range(int(first), int(last or first) + 1), outcome))
                for title in row["who"]:
                    outcomes[title] = by_version
            table[name] = outcomes
    return tables
