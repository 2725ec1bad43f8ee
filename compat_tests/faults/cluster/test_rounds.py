"""Each kind of failure once (or `--rounds N`), under load: nothing acknowledged is lost, doubled, reordered or moved.

The distribution of fail-over times is printed (`-s` shows it). More rounds: `python -m
compat_tests.faults.cluster.rounds`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from compat_tests.clusters.nodes import OURS
from compat_tests.faults.cluster import rounds as faults

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]


@pytest.mark.jvm
def test_rounds(kinds: list[str], pytestconfig: pytest.Config, tmp_path: Path) -> None:
    chosen = faults.possible()
    rounds = pytestconfig.getoption("--rounds") or len(chosen)
    report = faults.run(tmp_path, kinds, rounds, kinds=chosen, seed=random.randrange(1 << 31), say=faults.say)
    print(report)
    assert report.good, report
    assert len(report.rounds) == rounds


def test_rounds_on_one_machine(pytestconfig: pytest.Config, tmp_path: Path) -> None:
    """The same on the store that brokers of one machine share."""
    chosen = faults.possible(local=True)
    rounds = pytestconfig.getoption("--rounds") or len(chosen)
    seed = random.randrange(1 << 31)
    report = faults.run(tmp_path, [OURS] * 3, rounds, kinds=chosen, seed=seed, local=True, say=faults.say)
    print(report)
    assert report.good, report
    assert len(report.rounds) == rounds
