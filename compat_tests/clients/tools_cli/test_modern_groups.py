"""kafka-consumer-groups, kafka-groups and kafka-configs on groups of KIP-848."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.test_groups import committed, rows, rows_or_none
from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]
MODERN = ("--command-property", "group.protocol=consumer")


@case("KIP-848: list by type and state, describe with epochs, reset, delete offsets, delete")
def test_administration(tools: Tools, unique: Names) -> None:
    topic, group = unique(), unique("group")
    tools("kafka-topics", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    tools.produce(topic, [f"{n}" for n in range(20)])
    consume = ("--topic", topic, "--group", group, "--from-beginning", *MODERN)
    with tools.background("kafka-console-consumer", *consume) as member:
        member.wait_for("19")
        about = ("kafka-consumer-groups", "--describe", "--group", group)
        text = tools(*about, "--state", "--verbose")
        assert re.search(rf"{group}\s.*\suniform\s+Stable\s+\d+\s+\d+\s+1", text), text
        text = tools(*about, "--members", "--verbose")
        assert re.search(rf"{group}\s.*{topic}:0", text), text
        refused = tools("kafka-consumer-groups", "--delete", "--group", group, expect=None)
        assert "GroupNotEmptyException" in refused
    (row,) = rows(tools(*about), topic)
    assert (row["CURRENT-OFFSET"], row["LAG"]) == ("20", "0")
    text = tools("kafka-consumer-groups", "--list", "--type", "consumer", "--state", "empty")
    assert re.search(rf"^{group}\s+Consumer\s+Empty", text, re.MULTILINE), text
    assert group not in tools("kafka-consumer-groups", "--list", "--type", "classic")
    start = ("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic)
    tools(*start, "--shift-by", "-5", "--execute")
    assert committed(tools, group, topic) == "15"
    tools("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert rows_or_none(tools, group, topic) == []
    # A broker deletes a group without members and offsets by itself, when it next looks for old offsets.
    tools(*start, "--to-earliest", "--execute")
    text = tools("kafka-consumer-groups", "--delete", "--group", group, expect=None)
    assert "successful" in text, text


@case("kafka-configs: settings of a group")
def test_settings(tools: Tools, unique: Names) -> None:
    group = unique("group")
    of = ("kafka-configs", "--entity-type", "groups", "--entity-name", group)
    tools(*of, "--alter", "--add-config", "consumer.heartbeat.interval.ms=6000")
    assert "consumer.heartbeat.interval.ms=6000" in tools(*of, "--describe")
    text = tools(*of, "--alter", "--add-config", "consumer.heartbeat.interval.ms=600000", expect=None)
    assert "InvalidConfigurationException" in text
    tools(*of, "--alter", "--delete-config", "consumer.heartbeat.interval.ms")
    assert "consumer.heartbeat.interval.ms=6000" not in tools(*of, "--describe")
