"""The bit fields of authorized operations in Metadata, DescribeCluster, DescribeGroups and others (KIP-430).

Handlers fill in all operations of the resource's type, as without an authorizer. With one, the APIs' declarations
replace them by what the caller may do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.server.security.acls.model import AclOperation, ResourceType
from barnabas.server.security.acls.operations import ALL_BITS

if TYPE_CHECKING:
    from barnabas.server.requests.access import AccessCheck

NOT_ASKED: Final = -(2**31)

ALL_TOPIC_OPERATIONS: Final = ALL_BITS[ResourceType.TOPIC]
ALL_GROUP_OPERATIONS: Final = ALL_BITS[ResourceType.GROUP]
ALL_CLUSTER_OPERATIONS: Final = ALL_BITS[ResourceType.CLUSTER]


def cluster_operations(check: AccessCheck) -> int:
    """What the caller may do to the cluster; nothing for a caller that may not describe it."""
    if not check.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        check.note()
        return 0
    return check.bits(ResourceType.CLUSTER)
