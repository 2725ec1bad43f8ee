"""kafka-metadata-quorum: who leads the cluster's metadata, and how far voters are."""

from __future__ import annotations

import re
import time

import pytest

from compat_tests.clients.tools_cli.test_topics import case
from compat_tests.clients.tools_cli.tools import Tools

pytestmark = [pytest.mark.slow, pytest.mark.jvm]


def status(tools: Tools) -> dict[str, str]:
    """What `describe --status` says, by name."""
    text = tools("kafka-metadata-quorum", "describe", "--status")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


@case("kafka-metadata-quorum: describe --status, --replication")
def test_the_controller_is_the_voter(tools: Tools, topic: str) -> None:
    before = status(tools)
    leader, end = before["LeaderId"], int(before["HighWatermark"])
    assert re.fullmatch(r"[\w-]{22}", before["ClusterId"]), before
    assert int(before["LeaderEpoch"]) > 0
    assert (before["MaxFollowerLag"], before["MaxFollowerLagTimeMs"]) == ("0", "0")
    assert re.fullmatch(rf'\[{{"id": {leader}, "endpoints": \["[A-Z]+://[^"]+:\d+"\]}}\]', before["CurrentVoters"])
    assert before["CurrentObservers"] == "[]"
    tools("kafka-topics", "--alter", "--topic", topic, "--partitions", "5")
    assert int(status(tools)["HighWatermark"]) > end
    asked_ms = time.time() * 1000
    header, row = tools("kafka-metadata-quorum", "describe", "--replication").splitlines()
    found = dict(zip(header.split(), row.split(), strict=True))
    assert (found["NodeId"], found["Status"], found["Lag"]) == (leader, "Leader", "0")
    assert found["DirectoryId"] == "AAAAAAAAAAAAAAAAAAAAAA"
    assert int(found["LogEndOffset"]) > end
    for moment in ("LastFetchTimestamp", "LastCaughtUpTimestamp"):
        assert abs(int(found[moment]) - asked_ms) < 60_000
    assert " ms ago" in tools("kafka-metadata-quorum", "describe", "--replication", "--human-readable")
