"""Each kind of failure once (or `--rounds N`), under load: nothing acknowledged is lost, doubled, reordered or moved.

The distribution of fail-over times is printed (`-s` shows it). More rounds: `python -m
compat_tests.faults.cluster.rounds`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from compat_tests.faults.cluster import rounds as faults

pytestmark = [pytest.mark.campaign, pytest.mark.jvm]


@pytest.mark.timeout(3600)
def test_rounds(kinds: list[str], pytestconfig: pytest.Config, tmp_path: Path) -> None:
    chosen = faults.possible()
    rounds = pytestconfig.getoption("--rounds") or len(chosen)
    report = faults.run(tmp_path, kinds, rounds, kinds=chosen, seed=random.randrange(1 << 31), say=faults.say)
    print(report)
    assert report.good, report
    assert len(report.rounds) == rounds
