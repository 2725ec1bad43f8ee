"""Streams groups: members, the topics of their topologies, and what tools ask."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Acl, Kind, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import group, topic
from compat_tests.subjects.access.world import World

MISSING_SOURCE_TOPICS = 1
"""A status of a heartbeat. Apache Kafka's coordinator hears of a topic later than the partition's leader."""


def _joining(group_id: str, sources: list[str], changelogs: list[str] | None = None) -> Values:
    return {
        "group_id": group_id,
        "member_id": "member",
        "rebalance_timeout_ms": 1000,
        "process_id": "process",
        "topology": {
            "epoch": 0,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": sources,
                    "state_changelog_topics": [{"name": name, "partitions": 0} for name in changelogs or []],
                }
            ],
        },
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
        "client_tags": [],
    }


def _members(world: World, names: Names) -> None:
    """Both groups have a member, the other one reads both topics."""
    for group_id, topics in ((names.group, [names.topic]), (names.other_group, [names.topic, names.other_topic])):
        asked = _joining(group_id, topics)
        world.until_served(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked)

        def are_known(asked: Values = asked) -> bool:
            answer = world.ask(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, asked)
            return MISSING_SOURCE_TOPICS not in {each.status_code for each in answer.status or ()}

        world.wait(are_known, f"{topics} known to the coordinator of {group_id}")


PROBES = (
    Probe(
        "StreamsGroupHeartbeat",
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        lambda names: _joining(names.group, [names.topic]),
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "StreamsGroupHeartbeat with a forbidden topic",
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        lambda names: _joining(names.group, [names.topic, names.other_topic]),
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "StreamsGroupHeartbeat with an internal topic",
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        lambda names: _joining(names.group, [names.topic, "__consumer_offsets"]),
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "StreamsGroupDescribe",
        ApiKey.STREAMS_GROUP_DESCRIBE,
        lambda names: {
            "group_ids": [names.group, names.other_group, names.no_group],
            "include_authorized_operations": True,
        },
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
        prepare=_members,
        also={
            "DESCRIBE of both groups, of one topic": lambda names: [
                Acl(Kind.GROUP, names.group, Op.DESCRIBE),
                Acl(Kind.GROUP, names.other_group, Op.DESCRIBE),
                Acl(Kind.TOPIC, names.topic, Op.DESCRIBE),
            ]
        },
    ),
)
