"""The bit fields of "what may I do" in Metadata, DescribeCluster, DescribeGroups and others (KIP-430).

Handlers fill in what somebody may do without an authorizer: all that the kind of resource knows. With one, the APIs'
declarations put in its place what the caller may do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.server.security.acls.model import AclOperation, ResourceType
from barnabas.server.security.acls.operations import ALL_BITS

if TYPE_CHECKING:
    from barnabas.server.requests.access import Asked

NOT_ASKED: Final = -(2**31)

ALL_TOPIC_OPERATIONS: Final = ALL_BITS[ResourceType.TOPIC]
ALL_GROUP_OPERATIONS: Final = ALL_BITS[ResourceType.GROUP]
ALL_CLUSTER_OPERATIONS: Final = ALL_BITS[ResourceType.CLUSTER]


def cluster_operations(asked: Asked) -> int:
    """What the caller may do to the cluster; nothing is told to those who may not describe it."""
    if not asked.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        asked.note()
        return 0
    return asked.bits(ResourceType.CLUSTER)
