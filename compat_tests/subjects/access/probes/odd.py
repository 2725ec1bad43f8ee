"""Requests with something wrong in them: what is told first, that or what is denied. And those for everything.

Not here: DescribeUserScramCredentials of all users, which Apache Kafka 4.3.1 does not answer where it is denied.
"""

from __future__ import annotations

from barnabas.kproto import ApiKey
from compat_tests.subjects.access.acls import Op
from compat_tests.subjects.access.connection import Values
from compat_tests.subjects.access.names import Names
from compat_tests.subjects.access.probe import Probe
from compat_tests.subjects.access.probes.configs import TOPIC
from compat_tests.subjects.access.probes.parts import Of, always, cluster, group, three, topic, transaction
from compat_tests.subjects.access.probes.records import PRODUCER, batch

BAD_NAME = "bad name"
OFFSETS = "__consumer_offsets"


def _topic(names: Names, name: str) -> Values:
    return {"name": name, "num_partitions": 1, "replication_factor": 1}


def _alter(*configs: Values, twice: bool = False) -> Of:
    def values(names: Names) -> Values:
        resource = {"resource_type": TOPIC, "resource_name": names.topic, "configs": list(configs)}
        return {"resources": [resource, resource] if twice else [resource], "validate_only": True}

    return values


def _set(name: str, value: str | None) -> Values:
    return {"name": name, "value": value, "config_operation": 0}


def _replace(*values: str | None) -> Of:
    configs = [{"name": "retention.ms", "value": value} for value in values]
    return _alter(*configs)


