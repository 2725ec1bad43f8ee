"""A share group as the log has it: hard state, changed by `apply` alone, and what follows from it.

Epochs, members and targets are those of `barnabas.coordinator.group.epochs`. Beside them stands which partitions the
share coordinator knows. Source: `ShareGroup` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.coordinator.group.consumer.assignors import AssignedMember, TopicId
from barnabas.coordinator.group.consumer.state import NOTHING_KNOWN
from barnabas.coordinator.group.consumer.stored import MemberMetadata
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.records import FIRST_EPOCH, GroupEpoch
from barnabas.coordinator.group.epochs.state import EpochState
from barnabas.coordinator.group.member_counts import MemberCounts
from barnabas.coordinator.group.share.stored import (
    InitializedPartitions,
    NamedPartitions,
    Partitions,
    ShareRecord,
    ShareStanding,
    StatePartitions,
)

NOWHERE: Final = ShareStanding(0, -1, MappingProxyType({}))
NOTHING_INITIALIZED: Final = InitializedPartitions()


class ShareGroupState(Enum):
    """Values are the names that ShareGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareMember(NamedTuple):
    """One member; replaced whole."""

    member_id: str
    metadata: MemberMetadata = NOTHING_KNOWN
    standing: ShareStanding = NOWHERE


class ShareState(EpochState[ShareMember, Partitions]):
    """See the module. The public attributes are hard; those with an underscore, and `counts`, are made of them. Soft:
    `asked_at`, when the share coordinator was last told of a partition that it is to know, in seconds.
    """

    kind = "share"
    dues = (Due.SHARE_HEARTBEAT,)

    def __init__(self, group_id: str, context: GroupContext) -> None:
        super().__init__(group_id, context)
        self.partitions = NOTHING_INITIALIZED
        self.counts = MemberCounts()
        # Soft.
        self.asked_at: dict[tuple[TopicId, int], float] = {}
        self._is_all_assigned: bool | None = None

    # -- replay -----------------------------------------------------------------------------------

    def apply(self, record: ShareRecord) -> None:
        """A record of this group was read from the log or has just been appended."""
        self._is_all_assigned = None
        super().apply(record)

    def _apply_own(self, record: StatePartitions) -> None:
        assert isinstance(record, StatePartitions)
        self.partitions = record.partitions or NOTHING_INITIALIZED
        waits = {(topic, each) for topic, named in self.partitions.initializing.items() for each in named.partitions}
        self.asked_at = {place: at for place, at in self.asked_at.items() if place in waits}

    def new_member(self, member_id: str) -> ShareMember:
        return ShareMember(member_id)

    def _count(self, member: ShareMember) -> None:
        self.counts.add(member.metadata)

    def _uncount(self, member: ShareMember) -> None:
        self.counts.forget(member.metadata)

    # -- what follows -----------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def watched(self) -> Collection[str]:
        return self.counts.topics

    @property
    def is_void(self) -> bool:
        """Nothing would be lost if the group were forgotten."""
        return (
            not self.members
            and not self.target
            and self.partitions == NOTHING_INITIALIZED
            and self.epoch == FIRST_EPOCH
            and self.target_epoch == FIRST_EPOCH
        )

    def is_all_assigned(self) -> bool:
        """Whether the target has the initialized partitions of what members subscribe to, and no others."""
        if self._is_all_assigned is None:
            subscribed = self.context.topics.ids(self.counts.topics)
            initialized = {
                (topic, each) for topic, numbers in self.assignable().items() if topic in subscribed for each in numbers
            }
            assigned = {
                (topic, each)
                for partitions in self.target.values()
                for topic, numbers in partitions.items()
                for each in numbers
            }
            self._is_all_assigned = initialized == assigned
        return self._is_all_assigned

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, went or look different."""
        super().topics_changed(names)
        self._is_all_assigned = None

    def assignable(self) -> dict[TopicId, frozenset[int]]:
        """Partitions that the share coordinator knows, and the cluster still has."""
        by_id = self.context.topics.by_id
        return {
            topic: frozenset(each for each in named.partitions if 0 <= each < by_id[topic].partition_count)
            for topic, named in self.partitions.initialized.items()
            if topic in by_id
        }

    def described(self, members: Iterable[ShareMember]) -> dict[str, AssignedMember]:
        """Members as the assignor sees them."""
        ids = self.context.topics.ids
        by_names: dict[frozenset[str], frozenset[TopicId]] = {}
        described = {}
        for member in members:
            names = member.metadata.topic_names
            if names not in by_names:
                by_names[names] = ids(names)
            described[member.member_id] = AssignedMember(by_names[names], self.target.get(member.member_id, {}))
        return described

    def _own_tombstones(self) -> Iterator[ShareRecord]:
        yield StatePartitions(self.group_id, None)
        yield GroupEpoch(self.group_id, None)


def with_partitions(
    topics: Mapping[TopicId, NamedPartitions], added: Mapping[TopicId, NamedPartitions]
) -> dict[TopicId, NamedPartitions]:
    """Both together."""
    both = dict(topics)
    for topic, named in added.items():
        present = both.get(topic)
        both[topic] = named if present is None else present._replace(partitions=present.partitions | named.partitions)
    return both


def without_partitions(
    topics: Mapping[TopicId, NamedPartitions], removed: Mapping[TopicId, Collection[int]]
) -> dict[TopicId, NamedPartitions]:
    """The first without the second; no topic is empty."""
    left = {}
    for topic, named in topics.items():
        kept = named.partitions.difference(removed.get(topic, ()))
        if kept:
            left[topic] = named._replace(partitions=kept)
    return left
