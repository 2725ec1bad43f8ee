"""The matrix client x case: gathered from test reports, printed at the end of a run, written as Markdown by `--matrix`.

    python -m compat_tests.harness.matrix NAME FILE.events... > docs/compat-barnabas.md

makes it from what steps of `run.py test --all` (or pytest with `--events`) have said, wherever each of them ran.

A test says its place with `@pytest.mark.case(area, title, client=...)`; the place travels as user properties of the
report, so it also survives a run on several workers. A case a client cannot express is not a test: it is declared
(`Absent`) and shown as "-" with the reason below the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PROPERTY = "compat_case"
PASSED, FAILED, NOT_RUN, ABSENT = "pass", "FAIL", "", "-"
_SEPARATOR = "\x1f"


@dataclass(frozen=True, order=True)
class Place:
    """Where a result belongs: the area (a table), the case (a row) and the client (a column)."""

    area: str
    title: str
    client: str

    def encode(self) -> str:
        """Return one text, for a report's user properties."""
        return _SEPARATOR.join((self.area, self.title, self.client))

    @classmethod
    def decode(cls, text: str) -> Place:
        """Return the place `encode` wrote."""
        return cls(*text.split(_SEPARATOR))


@dataclass(frozen=True)
class Absent:
    """A case this client offers no way to run, and why."""

    place: Place
    reason: str


@dataclass
class Matrix:
    """Results by place, in the order of arrival."""

    results: dict[Place, str] = field(default_factory=dict)
    reasons: dict[Place, str] = field(default_factory=dict)

    def expect(self, place: Place) -> None:
        """Note a case that will run: rows and columns come in the order of the tests."""
        self.results.setdefault(place, NOT_RUN)

    def record(self, place: Place, passed: bool) -> None:
        """Note an outcome; one failed phase of a test outweighs its passed ones."""
        if self.results.get(place) != FAILED:
            self.results[place] = PASSED if passed else FAILED

    def declare(self, absent: Iterable[Absent]) -> None:
        """Note cases that clients cannot express."""
        for one in absent:
            self.results.setdefault(one.place, ABSENT)
            self.reasons[one.place] = one.reason

    def clients(self) -> list[str]:
        """All clients seen, in order of arrival."""
        return list(dict.fromkeys(place.client for place in self.results))

    def take_in(self, events: Path) -> None:
        """Read what one pytest process has said of its tests (`runner.events`)."""
        absent = []
        for line in events.read_text().splitlines():
            said = json.loads(line)
            if "absent" in said:
                absent.append(Absent(Place.decode(said["absent"]), said["why"]))
            elif "case" in said and said["outcome"] != "skipped":
                self.record(Place.decode(said["case"]), said["outcome"] == "passed")
        self.declare(absent)

    def counts(self) -> tuple[int, int]:
        """Return how many cases passed and how many failed."""
        outcomes = list(self.results.values())
        return outcomes.count(PASSED), outcomes.count(FAILED)

    def markdown(self, heading: str) -> str:
        """Return the whole as a Markdown document: a table for each area, then the reasons for every "-"."""
        passed, failed = self.counts()
        lines = [f"# {heading}", "", f"{passed} cases passed, {failed} failed.", ""]
        for area in dict.fromkeys(place.area for place in self.results):
            lines += [f"## {area}", "", *self._table(area), ""]
        if self.reasons:
            lines += ["## What `-` stands for", ""]
            by_reason: dict[str, list[str]] = {}
            for place, reason in self.reasons.items():
                by_reason.setdefault(f"{place.client}: {reason}", []).append(place.title)
            lines += [f"- {reason} ({', '.join(sorted(set(titles)))})" for reason, titles in sorted(by_reason.items())]
        return "\n".join(lines).rstrip() + "\n"

    def _table(self, area: str) -> Iterator[str]:
        places = [place for place in self.results if place.area == area]
        columns = list(dict.fromkeys(place.client for place in places))
        rows = list(dict.fromkeys(place.title for place in places))
        yield "| case | " + " | ".join(columns) + " |"
        yield "| --- |" + " --- |" * len(columns)
        for row in rows:
            cells = [self.results.get(Place(area, row, column), NOT_RUN) for column in columns]
            yield f"| {row} | " + " | ".join(cells) + " |"


def declared_absent(items: Iterable[pytest.Item]) -> Iterator[Absent]:
    """What the modules of these tests declare in `ABSENT`."""
    for module in dict.fromkeys(item.getparent(pytest.Module) for item in items):
        yield from getattr(module and module.obj, "ABSENT", ())


def main(name: str, *files: str) -> None:
    """Print the page of the broker *name*."""
    matrix = Matrix()
    for file in files:
        matrix.take_in(Path(file))
    print(matrix.markdown(f"Stock clients against {name}"), end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
