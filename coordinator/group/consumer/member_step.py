"""One request of one member of a next-generation group, step by step: the member's new metadata, the change of the
group, the new target, the member's next assignment. Nothing changes but a list of records.

The order of the steps is the order of the records, and both are Apache Kafka's. A request that must be refused raises
`KafkaError`; its records are forgotten. Source: `GroupMetadataManager.consumerGroupHeartbeat` of Apache Kafka 4.3.
Difference: a member that joins without a topic to subscribe to is given nothing; there it may get a part of what the
others subscribe to, which it does not take.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple

from barnabas.coordinator.group.classic.states import Why
from barnabas.coordinator.group.consumer.assignors import ASSIGNORS, AssignedMember, TopicId
from barnabas.coordinator.group.consumer.reconcile import MemberState, Target, reconcile
from barnabas.coordinator.group.consumer.state import ConsumerMember, ConsumerState
from barnabas.coordinator.group.consumer.stored import ConsumerRecord, MemberMetadata, OldTopicMetadata, Pattern
from barnabas.coordinator.group.epochs.records import GroupEpoch, Member, MemberStanding, TargetMember
from barnabas.coordinator.group.epochs.state import removal
from barnabas.coordinator.group.topics import Topics
from barnabas.coordinator.machine import Now
from barnabas.kproto import ErrorCode, KafkaError

log = logging.getLogger("barnabas.groups")

RESOLVE_AGAIN_MS: Final = 10_000
"""Topics of a group's patterns are looked up no more often than that."""
InvalidPattern = Callable[[str], str | None]
"""Why a pattern cannot be used; None if it can."""


class ResolvePatterns(NamedTuple):
    """Effect: find the topics that match each of `patterns`, and call `GroupShard.patterns_resolved` once."""

    group_id: str
    member_id: str
    patterns: frozenset[str]
    topics: Topics
    new_topics: int


class PatternChange(Enum):
    NONE = "the same pattern, or none"
    CHANGED = "another one, and its topics are not known yet"
    RESOLVED = "another one, with topics that are known"


