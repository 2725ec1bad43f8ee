"""Filters, and what can be created."""

from __future__ import annotations

import pytest

from barnabas.server.security.acls.filters import AclFilter
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.acls.operations import ALL_BITS
from barnabas.server.security.acls.validation import problem

Op, Kind, Pattern, Permission = AclOperation, ResourceType, PatternType, PermissionType
ENTRY = AccessControlEntry("User:alice", "*", Op.READ, Permission.ALLOW)
PATTERNS = {
    "orders": ResourcePattern(Kind.TOPIC, "orders"),
    "ord+": ResourcePattern(Kind.TOPIC, "ord", Pattern.PREFIXED),
    "orders+": ResourcePattern(Kind.TOPIC, "orders", Pattern.PREFIXED),
    "*": ResourcePattern(Kind.TOPIC, "*"),
    "other": ResourcePattern(Kind.TOPIC, "other"),
    "group": ResourcePattern(Kind.GROUP, "orders"),
}


@pytest.mark.parametrize(
    ("sought", "found"),
    [
        (AclFilter(), set(PATTERNS)),
        (AclFilter(Kind.GROUP), {"group"}),
        (AclFilter(Kind.TOPIC, "orders", Pattern.LITERAL), {"orders"}),
        (AclFilter(Kind.TOPIC, "orders", Pattern.PREFIXED), {"orders+"}),
        (AclFilter(Kind.TOPIC, "orders", Pattern.ANY), {"orders", "orders+"}),
        (AclFilter(Kind.TOPIC, "orders", Pattern.MATCH), {"orders", "ord+", "orders+", "*"}),
        (AclFilter(Kind.TOPIC, "ord", Pattern.MATCH), {"ord+", "*"}),
        (AclFilter(Kind.ANY, "orders", Pattern.LITERAL), {"orders", "group"}),
        (AclFilter(Kind.TOPIC, "*", Pattern.LITERAL), {"*"}),
        (AclFilter(Kind.TOPIC, "*", Pattern.ANY), {"*"}),
        (AclFilter(Kind.TOPIC, None, Pattern.PREFIXED), {"ord+", "orders+"}),
        (AclFilter(Kind.TOPIC, None, Pattern.MATCH), {"orders", "ord+", "orders+", "*", "other"}),
        (AclFilter(Kind.UNKNOWN), set()),
        (AclFilter(Kind.TOPIC, "orders", Pattern.UNKNOWN), set()),
    ],
)
def test_patterns(sought: AclFilter, found: set[str]) -> None:
    assert {name for name, pattern in PATTERNS.items() if sought.matches(AclBinding(pattern, ENTRY))} == found
    exact = sought.exact_patterns()
    if exact:
        assert {name for name, pattern in PATTERNS.items() if pattern in exact} == found


@pytest.mark.parametrize(
    ("sought", "matches"),
    [
        (AclFilter(principal="User:alice"), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), True),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=Op.READ), True),
        (AclFilter(operation=Op.DESCRIBE), False),
        (AclFilter(operation=Op.ALL), False),
        (AclFilter(permission_type=Permission.ALLOW), True),
        (AclFilter(permission_type=Permission.DENY), False),
        (AclFilter(operation=Op.UNKNOWN), False),
    ],
)
def test_entries(sought: AclFilter, matches: bool) -> None:
    assert sought.matches(AclBinding(PATTERNS["orders"], ENTRY)) is matches


def test_what_has_no_number() -> None:
    assert AclFilter(operation=Op.from_code(99)).is_unknown
    assert not AclFilter().is_unknown


def binding(
    kind: Kind = Kind.TOPIC,
    name: str = "t",
    pattern: Pattern = Pattern.LITERAL,
    principal: str = "User:a",
    operation: Op = Op.READ,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AccessControlEntry(principal, "*", operation, permission))


@pytest.mark.parametrize(
    "fine",
    [
        binding(),
        binding(name="*"),
        binding(pattern=Pattern.PREFIXED),
        binding(operation=Op.ALL),
        binding(operation=Op.CLUSTER_ACTION),  # never asked of a topic, and nobody minds
        binding(Kind.CLUSTER, "kafka-cluster"),
        binding(Kind.USER, "User:b", operation=Op.CREATE_TOKENS),
        binding(principal="User:"),
        binding(name="Überweisungen…"),
    ],
)
def test_what_can_be_created(fine: AclBinding) -> None:
    assert problem(fine) is None


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (binding(Kind.ANY), "ANY is no type"),
        (binding(Kind.UNKNOWN), "UNKNOWN is no type"),
        (binding(pattern=Pattern.MATCH), "MATCH is no pattern"),
        (binding(pattern=Pattern.ANY), "ANY is no pattern"),
        (binding(operation=Op.ANY), "ANY is no operation"),
        (binding(operation=Op.UNKNOWN), "UNKNOWN is no operation"),
        (binding(permission=Permission.ANY), "ANY is no permission"),
        (binding(Kind.CLUSTER, "my-cluster"), "kafka-cluster"),
        (binding(name=""), "is empty"),
        (binding(principal="alice"), "should look like User:alice"),
        (binding(name="a/b"), "ZooKeeper"),
        (binding(name=".."), "ZooKeeper"),
        (binding(name="a\0"), "ZooKeeper"),
        (binding(name="a\U0001f600"), "ZooKeeper"),
    ],
)
def test_what_cannot(wrong: AclBinding, why: str) -> None:
    assert why in (problem(wrong) or "")


def test_kafkas_spelling() -> None:
    assert Op.DESCRIBE_CONFIGS.label == "DescribeConfigs"
    assert Kind.TRANSACTIONAL_ID.label == "TransactionalId"
    for text in ("DescribeConfigs", "DESCRIBECONFIGS", "describe_configs"):
        assert Op.from_text(text) is Op.DESCRIBE_CONFIGS
    assert Op.from_text("Fly") is Op.UNKNOWN
    assert Kind.from_code(-1) is Kind.UNKNOWN


def test_bit_fields() -> None:
    assert ALL_BITS[Kind.TOPIC] == 0xDF8
    assert ALL_BITS[Kind.GROUP] == 0xD48
    assert ALL_BITS[Kind.CLUSTER] == 0x1FA0
