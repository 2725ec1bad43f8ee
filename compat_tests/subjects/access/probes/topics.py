"""Topics: what there is, and what is done to them."""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Acl, Kind, Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.parts import cluster, three_names, topic


def _metadata(names: Names) -> Values:
    return {"topics": three_names(names), "allow_auto_topic_creation": False}


def _metadata_with_operations(names: Names) -> Values:
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    return {**_metadata(names), **asked}


def _by_id(names: Names) -> list[Values]:
    return [{"name": None, "topic_id": each} for each in (names.topic_id, names.other_id, names.no_id)]


def _create(names: Names) -> Values:
    return {"topics": [{"name": names.topic, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 60_000}


def _delete(names: Names) -> Values:
    wanted = [names.topic, names.no_topic]
    return {"topics": [{"name": name} for name in wanted], "topic_names": wanted, "timeout_ms": 60_000}


PROBES = (
    Probe("Metadata", ApiKey.METADATA, _metadata, (topic(Op.DESCRIBE),), versions=(4, 99)),
    Probe(
        "Metadata of ids",
        ApiKey.METADATA,
        lambda names: {"topics": _by_id(names), "allow_auto_topic_creation": False},
        (topic(Op.DESCRIBE),),
        versions=(12, 99),
    ),
    Probe(
        "Metadata of all topics",
        ApiKey.METADATA,
        lambda names: {"topics": None, "allow_auto_topic_creation": False},
        (topic(Op.DESCRIBE),),
        versions=(1, 99),
        of_others=False,
    ),
    Probe(
        "Metadata of all topics, v0",
        ApiKey.METADATA,
        lambda names: {"topics": []},
        (topic(Op.DESCRIBE),),
        versions=(0, 0),
        of_others=False,
    ),
    Probe(
        "Metadata with operations",
        ApiKey.METADATA,
        _metadata_with_operations,
        (topic(Op.DESCRIBE),),
        versions=(8, 99),
    ),
    Probe(
        "Metadata that creates a topic",
        ApiKey.METADATA,
        lambda names: {"topics": [{"name": names.topic}], "allow_auto_topic_creation": True},
        (topic(Op.DESCRIBE), topic(Op.CREATE)),
        own=True,
        has_topic=False,
        also={
            "DESCRIBE TOPIC + CREATE CLUSTER": lambda names: [
                Acl(Kind.TOPIC, names.topic, Op.DESCRIBE),
                Acl(Kind.CLUSTER, names.of(Kind.CLUSTER), Op.CREATE),
            ]
        },
    ),
    Probe(
        "DescribeTopicPartitions",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda names: {"topics": three_names(names)},
        (topic(Op.DESCRIBE),),
    ),
    Probe(
        "DescribeTopicPartitions of all topics",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda names: {"topics": []},
        (topic(Op.DESCRIBE),),
        of_others=False,
    ),
    Probe(
        "CreateTopics",
        ApiKey.CREATE_TOPICS,
        _create,
        (topic(Op.CREATE), topic(Op.DESCRIBE_CONFIGS)),
        own=True,
        has_topic=False,
        also={
            "CREATE CLUSTER + DESCRIBE_CONFIGS TOPIC": lambda names: [
                Acl(Kind.CLUSTER, names.of(Kind.CLUSTER), Op.CREATE),
                Acl(Kind.TOPIC, names.topic, Op.DESCRIBE_CONFIGS),
            ]
        },
    ),
    Probe(
        "CreateTopics, only validated",
        ApiKey.CREATE_TOPICS,
        lambda names: {
            "topics": [
                {"name": name, "num_partitions": 1, "replication_factor": 1}
                for name in (names.topic, names.other_topic, names.no_topic)
            ],
            "timeout_ms": 60_000,
            "validate_only": True,
        },
        (topic(Op.CREATE),),
        versions=(1, 99),
    ),
    Probe("DeleteTopics", ApiKey.DELETE_TOPICS, _delete, (topic(Op.DELETE),), own=True),
    Probe(
        "DeleteTopics of ids",
        ApiKey.DELETE_TOPICS,
        lambda names: {
            "topics": [{"name": None, "topic_id": each} for each in (names.topic_id, names.no_id)],
            "timeout_ms": 60_000,
        },
        (topic(Op.DELETE),),
        versions=(6, 99),
        own=True,
    ),
    Probe(
        "CreatePartitions",
        ApiKey.CREATE_PARTITIONS,
        lambda names: {
            "topics": three_names(names, count=2, assignments=None),
            "timeout_ms": 60_000,
            "validate_only": True,
        },
        (topic(Op.ALTER),),
    ),
    Probe(
        "ElectLeaders",
        ApiKey.ELECT_LEADERS,
        lambda names: {"topic_partitions": three_names(names, "topic", partitions=[0]), "timeout_ms": 60_000},
        (cluster(Op.ALTER),),
    ),
    Probe(
        "AlterPartitionReassignments",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda names: {
            "topics": three_names(names, partitions=[{"partition_index": 0, "replicas": None}]),
            "timeout_ms": 60_000,
        },
        (cluster(Op.ALTER),),
    ),
    Probe(
        "ListPartitionReassignments",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        lambda names: {"topics": three_names(names, partition_indexes=[0]), "timeout_ms": 60_000},
        (cluster(Op.DESCRIBE),),
    ),
)