PROBES = (
    Probe(
        "Produce with a wrong acks",
        ApiKey.PRODUCE,
        lambda names: {
            "acks": 7,
            "timeout_ms": 1000,
            "topic_data": three(names, partition_data=[{"index": 0, "records": batch()}]),
        },
        (topic(Op.WRITE),),
        versions=(3, 99),
    ),
    Probe(
        "Produce to the topic of offsets",
        ApiKey.PRODUCE,
        lambda names: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": [{"name": OFFSETS, "partition_data": [{"index": 0, "records": batch()}]}],
        },
        (topic(Op.WRITE),),
        versions=(3, 12),
    ),
    Probe(
        "Produce to a partition that is not there",
        ApiKey.PRODUCE,
        lambda names: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": three(names, partition_data=[{"index": 7, "records": batch()}]),
        },
        (topic(Op.WRITE),),
        versions=(3, 99),
    ),
    Probe(
        "Metadata of a bad name",
        ApiKey.METADATA,
        always(topics=[{"name": BAD_NAME}], allow_auto_topic_creation=True),
        (topic(Op.DESCRIBE),),
        versions=(4, 99),
    ),
    Probe(
        "CreateTopics of one twice, of a bad name, of the topic of offsets",
        ApiKey.CREATE_TOPICS,
        lambda names: {
            "topics": [_topic(names, each) for each in (names.no_topic, names.no_topic, BAD_NAME, OFFSETS)],
            "timeout_ms": 60_000,
            "validate_only": True,
        },
        (topic(Op.CREATE),),
        versions=(1, 99),
    ),
    Probe(
        "CreateTopics of no partitions",
        ApiKey.CREATE_TOPICS,
        lambda names: {
            "topics": [{"name": names.topic, "num_partitions": 0, "replication_factor": 1}],
            "timeout_ms": 60_000,
        },
        (topic(Op.CREATE),),
        has_topic=False,
    ),
    Probe(
        "DeleteTopics of one twice",
        ApiKey.DELETE_TOPICS,
        lambda names: {
            "topics": [{"name": names.topic}, {"name": names.topic}],
            "topic_names": [names.no_topic, names.no_topic],
            "timeout_ms": 60_000,
        },
        (topic(Op.DELETE),),
    ),
    Probe(
        "DeleteTopics by name and id at once",
        ApiKey.DELETE_TOPICS,
        lambda names: {"topics": [{"name": names.topic, "topic_id": names.topic_id}], "timeout_ms": 60_000},
        (topic(Op.DELETE),),
        versions=(6, 99),
    ),
    Probe(
        "CreatePartitions of one twice",
        ApiKey.CREATE_PARTITIONS,
        lambda names: {
            "topics": [{"name": names.topic, "count": count, "assignments": None} for count in (2, 3)],
            "timeout_ms": 60_000,
            "validate_only": True,
        },
        (topic(Op.ALTER),),
    ),
    Probe(
        "ElectLeaders of all",
        ApiKey.ELECT_LEADERS,
        always(topic_partitions=None, timeout_ms=60_000),
        (cluster(Op.ALTER),),
        of_others=False,
    ),
    Probe(
        "ListPartitionReassignments of all",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        always(topics=None, timeout_ms=60_000),
        (cluster(Op.DESCRIBE),),
    ),
    Probe(
        "DescribeLogDirs of all",
        ApiKey.DESCRIBE_LOG_DIRS,
        always(topics=None),
        (cluster(Op.DESCRIBE),),
        of_others=False,
    ),
    Probe(
        "AlterUserScramCredentials of one twice",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        always(deletions=[{"name": "nobody", "mechanism": 1}, {"name": "nobody", "mechanism": 1}]),
        (cluster(Op.ALTER),),
    ),
    Probe(
        "IncrementalAlterConfigs of one twice",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _alter(_set("retention.ms", "1"), twice=True),
        (topic(Op.ALTER_CONFIGS),),
    ),
    Probe(
        "IncrementalAlterConfigs of a setting twice",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _alter(_set("retention.ms", "1"), _set("retention.ms", "2")),
        (topic(Op.ALTER_CONFIGS),),
    ),
    Probe(
        "IncrementalAlterConfigs without a value",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _alter(_set("retention.ms", None)),
        (topic(Op.ALTER_CONFIGS),),
    ),
    Probe(
        "IncrementalAlterConfigs of an unknown setting",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _alter(_set("no.such.setting", "1")),
        (topic(Op.ALTER_CONFIGS),),
    ),
    Probe(
        "AlterConfigs of a setting twice",
        ApiKey.ALTER_CONFIGS,
        _replace("1", "2"),
        (topic(Op.ALTER_CONFIGS),),
    ),
    Probe("AlterConfigs without a value", ApiKey.ALTER_CONFIGS, _replace(None), (topic(Op.ALTER_CONFIGS),)),
    Probe(
        "JoinGroup without a group",
        ApiKey.JOIN_GROUP,
        always(
            group_id="",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"m"}],
        ),
        (group(Op.READ),),
    ),
    Probe(
        "FindCoordinator of a kind that is none",
        ApiKey.FIND_COORDINATOR,
        lambda names: {"key": names.group, "key_type": 9, "coordinator_keys": [names.group]},
        (group(Op.DESCRIBE),),
        versions=(1, 99),
    ),
    Probe(
        "InitProducerId with an empty transactional id",
        ApiKey.INIT_PRODUCER_ID,
        always(transactional_id="", transaction_timeout_ms=1000),
        (transaction(Op.WRITE),),
    ),
    Probe(
        "InitProducerId with an id and no time",
        ApiKey.INIT_PRODUCER_ID,
        lambda names: {"transactional_id": names.transaction, "transaction_timeout_ms": -5},
        (transaction(Op.WRITE),),
    ),
    Probe(
        "AddPartitionsToTxn of the topic of offsets",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        lambda names: {
            "v3_and_below_transactional_id": names.transaction,
            "v3_and_below_producer_id": PRODUCER,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": OFFSETS, "partitions": [0]}, {"name": names.topic, "partitions": [0, 7]}],
        },
        (transaction(Op.WRITE), topic(Op.WRITE)),
        versions=(0, 3),
    ),
    Probe(
        "DescribeProducers of a bad name",
        ApiKey.DESCRIBE_PRODUCERS,
        lambda names: {"topics": [{"name": name, "partition_indexes": [0]} for name in (BAD_NAME, names.topic)]},
        (topic(Op.READ),),
    ),
    Probe(
        "ListOffsets of a partition twice",
        ApiKey.LIST_OFFSETS,
        lambda names: {
            "replica_id": -1,
            "topics": [{"name": names.topic, "partitions": [{"partition_index": 0, "timestamp": -1}] * 2}],
        },
        (topic(Op.DESCRIBE),),
    ),
    Probe(
        "ConsumerGroupHeartbeat without a group",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        always(group_id="", member_id="m", member_epoch=0),
        (group(Op.READ),),
    ),
    Probe(
        "ConsumerGroupHeartbeat of a member without a topic",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        lambda names: {"group_id": names.group, "member_id": "AAAAAAAAAAAAAAAAAAAAAQ", "member_epoch": 0},
        (group(Op.READ),),
    ),
    Probe(
        "OffsetCommit without a group",
        ApiKey.OFFSET_COMMIT,
        lambda names: {
            "group_id": "",
            "topics": three(names, partitions=[{"partition_index": 0, "committed_offset": 0}]),
        },
        (topic(Op.READ),),
    ),
    Probe(
        "DeleteRecords of the topic of offsets, and beyond the end",
        ApiKey.DELETE_RECORDS,
        lambda names: {
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "offset": 1000}]}
                for name in (OFFSETS, names.topic)
            ],
            "timeout_ms": 1000,
        },
        (topic(Op.DELETE),),
    ),
    Probe(
        "AlterClientQuotas of an unknown kind",
        ApiKey.ALTER_CLIENT_QUOTAS,
        always(
            entries=[
                {
                    "entity": [{"entity_type": "nothing", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
                }
            ],
            validate_only=True,
        ),
        (cluster(Op.ALTER_CONFIGS),),
    ),
    Probe(
        "DescribeTopicPartitions from a cursor",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        lambda names: {
            "topics": [{"name": names.other_topic}, {"name": names.topic}],
            "cursor": {"topic_name": names.topic, "partition_index": 0},
        },
        (topic(Op.DESCRIBE),),
    ),
)
