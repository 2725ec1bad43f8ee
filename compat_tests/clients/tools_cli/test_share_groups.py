"""kafka-share-groups, kafka-console-share-consumer and their like, on share groups (KIP-932)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools

Names = Callable[..., str]
pytestmark = [pytest.mark.slow, pytest.mark.jvm]


@pytest.fixture
def named(tools: Tools, unique: Names) -> tuple[str, str]:
    """A topic of one partition with 20 records, and a group that begins at its start."""
    topic, group = unique(), unique("group")
    tools("kafka-topics", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "1")
    tools.produce(topic, [f"{n}" for n in range(20)])
    of = ("kafka-configs", "--entity-type", "groups", "--entity-name", group)
    tools(*of, "--alter", "--add-config", "share.auto.offset.reset=earliest")
    assert "share.auto.offset.reset=earliest" in tools(*of, "--describe")
    return topic, group


def lines(text: str) -> list[str]:
    """Without blank lines, and blanks at ends."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def shown(text: str, topic: str, group: str) -> list[str]:
    """The words of a table, with ids left out; topic and group by what they are."""
    found = []
    for line in lines(text):
        words = " ".join(line.split()).replace(topic, "TOPIC-NAME").replace(group, "GROUP-NAME")
        words = re.sub(r"\b[A-Za-z0-9_-]{22}(?= |$)", "ID", words)
        found.append(re.sub(r"/?127\.0\.0\.1(:\d+)?", "HOST", words))
    return found


@case("kafka-share-groups, kafka-console-share-consumer: from the first record to the end of the group")
def test_a_groups_life(tools: Tools, named: tuple[str, str]) -> None:
    topic, group = named

    def said(*arguments: str, expect: int | None = 0) -> list[str]:
        return shown(tools("kafka-share-groups", *arguments, expect=expect), topic, group)

    about = ("--describe", "--group", group)
    with tools.background("kafka-console-share-consumer", "--topic", topic, "--group", group) as member:
        member.wait_for("19")
        assert said(*about, "--members") == [
            "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS ASSIGNMENT",
            "GROUP-NAME ID HOST ID 1 TOPIC-NAME:0",
        ]
        assert said(*about, "--members", "--verbose") == [
            "GROUP CONSUMER-ID HOST CLIENT-ID #PARTITIONS MEMBER-EPOCH ASSIGNMENT",
            "GROUP-NAME ID HOST ID 1 3 TOPIC-NAME:0",
        ]
        assert said(*about, "--state", "--verbose") == [
            "GROUP COORDINATOR (ID) STATE GROUP-EPOCH ASSIGNMENT-EPOCH #MEMBERS",
            "GROUP-NAME HOST (1) Stable 3 3 1",
        ]
        text = tools("kafka-share-groups", "--delete", "--group", group, expect=None)
        assert f"GroupNotEmptyException: Share group '{group}' is not EMPTY." in text
        assert re.search(rf"^{group}\s+Stable", tools("kafka-share-groups", "--list", "--state"), re.MULTILINE)
    # What is stored of the start lags behind by one write.
    assert said(*about) == ["GROUP TOPIC PARTITION START-OFFSET LAG", "GROUP-NAME TOPIC-NAME 0 0 0"]
    assert said(*about, "--state")[1:] == ["GROUP-NAME HOST (1) Empty 0"]
    assert said(*about, "--members") == []
    assert re.search(rf"^{group}\s+Share\s+share", tools("kafka-groups", "--list"), re.MULTILINE)
    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    moved = "GROUP TOPIC PARTITION NEW-OFFSET"
    assert said(*reset, "--to-earliest", "--dry-run") == [moved, "GROUP-NAME TOPIC-NAME 0 0"]
    assert said(*about)[1].endswith(" 0")
    assert said(*reset, "--to-earliest", "--execute") == [moved, "GROUP-NAME TOPIC-NAME 0 0"]
    assert said(*about)[1:] == ["GROUP-NAME TOPIC-NAME 0 0 20"]
    assert said(*about, "--verbose")[1:] == ["GROUP-NAME TOPIC-NAME 0 0 0 20"]
    assert said(*reset, "--to-latest", "--execute") == [moved, "GROUP-NAME TOPIC-NAME 0 20"]
    assert said(*about)[1:] == ["GROUP-NAME TOPIC-NAME 0 20 0"]
    forget = ("--delete-offsets", "--group", group, "--topic", topic)
    assert said(*forget) == ["TOPIC STATUS", "TOPIC-NAME Successful"]
    assert said(*forget) == ["TOPIC STATUS", "TOPIC-NAME Error: There is no offset information to delete."]
    assert said(*about) == ["Share group 'GROUP-NAME' has no offset information."]
    assert said("--delete", "--group", group) == ["Deletion of requested share groups ('GROUP-NAME') was successful."]
    assert "Group 'GROUP-NAME' is not a share group." in said("--delete", "--group", group, expect=None)[1]
    assert "GroupIdNotFoundException: Group GROUP-NAME not found." in said(*about, expect=None)[0]


@case("kafka-console-share-consumer: records are released, and delivered again; rejected, and not")
def test_console(tools: Tools, named: tuple[str, str]) -> None:
    topic, group = named
    read = ("kafka-console-share-consumer", "--topic", topic, "--group", group, "--timeout-ms", "120000")
    everything = (*read, "--max-messages", "20", "--formatter-property", "print.delivery=true")
    for count, what in ((1, "--release"), (2, "--reject")):
        found = lines(tools(*everything, what))
        assert found[:20] == [f"Delivery:{count}\t{n}" for n in range(20)]
    tools.produce(topic, ["later"])
    assert lines(tools(*everything[:-4], "--max-messages", "1"))[0] == "later"


@case("kafka-verifiable-share-consumer: records are acknowledged")
def test_verifiable(tools: Tools, named: tuple[str, str]) -> None:
    topic, group = named
    with tools.background("kafka-verifiable-share-consumer", "--topic", topic, "--group-id", group) as member:
        member.wait_for("offsets_acknowledged")
    text = tools("kafka-share-groups", "--describe", "--group", group)
    assert shown(text, topic, group)[1].endswith(" 0")
