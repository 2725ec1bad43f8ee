"""Where our broker answers otherwise than Apache Kafka 4.3.1, and why: all of it.

In the outcomes of a probe, `theirs` is `ours`. A difference that is no more, fails the test like one that is not here.
"""

from __future__ import annotations

from typing import NamedTuple


class Difference(NamedTuple):
    """probe: its name. theirs, ours: pieces of outcomes."""

    probe: str
    theirs: str
    ours: str
    reason: str


_NO_SHARES = "Share groups are not served: their coordinator is not looked for, whoever asks."
_NOT_ON_THE_MOVE = (
    "A partition that is not on the move is told so, be it there or not, as by 3.9 with ZooKeeper; without ALTER on "
    "the cluster nobody is told either."
)
_ONLY_VALIDATED = "A topic that is only validated has no id, as in 3.9 with ZooKeeper; 4.3 makes one up."

DIFFERENCES = (
    Difference(
        "FindCoordinator of shares",
        "coordinators[? node_id=-1 CLUSTER_AUTHORIZATION_FAILED]",
        "coordinators[? node_id=-1 INVALID_REQUEST]",
        _NO_SHARES,
    ),
    Difference(
        "FindCoordinator of shares", "coordinators[?]", "coordinators[? node_id=-1 INVALID_REQUEST]", _NO_SHARES
    ),
    Difference(
        "AlterPartitionReassignments",
        "none partitions[0 UNKNOWN_TOPIC_OR_PARTITION]",
        "none partitions[0 NO_REASSIGNMENT_IN_PROGRESS]",
        _NOT_ON_THE_MOVE,
    ),
    Difference("CreateTopics, only validated", "none#? ", "none ", _ONLY_VALIDATED),
)


def expected_of_ours(probe: str, theirs: str) -> str:
    """What our broker answers where Apache Kafka's answer is `theirs`."""
    for one in DIFFERENCES:
        if one.probe == probe:
            theirs = theirs.replace(one.theirs, one.ours)
    return theirs
