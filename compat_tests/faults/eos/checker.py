"""Was it exactly once? Values only, no IO.

Writers put records into the partitions of one topic in transactions; copiers carry what is committed there to the same
partition of a second topic, in transactions with their offsets. Every value is unique: (transactional id, number of the
transaction, index in it), the numbers counting up per id. Known at the end: what the writer of each transaction was
told, what a read_committed reader saw while the faults happened, and what such a reader finds afterwards. From this:

    lost        a record of a transaction whose commit was acknowledged is not there
    visible     a record of a transaction that was aborted, or whose producer was fenced, is there
    torn        some records of one transaction are there, others are not
    doubled     there at two offsets
    reordered   an earlier record of a transactional id behind a later one of the same partition
    phantoms    a value nobody sent
    changed     seen by the reader, and afterwards not there, or elsewhere
    copies      the copy of a partition is not, record by record, what is committed in the original

A transaction of unknown outcome may be there or not, but only as a whole. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

Value = tuple[str, int, int]
"""Transactional id, number of the transaction, index in it."""
Records = Mapping[int, Sequence[tuple[int, Value]]]
"""Per partition (offset, value), in the order of reading."""

KINDS = ("lost", "visible", "torn", "doubled", "reordered", "phantoms", "changed", "copies")
SHOWN = 10


class Fate(Enum):
    """What the writer was told."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Txn:
    """One transaction of a writer. *partitions*: where the record with that index was sent."""

    transactional_id: str
    number: int
    begun_at: float
    partitions: list[int] = field(default_factory=list)
    fate: Fate = Fate.UNKNOWN
    ended_at: float | None = None

    def end(self, fate: Fate, now: float) -> None:
        """The writer was told."""
        self.fate, self.ended_at = fate, now


@dataclass
class Findings:
    """What is wrong, as texts by kind, and what was counted."""

    kinds: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        """Nothing is wrong."""
        return not any(self.kinds.values())

    def __str__(self) -> str:
        counted = ", ".join(f"{value:,} {name}" for name, value in self.counts.items())
        lines = [f"{counted}; " + ", ".join(f"{len(found)} {name}" for name, found in self.kinds.items())]
        for name, found in self.kinds.items():
            lines += [f"  {name}: {text}" for text in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"  {name}: … and {len(found) - SHOWN} more")
        return "\n".join(lines)


def check(
    txns: Sequence[Txn],
    originals: Records,
    copies: Records,
    seen: Mapping[str, Mapping[int, Iterable[tuple[int, Value]]]] | None = None,
) -> Findings:
    """Compare. *seen*: what the reader saw meanwhile, by "originals" and "copies"."""
    findings = Findings()
    findings.counts = {f"transactions {fate.value}": sum(txn.fate is fate for txn in txns) for fate in Fate}
    findings.counts["records"] = sum(len(records) for records in originals.values())
    findings.counts["copies"] = sum(len(records) for records in copies.values())
    findings.counts["seen by the reader"] = 0
    _transactions(txns, originals, findings)
    for partition in sorted(originals.keys() | copies.keys()):
        _copied(partition, originals.get(partition, ()), copies.get(partition, ()), findings)
    for name, found in (("originals", originals), ("copies", copies)):
        for partition, records in (seen or {}).get(name, {}).items():
            there = dict(found.get(partition, ()))
            for offset, value in records:
                findings.counts["seen by the reader"] += 1
                if there.get(offset) != value:
                    findings.kinds["changed"].append(
                        f"{name} {partition}@{offset}: {value} was seen, {there.get(offset)} is there"
                    )
    return findings


def _transactions(txns: Sequence[Txn], originals: Records, findings: Findings) -> None:
    kinds = findings.kinds
    places: dict[Value, tuple[int, int]] = {}
    for partition, records in sorted(originals.items()):
        last: dict[str, Value] = {}
        for offset, value in records:
            if value in places:
                kinds["doubled"].append(f"{value} at {places[value]} and at {(partition, offset)}")
                continue
            places[value] = (partition, offset)
            before = last.get(value[0])
            if before is not None and before > value:
                kinds["reordered"].append(f"{partition}@{offset}: {value} after {before}")
            last[value[0]] = value
    known: set[tuple[str, int]] = set()
    sent: set[Value] = set()
    for txn in txns:
        name = (txn.transactional_id, txn.number)
        assert name not in known, f"{name} was used twice: the load is wrong"
        known.add(name)
        values = [(*name, index) for index in range(len(txn.partitions))]
        sent.update(values)
        there = [value for value in values if value in places]
        missing = [value for value in values if value not in places]
        if txn.fate is Fate.COMMITTED:
            kinds["lost"] += [f"{value}, sent to {txn.partitions[value[2]]}" for value in missing]
        elif txn.fate is Fate.ABORTED:
            kinds["visible"] += [f"{value} at {places[value]}" for value in there]
        elif there and missing:
            kinds["torn"].append(f"{name}: {there} are there, {missing} are not")
        for value in there:
            if places[value][0] != txn.partitions[value[2]]:
                kinds["phantoms"].append(f"{value} was sent to {txn.partitions[value[2]]}, is at {places[value]}")
    kinds["phantoms"] += [f"{value} at {place}" for value, place in places.items() if value not in sent]


def _copied(
    partition: int, originals: Sequence[tuple[int, Value]], copies: Sequence[tuple[int, Value]], findings: Findings
) -> None:
    wanted = [value for _, value in originals]
    found = [value for _, value in copies]
    if wanted == found:
        return
    there, needed = Counter(found), Counter(wanted)
    missing, more = needed - there, there - needed
    told = findings.kinds["copies"]
    told += [f"{partition}: {value} has no copy" for value in missing]
    told += [f"{partition}: {value} has {count} copies too many" for value, count in more.items()]
    if not missing and not more:
        at = next(i for i, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other)
        told.append(f"{partition}: copies are in another order from number {at} on: {wanted[at]}, {found[at]}")
