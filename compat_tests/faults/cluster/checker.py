"""Did the cluster keep its promise? In the manner of Jepsen's Kafka workload, over one topic.

Every value is unique: (producer, number), numbers counting up per producer and partition. What is known at the end: for
every send its outcome (acknowledged with an offset, failed, or still unknown) and when; what a reader saw while the
faults happened; and everything that is in the partitions afterwards. From this follows, per partition:

    lost        acknowledged (or seen by a reader), but not there afterwards
    doubled     there at two offsets
    reordered   a producer's later value before an earlier one
    gaps        an offset without a record between two that have one (nothing here compacts or aborts)
    moved       acknowledged or seen at one offset, found at another; or another value seen at that offset
    phantoms    a value nobody sent

A failed or unknown send may be there or not. What is twice there because the client numbered it anew (`renumbering`) is
counted and shown, but not wrong. Values only, no IO. Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

Value = tuple[int, int]
"""Producer and number."""

SHOWN = 10


@dataclass(slots=True)
class Send:
    """One record given to a producer. *offset* and *done_at* are None while its outcome is unknown."""

    partition: int
    producer: int
    number: int
    sent_at: float
    done_at: float | None = None
    offset: int | None = None
    error: str | None = None

    @property
    def acknowledged(self) -> bool:
        """The broker said it is in the log."""
        return self.done_at is not None and self.error is None


@dataclass
class Renumbered:
    """Producers that bumped their epoch of themselves. *excused*: doubling is theirs; *lines*: of their log."""

    excused: set[int] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """What is wrong, as texts, and what was counted."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    phantoms: list[str] = field(default_factory=list)
    by_client: list[str] = field(default_factory=list)
    """Doubled by a client that is excused."""
    client_lines: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[str, list[str]]:
        """The findings by kind."""
        names = ("lost", "doubled", "reordered", "gaps", "moved", "phantoms")
        return {name: getattr(self, name) for name in names}

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
        if self.by_client or not self.good:
            lines.append(f"  numbered anew and doubled by the client itself: {len(self.by_client)}")
            lines += [f"    {text}" for text in (*self.by_client[:SHOWN], *self.client_lines[:SHOWN])]
        return "\n".join(lines)


def check(
    sends: Iterable[Send],
    final: Mapping[int, Sequence[tuple[int, Value]]],
    seen: Mapping[int, Iterable[tuple[int, Value]]] | None = None,
    renumbered: Renumbered | None = None,
) -> Findings:
    """Compare. *final* and *seen*: per partition (offset, value), *final* in the order of reading."""
    excused = renumbered.excused if renumbered is not None else set()
    findings = Findings(client_lines=renumbered.lines if renumbered is not None else [])
    by_partition: dict[int, dict[Value, Send]] = defaultdict(dict)
    for send in sends:
        value = (send.producer, send.number)
        assert value not in by_partition[send.partition], f"{value} was sent twice: the load is wrong"
        by_partition[send.partition][value] = send
    everything = [send for one in by_partition.values() for send in one.values()]
    findings.counts = {
        "sent": len(everything),
        "acknowledged": sum(send.acknowledged for send in everything),
        "failed": sum(send.error is not None for send in everything),
        "unknown": sum(send.done_at is None for send in everything),
        "read back": sum(len(records) for records in final.values()),
        "seen by the reader": 0,
    }
    for partition in sorted(by_partition.keys() | final.keys() | (seen or {}).keys()):
        places = _read_back(partition, final.get(partition, ()), by_partition[partition], findings, excused)
        at_offset = dict(final.get(partition, ()))
        for send in by_partition[partition].values():
            if send.acknowledged:
                _kept(findings, partition, (send.producer, send.number), send.offset, places, "acknowledged")
        for offset, value in (seen or {}).get(partition, ()):
            findings.counts["seen by the reader"] += 1
            _kept(findings, partition, value, offset, places, "seen")
            if at_offset.get(offset, value) != value:
                findings.moved.append(f"{partition}@{offset}: {value} was seen, {at_offset[offset]} is there")
    return findings


def _read_back(
    partition: int,
    records: Sequence[tuple[int, Value]],
    sent: Mapping[Value, Send],
    findings: Findings,
    excused: Collection[int],
) -> dict[Value, list[int]]:
    """Look at what is in a partition; return the place of every value, or its places if its client doubled it."""
    places: dict[Value, list[int]] = {}
    last: dict[int, tuple[int, int]] = {}
    before: int | None = None
    for offset, value in records:
        if before is not None and offset != before + 1:
            findings.gaps.append(f"{partition}: {offset} follows {before}")
        before = offset
        if value in places:
            text = f"{partition}: {value} at {places[value][0]} and at {offset}"
            if value[0] in excused:
                findings.by_client.append(text)
                places[value].append(offset)
            else:
                findings.doubled.append(text)
            continue
        places[value] = [offset]
        if value not in sent:
            findings.phantoms.append(f"{partition}@{offset}: {value}")
        producer, number = value
        if producer in last and number < last[producer][0]:
            earlier, place = last[producer]
            findings.reordered.append(f"{partition}: {value} at {offset} after {(producer, earlier)} at {place}")
        last[producer] = (number, offset)
    return places


def _kept(
    findings: Findings,
    partition: int,
    value: Value,
    offset: int | None,
    places: Mapping[Value, Sequence[int]],
    how: str,
) -> None:
    """Note a promised value that is not there, or not where it was said to be."""
    found = places.get(value)
    if found is None:
        findings.lost.append(f"{partition}@{offset}: {value} was {how}")
    elif offset is not None and offset not in found:
        findings.moved.append(f"{partition}: {value} was {how} at {offset} and is at {found[0]}")


def silences(sends: Iterable[Send], start: float, end: float) -> dict[int, float]:
    """Return, per partition, the longest time within [*start*, *end*] during which nothing was acknowledged.

    Only partitions to which something was sent before *end* count; a partition silent throughout has *end* - *start*.
    """
    times: dict[int, list[float]] = defaultdict(list)
    for send in sends:
        if send.sent_at <= end:
            times[send.partition]
        if send.acknowledged and send.done_at is not None and start <= send.done_at <= end:
            times[send.partition].append(send.done_at)
    longest = {}
    for partition, acknowledged in times.items():
        points = [start, *sorted(acknowledged), end]
        longest[partition] = max(after - before for before, after in pairwise(points))
    return longest


def distribution(values: Sequence[float]) -> str:
    """Return count, median, 90th percentile and maximum of *values* (seconds) as a text."""
    if not values:
        return "none"
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return f"n={len(ordered)} min {ordered[0]:.2f} s, median {at(0.5):.2f}, p90 {at(0.9):.2f}, max {ordered[-1]:.2f}"
