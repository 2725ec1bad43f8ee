"""A next-generation consumer group: heartbeats, leaving, fencing, time-outs, and which clients may commit and fetch
offsets (KIP-848).

There is one request, ConsumerGroupHeartbeat. Epoch 0 joins, −1 leaves, −2 leaves a static member's place open; else it
is the member's epoch, and null lists mean "unchanged". Each answer is held until its content is committed.

Members that still speak the classic protocol are served by `classic_members`; groups go over from one kind to the other
in `upgrade` and `downgrade`. `now` is `machine.Now`; time-outs are milliseconds. Differences from Apache Kafka: a
time-out whose records cannot be written comes again after a second; a member is fenced for not giving up partitions
only while it still has to. Sources: KIP-848, `GroupMetadataManager` of
Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from barnabas.coordinator.group.answers import write_error
from barnabas.coordinator.group.classic.states import Why
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.consumer.downgrade import downgrade, may_downgrade
from barnabas.coordinator.group.consumer.member_step import (
    InvalidPattern,
    MemberStep,
    PatternChange,
    ResolvePatterns,
    replace_static,
)
from barnabas.coordinator.group.consumer.state import ConsumerMember, ConsumerState
from barnabas.coordinator.group.consumer.stored import (
    ConsumerRecord,
    Pattern,
    Resolved,
    consumer_record,
)
from barnabas.coordinator.group.epochs.records import AWAY, LEFT, GroupEpoch, MemberStanding
from barnabas.coordinator.group.epochs.state import removal
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import fits
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")

Owned = Mapping[TopicId, Collection[int]]


class ConsumerGroup(ConsumerState):
    """See the module. Methods that decide write into the `Decision` of the operation; they raise KafkaError to refuse,
    and nothing was decided then.
    """

    # -- heartbeat --------------------------------------------------------------------------------

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        member_id: str,
        client_id: str,
        client_host: str,
        invalid_pattern: InvalidPattern,
        token: Any,
        now: Now,
        out: Decision,
    ) -> None:
        """A member joins, or says that it lives. `member_id`: the request's, or a new one."""
        epoch = request.member_epoch
        owned = None if request.topic_partitions is None else _partitions(request.topic_partitions)
        if not fits(member_id, client_id, client_host, request.instance_id, request.rack_id) or not fits(
            request.subscribed_topic_regex, *(request.subscribed_topic_names or ())
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A name in the request is longer than 32767 bytes.")
        self.check_room(member_id)
        records: list[ConsumerRecord] = []
        if request.instance_id is None:
            before = self.members.get(member_id)
            if before is None:
                if epoch != 0:
                    raise self._no_member(member_id)
                before = ConsumerMember(member_id)
            self._check_epoch(before, epoch, owned)
        elif epoch == 0:
            before = self._join_static(member_id, request.instance_id, records)
        else:
            before = self.check_static(member_id, request.instance_id)
            self._check_epoch(before, epoch, owned)
        step = MemberStep(self, before, records)
        known = before.metadata
        step.update_metadata(
            known._replace(
                instance_id=known.instance_id if request.instance_id is None else request.instance_id,
                rack_id=known.rack_id if request.rack_id is None else request.rack_id,
                rebalance_timeout_ms=_or(request.rebalance_timeout_ms, known.rebalance_timeout_ms),
                assignor=known.assignor if request.server_assignor is None else request.server_assignor,
                topic_names=known.topic_names
                if request.subscribed_topic_names is None
                else frozenset(request.subscribed_topic_names),
                topic_pattern=known.topic_pattern
                if request.subscribed_topic_regex is None
                else request.subscribed_topic_regex,
                client_id=client_id,
                client_host=client_host,
                classic=None,
            )
        )
        step.update_pattern(invalid_pattern, now)
        step.raise_epoch(step.names_changed or step.pattern_change is PatternChange.RESOLVED)
        target = step.target(now)
        step.reconcile(target, owned, step.subscription_changed)
        after = step.after
        interval_ms = step.heartbeat_interval_ms(target, now)
        self.carry_out(step, now, out)
        self.heard_of(after, now)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.standing.epoch,
            heartbeat_interval_ms=interval_ms,
        )
        is_full = (
            request.rebalance_timeout_ms != -1
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and owned is not None
        )
        if epoch == 0 or is_full or after.standing.assigned != before.standing.assigned:
            response.assignment = ConsumerGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic, partitions=sorted(partitions))
                    for topic, partitions in after.standing.assigned.items()
                ]
            )
        out.reply_when_committed(token, response, heartbeat_refusal)

    def carry_out(self, step: MemberStep, now: Now, out: Decision) -> None:
        """Have the records of a step written, and topics of patterns looked up."""
        out.records.extend(map(consumer_record, step.records))
        if step.resolve is not None:
            self.context.resolving.add(self.group_id)
            out.effects.append(step.resolve)

    def _join_static(self, member_id: str, instance_id: str, records: list[ConsumerRecord]) -> ConsumerMember:
        present = self.static_member(instance_id)
        if present is None:
            return self.members.get(member_id) or ConsumerMember(member_id)
        if not present.is_classic and present.standing.epoch != AWAY:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID, f"Instance id {instance_id} is still used by {present.member_id}."
            )
        return replace_static(self, present, member_id, records)

    def check_room(self, member_id: str) -> None:
        """Raises KafkaError GROUP_MAX_SIZE_REACHED when the group is full."""
        limit = self.context.config.consumer_max_size
        if len(self.members) >= limit and member_id not in self.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {limit} members, more it may not have.")

    def check_static(self, member_id: str, instance_id: str) -> ConsumerMember:
        """The member that an instance id stands for. Raises KafkaError UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        present = self.static_member(instance_id)
        if present is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if present.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID, f"Instance id {instance_id} belongs to {present.member_id} by now."
            )
        return present

    def _check_epoch(self, member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
        """Who did not get the answer with the present epoch comes with the one before."""
        present = member.standing.epoch
        if epoch in (0, present):
            return
        if epoch == member.standing.previous_epoch and epoch < present and owned is not None:
            assigned = member.standing.assigned
            if all(partition in assigned.get(topic, ()) for topic in owned for partition in owned[topic]) and all(
                topic in assigned for topic in owned
            ):
                return
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member's epoch is {present}, not {epoch}: it must revoke all its partitions and rejoin.",
        )

    def _no_member(self, member_id: str) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in group {self.group_id}.")

    # -- leaving ----------------------------------------------------------------------------------

    def leave(self, request: ConsumerGroupHeartbeatRequest, token: Any, now: Now, out: Decision) -> None:
        """A member leaves for good (epoch −1), or will be back soon (−2)."""
        if request.instance_id is None:
            member = self.members.get(request.member_id)
            if member is None:
                raise self._no_member(request.member_id)
        else:
            member = self.check_static(request.member_id, request.instance_id)
        if request.instance_id is not None and request.member_epoch == AWAY:
            standing = member.standing._replace(
                epoch=AWAY,
                revoking={},
                assigned={topic: dict.fromkeys(held, 0) for topic, held in member.standing.assigned.items()},
            )
            out.records.append(consumer_record(MemberStanding(self.group_id, member.member_id, standing)))
        else:
            self.fence([member], now, out)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        out.reply_when_committed(token, response, heartbeat_refusal)

    def fence(self, members: Collection[ConsumerMember], now: Now, out: Decision, why: Why = Why.LEFT) -> None:
        """Take members out; the group becomes a classic one if only classic members are left. Never fails: time calls
        it, too.
        """
        if not members:
            return
        gone = {member.member_id for member in members}
        if may_downgrade(self, gone):
            downgrade(self, gone, None, "the last member of the next generation left", now, out)
            return
        for member_id in gone:
            out.records.extend(map(consumer_record, removal(self.group_id, member_id)))
        counts = self.counts.copy()
        for member in members:
            counts.forget(member.metadata)
        for pattern in {member.pattern for member in members if member.pattern}:
            if not counts.patterns[pattern]:
                out.records.append(consumer_record(Pattern(self.group_id, pattern, None)))
                if pattern in self.patterns:
                    counts.forget_topics(self.patterns[pattern].topics)
        metadata_hash = self.context.metadata_hash(counts.topics)
        out.records.append(consumer_record(GroupEpoch(self.group_id, self.next_epoch, metadata_hash)))
        self.rebalances[why] += 1
        log.info("group %r: epoch %d without %d members", self.group_id, self.next_epoch, len(gone))

    # -- patterns ---------------------------------------------------------------------------------

    def patterns_resolved(
        self, effect: ResolvePatterns, resolved: Mapping[str, Collection[str]], started_ms: int, out: Decision
    ) -> None:
        """The topics that match the group's patterns were looked up."""
        seen, self.seen_topics = self.seen_topics, effect.new_topics

        def undo(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if not appended:
                self.seen_topics = seen

        out.if_failed(undo)
        counts = self.counts.copy()
        must_rise = False
        for pattern, topics in resolved.items():
            if not self.counts.patterns[pattern]:
                continue
            found = frozenset(topics)
            before = self.patterns[pattern].topics if pattern in self.patterns else frozenset()
            if found != before:
                must_rise = True
                counts.forget_topics(before)
                counts.add_topics(found)
            stored = Resolved(found, effect.topics.version, started_ms)
            out.records.append(consumer_record(Pattern(self.group_id, pattern, stored)))
        metadata_hash = self.context.metadata_hash(counts.topics)
        if must_rise or metadata_hash != self.metadata_hash:
            out.records.append(consumer_record(GroupEpoch(self.group_id, self.next_epoch, metadata_hash)))
            self.rebalances[Why.TOPICS] += 1
            self.looks.done(self.next_epoch)


def check_heartbeat(request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> None:
    """What can be said of a request without looking at a group.

    Raises KafkaError INVALID_REQUEST or UNSUPPORTED_ASSIGNOR.
    """
    why = None
    needs_id = version >= 1 or request.member_epoch > 0 or request.member_epoch == LEFT
    if needs_id and not request.member_id:
        why = "MemberId can't be empty."
    elif not request.group_id:
        why = "GroupId can't be empty."
    elif not fits(request.group_id):
        why = "GroupId is longer than 32767 bytes."
    elif request.instance_id == "":
        why = "InstanceId can't be empty."
    elif request.rack_id == "":
        why = "RackId can't be empty."
    elif request.member_epoch == 0:
        why = _why_not_join(request)
    elif request.member_epoch == AWAY and request.instance_id is None:
        why = "InstanceId can't be null."
    elif request.member_epoch < AWAY:
        why = "MemberEpoch is invalid."
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if request.server_assignor is not None and request.server_assignor not in config.consumer_assignors:
        there_are = ", ".join(config.consumer_assignors)
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"There is no assignor {request.server_assignor}. Assignors: {there_are}."
        )


def _why_not_join(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs is missing in a request to join."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty in a request to join."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "SubscribedTopicNames and SubscribedTopicRegex are both missing in a request to join."
    return None


def heartbeat_refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """A heartbeat that was refused, by the machine or by the log."""
    return ConsumerGroupHeartbeatResponse(error_code=write_error(code), error_message=message)


def _partitions(topics: Iterable[ConsumerGroupHeartbeatRequest.TopicPartitions]) -> Owned:
    owned: dict[TopicId, list[int]] = {}
    for topic in topics:
        owned.setdefault(topic.topic_id, []).extend(topic.partitions)
    return owned


def _or(value: int, default: int) -> int:
    return default if value == -1 else value
