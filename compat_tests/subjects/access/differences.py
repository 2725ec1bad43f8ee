"""Where our broker answers otherwise than Apache Kafka 4.3.1 (or 3.9.1, where 4.3.1 does not), and why: all of it.

In the outcomes of a probe, `theirs` is `ours`. A difference that is no more, fails the test like one that is not here.
"""

from __future__ import annotations

from typing import NamedTuple

from compat_tests.subjects.access.table import CLOSED_WORLD, EARLIER_WORLD


class Difference(NamedTuple):
    """probe: its name. theirs, ours: pieces of outcomes. world: of the table's. scenarios: where; none: wherever their
    piece is found.
    """

    probe: str
    theirs: str
    ours: str
    reason: str
    world: str = CLOSED_WORLD
    scenarios: tuple[str, ...] = ()

    def concerns(self, world: str, probe: str, scenario: str) -> bool:
        """The open world is the closed one's."""
        return (
            self.probe == probe
            and (self.world == EARLIER_WORLD) == (world == EARLIER_WORLD)
            and (not self.scenarios or scenario in self.scenarios)
        )


_ONLY_VALIDATED = "A topic that is only validated has no id, as in 3.9 with ZooKeeper; 4.3 makes one up."
_TWICE = "What is named twice is answered in old versions as in the others, and as by 4.3."
_OFFSETS_OF_VERSION_0 = "Version 0 has the offsets that the others have; Apache Kafka kept its own in ZooKeeper."

_ID_OF_ANOTHER = "The id of a topic that the caller may not read is not told."

DIFFERENCES = (
    *(
        Difference(
            "AlterShareGroupOffsets",
            f"{which}#{which} partitions[0 TOPIC_AUTHORIZATION_FAILED]",
            f"{which} partitions[0 TOPIC_AUTHORIZATION_FAILED]",
            _ID_OF_ANOTHER,
        )
        for which in ("mine", "other")
    ),
    Difference("CreateTopics, only validated", "none#? ", "none ", _ONLY_VALIDATED),
    Difference(
        "Produce with a wrong acks",
        "none partition_responses[0 UNKNOWN_TOPIC_OR_PARTITION",
        "none partition_responses[0 INVALID_REQUIRED_ACKS",
        "A wrong acks is told of each partition, be it there or not.",
    ),
    Difference(
        "ElectLeaders of all",
        "replica_election_results[mine partition_result[]; other partition_result[]]",
        "replica_election_results[]",
        "Topics in which nothing was to elect are not named, as in 3.9; 4.3 names them without partitions.",
    ),
    Difference(
        "AlterUserScramCredentials of one twice",
        "results[? RESOURCE_NOT_FOUND]",
        "results[? DUPLICATE_RESOURCE]",
        "What stands in a request twice is told so, as in 3.9, be it there or not.",
    ),
    Difference(
        "Fetch of a follower",
        "none partitions[0 UNKNOWN_TOPIC_OR_PARTITION",
        "none partitions[0 NOT_LEADER_OR_FOLLOWER",
        "No follower that a cluster may have asks in versions 0 to 3: it is refused, whatever it asks for.",
        EARLIER_WORLD,
    ),
    Difference(
        "DeleteTopics",
        "responses[mine TOPIC_AUTHORIZATION_FAILED; none TOPIC_AUTHORIZATION_FAILED]",
        "responses[mine; none UNKNOWN_TOPIC_OR_PARTITION]",
        "Who may DELETE the cluster may delete topics, as in 4.3, in version 0 as in the others.",
        EARLIER_WORLD,
        ("only DELETE CLUSTER", "only ALL CLUSTER"),
    ),
    Difference(
        "OffsetFetch",
        "topics[mine partitions[0 committed_offset=-1 UNKNOWN_TOPIC_OR_PARTITION]",
        "topics[mine partitions[0]",
        _OFFSETS_OF_VERSION_0,
        EARLIER_WORLD,
    ),
    Difference(
        "OffsetCommit without a group",
        "[0 UNKNOWN_SERVER_ERROR]",
        "[0]",
        _OFFSETS_OF_VERSION_0,
        EARLIER_WORLD,
    ),
    Difference(
        "CreateTopics of one twice, of a bad name, of the topic of offsets",
        "none INVALID_REQUEST; none INVALID_REQUEST",
        "none INVALID_REQUEST",
        _TWICE,
        EARLIER_WORLD,
    ),
    Difference(
        "DeleteTopics of one twice",
        "responses[none TOPIC_AUTHORIZATION_FAILED; none TOPIC_AUTHORIZATION_FAILED]",
        "responses[none INVALID_REQUEST]",
        _TWICE,
        EARLIER_WORLD,
    ),
    Difference(
        "DeleteTopics of one twice",
        "responses[none UNKNOWN_TOPIC_OR_PARTITION; none UNKNOWN_TOPIC_OR_PARTITION]",
        "responses[none INVALID_REQUEST]",
        _TWICE,
        EARLIER_WORLD,
    ),
    Difference("ListOffsets of a partition twice", "partitions[0; 0]", "partitions[0]", _TWICE, EARLIER_WORLD),
    Difference(
        "ControlledShutdown",
        "UNKNOWN_SERVER_ERROR",
        "BROKER_NOT_AVAILABLE",
        "A broker that is not there is told so in every version; 3.9 has no word for it from version 2 on.",
        EARLIER_WORLD,
    ),
)


def expected_of_ours(world: str, probe: str, scenario: str, theirs: str) -> str:
    """What our broker answers where Apache Kafka's answer is `theirs`."""
    for one in DIFFERENCES:
        if one.concerns(world, probe, scenario):
            theirs = theirs.replace(one.theirs, one.ours)
    return theirs
