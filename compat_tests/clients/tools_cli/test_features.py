"""kafka-features: describe, upgrade, downgrade, disable; transactional producers have the ways of each level."""

from __future__ import annotations

import re

import pytest

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.jvm]

RECORDS = 500


def levels(tools: Tools) -> dict[str, tuple[str, str, str]]:
    """Lowest, highest and finalised level of each feature; the epoch is left out."""
    found = {}
    for line in tools("kafka-features", "describe").splitlines():
        words = line.split()
        found[words[1]] = (words[3], words[5], words[7])
    return found


def produce(tools: Tools, topic: str, level: int) -> None:
    """Write records in transactions of one producer. An id that knows level 2 is lost to Apache Kafka at level 0."""
    tools(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "100", "--throughput", str(4 * RECORDS)),
        *("--transactional-id", f"{topic}-{level}", "--transaction-duration-ms", "50"),
    )


@case("kafka-features: describe, upgrade, downgrade, disable")
def test_levels_go_down_and_up(tools: Tools, topic: str) -> None:
    before = levels(tools)
    assert (before["transaction.version"], before["group.version"]) == (("0", "2", "2"), ("0", "1", "1"))
    produce(tools, topic, 2)
    done = tools("kafka-features", "downgrade", "--feature", "transaction.version=1")
    assert "transaction.version was downgraded to 1." in done
    refused = tools("kafka-features", "upgrade", "--feature", "transaction.version=3", expect=1)
    assert "Invalid update version 3 for feature transaction.version. Local controller" in refused
    assert "only supports versions 0-2" in refused
    assert "transaction.version was disabled." in tools("kafka-features", "disable", "--feature", "transaction.version")
    produce(tools, topic, 0)
    tools("kafka-features", "upgrade", "--feature", "transaction.version=2")
    assert levels(tools)["transaction.version"][2] == "2"
    read = tools.consume(topic, 2 * RECORDS, "--from-beginning", "--isolation-level", "read_committed")
    assert len(read) == 2 * RECORDS


@case("kafka-features: metadata.version is shown, kept, and not moved")
def test_the_level_of_metadata(tools: Tools) -> None:
    """Apache Kafka 4.3 takes back no level but the present one; ours has one, that of its setting."""
    first, last, now = levels(tools)["metadata.version"]
    assert re.fullmatch(r"[34]\.\d-IV\d", now)
    assert now == last
    assert "metadata.version was upgraded to" in tools("kafka-features", "upgrade", "--metadata", now)
    later = tools("kafka-features", "upgrade", "--feature", "metadata.version=31", expect=1)
    assert re.search(r"Invalid update version 31 for feature metadata\.version\. Local controller \d+ only", later)
    tools("kafka-features", "upgrade", "--metadata", "3.3-IV3", expect=1)
    for unsafe in ((), ("--unsafe",)):
        tools("kafka-features", "downgrade", "--metadata", "3.6", *unsafe, expect=1)
    off = tools("kafka-features", "disable", "--feature", "metadata.version", expect=1)
    assert re.search(r"Invalid update version 0 for feature metadata\.version\. Local controller \d+ only", off)
    none = tools("kafka-features", "disable", "--feature", "no.such.version", expect=1)
    assert "Feature no.such.version not found." in none
    assert levels(tools)["metadata.version"] == (first, last, now)
