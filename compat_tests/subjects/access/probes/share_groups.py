"""Share groups: members, records, what is stored of partitions, and what tools ask."""

from __future__ import annotations

from barnabas.kproto import ApiKey, uuid_to_text
from compat_tests.subjects.access.acls import Acl, Kind, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import Of, cluster, group, three_names, topic
from compat_tests.subjects.access.world import World

MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
SHARE_KEY = 2


def _heartbeat(names: Names) -> Values:
    return {"group_id": names.group, "member_id": MEMBER, "member_epoch": 0}


def _members(world: World, names: Names) -> None:
    """Both groups have a member, the other one of both topics, and all is initialized."""
    for group_id, topics in ((names.group, [names.topic]), (names.other_group, [names.topic, names.other_topic])):
        asked = {**_heartbeat(names), "group_id": group_id, "subscribed_topic_names": topics}
        world.until_served(ApiKey.SHARE_GROUP_HEARTBEAT, 1, asked)

        def is_assigned(asked: Values = asked, wanted: int = len(topics)) -> bool:
            answer = world.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, asked)
            return answer.assignment is not None and len(answer.assignment.topic_partitions) == wanted

        world.wait(is_assigned, "an assignment")


def _offsets(world: World, names: Names) -> None:
    """The group has offsets in a topic that the user may be allowed to read, and in one that they may not."""
    partitions = [{"partition_index": 0, "start_offset": 0}]
    topics = [{"topic_name": each, "partitions": partitions} for each in (names.topic, names.other_topic)]
    world.until_served(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": names.group, "topics": topics})


def _by_id(names: Names, **partition: object) -> list[Values]:
    """Of the two topics that there are: Apache Kafka fails at an unknown id."""
    return [{"topic_id": each, "partitions": [partition]} for each in (names.topic_id, names.other_id)]


def _fetch(names: Names) -> Values:
    """Begins a session, and fetches nothing."""
    return {
        "group_id": names.group,
        "member_id": MEMBER,
        "max_bytes": 0,
        "max_records": 0,
        "topics": _by_id(names, partition_index=0),
    }


def _state(**partition: object) -> Of:
    def values(names: Names) -> Values:
        partitions = [{"partition": 0, **partition}]
        return {"group_id": names.group, "topics": [{"topic_id": names.topic_id, "partitions": partitions}]}

    return values


def _coordinated(world: World, names: Names) -> None:
    """There is a coordinator, and it has heard of the topic: Apache Kafka's hears of it later than the partition's
    leader, and says UNKNOWN_TOPIC_OR_PARTITION until then.
    """
    key = f"{names.group}:{uuid_to_text(names.topic_id)}:0"
    world.until_served(ApiKey.FIND_COORDINATOR, 6, {"key_type": SHARE_KEY, "coordinator_keys": [key]})
    world.until_served(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, _state(leader_epoch=0)(names))


_NEEDED_OF_BROKERS = (cluster(Op.CLUSTER_ACTION),)

PROBES = (
    Probe(
        "ShareGroupHeartbeat",
        ApiKey.SHARE_GROUP_HEARTBEAT,
        lambda names: {**_heartbeat(names), "subscribed_topic_names": [names.topic]},
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "ShareGroupHeartbeat with a forbidden topic",
        ApiKey.SHARE_GROUP_HEARTBEAT,
        lambda names: {**_heartbeat(names), "subscribed_topic_names": [names.topic, names.other_topic]},
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "ShareGroupDescribe",
        ApiKey.SHARE_GROUP_DESCRIBE,
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
    Probe("ShareFetch", ApiKey.SHARE_FETCH, _fetch, (group(Op.READ), topic(Op.READ)), own=True),
    Probe(
        "ShareAcknowledge",
        ApiKey.SHARE_ACKNOWLEDGE,
        lambda names: {
            "group_id": names.group,
            "member_id": MEMBER,
            "share_session_epoch": 1,
            "topics": _by_id(names, partition_index=0),
        },
        (group(Op.READ),),
    ),
    Probe(
        "InitializeShareGroupState",
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        _state(state_epoch=1, start_offset=0),
        _NEEDED_OF_BROKERS,
        own=True,
        prepare=_coordinated,
    ),
    Probe(
        "ReadShareGroupState",
        ApiKey.READ_SHARE_GROUP_STATE,
        _state(leader_epoch=0),
        _NEEDED_OF_BROKERS,
        prepare=_coordinated,
    ),
    Probe(
        "WriteShareGroupState",
        ApiKey.WRITE_SHARE_GROUP_STATE,
        _state(state_epoch=1, leader_epoch=0, start_offset=0),
        _NEEDED_OF_BROKERS,
        prepare=_coordinated,
    ),
    Probe(
        "DeleteShareGroupState",
        ApiKey.DELETE_SHARE_GROUP_STATE,
        _state(),
        _NEEDED_OF_BROKERS,
        prepare=_coordinated,
    ),
    Probe(
        "ReadShareGroupStateSummary",
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        _state(leader_epoch=0),
        _NEEDED_OF_BROKERS,
        prepare=_coordinated,
    ),
    Probe(
        "DescribeShareGroupOffsets",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda names: {
            "groups": [
                {"group_id": each, "topics": three_names(names, "topic_name", partitions=[0])}
                for each in (names.group, names.other_group)
            ]
        },
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
        prepare=_members,
    ),
    Probe(
        "DescribeShareGroupOffsets of all topics",
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda names: {"groups": [{"group_id": each, "topics": None} for each in (names.group, names.other_group)]},
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
    Probe(
        "AlterShareGroupOffsets",
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        lambda names: {
            "group_id": names.group,
            "topics": three_names(names, "topic_name", partitions=[{"partition_index": 0, "start_offset": 0}]),
        },
        (group(Op.READ), topic(Op.READ)),
        own=True,
    ),
    Probe(
        "DeleteShareGroupOffsets",
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        lambda names: {"group_id": names.group, "topics": three_names(names, "topic_name")},
        (group(Op.DELETE), topic(Op.READ)),
        own=True,
        prepare=_offsets,
    ),
)
