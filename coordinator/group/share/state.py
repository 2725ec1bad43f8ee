"""A share group as the log has it: hard state, changed by `apply` alone, and what follows from it.

Epochs are those of next-generation consumer groups (`barnabas.coordinator.group.modern_state`): the group's, the
target's, each member's. Beside them stands which partitions the share coordinator knows. Source: `ShareGroup` of Apache
Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.coordinator.group.assignors import AssignedMember, TopicId
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.member_counts import MemberCounts
from barnabas.coordinator.group.modern_state import FIRST_EPOCH, NOTHING_KNOWN
from barnabas.coordinator.group.share.stored import (
    InitializedPartitions,
    MemberStanding,
    NamedPartitions,
    Partitions,
    ShareRecord,
    ShareStanding,
    StatePartitions,
)
from barnabas.coordinator.group.stored_modern import GroupEpoch, Member, MemberMetadata, TargetEpoch, TargetMember
from barnabas.coordinator.group.topics import TopicLooks

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


class ShareState:
    """See the module. The public attributes are hard; those with an underscore, and `counts`, are made of them. Soft:
    `looks`; `asked_at`, when the share coordinator was last told of a partition that it is to know, in seconds.
    """

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.context = context
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, ShareMember] = {}
        self.target_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.target: dict[str, Partitions] = {}
        self.partitions = NOTHING_INITIALIZED
        self.counts = MemberCounts()
        # Soft.
        self.looks = TopicLooks()
        self.asked_at: dict[tuple[TopicId, int], float] = {}
        self._is_all_assigned: bool | None = None

    def __repr__(self) -> str:
        return f"<{self.group_id!r} {self.state.value}, epoch {self.epoch}, {len(self.members)} members>"

    # -- replay -----------------------------------------------------------------------------------

    def apply(self, record: ShareRecord) -> None:
        """A record of this group was read from the log or has just been appended."""
        self._is_all_assigned = None
        if isinstance(record, MemberStanding):
            member = self.members.get(record.member_id)
            if record.standing is not None:
                self._put((member or ShareMember(record.member_id))._replace(standing=record.standing))
            elif member is not None:
                self._put(member._replace(standing=NOWHERE))
        elif isinstance(record, Member):
            if record.metadata is not None:
                member = self.members.get(record.member_id) or ShareMember(record.member_id)
                self._put(member._replace(metadata=record.metadata))
            else:
                self._remove(record.member_id)
        elif isinstance(record, TargetMember):
            if record.partitions is not None:
                self.target[record.member_id] = record.partitions
            else:
                self.target.pop(record.member_id, None)
        elif isinstance(record, GroupEpoch):
            self.epoch = FIRST_EPOCH if record.epoch is None else record.epoch
            self.metadata_hash = record.metadata_hash
        elif isinstance(record, TargetEpoch):
            self.target_epoch = FIRST_EPOCH if record.epoch is None else record.epoch
            self.assigned_at_ms = record.assigned_at_ms
        else:
            assert isinstance(record, StatePartitions)
            self.partitions = record.partitions or NOTHING_INITIALIZED
            waits = {
                (topic, each) for topic, named in self.partitions.initializing.items() for each in named.partitions
            }
            self.asked_at = {place: at for place, at in self.asked_at.items() if place in waits}

    def _put(self, member: ShareMember) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self.counts.forget(before.metadata)
        self.members[member.member_id] = member
        self.counts.add(member.metadata)

    def forget_session(self, member_id: str) -> None:
        """A member is gone."""
        self.context.deadlines.cancel((self.group_id, Due.SHARE_HEARTBEAT, member_id))

    def _remove(self, member_id: str) -> None:
        self.forget_session(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self.counts.forget(member.metadata)

    # -- what follows -----------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.members

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
        self.looks.changed(names, self.counts.topics)
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

    def tombstones(self) -> Iterator[ShareRecord]:
        """Records that remove the group."""
        for member_id in self.members:
            yield MemberStanding(self.group_id, member_id, None)
        for member_id in self.members:
            yield TargetMember(self.group_id, member_id, None)
        yield TargetEpoch(self.group_id, None)
        for member_id in self.members:
            yield Member(self.group_id, member_id, None)
        yield StatePartitions(self.group_id, None)
        yield GroupEpoch(self.group_id, None)


def removal(group_id: str, member_id: str) -> Iterable[ShareRecord]:
    """Records that remove a member."""
    return (
        MemberStanding(group_id, member_id, None),
        TargetMember(group_id, member_id, None),
        Member(group_id, member_id, None),
    )


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
