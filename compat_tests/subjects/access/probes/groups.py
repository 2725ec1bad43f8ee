"""Groups: members, offsets, and what tools ask."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Acl, Kind, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import Of, always, cluster, group, three, three_names, topic, transaction
from compat_tests.subjects.access.world import World

GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"


def _commit(names: Names) -> Values:
    partition = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return {"group_id": names.group, "topics": three(names, partitions=[partition])}


def _both_groups(world: World, names: Names) -> None:
    world.make_group(names.group, names.topic)
    world.make_group(names.other_group, names.other_topic)


def _fetch_offsets(names: Names) -> Values:
    topics = three(names, partition_indexes=[0])
    groups = [{"group_id": each, "topics": topics} for each in (names.group, names.other_group)]
    by_name = three_names(names, partition_indexes=[0])
    return {"group_id": names.group, "topics": by_name, "groups": groups}


def _fetch_all_offsets(names: Names) -> Values:
    groups = [{"group_id": each, "topics": None} for each in (names.group, names.other_group)]
    return {"group_id": names.group, "topics": None, "groups": groups}


def _two_topics(world: World, names: Names) -> None:
    """The group has offsets in a topic that the user may be allowed to see, and in one that they may not."""
    _both_groups(world, names)
    world.make_group(names.group, names.other_topic)


def _coordinator(key_type: int) -> Of:
    def values(names: Names) -> Values:
        keys = {
            GROUP_KEY: [names.group, names.other_group],
            TRANSACTION_KEY: [names.transaction, names.other_transaction],
        }[key_type]
        return {"key": keys[0], "key_type": key_type, "coordinator_keys": keys}

    return values


def _share_key(names: Names) -> Values:
    return {"key_type": SHARE_KEY, "coordinator_keys": [f"{names.group}:AAAAAAAAAAAAAAAAAAAAAQ:0"]}


def _join(names: Names) -> Values:
    protocols = [{"name": "range", "metadata": b"m"}]
    return {
        "group_id": names.group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": protocols,
    }


def _member(names: Names) -> Values:
    return {"group_id": names.group, "generation_id": 1, "member_id": "m"}


def _heartbeat(names: Names) -> Values:
    return {
        "group_id": names.group,
        "member_id": MEMBER,
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "topic_partitions": [],
    }


def _modern_member(world: World, names: Names) -> None:
    """A member of both groups that has the topics assigned."""
    for group_id, topics in (
        (names.group, [names.topic]),
        (names.other_group, [names.topic, names.other_topic]),
    ):
        asked = {**_heartbeat(names), "group_id": group_id, "subscribed_topic_names": topics}
        answer = world.until_served(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked)
        asked["member_epoch"] = answer.member_epoch

        def is_assigned(asked: Values = asked, wanted: int = len(topics)) -> bool:
            described = world.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, {"group_ids": [asked["group_id"]]})
            (member,) = described.groups[0].members
            if len(member.assignment.topic_partitions) == wanted:
                return True
            world.ask(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**_heartbeat(names), **asked, "member_epoch": member.member_epoch}
            )
            return False

        world.wait(is_assigned, "an assignment")


PROBES = (
    Probe("OffsetCommit", ApiKey.OFFSET_COMMIT, _commit, (group(Op.READ), topic(Op.READ)), prepare=_both_groups),
    Probe(
        "OffsetFetch",
        ApiKey.OFFSET_FETCH,
        _fetch_offsets,
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
        prepare=_both_groups,
    ),
    Probe(
        "OffsetFetch of all topics",
        ApiKey.OFFSET_FETCH,
        _fetch_all_offsets,
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
        versions=(2, 99),
        prepare=_two_topics,
    ),
    Probe("FindCoordinator of groups", ApiKey.FIND_COORDINATOR, _coordinator(GROUP_KEY), (group(Op.DESCRIBE),)),
    Probe(
        "FindCoordinator of transactional ids",
        ApiKey.FIND_COORDINATOR,
        _coordinator(TRANSACTION_KEY),
        (transaction(Op.DESCRIBE),),
        versions=(1, 99),
    ),
    Probe(
        "FindCoordinator of shares",
        ApiKey.FIND_COORDINATOR,
        _share_key,
        (cluster(Op.CLUSTER_ACTION),),
        versions=(6, 99),
    ),
    Probe("JoinGroup", ApiKey.JOIN_GROUP, _join, (group(Op.READ),), own=True, has_topic=False),
    Probe(
        "SyncGroup",
        ApiKey.SYNC_GROUP,
        lambda names: {**_member(names), "protocol_type": "consumer", "protocol_name": "range"},
        (group(Op.READ),),
    ),
    Probe("SyncGroup without a protocol", ApiKey.SYNC_GROUP, _member, (group(Op.READ),), versions=(5, 99)),
    Probe("Heartbeat", ApiKey.HEARTBEAT, _member, (group(Op.READ),)),
    Probe(
        "LeaveGroup",
        ApiKey.LEAVE_GROUP,
        lambda names: {"group_id": names.group, "member_id": "m", "members": [{"member_id": "m"}]},
        (group(Op.READ),),
    ),
    Probe(
        "DescribeGroups",
        ApiKey.DESCRIBE_GROUPS,
        lambda names: {
            "groups": [names.group, names.other_group, names.no_group],
            "include_authorized_operations": True,
        },
        (group(Op.DESCRIBE),),
        prepare=_both_groups,
    ),
    Probe("ListGroups", ApiKey.LIST_GROUPS, always(), (group(Op.DESCRIBE),), prepare=_both_groups, of_others=False),
    Probe(
        "DeleteGroups",
        ApiKey.DELETE_GROUPS,
        lambda names: {"groups_names": [names.group, names.no_group]},
        (group(Op.DELETE),),
        own=True,
        has_topic=False,
        prepare=lambda world, names: world.make_group(names.group, names.other_topic),
    ),
    Probe(
        "OffsetDelete",
        ApiKey.OFFSET_DELETE,
        lambda names: {
            "group_id": names.group,
            "topics": three_names(names, partitions=[{"partition_index": 0}]),
        },
        (group(Op.DELETE), topic(Op.READ)),
        own=True,
        prepare=lambda world, names: world.make_group(names.group, names.topic),
    ),
    Probe(
        "ConsumerGroupHeartbeat",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda names: {**_heartbeat(names), "subscribed_topic_names": [names.topic]},
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "ConsumerGroupHeartbeat with a forbidden topic",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda names: {**_heartbeat(names), "subscribed_topic_names": [names.topic, names.other_topic]},
        (group(Op.READ), topic(Op.DESCRIBE)),
        own=True,
    ),
    Probe(
        "ConsumerGroupHeartbeat with a regex",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda names: {**_heartbeat(names), "subscribed_topic_regex": f"{names.topic}.*"},
        (group(Op.READ),),
        versions=(1, 99),
        own=True,
        has_topic=False,
    ),
    Probe(
        "ConsumerGroupDescribe",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        lambda names: {
            "group_ids": [names.group, names.other_group, names.no_group],
            "include_authorized_operations": True,
        },
        (group(Op.DESCRIBE), topic(Op.DESCRIBE)),
        prepare=_modern_member,
        also={
            "DESCRIBE of both groups, of one topic": lambda names: [
                Acl(Kind.GROUP, names.group, Op.DESCRIBE),
                Acl(Kind.GROUP, names.other_group, Op.DESCRIBE),
                Acl(Kind.TOPIC, names.topic, Op.DESCRIBE),
            ]
        },
    ),
)
