"""A next-generation consumer group (KIP-848) as the log has it: hard state, changed by `apply` alone, and what follows
from it.

Epochs, members and targets are those of `barnabas.coordinator.group.epochs`; here is what else such a group has, and
what is counted. Partitions are at (topic id, number). Times are milliseconds since the epoch. Source: `ConsumerGroup`,
`ConsumerGroup` of Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.reconcile import Held, MemberState, Standing
from barnabas.coordinator.group.consumer.stored import (
    ConsumerRecord,
    MemberMetadata,
    OldTopicMetadata,
    Pattern,
    Resolved,
    consumer_record,
)
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.committing import CommittingGroup
from barnabas.coordinator.group.epochs.records import FIRST_EPOCH, LEFT, GroupEpoch
from barnabas.coordinator.group.member_counts import MemberCounts
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.subscriptions import CONSUMER
from barnabas.coordinator.machine import Record

log = logging.getLogger("barnabas.groups")

NOTHING_KNOWN: Final = MemberMetadata(None, None, "", "", frozenset(), "", -1, None)
NOWHERE: Final = Standing(0, -1, MemberState.STABLE, {}, {})
MEMBER_DUES: Final = (Due.HEARTBEAT, Due.REVOKE, Due.REJOIN, Due.RESYNC)


class ConsumerGroupState(Enum):
    """Values are the names that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The group has moved on, and there is no target for that yet."""
    RECONCILING = "Reconciling"
    """Members are moving towards the target."""
    STABLE = "Stable"


class ConsumerMember(NamedTuple):
    """One member; replaced whole."""

    member_id: str
    metadata: MemberMetadata = NOTHING_KNOWN
    standing: Standing = NOWHERE

    @property
    def instance_id(self) -> str | None:
        return self.metadata.instance_id

    @property
    def is_classic(self) -> bool:
        return self.metadata.classic is not None

    @property
    def pattern(self) -> str:
        """The pattern it subscribes to; "" when there is none."""
        return self.metadata.topic_pattern or ""

    def is_at(self, target_epoch: int) -> bool:
        """Whether it has all of the target."""
        return self.standing.state is MemberState.STABLE and self.standing.epoch == target_epoch


class ConsumerState(CommittingGroup[ConsumerMember, Mapping[TopicId, frozenset[int]]]):
    """See the module. The public attributes are hard, but for what says otherwise; those with an underscore are made of
    them.
    """

    kind = "consumer"
    protocol_type = CONSUMER
    dues = MEMBER_DUES
    ends_with = GroupEpoch

    def __init__(self, group_id: str, context: GroupContext, offsets: Offsets | None = None) -> None:
        super().__init__(group_id, context, offsets)
        self.patterns: dict[str, Resolved] = {}
        self.has_old_metadata = False
        self._static: dict[str, str] = {}
        self._epochs: dict[TopicId, dict[int, int]] = {}
        self.counts = MemberCounts()
        self.seen_topics = -1  # soft

    # -- replay -----------------------------------------------------------------------------------

    def _apply_own(self, record: Pattern | OldTopicMetadata) -> None:
        if isinstance(record, Pattern):
            before = self.patterns.pop(record.pattern, None)
            if before is not None:
                self.counts.forget_topics(before.topics)
            if record.resolved is not None:
                self.patterns[record.pattern] = record.resolved
                self.counts.add_topics(record.resolved.topics)
        else:
            assert isinstance(record, OldTopicMetadata)
            self.has_old_metadata = record.is_there

    def new_member(self, member_id: str) -> ConsumerMember:
        return ConsumerMember(member_id)

    def _gone(self, member: ConsumerMember) -> Standing:
        return Standing(LEFT, LEFT, member.standing.state, {}, {})

    def _count(self, member: ConsumerMember) -> None:
        self.counts.add(member.metadata)
        for held in (member.standing.assigned, member.standing.revoking):
            self._take(held, member)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id

    def _uncount(self, member: ConsumerMember) -> None:
        self.counts.forget(member.metadata)
        self._release(member.standing)
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]

    def _take(self, held: Held, member: ConsumerMember) -> None:
        epoch = member.standing.epoch
        for topic, partitions in held.items():
            epochs = self._epochs.setdefault(topic, {})
            for partition in partitions:
                present = epochs.get(partition)
                if present is not None and present >= epoch:
                    log.error(
                        "group %r: member %r has %s-%d at epoch %d, which another member has at epoch %d",
                        self.group_id, member.member_id, topic.hex(), partition, epoch, present,
                    )  # fmt: skip
                    continue
                epochs[partition] = epoch

    def _release(self, standing: Standing) -> None:
        """Another member may have got the partition, at a later epoch, before its former owner's record came."""
        for held in (standing.assigned, standing.revoking):
            for topic, partitions in held.items():
                epochs = self._epochs.get(topic, {})
                for partition in partitions:
                    if epochs.get(partition) == standing.epoch:
                        del epochs[partition]
                if not epochs:
                    self._epochs.pop(topic, None)

    # -- what follows -----------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_at(self.target_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_void(self) -> bool:
        """Nothing would be lost if the group were forgotten."""
        return not (self.members or self.target or self.patterns or self.offsets or self.has_old_metadata) and (
            self.epoch == FIRST_EPOCH and self.target_epoch == FIRST_EPOCH
        )

    @property
    def subscribed(self) -> Collection[str]:
        """Topics that a member subscribes to, by name or by a pattern."""
        return self.counts.topics

    @property
    def watched(self) -> Collection[str]:
        return self.counts.topics

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that `instance_id` stands for now."""
        member_id = None if instance_id is None else self._static.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def is_free(self, topic: TopicId, partition: int) -> bool:
        """Whether no member has the partition, nor is giving it up."""
        return partition not in self._epochs.get(topic, ())

    def target_of(self, member: ConsumerMember) -> Mapping[TopicId, frozenset[int]]:
        """A member's part of the present target; a static one has that of its former self."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self._static.get(member.instance_id)
        return {} if member_id is None else self.target.get(member_id, {})

    def topics_of(self, member: ConsumerMember) -> frozenset[TopicId]:
        """Ids of what a member subscribes to, by name and by pattern, as far as it exists."""
        names = member.metadata.topic_names
        if member.pattern in self.patterns:
            names = names | self.patterns[member.pattern].topics
        return self.context.topics.ids(names)

    def assignor(self, before: ConsumerMember | None = None, after: ConsumerMember | None = None) -> str:
        """What most members ask for, should `before` become `after`. At a tie, as in Apache Kafka: what `after` alone
        asks for, else uniform.
        """
        votes = dict(sorted(self.counts.assignors.items(), key=lambda item: item[0] != "uniform"))
        old = None if before is None else before.metadata.assignor
        new = None if after is None else after.metadata.assignor
        if old is not None:
            votes[old] -= 1
            if not votes[old]:
                del votes[old]
        if new is not None:
            votes = {new: 1, **votes} if new not in votes else {**votes, new: votes[new] + 1}
        return max(votes, key=votes.__getitem__) if votes else self.context.config.consumer_assignors[0]

    def assigned_since(self, member: ConsumerMember, topic: str, partition: int) -> int | None:
        found = self.context.topics.by_name.get(topic)
        if found is not None:
            for held in (member.standing.assigned, member.standing.revoking):
                if partition in held.get(found.topic_id, ()):
                    return held[found.topic_id][partition]
        return None

    def is_classic(self, member: ConsumerMember) -> bool:
        return member.is_classic

    def revocation_timeout_ms(self, member: ConsumerMember) -> int | None:
        if member.is_classic or member.standing.state is not MemberState.UNREVOKED:
            return None
        return member.metadata.rebalance_timeout_ms

    def session_timeout_ms(self) -> int:
        return self.context.settings(self.group_id).session_timeout_ms

    # -- the end ----------------------------------------------------------------------------------

    def _own_tombstones(self) -> Iterator[ConsumerRecord]:
        for pattern in self.patterns:
            yield Pattern(self.group_id, pattern, None)
        yield OldTopicMetadata(self.group_id, False)
        yield GroupEpoch(self.group_id, None)

    def removal_records(self) -> Iterator[Record]:
        return map(consumer_record, self.tombstones())
