"""The benchmark's own parts; what it measures takes hours and is no test."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from compat_tests.bench import rows
from compat_tests.bench.about import built, commit
from compat_tests.bench.brokers import BEFORE, KAFKA, OURS, Side
from compat_tests.bench.machine.noise import Watch
from compat_tests.bench.machine.page_cache import BLOCK_BYTES, PageCache
from compat_tests.bench.machine.probe import spread
from compat_tests.bench.machine.processes import cpu_seconds, family, processes, resident_bytes
from compat_tests.bench.measures.places import PLACES
from compat_tests.bench.report import heading, table
from compat_tests.bench.results import Results, Round, line, memory_after, merge, read
from compat_tests.bench.rows import MB_PER_S, P999, ROWS
from compat_tests.bench.runs import ordered, too_noisy
from compat_tests.harness.jars import PROJECT_ROOT

PRODUCE = "Java produce, 1 partition, 500-1,500 B"
LATENCY = "end to end, 1,000 records/s"


def results(other: str = KAFKA, rounds: int = 3, **ours: Any) -> Results:
    """Without rows."""
    built = {"version": "1", "commit": "abc", "native": "", "python": "CPython 3.13.0", "pgo": True, **ours}
    about: dict[str, Any] = {
        "date": "2026-11-25",
        "rounds": rounds,
        "quick": False,
        "part": 1.0,
        "other": other,
        "ours": built,
    }
    about |= {"peer": "Apache Kafka 4.3.1", "java": "Java 17", "clients": "Java clients 4.3.1"}
    about |= {"machine": {"cores": 2, "processor": "fast", "kernel": "6.1", "memory_gb": 8}}
    return Results(about)


def measured(theirs: float, ours: float, *, left_out: str = "", other: str = KAFKA, noise: float = 0.01) -> Round:
    """A round of a throughput."""
    values = {
        other: {"mb_per_s": theirs, "cpu_s_per_gib": 4.0, "resident_mb": 900.0},
        OURS: {"mb_per_s": ours, "cpu_s_per_gib": 2.0, "resident_mb": 50.0},
    }
    return Round(values, {other: noise, OURS: 0.0}, [0.05, 0.05], left_out)


def test_the_page_cache_is_filled_without_the_disk(tmp_path: Path) -> None:
    cache = PageCache(tmp_path / "cache")
    assert cache.fill(3 * BLOCK_BYTES + 17) == 3 * BLOCK_BYTES + 17
    assert cache.fill(BLOCK_BYTES) == BLOCK_BYTES
    files = sorted((tmp_path / "cache").iterdir())
    assert [one.stat().st_size for one in files] == [3 * BLOCK_BYTES + 17, BLOCK_BYTES]
    assert sum(one.stat().st_blocks for one in files) * 512 < BLOCK_BYTES


def test_the_order_alternates() -> None:
    sides = [Side(KAFKA), Side(OURS)]
    assert [ordered(sides, turn)[0].name for turn in range(3)] == [OURS, KAFKA, OURS]


def test_a_round_that_others_disturbed_does_not_count() -> None:
    assert too_noisy({KAFKA: 0.02, OURS: 0.05}, [0.20, 0.21, 0.22], 0.06) == ""
    assert too_noisy({KAFKA: 0.02, OURS: 0.31}, [0.20, 0.21, 0.22], 0.06) == "others had 31% of the machine"
    assert too_noisy({KAFKA: 0.02, OURS: 0.05}, [0.20, 0.33, 0.22], 0.06) == "the machine's speed changed by 65%"
    assert too_noisy({KAFKA: 0.9, OURS: 0.9}, [0.20, 0.90], 1.0) == ""
    assert spread([0.2, 0.5, 0.25]) == 2.5


def test_the_time_of_children_that_have_ended_is_a_familys() -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    watch = Watch()
    program = (
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {burn!r}]); print(); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert cpu_seconds(process.pid) >= 0.3
        assert list(family(process.pid, processes())) == [process.pid]
        assert resident_bytes(process.pid) > 1 << 20
        process.kill()
    noise = watch.noise()
    assert 0 <= noise.others <= 1
    assert 0 <= noise.steal <= 1
    with pytest.raises(ProcessLookupError):
        cpu_seconds(process.pid)


def test_rows_can_be_chosen_and_told_apart() -> None:
    assert [name for name, count in Counter(row.name for row in ROWS).items() if count > 1] == []
    assert {row.place for row in ROWS} <= {*PLACES, rows.OWN}
    assert {row.section for row in rows.chosen(["small requests"])} == {"small requests"}
    assert {row.name for row in rows.chosen(["produce v7", "KIP-848"])} == {
        "Produce v7, one record",
        "100 members, KIP-848",
    }
    assert rows.chosen([]) == list(ROWS)
    assert not rows.chosen(["no such thing"])


def test_ratios_are_ours_by_theirs_round_by_round() -> None:
    found = results()
    for theirs, ours in ((100.0, 120.0), (80.0, 120.0), (100.0, 110.0)):
        found.add(PRODUCE, measured(theirs, ours))
    row = rows.by_name(PRODUCE)
    assert row is not None
    one = line(found, row, MB_PER_S)
    assert one.ratios == [1.2, 1.5, 1.1]
    assert (one.theirs, one.ours, one.ratio) == (100.0, 120.0, 1.2)
    last = table(found).splitlines()[2]
    assert "| 100 | 120 | **1.20** | 1.10–1.50 (3) | 4 s/GiB | 2 | **0.50** | 900 : 50 | 1% |" in last


def test_a_row_of_which_too_few_rounds_count_has_no_ratio() -> None:
    found = results(rounds=5)
    for left_out in ("", "others had 31% of the machine", "", "others had 9% of the machine"):
        found.add(PRODUCE, measured(100.0, 120.0, left_out=left_out))
    last = table(found).splitlines()[2]
    assert "2 of 4 rounds count: others had 31% of the machine, others had 9% of the machine" in last
    assert "1.20" not in last
    assert "120" not in last
    found.add(PRODUCE, measured(100.0, 120.0))
    assert "| **1.20** |" in table(found)


def test_less_is_better_of_time() -> None:
    found = results(rounds=1)
    found.add(LATENCY, Round({KAFKA: {"p50_ms": 1, "p999_ms": 4.0}, OURS: {"p50_ms": 2, "p999_ms": 1.0}}))
    row = rows.by_name(LATENCY)
    assert row is not None
    assert line(found, row, P999).ratio == 0.25
    text = table(found)
    assert "| p99.9, ms | 4 | 1 | **0.25** | 1 |" in text
    assert "| p50, ms | 1 | 2 | 2.00 | 1 |" in text


def test_another_checkout_stands_where_apache_kafka_does() -> None:
    found = results(BEFORE, rounds=1)
    found.add(PRODUCE, measured(100.0, 98.0, other=BEFORE))
    lines = table(found).splitlines()
    assert "| before | Barnabas |" in lines[0]
    assert "| 100 | 98 | 0.98 |" in lines[2]


def test_files_are_merged_by_what_was_measured(tmp_path: Path) -> None:
    pieces = [results(), results(), results(native="0.1.0")]
    for number, piece in enumerate(pieces):
        piece.add(PRODUCE, measured(100.0, 100.0 + number))
        piece.write(tmp_path / f"{number}.json")
    pieces[1].add(LATENCY, Round({KAFKA: {"p50_ms": 1.0}, OURS: {"p50_ms": 1.0}}))
    pieces[1].write(tmp_path / "1.json")
    elsewhere = results()
    elsewhere.about["machine"]["processor"] = "slow"
    elsewhere.write(tmp_path / "3.json")
    pure, native, slow = merge(read(tmp_path / f"{number}.json") for number in range(4))
    assert not slow.rows
    assert [one.values[OURS]["mb_per_s"] for one in pure.rows[PRODUCE]] == [100.0, 101.0]
    assert [one.values[OURS]["mb_per_s"] for one in native.rows[PRODUCE]] == [102.0]
    assert set(pure.rows) == {PRODUCE, LATENCY}
    assert "pure Python, CPython 3.13.0 built with PGO" in heading(pure.about)
    assert "barnabas-native 0.1.0" in heading(native.about)
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="no results of this format"):
        read(tmp_path / "other.json")


def test_memory_is_the_most_behind_any_row() -> None:
    found = results(rounds=1)
    assert memory_after(found) is None
    found.add(PRODUCE, measured(100.0, 100.0))
    found.add("Java produce, 1 partition, 1 KB", Round({KAFKA: {"resident_mb": 1200.0}, OURS: {"resident_mb": 40.0}}))
    one = memory_after(found)
    assert one is not None
    assert (one.theirs, one.ours) == (1200.0, 50.0)


def test_the_heading_knows_which_python_and_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARNABAS_PURE", "1")
    found = built(Side(OURS))
    assert found["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert isinstance(found["pgo"], bool)
    assert found["native"] == ""
    assert found["version"]
    assert commit(PROJECT_ROOT).rstrip("+").isalnum() or not (PROJECT_ROOT / ".git").exists()
