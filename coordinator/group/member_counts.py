"""What the members of a next-generation group have in common, counted: topics by name and by pattern, patterns,
assignors, classic protocols. Kept along with the members, so that a heartbeat need not go through all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from barnabas.coordinator.group.consumer.stored import MemberMetadata


class MemberCounts:
    """See the module. `names`, `patterns`, `assignors`, `protocols`: how many members have each; `matched`: how many of
    the group's patterns match each topic; `classic`: members that use the classic protocol. Counts of 0 are left out.
    """

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.patterns: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self.protocols: Counter[str] = Counter()
        self.matched: Counter[str] = Counter()
        self.classic = 0

    def copy(self) -> MemberCounts:
        copy = MemberCounts()
        copy.names = Counter(self.names)
        copy.patterns = Counter(self.patterns)
        copy.assignors = Counter(self.assignors)
        copy.protocols = Counter(self.protocols)
        copy.matched = Counter(self.matched)
        copy.classic = self.classic
        return copy

    def add(self, metadata: MemberMetadata) -> None:
        """A member came."""
        self._count(metadata, 1)

    def forget(self, metadata: MemberMetadata) -> None:
        """A member went."""
        self._count(metadata, -1)

    def add_topics(self, topics: Iterable[str]) -> None:
        """A pattern of the group matches these."""
        _add(self.matched, topics, 1)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """The group has a pattern less, which matched these."""
        _add(self.matched, topics, -1)

    def _count(self, metadata: MemberMetadata, by: int) -> None:
        _add(self.names, metadata.topic_names, by)
        if metadata.topic_pattern:
            _add(self.patterns, (metadata.topic_pattern,), by)
        if metadata.assignor is not None:
            _add(self.assignors, (metadata.assignor,), by)
        if metadata.classic is not None:
            self.classic += by
            _add(self.protocols, {name for name, _ in metadata.classic.protocols}, by)

    @property
    def topics(self) -> Collection[str]:
        """Topics that any member subscribes to."""
        return self.names.keys() | self.matched.keys()

    def is_equal(self, members: int) -> bool:
        """Whether all of so many members subscribe to the same: by name, or by one pattern and nothing else."""
        if not self.patterns:
            return not self.matched and all(count == members for count in self.names.values())
        (count, *more) = self.patterns.values()
        return not more and count == members and not self.names and all(count == 1 for count in self.matched.values())

    def support(self, protocols: Iterable[str]) -> bool:
        """Whether all classic members support one of these."""
        return any(self.protocols[name] == self.classic for name in protocols)


def _add(counts: Counter[str], names: Iterable[str], by: int) -> None:
    for name in names:
        counts[name] += by
        if not counts[name]:
            del counts[name]
