"""All entries, by what they speak of, so that those of one resource are found without looking at the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from barnabas.server.security.acls.model import (
    WILDCARD,
    AccessControlEntry,
    AclBinding,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.acls.rules import Rule, rule


class _OfType:
    """What is there for one type of resource."""

    __slots__ = ("_with_length", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, tuple[Rule, ...]] = {}
        self.prefixed: dict[str, tuple[Rule, ...]] = {}
        self.lengths: tuple[int, ...] = ()  # of the prefixes, ascending: a name is cut to each of them and looked up
        self._with_length: dict[int, int] = {}

    def counted(self, length: int, more: int) -> None:
        """There is one prefix of that length more, or less."""
        count = self._with_length.pop(length, 0) + more
        if count:
            self._with_length[length] = count
        if len(self._with_length) != len(self.lengths):
            self.lengths = tuple(sorted(self._with_length))


class AclIndex:
    """Changed one resource pattern at a time."""

    def __init__(self) -> None:
        self._types: dict[ResourceType, _OfType] = {}
        self._entries: dict[ResourcePattern, frozenset[AccessControlEntry]] = {}

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._entries.values())

    def put(self, pattern: ResourcePattern, entries: Iterable[AccessControlEntry]) -> bool:
        """These are now the entries of `pattern`, LITERAL or PREFIXED; none takes it away. Whether that is new."""
        wanted = frozenset(entries)
        if wanted == self._entries.get(pattern, frozenset()):
            return False
        kind = self._types.setdefault(pattern.resource_type, _OfType())
        rules = kind.literal if pattern.pattern_type is PatternType.LITERAL else kind.prefixed
        there = len(rules)
        if wanted:
            self._entries[pattern] = wanted
            rules[pattern.name] = tuple(rule(entry) for entry in sorted(wanted))
        else:
            del self._entries[pattern]
            del rules[pattern.name]
        if rules is kind.prefixed and len(rules) != there:
            kind.counted(len(pattern.name), len(rules) - there)
        return True

    def entries(self, pattern: ResourcePattern) -> frozenset[AccessControlEntry]:
        """Of exactly this pattern."""
        return self._entries.get(pattern, frozenset())

    def patterns(self) -> list[ResourcePattern]:
        """All that have entries."""
        return list(self._entries)

    def bindings(self) -> Iterator[AclBinding]:
        """All of them, in no order."""
        for pattern, entries in self._entries.items():
            for entry in entries:
                yield AclBinding(pattern, entry)

    def applicable(self, resource_type: ResourceType, name: str) -> list[Rule]:
        """The rules that speak of one resource: by its name, by `*`, by a prefix."""
        kind = self._types.get(resource_type)
        if kind is None:
            return []
        found = list(kind.literal.get(name, ()))
        if name != WILDCARD:
            found += kind.literal.get(WILDCARD, ())
        prefixed = kind.prefixed
        for length in kind.lengths:
            if length > len(name):
                break
            found += prefixed.get(name[:length], ())
        return found

    def of_type(self, resource_type: ResourceType) -> Iterator[tuple[ResourcePattern, tuple[Rule, ...]]]:
        """Every pattern of a type with its rules."""
        kind = self._types.get(resource_type)
        if kind is not None:
            for name, rules in kind.literal.items():
                yield ResourcePattern(resource_type, name, PatternType.LITERAL), rules
            for name, rules in kind.prefixed.items():
                yield ResourcePattern(resource_type, name, PatternType.PREFIXED), rules