class MemberStep:
    """See the module. `before`: the member as the group has it; `after`: as it will be. `epoch`: the group's."""

    def __init__(self, group: ConsumerState, member: ConsumerMember, records: list[ConsumerRecord]) -> None:
        self.group = group
        self.before = member
        self.after = member
        self.records = records
        self.epoch = group.epoch
        self.is_equal = group.counts.is_equal(len(group.members))
        self.names_changed = False
        self.pattern_change = PatternChange.NONE
        self.resolve: ResolvePatterns | None = None

    @property
    def subscription_changed(self) -> bool:
        return self.names_changed or self.pattern_change is not PatternChange.NONE

    # -- the member's metadata --------------------------------------------------------------------

    def update_metadata(self, metadata: MemberMetadata) -> None:
        """Apply the metadata that the member has sent."""
        self.after = self.before._replace(metadata=metadata)
        if metadata != self.before.metadata:
            self.records.append(Member(self.group.group_id, self.after.member_id, metadata))
        self.names_changed = metadata.topic_names != self.before.metadata.topic_names

    def update_pattern(self, invalid_pattern: InvalidPattern, now: Now) -> None:
        """Follows `update_metadata`: the pattern. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
        group = self.group
        old, new = self.before.pattern, self.after.pattern
        must_resolve = False
        if self.before.metadata.topic_pattern != self.after.metadata.topic_pattern:
            self.pattern_change = PatternChange.CHANGED
            if old and group.counts.patterns[old] == 1:
                self.records.append(Pattern(group.group_id, old, None))
            if new:
                if group.counts.patterns[new] == 0:
                    why = invalid_pattern(new)
                    if why is not None:
                        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, why)
                    must_resolve = True
                elif new in group.patterns:
                    self.pattern_change = PatternChange.RESOLVED
            elif old:
                self.pattern_change = PatternChange.RESOLVED
        self._look_up_topics(old, new, must_resolve, now)

    def _look_up_topics(self, old: str, new: str, must_resolve: bool, now: Now) -> None:
        """Have the topics of all patterns of the group looked up together, so that they make one rebalance."""
        group, context = self.group, self.group.context
        if group.group_id in context.resolving:
            return
        if not must_resolve and not group.counts.patterns:
            return
        wanted = dict(group.counts.patterns)
        if old:
            wanted[old] = wanted.get(old, 0) - 1
        if new:
            wanted[new] = wanted.get(new, 0) + 1
        patterns = frozenset(pattern for pattern, count in wanted.items() if count > 0)
        if not patterns:
            return
        last = next(iter(group.patterns.values()), None)
        if last is not None and now.wall_ms <= last.resolved_at_ms + RESOLVE_AGAIN_MS:
            return
        if (
            must_resolve
            or last is None
            or len(patterns) != len(group.patterns)
            or group.seen_topics < context.new_topics
            or now.wall_ms > last.resolved_at_ms + context.config.consumer_regex_refresh_interval_ms
        ):
            self.resolve = ResolvePatterns(
                group.group_id, self.after.member_id, patterns, context.topics, context.new_topics
            )

    # -- what the group makes of it ---------------------------------------------------------------

    def raise_epoch(self, must_rise: bool) -> None:
        """The group's next epoch, if the member changed something (`must_rise`) or the topics look different."""
        group = self.group
        if not must_rise and not group.looks.is_due(group.epoch):
            return
        metadata_hash = group.context.metadata_hash(self._subscribed())
        if must_rise or metadata_hash != group.metadata_hash:
            self.epoch = group.raised_epoch()
            self.records.append(GroupEpoch(group.group_id, self.epoch, metadata_hash))
            is_new = self.before.standing.epoch <= 0
            why = (Why.JOINED if is_new else Why.SUBSCRIPTION) if must_rise else Why.TOPICS
            group.rebalances[why] += 1
            log.info("group %r: epoch %d", group.group_id, self.epoch)
        group.looks.done(self.epoch)
        if group.has_old_metadata:
            self.records.append(OldTopicMetadata(group.group_id, False))

    def _subscribed(self) -> Collection[str]:
        """What the members subscribe to, this one included. A pattern that it was the last to have is no more."""
        group, old, new = self.group, self.before.pattern, self.after.pattern
        counts = group.counts.copy()
        counts.forget(self.before.metadata)
        counts.add(self.after.metadata)
        if old and old != new and group.counts.patterns[old] == 1 and old in group.patterns:
            counts.forget_topics(group.patterns[old].topics)
        is_new = self.after.member_id not in group.members and group.static_member(self.after.instance_id) is None
        self.is_equal = counts.is_equal(len(group.members) + is_new)
        return counts.topics

    def target(self, now: Now) -> Target:
        """The target to go for: a new one if the group has moved on, and the last one is old enough."""
        group = self.group
        settings = group.context.settings(group.group_id)
        if group.target_epoch >= self.epoch or not settings.may_assign(group.assigned_at_ms, now.wall_ms):
            return Target(group.target_epoch, group.target_of(self.after))
        members = {**group.members, self.after.member_id: self.after}
        replaced = group.static_member(self.after.instance_id)
        if replaced is not None and replaced.member_id != self.after.member_id:
            del members[replaced.member_id]
        assigned = self._assign(members)
        self.records.extend(group.target_records(self.epoch, assigned, now))
        log.info("group %r: target of epoch %d for %d members", group.group_id, self.epoch, len(members))
        return Target(self.epoch, assigned[self.after.member_id])

    def heartbeat_interval_ms(self, target: Target, now: Now) -> int:
        """When the member should be heard of again. Follows `target`."""
        group = self.group
        age_ms = now.wall_ms - group.assigned_at_ms if target.epoch == group.target_epoch else 0
        settings = group.context.settings(group.group_id)
        return settings.next_heartbeat_ms(age_ms, target.epoch < self.epoch, len(group.members))

    def _assign(self, members: Mapping[str, ConsumerMember]) -> Mapping[str, Mapping[TopicId, frozenset[int]]]:
        group, topics = self.group, self.group.context.topics
        name = group.assignor(self.before, self.after)
        replaced = group.static_member(self.after.instance_id)
        described = {}
        counts: dict[TopicId, int] = {}
        by_subscription: dict[tuple[frozenset[str], str], frozenset[TopicId]] = {}
        for member_id, member in members.items():
            subscription = (member.metadata.topic_names, member.pattern)
            ids = by_subscription.get(subscription)
            if ids is None:
                ids = by_subscription[subscription] = group.topics_of(member)
                counts.update((topic, topics.by_id[topic].partition_count) for topic in ids)
            former_id = replaced.member_id if member is self.after and replaced is not None else member_id
            described[member_id] = AssignedMember(ids, group.target.get(former_id, {}), member.instance_id)
        assign = ASSIGNORS.get(name) or ASSIGNORS[group.context.config.consumer_assignors[0]]
        return assign(described, counts, self.is_equal)

    def reconcile(self, target: Target, owned: Mapping[TopicId, Collection[int]] | None, changed: bool) -> None:
        """The member's next step towards `target`. `owned`: what it says it has.

        Raises KafkaError FENCED_MEMBER_EPOCH.
        """
        standing = self.after.standing
        if not changed and standing.state is MemberState.STABLE and standing.epoch == target.epoch:
            return
        following = reconcile(standing, target, self.group.topics_of(self.after), changed, owned, self.group.is_free)
        if following is None:
            raise KafkaError(ErrorCode.FENCED_MEMBER_EPOCH, "The member's partitions are not known: it must rejoin.")
        if following != standing:
            self.after = self.after._replace(standing=following)
            self.records.append(MemberStanding(self.group.group_id, self.after.member_id, following))


def replace_static(
    group: ConsumerState, old: ConsumerMember, member_id: str, records: list[ConsumerRecord]
) -> ConsumerMember:
    """A static member under its next id: it starts at epoch 0 with what its former self had."""
    standing = old.standing._replace(epoch=0, previous_epoch=0)
    new = ConsumerMember(member_id, old.metadata, standing)
    if member_id != old.member_id:
        # Clients may come back under the id they had: then a removal would end the new session with the old one.
        records.extend(removal(group.group_id, old.member_id))
        records.append(Member(group.group_id, member_id, new.metadata))
        records.append(TargetMember(group.group_id, member_id, group.target.get(old.member_id, {})))
    records.append(MemberStanding(group.group_id, member_id, standing))
    return new
