"""Which rounds are taken and which count: on a machine that does as the test says, with measures that take no time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from compat_tests.bench.brokers import KAFKA, OURS, Side, Subject
from compat_tests.bench.loads.java_client import JavaClient
from compat_tests.bench.loads.values import Values
from compat_tests.bench.machine.noise import Noise
from compat_tests.bench.measures.context import Context, Scale
from compat_tests.bench.measures.places import PLACES
from compat_tests.bench.results import Results
from compat_tests.bench.rows import OWN, PER_S, Row
from compat_tests.bench.runs import Machine, Plan, Runner
from compat_tests.bench.test_parts import results
from compat_tests.harness.brokers import BrokerFailed
from compat_tests.harness.processes import Failed


class Trial:
    """A run of fake rows. `others`: what they take in one measure after the other, then nothing. `speeds`: the same for
    probes, then 0.1 s.
    """

    def __init__(self, tmp_path: Path, others: Sequence[float] = (), speeds: Sequence[float] = ()) -> None:
        self._others, self._speeds = iter(others), iter(speeds)
        self._context = Context(tmp_path, Scale.quick(), Values(tmp_path / "values"), JavaClient(tmp_path / "log"))
        self.results: Results = results()
        self.measured: list[str] = []
        self.said: list[str] = []
        self.saved = 0

    def noise(self) -> Noise:
        """Of the measure that has just been taken."""
        return Noise(next(self._others, 0.0), 0.0)

    def row(self, name: str, *, fails: Sequence[bool] = (), warms: bool = False) -> Row:
        """A row. `fails`: whether its measures do, one after the other."""

        failing = iter(fails)

        def measure(_: Context, side: Side) -> dict[str, float]:
            self.measured.append(f"{name} {side.name}")
            if next(failing, False):
                raise Failed("no answer")
            return {"per_s": float(len(self.measured))}

        return Row("section", name, OWN, measure, (PER_S,), warms)

    def run(self, plan: Plan, *rows: Row) -> Runner:
        """Take the rounds."""
        machine = Machine(lambda: self, lambda: next(self._speeds, 0.1), lambda: None)

        def save() -> None:
            self.saved += 1

        sides = [Side(KAFKA), Side(OURS)]
        runner = Runner(self._context, sides, plan, self.results, save, self.said.append, machine)
        runner.run(rows)
        return runner


def test_brokers_and_rows_take_turns(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.run(Plan(2), trial.row("a"), trial.row("b"))
    first, second = (
        ["a kafka", "a barnabas", "b kafka", "b barnabas"],
        ["a barnabas", "a kafka", "b barnabas", "b kafka"],
    )
    assert trial.measured == first + second
    assert [one.values for one in trial.results.rows["a"]] == [
        {KAFKA: {"per_s": 1.0}, OURS: {"per_s": 2.0}},
        {OURS: {"per_s": 5.0}, KAFKA: {"per_s": 6.0}},
    ]
    assert trial.saved == 4


def test_the_round_that_warms_is_thrown_away(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.run(Plan(1), trial.row("a", warms=True), trial.row("b"))
    assert trial.measured == ["a barnabas", "a kafka", "a kafka", "a barnabas", "b kafka", "b barnabas"]
    assert [len(rounds) for rounds in trial.results.rows.values()] == [1, 1]


def test_a_noisy_round_is_kept_and_taken_again(tmp_path: Path) -> None:
    trial = Trial(tmp_path, others=[0.0, 0.3, 0.05, 0.0])
    trial.run(Plan(2), trial.row("a"))
    assert [one.left_out for one in trial.results.rows["a"]] == ["others had 30% of the machine", "", ""]
    assert trial.results.rows["a"][1].noise == {OURS: 0.05, KAFKA: 0.0}


def test_a_change_of_speed_is_noise(tmp_path: Path) -> None:
    trial = Trial(tmp_path, speeds=[0.1, 0.1, 0.2])
    trial.run(Plan(1), trial.row("a"))
    assert [one.left_out for one in trial.results.rows["a"]] == ["the machine's speed changed by 100%", ""]
    assert trial.results.rows["a"][0].probes == [0.1, 0.1, 0.2]


def test_patience_ends(tmp_path: Path) -> None:
    trial = Trial(tmp_path, others=[0.5] * 100)
    trial.run(Plan(3), trial.row("a"))
    assert len(trial.results.rows["a"]) == 6
    assert all(one.left_out for one in trial.results.rows["a"])


def test_without_a_limit_every_round_counts_and_none_warms(tmp_path: Path) -> None:
    trial = Trial(tmp_path, others=[0.5] * 100)
    trial.run(Plan(1, noise_max=None), trial.row("a", warms=True))
    assert [one.left_out for one in trial.results.rows["a"]] == [""]


def test_a_measure_that_fails_is_said_and_the_rest_goes_on(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    runner = trial.run(Plan(1), trial.row("a", fails=[False, True]), trial.row("b"))
    assert runner.failures == 1
    assert trial.measured == ["a kafka", "a barnabas", "b kafka", "b barnabas", "a kafka", "a barnabas"]
    assert len(trial.results.rows["a"]) == 1
    assert any("FAILED: Failed('no answer')" in text for text in trial.said)


def test_no_round_begins_behind_the_deadline(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.run(Plan(1, deadline=0.0), trial.row("a"))
    assert trial.measured == []


def test_rows_take_turns_with_a_few_others_only(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.run(Plan(2), *(trial.row(name) for name in "abcdef"))
    assert [text.split()[0] for text in trial.measured[::2]] == list("abcdabcdefef")


def test_a_run_is_resumed(tmp_path: Path) -> None:
    trial = Trial(tmp_path, others=[0.0, 0.0, 0.0, 0.3])
    trial.run(Plan(2, deadline=None), trial.row("a"))
    taken = len(trial.measured)
    runner = trial.run(Plan(2), trial.row("a"), trial.row("b"))
    assert trial.measured[taken:] == ["b kafka", "b barnabas", "b barnabas", "b kafka"]
    assert not runner.wants(trial.row("a"))
    runner = trial.run(Plan(3), trial.row("a", warms=True))
    assert not runner.wants(trial.row("a"))
    assert sum(not one.left_out for one in trial.results.rows["a"]) == 3


def test_a_place_that_does_not_come_up_is_said_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(side: Side, directory: Path) -> Subject:
        raise BrokerFailed(f"{side.name} did not open its port")

    monkeypatch.setitem(PLACES, "plain", broken)
    trial = Trial(tmp_path)
    runner = trial.run(Plan(1), replace(trial.row("a"), place="plain"), trial.row("b"))
    assert runner.failures == 1
    assert trial.measured == ["b kafka", "b barnabas"]
    assert any("plain: FAILED: BrokerFailed('kafka did not open its port')" in text for text in trial.said)
