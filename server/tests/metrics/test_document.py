"""docs/metrics.md: what it names is there, and what it says of paths and settings is so."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.server.settings import BROKER
from barnabas.server.tests.metrics.kit import Scraped, http, measured_broker
from barnabas.server.tests.metrics.strangers import why_missing
from barnabas.server.tests.metrics.test_dashboards import OPTIONAL

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
NAME = re.compile(r"`((?:kafka|barnabas|process)_[a-z0-9_]+)`")


async def test_the_metrics_that_it_names_are_there(seen: Scraped) -> None:
    named = set(NAME.findall(TEXT))
    assert len(named) > 25
    assert named - seen.names - OPTIONAL == set()


async def test_short_names_complete_a_name_before_them(seen: Scraped) -> None:
    shortened = set(re.findall(r"`…(_[a-z_]+)`", TEXT))
    assert len(shortened) > 5
    known = {name for name in seen.names if name.startswith("kafka_")}
    confluent = "_bytesinpersec"
    assert {short for short in shortened if not any(name.endswith(short) for name in known)} == {confluent}
    assert why_missing(f"kafka_server_brokertopicmetrics{confluent}") is not None


def test_settings_have_the_defaults_that_it_says() -> None:
    told = dict(re.findall(r"`(metrics\.[a-z.]+)` \((\d+)\)", TEXT))
    assert told == {name: BROKER[name].default_text for name in told}
    assert len(told) == 5


async def test_paths() -> None:
    async with measured_broker() as broker:
        assert broker.metrics_address is not None
        for path in re.findall(r"\| `(/[a-z/]+)` \|", TEXT):
            assert (await http(broker.metrics_address, path)).status == 200


async def test_a_partition_has_as_many_series_as_it_says(seen: Scraped) -> None:
    labels = {"topic": "t", "partition": "0"}
    assert sum(sample.labels == labels for sample in seen.samples) == 18
