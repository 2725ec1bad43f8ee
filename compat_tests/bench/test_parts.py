"""The benchmark's own parts; what it measures takes minutes and is no test."""

from __future__ import annotations

from pathlib import Path

from compat_tests.bench.__main__ import ordered
from compat_tests.bench.page_cache import BLOCK_BYTES, PageCache
from compat_tests.bench.report import BEFORE, KAFKA, OURS, Results, add, table
from compat_tests.bench.steadiness import spread


def test_the_page_cache_is_filled_without_the_disk(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache")
    assert cache.fill(3 * BLOCK_BYTES + 17) == 3 * BLOCK_BYTES + 17
    assert cache.fill(BLOCK_BYTES) == BLOCK_BYTES
    files = sorted((tmp_path / "cache").iterdir())
    assert [one.stat().st_size for one in files] == [3 * BLOCK_BYTES + 17, BLOCK_BYTES]
    assert sum(one.stat().st_blocks for one in files) * 512 < BLOCK_BYTES


def test_the_order_alternates() -> None:
    assert [ordered([KAFKA, OURS], turn)[0] for turn in range(3)] == [KAFKA, OURS, KAFKA]


def test_probes_that_differ() -> None:
    assert spread([0.2, 0.2]) == 1.0
    assert spread([0.2, 0.5, 0.25]) == 2.5


def test_ratios_are_ours_by_theirs_round_by_round() -> None:
    results: Results = {}
    for theirs, ours in ((100.0, 120.0), (80.0, 120.0), (100.0, 110.0)):
        add(results, "produce", KAFKA, {"mb_per_s": theirs})
        add(results, "produce", OURS, {"mb_per_s": ours})
    line = table(results, "peer").splitlines()[-1]
    assert "1.20 1.50 1.10" in line
    assert "| 1.20 |" in line, "the median of the ratios"


def test_another_checkout_stands_where_apache_kafka_does() -> None:
    results: Results = {}
    add(results, "produce", BEFORE, {"mb_per_s": 100.0})
    add(results, "produce", OURS, {"mb_per_s": 98.0})
    lines = table(results, "Barnabas before", BEFORE).splitlines()
    assert "| Barnabas before | Barnabas |" in lines[0]
    assert "| 100 | 98 | 0.98 |" in lines[-1]
