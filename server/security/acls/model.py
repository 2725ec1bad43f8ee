"""The values of access control, with Kafka's numbers: what protocol and store speak of.

Source: `AclOperation.java`, `AclPermissionType.java`, `ResourceType.java`, `PatternType.java`, `SecurityUtils.java`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

_Code = TypeVar("_Code", bound="_Codes")


class _Codes(IntEnum):
    """Numbers of the protocol. `UNKNOWN` stands for all that this program has no name for."""

    @classmethod
    def from_code(cls: type[_Code], code: int) -> _Code:
        """The value of a number of the wire; `UNKNOWN` for a number without a name."""
        try:
            return cls(code)
        except ValueError:
            return cls(0)

    @classmethod
    def from_text(cls: type[_Code], text: str) -> _Code:
        """The value of a name as stores and tools write it: `DescribeConfigs`, in any case, also `DESCRIBE_CONFIGS`;
        `UNKNOWN` for others.
        """
        wanted = text.upper().replace("_", "")
        return next((one for one in cls if one.name.replace("_", "") == wanted), cls(0))

    @property
    def label(self) -> str:
        """The name as Apache Kafka writes it into nodes and logs: `DescribeConfigs`."""
        return self.name.title().replace("_", "")


class ResourceType(_Codes):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Codes):
    """ANY and MATCH are for filters alone."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Codes):
    """ANY is for filters alone, ALL for entries."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class PermissionType(_Codes):
    """ANY is for filters alone."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The one name that the resource CLUSTER has."""

WILDCARD: Final = "*"
"""As literal resource name: every resource of the type. As host: every host."""

WILDCARD_PRINCIPAL: Final = "User:*"
"""Every principal, of whatever type."""


class ResourcePattern(NamedTuple):
    """What an entry speaks of. pattern_type: LITERAL or PREFIXED."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.label}:{self.pattern_type.name}:{self.name}"


@dataclass(frozen=True, slots=True, order=True)
class AccessControlEntry:
    """Allows or denies a principal an operation. principal: `User:alice` or `User:*`; host: an address, or `*`."""

    principal: str
    host: str
    operation: AclOperation
    permission_type: PermissionType

    def __str__(self) -> str:
        return f"{self.permission_type.label} {self.principal} {self.operation.label} from {self.host}"


class AclBinding(NamedTuple):
    """An entry and what it speaks of: one ACL, as tools show it."""

    pattern: ResourcePattern
    entry: AccessControlEntry
