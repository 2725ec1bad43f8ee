"""The pipeline example: its numbers against a plain computation over the topic, also after a kill in the middle.

Nothing of the example is imported: the expected windows are counted here from the records themselves, read by another
client. A record whose timestamp (its arrival) lies a quarter of an hour or more after its event time is too late.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib.image
import pyarrow.parquet
import pytest

from compat_tests.clients.spark.topics import Row, Topics
from compat_tests.subjects.examples.programs import attempt, run, run_and_kill

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(2700)]
WINDOW_MS = 10 * 60_000
LATENESS_MS = 15 * 60_000
SESSIONS = 1500
RUN_TIMEOUT_S = 800
KINDS = {"view": "views", "cart": "carts", "purchase": "purchases"}

Windows = dict[tuple[int, str], Counter[str]]


@dataclass
class Day:
    """One run: where it wrote, what the topics hold, what it printed."""

    directory: Path
    topic: str
    printed: str
    lines: list[Row]
    sent_windows: list[Row]

    @property
    def report(self) -> dict[str, Any]:
        """What the run reported."""
        return json.loads((self.directory / "report.json").read_text())


@dataclass
class Expected:
    """The same, counted here."""

    windows: Windows = field(default_factory=dict)
    events: int = 0
    garbled: int = 0
    too_late: int = 0
    late_but_counted: int = 0
    products: dict[str, Counter[str]] = field(default_factory=dict)


def case(title: str) -> pytest.MarkDecorator:
    """Place a test in the matrix."""
    return pytest.mark.case("Examples", title, client="spark")


@pytest.fixture(scope="module")
def topics(bootstrap: str) -> Iterator[Topics]:
    """The broker, by way of another client."""
    made = Topics(bootstrap)
    yield made
    made.close()


def arguments(topics: Topics, topic: str, directory: Path, *, seed: int = 7) -> list[str]:
    """Command line of the pipeline."""
    numbers = ["--sessions", str(SESSIONS), "--seed", str(seed)]
    return ["--bootstrap", topics.bootstrap, "--out", str(directory), "--topic", topic, *numbers]


@pytest.fixture(scope="module")
def day(topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Day:
    """A run from beginning to end."""
    topic, directory = topics.name("shop"), tmp_path_factory.mktemp("pipeline") / "out"
    printed = run("pipeline/run.py", *arguments(topics, topic, directory), timeout=RUN_TIMEOUT_S, spark=True)
    return found(topics, directory, topic, printed)


def found(topics: Topics, directory: Path, topic: str, printed: str) -> Day:
    """What a run left behind; its heartbeats, which are no events, are left out."""
    lines = [row for row in topics.read(f"{topic}.events") if b'"heartbeat"' not in (row.value or b"")]
    return Day(directory, topic, printed, lines, topics.read(f"{topic}.windows"))


@case("pipeline: windows in Parquet and topic")
def test_windows(day: Day) -> None:
    expected = count(day.lines)
    assert stored(day) == expected.windows
    assert sent(day.sent_windows) == expected.windows
    assert len(day.sent_windows) == len(expected.windows)
    assert sum(map(int, re.findall(r"(\d+) lines sent", day.printed.replace(",", "")))) == len(day.lines)
    # The day has all kinds of events that make it a test.
    assert expected.late_but_counted > 100
    assert expected.too_late > 10
    assert expected.garbled > 3


@case("pipeline: report and picture")
def test_report(day: Day) -> None:
    expected = count(day.lines)
    totals = sum(expected.windows.values(), Counter())
    by_country: Counter[str] = Counter()
    for (_, country), counted in expected.windows.items():
        by_country[country] += counted["revenue_cents"]
    assert day.report == {
        "events": expected.events,
        "garbled": expected.garbled,
        "counted": expected.events - expected.too_late,
        "too_late": expected.too_late,
        "windows": len(expected.windows),
        "windows_in_topic": len(expected.windows),
        "topic_equals_parquet": True,
        **{kind: totals[kind] for kind in (*KINDS.values(), "revenue_cents")},
        "revenue_cents_by_country": dict(by_country),
        "products": {name: dict(counted) for name, counted in expected.products.items()},
    }
    picture = matplotlib.image.imread(day.directory / "report.png")
    height, width = picture.shape[:2]
    assert width > 1000
    assert height > 900
    colours = Counter(map(tuple, (picture[::4, ::4, :3] * 255).round().astype(int).reshape(-1, 3).tolist()))
    for colour in ((0, 114, 178), (213, 94, 0), (0, 158, 115), (230, 159, 0)):
        assert colours[colour] > 100, f"hardly any {colour} in the picture: {colours.most_common(8)}"


@case("pipeline: kill -9 and start again")
def test_killed_and_started_again(day: Day, topics: Topics, tmp_path: Path) -> None:
    topic, directory = topics.name("shop"), tmp_path / "out"
    command = arguments(topics, topic, directory)
    # First between two batches of Spark's: the one with the second shift's data and the one that closes its windows.
    reached = directory / "checkpoints" / "topic" / "commits" / "2"
    run_and_kill("pipeline/run.py", *command, when=reached.exists, log=tmp_path / "killed.log", timeout=RUN_TIMEOUT_S)
    # Then while the third shift is sent, or soon after.
    stored_lines = len(topics.read(f"{topic}.events"))
    run_and_kill(
        "pipeline/run.py",
        *command,
        when=lambda: len(topics.read(f"{topic}.events")) > stored_lines,
        log=tmp_path / "killed again.log",
        timeout=RUN_TIMEOUT_S,
    )
    assert not (directory / "report.json").exists()
    printed = run("pipeline/run.py", *command, timeout=RUN_TIMEOUT_S, spark=True)
    again = found(topics, directory, topic, printed)
    assert [row[1:] for row in again.lines] == [row[1:] for row in day.lines]
    assert stored(again) == stored(day)
    assert sent(again.sent_windows) == stored(day)  # at least once: a window may be there twice, with the same value
    assert again.report == day.report
    # Once more: nothing is left to do, and nothing changes.
    finished = run("pipeline/run.py", *command, timeout=RUN_TIMEOUT_S, spark=True)
    assert re.findall(r"([\d,]+) lines sent, ([\d,]+) read", finished) == [("0", "0")] * 4
    assert again.report == day.report
    assert topics.read(f"{topic}.windows") == again.sent_windows


@case("pipeline: refuses a foreign directory or topic")
def test_refusals(day: Day, topics: Topics, tmp_path: Path) -> None:
    other_seed = attempt("pipeline/run.py", *arguments(topics, day.topic, day.directory, seed=8), timeout=300)
    assert other_seed.returncode == 2
    assert "'seed': 7" in other_seed.stderr
    other_directory = attempt("pipeline/run.py", *arguments(topics, day.topic, tmp_path / "new"), timeout=300)
    assert other_directory.returncode == 2
    assert day.topic in other_directory.stderr
    assert not (tmp_path / "new").exists()


def count(lines: list[Row]) -> Expected:
    """Count windows, late events and products in plain Python."""
    expected = Expected()
    for line in lines:
        try:
            event = json.loads(line.value or b"")
        except ValueError:
            expected.garbled += 1
            continue
        expected.events += 1
        if event["kind"] == "purchase":
            product = expected.products.setdefault(event["product"], Counter())
            product.update(sold=1, revenue_cents=event["cents"])
        if line.timestamp_ms - event["at"] >= LATENESS_MS:
            expected.too_late += 1
            continue
        if line.timestamp_ms - event["at"] > 60_000:
            expected.late_but_counted += 1
        window = event["at"] // WINDOW_MS * WINDOW_MS, event["country"]
        counted = expected.windows.setdefault(window, Counter(dict.fromkeys((*KINDS.values(), "revenue_cents"), 0)))
        counted.update({KINDS[event["kind"]]: 1, "revenue_cents": event.get("cents", 0)})
    return expected


def stored(day: Day) -> Windows:
    """The windows in the Parquet files that Spark's own log of the sink names."""
    files = [
        json.loads(line)["path"].removeprefix("file://")
        for log in sorted((day.directory / "windows.parquet" / "_spark_metadata").glob("[0-9]*"))
        for line in log.read_text().splitlines()[1:]
    ]
    rows = [row for file in dict.fromkeys(files) for row in pyarrow.parquet.ParquetFile(file).read().to_pylist()]
    windows = {(milliseconds(row["start"]), row["country"]): counted_in(row) for row in rows}
    assert len(windows) == len(rows), "a window is in the files twice"
    assert all(milliseconds(row["end"]) - milliseconds(row["start"]) == WINDOW_MS for row in rows)
    return windows


def sent(records: list[Row]) -> Windows:
    """The windows in the topic; equal keys must have equal values."""
    windows: Windows = {}
    for record in records:
        row = json.loads(record.value or b"")
        start = datetime.fromisoformat(row["start"])
        assert record.key == f"{start:%Y-%m-%dT%H:%M}/{row['country']}".encode()
        found = counted_in(row)
        assert windows.setdefault((milliseconds(start), row["country"]), found) == found
    return windows


def counted_in(row: dict[str, Any]) -> Counter[str]:
    return Counter({name: row[name] for name in (*KINDS.values(), "revenue_cents")})


def milliseconds(time: datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
