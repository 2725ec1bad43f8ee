"""What a run has found, as a value that goes into a JSON file and comes out again, and what several runs say together.

    {"format": 1, "about": {…}, "rows": {"<row>": [{"values": {"kafka": {…}, "barnabas": {…}}, "noise": {…}, …}, …]}}

`about` says which brokers, clients and machine these were; files are merged only if they agree on the brokers. Every
round that was measured is kept, those that do not count with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from compat_tests.bench.brokers import OURS
from compat_tests.bench.rows import ROWS, Quantity, Row

FORMAT = 1
NEEDED = 3
"""Rounds that must count for a ratio, or as many as were asked for, if that is less."""
CPU = ("cpu_s_per_gib", "cpu_us", "cpu_s")
"""Names of the broker's CPU time in what a measure returns: seconds per GiB, microseconds per operation, seconds."""


@dataclass
class Round:
    """One row measured once on each broker. `values`: by broker, then by quantity. `noise`: by broker, the part of the
    machine that others had (0 to 1). `probes`: seconds. `left_out`: why it does not count; empty for one that does.
    """

    values: dict[str, dict[str, float]]
    noise: dict[str, float] = field(default_factory=dict)
    probes: list[float] = field(default_factory=list)
    left_out: str = ""


@dataclass
class Results:
    """Rounds by the name of the row. `about`: see `heading` for the keys that count."""

    about: dict[str, Any]
    rows: dict[str, list[Round]] = field(default_factory=dict)

    @property
    def other(self) -> str:
        """The broker that ours stands beside: KAFKA or BEFORE."""
        return str(self.about["other"])

    def add(self, row: str, found: Round) -> None:
        """Keep a round."""
        self.rows.setdefault(row, []).append(found)

    def write(self, path: Path) -> None:
        """Into a file, which is whole at all times."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1)
        whole = path.with_name(f"{path.name}.new")
        whole.write_text(text + "\n")
        whole.replace(path)


def read(path: Path) -> Results:
    """From a file. Raises ValueError."""
    found = json.loads(path.read_text())
    if found.get("format") != FORMAT:
        raise ValueError(f"{path} has no results of this format")
    rows = {name: [Round(**one) for one in rounds] for name, rounds in found["rows"].items()}
    return Results(found["about"], rows)


def key(results: Results) -> str:
    """What must be the same for rounds to be put together."""
    same = [results.about.get(name) for name in ("other", "peer", "ours", "quick", "part")]
    return json.dumps([*same, results.about["machine"]["processor"]], sort_keys=True)


def merge(results: Iterable[Results]) -> list[Results]:
    """One for each pair of brokers and processor, in the order of their first file; rounds one after the other."""
    found: dict[str, Results] = {}
    for one in results:
        whole = found.setdefault(key(one), Results(dict(one.about)))
        whole.about["rounds"] = max(whole.about["rounds"], one.about["rounds"])
        whole.about["date"] = max(whole.about["date"], one.about["date"])
        for name, rounds in one.rows.items():
            whole.rows.setdefault(name, []).extend(rounds)
    return list(found.values())


@dataclass(frozen=True)
class Line:
    """One quantity of one row. `ratios`: ours by theirs, of each round that counts; where these are too few, `why` says
    what kept the others from counting. `noise`: the most that others took of the machine in a round that counts.
    """

    row: str
    section: str
    quantity: Quantity
    theirs: float | None
    ours: float | None
    ratios: Sequence[float]
    noise: float
    measured: int
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """The median, unless there was too much noise."""
        return None if self.why or not self.ratios else median(self.ratios)


def lines(results: Results) -> Iterator[Line]:
    """The headlines of all rows that were measured, in the order of the rows."""
    for row in ROWS:
        for quantity in row.headline:
            if row.name in results.rows:
                yield line(results, row, quantity)


def cpu_line(results: Results, row: Row) -> Line | None:
    """The broker's CPU time of a row, if it has one."""
    for rounds in results.rows.get(row.name, [])[:1]:
        for values in rounds.values.values():
            name = next((each for each in CPU if each in values), None)
            if name is not None:
                units = dict(zip(CPU, ("CPU s/GiB", "CPU us each", "CPU s"), strict=True))
                return line(results, row, Quantity(name, units[name]))
    return None


def line(results: Results, row: Row, quantity: Quantity) -> Line:
    """What the rounds say of one quantity."""
    rounds = results.rows.get(row.name, [])
    counted = [one for one in rounds if not one.left_out]
    columns: dict[str, list[float]] = {
        side: [one.values[side][quantity.name] for one in counted if quantity.name in one.values.get(side, {})]
        for side in (results.other, OURS)
    }
    theirs, ours = columns[results.other], columns[OURS]
    ratios = [mine / other for other, mine in zip(theirs, ours, strict=False) if other] if theirs and ours else []
    why = ""
    needed = min(NEEDED, results.about["rounds"])
    if len(counted) < needed:
        reasons = ", ".join(dict.fromkeys(one.left_out for one in rounds if one.left_out))
        why = f"{len(counted)} of {len(rounds)} rounds count: {reasons}" if reasons else f"{len(counted)} rounds only"
    noise = max((part for one in counted for part in one.noise.values()), default=0.0)
    return Line(
        row.name,
        row.section,
        quantity,
        None if why or not theirs else median(theirs),
        None if why or not ours else median(ours),
        ratios,
        noise,
        len(rounds),
        why,
    )


def memory_after(results: Results) -> Line | None:
    """The largest resident memory of one broker behind any row that shares the plain one, median of its rounds."""
    rows = [row for row in ROWS if row.place == "plain" and row.name in results.rows]
    found = [line(results, row, Quantity("resident_mb", "MB resident")) for row in rows]
    whole = [one for one in found if one.theirs is not None and one.ours is not None]
    if not whole:
        return None
    theirs, ours = max(one.theirs or 0 for one in whole), max(one.ours or 0 for one in whole)
    return Line(
        "memory, the most behind any row",
        "start and memory",
        Quantity("resident_mb", "MB resident"),
        theirs,
        ours,
        [ours / theirs],
        max(one.noise for one in whole),
        max(one.measured for one in whole),
    )
