"""The bit fields of "what may I do" in Metadata, DescribeCluster and DescribeTopicPartitions (KIP-430).

A bit per operation, at the position of Kafka's number for it. Without an authorizer everybody may do everything that
the kind of resource knows. Source: `AclEntry.java`, `AclOperation.java`.
"""

from __future__ import annotations

from enum import IntEnum


class AclOperation(IntEnum):
    """Kafka's numbers of operations."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


NOT_ASKED = -(2**31)

_Op = AclOperation

ALL_TOPIC_OPERATIONS = sum(
    1 << op
    for op in (
        _Op.READ,
        _Op.WRITE,
        _Op.CREATE,
        _Op.DELETE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
    )
)
ALL_CLUSTER_OPERATIONS = sum(
    1 << op
    for op in (
        _Op.CREATE,
        _Op.ALTER,
        _Op.DESCRIBE,
        _Op.CLUSTER_ACTION,
        _Op.DESCRIBE_CONFIGS,
        _Op.ALTER_CONFIGS,
        _Op.IDEMPOTENT_WRITE,
    )
)
