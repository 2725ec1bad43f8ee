"""kafka-streams-groups on the group of an application of Kafka Streams: while it runs, and when it is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from compat_tests.clients.tools_cli.test_topics import CLIENT
from compat_tests.clients.tools_cli.tools import Tools
from compat_tests.clients.tools_cli.warm import WarmJvms
from compat_tests.harness import dump_log
from compat_tests.harness.checks import wait_until
from compat_tests.harness.restartable import Restartable
from compat_tests.subjects.eos.applications import Application, written
from compat_tests.subjects.eos.conftest import SETTINGS
from compat_tests.subjects.eos.readers import administrator

pytestmark = [pytest.mark.campaign, pytest.mark.jvm, pytest.mark.timeout(1800)]

TITLE = "kafka-streams-groups: the group of an application, while it runs and when it is gone"
LINES, COUNTS, NAME = "lines", "word-counts", "counter"


WITHIN_S = 120


@pytest.fixture
def settings() -> list[str]:
    """Nobody is killed here: members stay, however long one stands still."""
    return [one for one in SETTINGS if "session.timeout" not in one]


def words(text: str) -> list[str]:
    """The words of each line of a table, by one blank."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


@pytest.mark.case("command-line tools", TITLE, CLIENT)
def test_a_groups_life(restartable: Restartable, warm_jvms: WarmJvms, tmp_path: Path) -> None:
    admin = administrator(restartable.bootstrap)
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in (LINES, COUNTS)]).values():
        made.result(60)
    tools = Tools(restartable.bootstrap, warm_jvms)

    def said(*arguments: str, expect: int | None = 0) -> str:
        return tools("kafka-streams-groups", *arguments, expect=expect)

    about = ("--describe", "--group", NAME)
    application = Application(
        restartable.bootstrap, (NAME, LINES, COUNTS), tmp_path / "state", ["group.protocol=streams"]
    )
    application.start()
    try:
        application.wait_until_ready()
        tools.produce(LINES, ["a b c", "a b", "a"])
        assert written(tools, COUNTS, 6) == ["1", "1", "1", "2", "2", "3"]
        wait_until(
            lambda: re.fullmatch(rf"{NAME} \S+ \(\d+\) Stable 2", words(said(*about, "--state"))[1]),
            "both threads are members",
            WITHIN_S,
        )
        assert re.search(rf"^{NAME}\s+Streams\s+streams", tools("kafka-groups", "--list"), re.MULTILINE)
        assert re.search(rf"^{NAME}\s+Stable", said("--list", "--state"), re.MULTILINE)
        assert words(said(*about, "--state"))[0] == "GROUP COORDINATOR (ID) STATE #MEMBERS"
        members = said(*about, "--members")
        assert len(re.findall(rf"^{NAME}\s", members, re.MULTILINE)) == 2
        assert all(task in members for task in ("0:", "1:"))
        offsets = said(*about, "--offsets")
        assert len(re.findall(rf"^{NAME}\s+{LINES}\s+[01]\s", offsets, re.MULTILINE)) == 2
        assert "GroupNotEmptyException" in said("--delete", "--group", NAME, expect=None)
    finally:
        application.stop()
    wait_until(
        lambda: re.search(rf"^{NAME}\s+Empty", said("--list", "--state"), re.MULTILINE), "they have left", WITHIN_S
    )
    reset = said("--reset-offsets", "--group", NAME, "--all-input-topics", "--to-earliest", "--execute")
    assert {
        (topic, int(offset)) for topic, offset in re.findall(rf"^{NAME}\s+(\S+)\s+\d+\s+(\d+)", reset, re.MULTILINE)
    } == {(LINES, 0)}
    dumped(restartable.data)
    said("--delete", "--group", NAME)
    assert NAME not in said("--list")


def dumped(data: Path) -> None:
    """DumpLogSegments knows every record of the group, and says what Apache Kafka would read out of it."""
    logs = [path for path in sorted(data.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    lines = dump_log.run(logs, "--deep-iteration", "--offsets-decoder", expect=0)
    assert dump_log.wrong(lines) == []
    text = "".join(lines).replace(" ", "")
    for wanted in (
        f'"groupId":"{NAME}"',
        "processId",
        "subtopologies",
        "activeTasks",
        "memberEpoch",
        "assignmentEpoch",
    ):
        assert wanted in text, f"{wanted} is not in {text[-2000:]}"
