"""The nightly job over a copied log directory: its numbers against the records as another client reads them."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet
import pytest

from compat_tests.clients.spark.topics import Topics
from compat_tests.harness.brokers import start_barnabas
from compat_tests.subjects.examples.programs import attempt, run

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1200)]
DAY_MS = 24 * 3600 * 1000


@pytest.mark.case("Examples", "daily_log_report.py", client="spark")
def test_daily_log_report(tmp_path: Path) -> None:
    day = datetime.now(UTC).date() - timedelta(days=1)
    first_ms = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() * 1000)
    out = tmp_path / "out"
    broker = start_barnabas(tmp_path, [f"log.dirs={tmp_path / 'data'}", "log.segment.bytes=20000"])
    topics = Topics(broker.bootstrap)
    try:
        places = ["--logs", str(tmp_path / "data"), "--out", str(out), "--day", day.isoformat()]
        printed = run("daily_log_report.py", "--bootstrap", broker.bootstrap, *places, timeout=600, spark=True)
        sent = topics.read("orders")
    finally:
        topics.close()
        broker.stop()

    amounts: Counter[str] = Counter()
    hours: Counter[tuple[int, str]] = Counter()
    for row in sent:
        if first_ms <= row.timestamp_ms < first_ms + DAY_MS:
            order = json.loads(row.value or b"")
            amounts[order["country"]] += round(order["amount"] * 100)
            hours[(row.timestamp_ms - first_ms) // 3_600_000, order["country"]] += 1
    assert 500 < hours.total() < len(sent) - 1000
    report = json.loads((out / "report.json").read_text())
    assert report["day"] == day.isoformat()
    assert report["orders"] == hours.total()
    assert report["by_country"] == {country: cents / 100 for country, cents in sorted(amounts.items())}
    assert f"{day}: {hours.total():,} orders" in printed

    written = pyarrow.parquet.read_table(out / "hours").to_pylist()
    assert {(row["hour"], row["country"]): row["orders"] for row in written} == hours
    assert {str(row["day"]) for row in written} == {day.isoformat()}

    missing = attempt("daily_log_report.py", "--topic", "nothing", *places, timeout=300)
    assert missing.returncode == 2
    assert "has no topic nothing" in missing.stderr
