"""Filters of DescribeAcls and DeleteAcls. Source: `ResourcePatternFilter.java`, `AccessControlEntryFilter.java`."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.server.security.acls.model import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """resource_type, operation, permission_type: ANY for all. name, principal, host: None for all; `*` is the star
    itself. pattern_type: LITERAL, PREFIXED: exactly that; ANY: literal or prefixed, of that name; MATCH: all that
    speaks of the resource of that name. Values that are UNKNOWN match nothing.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: PermissionType = PermissionType.ANY

    @property
    def is_unknown(self) -> bool:
        """Whether it names something that has no number here."""
        return (
            self.resource_type is ResourceType.UNKNOWN
            or self.pattern_type is PatternType.UNKNOWN
            or self.operation is AclOperation.UNKNOWN
            or self.permission_type is PermissionType.UNKNOWN
        )

    def exact_patterns(self) -> list[ResourcePattern]:
        """The patterns that it can match, if the filter alone determines them."""
        if self.resource_type in (ResourceType.ANY, ResourceType.UNKNOWN) or self.name is None:
            return []
        kinds = [PatternType.LITERAL, PatternType.PREFIXED] if self.pattern_type is PatternType.ANY else []
        if self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            kinds = [self.pattern_type]
        return [ResourcePattern(self.resource_type, self.name, kind) for kind in kinds]

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether it is about what entries of `pattern` speak of."""
        if self.resource_type is not ResourceType.ANY and self.resource_type is not pattern.resource_type:
            return False
        kind = self.pattern_type
        if kind not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        name = self.name
        if name is None:
            return True
        if kind is not PatternType.MATCH:
            return name == pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name in (name, WILDCARD)
        return name.startswith(pattern.name)

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Whether it is about such an entry, whatever that speaks of."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and (self.operation is AclOperation.ANY or self.operation is entry.operation)
            and (self.permission_type is PermissionType.ANY or self.permission_type is entry.permission_type)
        )

    def matches(self, binding: AclBinding) -> bool:
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)
