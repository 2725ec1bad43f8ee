"""The rounds: brokers in turns, a first round that warms, and what makes a round count."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from confluent_kafka import KafkaException

from compat_tests.bench.brokers import Side, Subject
from compat_tests.bench.machine.noise import NOISE_MAX, Noise, Watch
from compat_tests.bench.machine.page_cache import PageCache
from compat_tests.bench.machine.probe import AGREE, probe, spread
from compat_tests.bench.measures.context import Context
from compat_tests.bench.measures.places import PLACES
from compat_tests.bench.results import Results, Round
from compat_tests.bench.rows import OWN, Row
from compat_tests.clusters.nodes import NodeFailed
from compat_tests.harness.brokers import BrokerFailed

PATIENCE = 2
"""Rounds that are taken for each one wanted, at most."""
TOGETHER = 4
"""Rows that take turns with each other; when all their rounds are taken, the next come. A piece of some minutes gets
some rows done so, and loses no more than the warm-up of these.
"""
FAILURES = (AssertionError, BrokerFailed, NodeFailed, KafkaException, OSError, subprocess.SubprocessError)
"""What a measure raises when a client or a broker does not do what it should."""


class Watching(Protocol):
    """What has begun to look at the machine."""

    def noise(self) -> Noise:
        """Since then."""


@dataclass(frozen=True)
class Machine:
    """What a round asks of the machine: to watch it, how fast it is, and to have nothing left to write to the disk."""

    watch: Callable[[], Watching] = Watch
    probe: Callable[[], float] = probe
    settle: Callable[[], None] = os.sync


@dataclass(frozen=True)
class Plan:
    """`rounds` that count for each row. `noise_max`: the most that others may have of the machine, 0 to 1; None counts
    every round. `deadline`: of time.monotonic(), behind which no round begins. `cache`: is full before each measure.
    """

    rounds: int
    noise_max: float | None = NOISE_MAX
    deadline: float | None = None
    cache: PageCache | None = None

    @property
    def over(self) -> bool:
        """No time is left."""
        return self.deadline is not None and time.monotonic() > self.deadline


class Runner:
    """Takes the rounds of some rows. `save` is called after each."""

    def __init__(
        self,
        context: Context,
        sides: Sequence[Side],
        plan: Plan,
        results: Results,
        save: Callable[[], None],
        say: Callable[[str], None],
        machine: Machine | None = None,
    ) -> None:
        self._context = context
        self._sides = sides
        self._plan = plan
        self._results = results
        self._save = save
        self._say = say
        self._machine = machine or Machine()
        self.failures = 0
        """Measures that failed, which do not count."""

    def run(self, rows: Sequence[Row]) -> None:
        """All of them that want rounds: those that share brokers together."""
        wanting = [row for row in rows if self.wants(row)]
        for place in dict.fromkeys(row.place for row in wanting):
            if self._plan.over:
                return
            self._run_place(place, [row for row in wanting if row.place == place])

    def wants(self, row: Row) -> bool:
        """Whether it has neither the rounds that are wanted nor cost more patience than there is."""
        taken = self._results.rows.get(row.name, [])
        counted = sum(not one.left_out for one in taken)
        return counted < self._plan.rounds and len(taken) < self._plan.rounds * PATIENCE

    def _run_place(self, place: str, rows: Sequence[Row]) -> None:
        with ExitStack() as subjects_up:
            subjects: dict[str, Subject] = {}
            try:
                for side in self._sides if place != OWN else ():
                    subjects[side.name] = PLACES[place](side, self._context.directory / f"{place}-{side.name}")
                    subjects_up.callback(subjects[side.name].stop)
                    self._say(f"{place}: {side.name} is up")
            except FAILURES as failure:
                self.failures += len(rows)
                self._say(f"{place}: FAILED: {failure!r}")
                return
            for first in range(0, len(rows), TOGETHER):
                self._rounds(rows[first : first + TOGETHER], subjects)

    def _rounds(self, rows: Sequence[Row], subjects: Mapping[str, Subject]) -> None:
        warming = [row for row in rows if row.warms and self._plan.noise_max is not None]
        for row in warming:
            if not self._plan.over:
                self._round(row, subjects, 0)
        for _ in range(self._plan.rounds * PATIENCE):
            for row in filter(self.wants, rows):
                if self._plan.over:
                    return
                # A run that is resumed goes on with the order of its last round.
                found = self._round(row, subjects, 1 + len(self._results.rows.get(row.name, [])))
                if found is not None:
                    self._results.add(row.name, found)
                    self._save()

    def _round(self, row: Row, subjects: Mapping[str, Subject], turn: int) -> Round | None:
        """Measure a row on each broker; None if that failed. Turn 0 is the one that warms."""
        found, noise, probes = {}, {}, [round(self._machine.probe(), 4)]
        what = f"round {turn}: {row.name}" if turn else f"warming: {row.name}"
        for side in ordered(self._sides, turn):
            self._machine.settle()  # what was written before is not written to the disk meanwhile
            if self._plan.cache is not None:
                self._plan.cache.fill()
            watch = self._machine.watch()
            try:
                found[side.name] = self._measure(row, side, subjects.get(side.name))
            except FAILURES as failure:
                self.failures += 1
                self._say(f"{what}: {side.name}: FAILED: {failure!r}")
                return None
            seen = watch.noise()
            noise[side.name] = round(seen.total, 4)
            probes.append(round(self._machine.probe(), 4))
            shown = ", ".join(f"{key} {value:.4g}" for key, value in found[side.name].items())
            noisy = f"others {seen.others:.0%}, steal {seen.steal:.0%}, probe {probes[-1]:.3f}"
            self._say(f"{what}: {side.name}: {shown}; {noisy}")
        left_out = "" if self._plan.noise_max is None else too_noisy(noise, probes, self._plan.noise_max)
        if left_out and turn:
            self._say(f"{what}: does not count: {left_out}")
        return Round(found, noise, probes, left_out)

    def _measure(self, row: Row, side: Side, subject: Subject | None) -> dict[str, float]:
        if subject is None:
            return row.measure(self._context, side)
        found = row.measure(self._context, subject)
        return {**found, "resident_mb": subject.resident_mb()}


def too_noisy(noise: Mapping[str, float], probes: Sequence[float], noise_max: float) -> str:
    """Why a round does not count; empty if it does. With a limit of 1 every round counts."""
    if noise_max >= 1:
        return ""
    worst = max(noise.values())
    if worst > noise_max:
        return f"others had {worst:.0%} of the machine"
    if spread(list(probes)) > AGREE:
        return f"the machine's speed changed by {spread(list(probes)) - 1:.0%}"
    return ""


def ordered(sides: Sequence[Side], turn: int) -> Sequence[Side]:
    """The brokers in the order of a round."""
    return sides if turn % 2 else sides[::-1]
