"""The measures run, at sizes that show nothing else: each value is there and is a number."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat_tests.scale.__main__ import main, table
from compat_tests.scale.disturbances import DISTURBANCES


def test_growth_is_by_one_of_them() -> None:
    found = {"10": {"start_s": 1.0, "per_partition_kb": 8.0}, "40": {"start_s": 8.0, "per_partition_kb": 7.0}}
    *_, start, memory = table(found, per="partition").splitlines()
    assert start == "| start_s | 1 | 8 | 2.00 |"
    assert memory == "| per_partition_kb | 8 | 7 |  |"


@pytest.mark.campaign
@pytest.mark.parametrize("what", ["partitions", "connections"])
def test_a_curve(what: str, tmp_path: Path) -> None:
    found = main([what, "--small", "--directory", str(tmp_path)])
    assert list(found) == ["20", "40"]
    assert found["20"].keys() == found["40"].keys()


@pytest.mark.campaign
def test_tails(tmp_path: Path) -> None:
    found = main(["tails", "--small", "--directory", str(tmp_path)])
    assert list(found) == [f"{name} 100" for name in DISTURBANCES]
    assert all(values["produce_max_ms"] >= values["produce_p50_ms"] > 0 for values in found.values())
