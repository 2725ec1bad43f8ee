"""ACLs as these tests speak of them, with Kafka's numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Kind(IntEnum):
    """The type of a resource."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Op(IntEnum):
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


class Pattern(IntEnum):
    LITERAL = 3
    PREFIXED = 4


DENY, ALLOW = 2, 3
ANY = 1
"""In filters."""
CLUSTER_NAME = "kafka-cluster"
EVERYBODY = "User:*"
OF_KIND: dict[Kind, tuple[Op, ...]] = {
    Kind.TOPIC: (
        Op.READ,
        Op.WRITE,
        Op.CREATE,
        Op.DELETE,
        Op.ALTER,
        Op.DESCRIBE,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
    ),
    Kind.GROUP: (Op.READ, Op.DELETE, Op.DESCRIBE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS),
    Kind.CLUSTER: (
        Op.CREATE,
        Op.DELETE,
        Op.ALTER,
        Op.DESCRIBE,
        Op.CLUSTER_ACTION,
        Op.DESCRIBE_CONFIGS,
        Op.ALTER_CONFIGS,
        Op.IDEMPOTENT_WRITE,
    ),
    Kind.TRANSACTIONAL_ID: (Op.WRITE, Op.DESCRIBE, Op.TWO_PHASE_COMMIT),
    Kind.DELEGATION_TOKEN: (Op.READ, Op.DESCRIBE),
    Kind.USER: (Op.CREATE_TOKENS, Op.DESCRIBE_TOKENS),
}
"""The operations that scenarios try on each kind; ALL beside them."""


class Need(NamedTuple):
    """A permission on the resource of a kind that the cell calls its own."""

    operation: Op
    kind: Kind

    def __str__(self) -> str:
        return f"{self.operation.name} {self.kind.name}"


class Acl(NamedTuple):
    """One entry. principal: None for the user of the cell."""

    kind: Kind
    name: str
    operation: Op
    permission: int = ALLOW
    pattern: Pattern = Pattern.LITERAL
    host: str = "*"
    principal: str | None = None
