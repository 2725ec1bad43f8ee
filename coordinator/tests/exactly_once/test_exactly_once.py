"""Some seeds of the simulation; `python -m barnabas.coordinator.tests.exactly_once` runs more, BARNABAS_EOS_SEEDS."""

from __future__ import annotations

import os

import pytest

from barnabas.coordinator.tests.exactly_once.run import run


def test_a_few_seeds() -> None:
    counts = [run(seed, 25) for seed in range(8)]
    assert sum(each.committed for each in counts) > 30
    assert sum(each.aborted for each in counts) > 15
    assert sum(each.unknown for each in counts) > 10
    assert sum(each.elections for each in counts) > 10
    assert sum(each.rotated_ids for each in counts) > 0


@pytest.mark.campaign
def test_more_seeds() -> None:
    for seed in range(1_000, 1_000 + int(os.environ.get("BARNABAS_EOS_SEEDS", "150"))):
        run(seed)
