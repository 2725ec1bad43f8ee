"""kafka-consumer-groups and kafka-groups."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.harness.checks import wait_until

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.fixture
def filled(tools: Tools, unique: Names) -> tuple[str, str]:
    """A topic of one partition with 20 records, and a group that has read and committed 8 of them."""
    name, group = unique(), unique("group")
    tools("kafka-topics", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
    tools.produce(name, [f"{n}" for n in range(20)])
    tools.consume(name, 8, "--from-beginning", "--group", group)
    return name, group


def rows(text: str, topic: str) -> list[dict[str, str]]:
    """Return the rows of a table that name the topic."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    header = next(line for line in lines if "TOPIC" in line)
    return [dict(zip(header, line, strict=False)) for line in lines if topic in line]


def committed(tools: Tools, group: str, topic: str) -> str:
    """Return the committed offset as `--describe` shows it."""
    (row,) = rows(tools("kafka-consumer-groups", "--describe", "--group", group), topic)
    return row["CURRENT-OFFSET"]


@case("kafka-consumer-groups: list, describe offsets and lag, state")
def test_describe(tools: Tools, filled: tuple[str, str]) -> None:
    topic, group = filled
    assert group in tools("kafka-consumer-groups", "--list").split()
    (row,) = rows(tools("kafka-consumer-groups", "--describe", "--group", group), topic)
    assert (row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("0", "8", "20", "12")
    state = tools("kafka-consumer-groups", "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s.*\sEmpty\s+0", state)
    assert re.search(rf"^{group}\s+Classic\s+consumer", tools("kafka-groups", "--list"), re.MULTILINE)


@case("kafka-consumer-groups: members of a live group")
def test_members(tools: Tools, topic: str, unique: Names) -> None:
    group = unique("group")
    with tools.background("kafka-verifiable-consumer", "--topic", topic, "--group-id", group) as member:
        member.wait_for("partitions_assigned")
        text = tools("kafka-consumer-groups", "--describe", "--group", group, "--members", "--verbose")
        assert re.search(rf"{group}\s+consumer-{group}-1-\S+\s+/?127\.0\.0\.1\s", text), text
        assert re.search(rf"{topic}(:0,1|\(0,1\))", text), text
        text = tools("kafka-consumer-groups", "--describe", "--group", group, "--state")
        assert re.search(rf"{group}\s.*\srange\s+Stable\s+1", text), text
        refused = tools("kafka-consumer-groups", "--delete", "--group", group, expect=None)
        assert "GroupNotEmptyException" in refused


RESETS = {
    "--to-earliest": "0",
    "--to-latest": "20",
    "--to-offset 5": "5",
    "--shift-by 3": "11",
    "--shift-by -100": "0",
    "--by-duration P0DT1H0M0S": "0",
    "--to-current": "8",
}


@case("kafka-consumer-groups --reset-offsets: every way, dry run first")
def test_reset(tools: Tools, filled: tuple[str, str]) -> None:
    topic, group = filled
    start = ("kafka-consumer-groups", "--reset-offsets", "--group", group, "--topic", topic)
    for choice, expected in RESETS.items():
        (row,) = rows(tools(*start, *choice.split(), "--dry-run"), topic)
        assert (choice, row["NEW-OFFSET"]) == (choice, expected)
    assert committed(tools, group, topic) == "8"
    tools(*start, "--to-offset", "5", "--execute")
    assert committed(tools, group, topic) == "5"
    assert tools.consume(topic, 15, "--group", group) == [f"{n}" for n in range(5, 20)]


@case("kafka-consumer-groups --delete-offsets, --delete")
def test_delete(tools: Tools, filled: tuple[str, str]) -> None:
    topic, group = filled
    tools("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert rows_or_none(tools, group, topic) == []
    text = tools("kafka-consumer-groups", "--delete", "--group", group, expect=None)
    # Deleting its last offset has ended an empty group already, or it is deleted now.
    assert "successful" in text or "GroupIdNotFoundException" in text
    wait_until(lambda: group not in tools("kafka-consumer-groups", "--list").split(), f"{group} is gone", every=0.2)


def rows_or_none(tools: Tools, group: str, topic: str) -> list[dict[str, str]]:
    """Return the rows of a group that may be gone."""
    text = tools("kafka-consumer-groups", "--describe", "--group", group, expect=None)
    return rows(text, topic) if "TOPIC" in text else []


@case("kafka-consumer-groups: an unknown group is an error")
def test_unknown(tools: Tools, unique: Names) -> None:
    text = tools("kafka-consumer-groups", "--describe", "--group", unique("group"), expect=None)
    assert "does not exist" in text or "not found" in text
    text = tools("kafka-consumer-groups", "--delete", "--group", unique("group"), expect=None)
    assert "GroupIdNotFoundException" in text
