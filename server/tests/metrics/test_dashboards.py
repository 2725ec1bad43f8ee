"""Dashboards find what they ask for: ours, and those of others, in a scrape of a broker that has seen some of
everything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.server.telemetry.pushed import sample_name
from barnabas.server.tests.metrics.kit import Scraped
from barnabas.server.tests.metrics.strangers import STRANGERS, why_missing

ROOT = Path(__file__).resolve().parents[3]
OURS = ROOT / "docs" / "grafana" / "barnabas.json"
NAME = re.compile(r"\b(?:kafka|barnabas|process|python)_[a-z0-9_]+\b")


def queries(node: Any) -> Iterator[str]:
    """The expressions of a dashboard, those of its variables too."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


async def test_ours_asks_for_what_there_is(seen: Scraped) -> None:
    dashboard = json.loads(OURS.read_text(encoding="utf-8"))
    asked = [query for query in queries(dashboard) if NAME.search(query)]
    assert len(asked) >= 25
    missing = {name for query in asked for name in NAME.findall(query)} - seen.names - OPTIONAL
    assert not missing
    by_name: dict[str, set[str]] = {}
    for sample in seen.samples:
        by_name.setdefault(sample.name, set()).update(sample.labels)
    for query in asked:
        for name, selector in re.findall(r"\b((?:kafka|barnabas)_[a-z0-9_]+)\{([^}]*)\}", query):
            labels = set(re.findall(r'([a-zA-Z_]+)(?:=~|!=|!~|=)"', selector)) - {"instance", "job"}
            assert name in OPTIONAL or labels <= by_name[name], f"{query}: {name} has no {labels - by_name[name]}"
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert all(panel["title"] and panel["targets"] for panel in panels)


def test_ours_asks_for_what_every_client_pushes() -> None:
    """Names of clients' metrics are those that KIP-714 requires of Java's and others' alike."""
    dashboard = json.loads(OURS.read_text(encoding="utf-8"))
    asked = {name for query in queries(dashboard) for name in re.findall(r"\borg_apache_kafka_\w+", query)}
    assert len(asked) == 6
    required = {sample_name(f"org.apache.kafka.{name}", False) for name in REQUIRED.split()}
    assert asked <= required


REQUIRED = """
producer.node.request.latency.avg producer.node.request.latency.max producer.produce.throttle.time.avg
producer.produce.throttle.time.max producer.record.queue.time.avg producer.record.queue.time.max
consumer.node.request.latency.avg consumer.node.request.latency.max consumer.poll.idle.ratio.avg
consumer.coordinator.commit.latency.avg consumer.coordinator.commit.latency.max
consumer.coordinator.assigned.partitions consumer.coordinator.rebalance.latency.avg
consumer.coordinator.rebalance.latency.max consumer.fetch.manager.fetch.latency.avg
consumer.fetch.manager.fetch.latency.max
"""
"""KIP-714, "client metrics": the gauges among them. The stock clients' own are tried in
`compat_tests/subjects/metrics`.
"""

OPTIONAL = {
    # Without ACLs, quotas, replicas or conflicts there are no samples.
    "barnabas_authorization_denials_total",
    "barnabas_throttle_seconds_total",
    "kafka_server_quota_byte_rate",
    "kafka_server_quota_throttle_time",
    # Without clients that push metrics.
    "barnabas_client_info",
}


@pytest.mark.parametrize("dashboard", STRANGERS)
async def test_others_find_what_makes_sense(dashboard: str, seen: Scraped) -> None:
    for name in STRANGERS[dashboard].split():
        if why_missing(name) is None:
            assert name in seen.names, f"{name} is neither there nor explained"
        else:
            assert name not in seen.names, f"{name} is there, and explained as missing"


def test_what_is_called_otherwise_is_there_under_the_other_name() -> None:
    assert why_missing("kafka_server_brokertopicmetrics_bytesinpersec") == (
        "the same counter is called kafka_server_brokertopicmetrics_bytesin_total by the rules that we follow"
    )
