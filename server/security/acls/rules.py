"""The decision: what the entries that speak of a resource say about one operation.

Deny before allow, and what is allowed implies (Read, Write, Delete and Alter allow Describe, AlterConfigs allows
DescribeConfigs) while what is denied does not. Source: `StandardAuthorizerData.java`, `Authorizer.java` (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

from barnabas.server.security.acls.model import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
)

_EVERYTHING = -1
_IMPLIES_DESCRIBE = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


def textual_address(host: str) -> str:
    """One text for each address, however it is written; what is no address stays as it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


class Rule(NamedTuple):
    """An entry made ready to be asked. principal, host: None for all of them. `bits`: the operations that it decides,
    implied ones with them; `own_bits`: without.
    """

    principal: str | None
    host: str | None
    bits: int
    own_bits: int
    denies: bool
    entry: AccessControlEntry


def rule(entry: AccessControlEntry) -> Rule:
    """The rule of an entry. One with an unknown operation or permission decides nothing."""
    operation = entry.operation
    denies = entry.permission_type is PermissionType.DENY
    own_bits = bits = _EVERYTHING if operation is AclOperation.ALL else 1 << operation
    if entry.permission_type not in (PermissionType.ALLOW, PermissionType.DENY):
        own_bits = bits = 0
    elif not denies:
        if operation in _IMPLIES_DESCRIBE:
            bits |= 1 << AclOperation.DESCRIBE
        elif operation is AclOperation.ALTER_CONFIGS:
            bits |= 1 << AclOperation.DESCRIBE_CONFIGS
    principal = None if entry.principal == WILDCARD_PRINCIPAL else entry.principal
    host = None if entry.host == WILDCARD else textual_address(entry.host)
    return Rule(principal, host, bits, own_bits, denies, entry)


def concerns(one: Rule, principal: str, host: str) -> bool:
    """Whether a rule applies to a principal, as text, on a host, as `textual_address` writes it."""
    return (one.principal is None or one.principal == principal) and (one.host is None or one.host == host)


def allowed_bits(rules: Sequence[Rule], principal: str, host: str) -> int | None:
    """The operations that `rules`, all of a resource, allow a principal, a bit each; None: there is no rule."""
    if not rules:
        return None
    allowed = denied = 0
    for one in rules:
        if concerns(one, principal, host):
            if one.denies:
                denied |= one.bits
            else:
                allowed |= one.bits
    return allowed & ~denied


def deciding(rules: Iterable[Rule], principal: str, host: str, operation: AclOperation) -> AccessControlEntry | None:
    """The entry that the verdict on one operation rests on; None: no entry speaks of both, which is a no where others
    speak of the resource.
    """
    spoken = [one for one in rules if one.bits & 1 << operation and concerns(one, principal, host)]
    spoken.sort(key=lambda one: not one.denies)
    return spoken[0].entry if spoken else None


def decide_any(
    patterns: Iterable[tuple[ResourcePattern, Iterable[Rule]]], principal: str, host: str, operation: AclOperation
) -> bool:
    """Whether a principal may do an operation to at least one resource of a type, existing or not: `patterns` are all
    of the type with their rules. Implied operations do not count.
    """
    bit = 1 << operation
    allowed: list[ResourcePattern] = []
    denied: set[ResourcePattern] = set()
    for pattern, rules in patterns:
        for one in rules:
            if one.own_bits & bit and concerns(one, principal, host):
                if one.denies:
                    denied.add(pattern)
                else:
                    allowed.append(pattern)
    if not allowed:
        return False
    kind = allowed[0].resource_type
    if ResourcePattern(kind, WILDCARD) in denied:
        return False
    if ResourcePattern(kind, WILDCARD) in allowed:
        return True
    lengths = {len(one.name) for one in denied if one.pattern_type is PatternType.PREFIXED}

    def is_dominated(pattern: ResourcePattern) -> bool:
        if pattern.pattern_type is PatternType.LITERAL and pattern in denied:
            return True
        name = pattern.name
        return any(
            ResourcePattern(kind, name[:length], PatternType.PREFIXED) in denied
            for length in lengths
            if length <= len(name)
        )

    return not all(is_dominated(pattern) for pattern in allowed)
