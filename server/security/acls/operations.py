"""What can be done to each kind of resource, also as the bit fields of KIP-430: a bit per operation, at the position
of Kafka's number for it.

An entry may name an operation that its resource does not know; it is stored and never asked for. Source:
`AclEntry.java` (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from barnabas.server.security.acls.model import AclOperation as Op
from barnabas.server.security.acls.model import ResourceType

OPERATIONS: Final[Mapping[ResourceType, tuple[Op, ...]]] = MappingProxyType(
    {
        ResourceType.TOPIC: (
            Op.READ,
            Op.WRITE,
            Op.CREATE,
            Op.DELETE,
            Op.ALTER,
            Op.DESCRIBE,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
        ),
        ResourceType.GROUP: (Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
        ResourceType.CLUSTER: (
            Op.CREATE,
            Op.ALTER,
            Op.DESCRIBE,
            Op.CLUSTER_ACTION,
            Op.DESCRIBE_CONFIGS,
            Op.ALTER_CONFIGS,
            Op.IDEMPOTENT_WRITE,
        ),
        ResourceType.TRANSACTIONAL_ID: (Op.WRITE, Op.DESCRIBE, Op.TWO_PHASE_COMMIT),
        ResourceType.DELEGATION_TOKEN: (Op.DESCRIBE,),
        ResourceType.USER: (Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
    }
)
"""What a bit field has a bit for, by kind of resource."""

ALL_BITS: Final[Mapping[ResourceType, int]] = MappingProxyType(
    {kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS.items()}
)
"""The bit field of all operations."""
