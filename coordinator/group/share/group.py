"""One share group: heartbeats, leaving, time-outs (KIP-932).

There is one request, ShareGroupHeartbeat. Epoch 0 joins, −1 leaves; else it is the member's epoch, and a null list
means "unchanged". The order of the steps of a heartbeat is the order of its records, and both are Apache Kafka's. Each
answer is held until its content is committed. What the group begins with, and how it ends, is
`barnabas.coordinator.group.share.partitions`'.

`now` is `machine.Now`; time-outs are milliseconds. Differences from Apache Kafka: a member that comes with the epoch
before its present one is sent its assignment again, as it did not get the last answer; members of a group that has
changed lately are asked for heartbeats more often. Sources: KIP-932, `GroupMetadataManager.shareGroupHeartbeat` of
Apache Kafka 4.3.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from barnabas.coordinator.group.answers import write_error
from barnabas.coordinator.group.config import GroupSettings
from barnabas.coordinator.group.consumer.stored import MemberMetadata
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.records import LEFT, GroupEpoch, Member, MemberStanding
from barnabas.coordinator.group.epochs.state import removal
from barnabas.coordinator.group.share.assignor import assign_simple
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.state import ShareMember, ShareState
from barnabas.coordinator.group.share.stored import (
    Partitions,
    ShareRecord,
    ShareStanding,
    share_record,
)
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import fits
from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

log = logging.getLogger("barnabas.groups")

_MEMBER_ID_MAX: Final = 36
"""Of a UUID as text."""


class ShareGroup(ShareState):
    """See the module. Methods that decide write into the `Decision` of the operation; they raise KafkaError to refuse,
    and nothing was decided then. settings: those in force for the group.
    """

    def heartbeat(
        self,
        request: ShareGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        config: ShareGroupConfig,
        settings: GroupSettings,
        token: Any,
        now: Now,
        out: Decision,
    ) -> int:
        """A member joins, or says that it lives. Returns the group's epoch as it will be."""
        member_id, epoch = request.member_id, request.member_epoch
        before = self._member(request, config)
        is_behind = epoch not in (0, before.standing.epoch)
        known = before.metadata
        metadata = known._replace(
            rack_id=known.rack_id if request.rack_id is None else request.rack_id,
            client_id=client_id,
            client_host=client_host,
            topic_names=known.topic_names
            if request.subscribed_topic_names is None
            else frozenset(request.subscribed_topic_names),
        )
        records: list[ShareRecord] = []
        if metadata != known or member_id not in self.members:
            records.append(Member(self.group_id, member_id, metadata))
        names_changed = metadata.topic_names != known.topic_names
        group_epoch = self._raise_epoch(known, metadata, names_changed, records)
        member = before._replace(metadata=metadata)
        target_epoch, target = self._target(member, group_epoch, settings, now, records)
        member = self._reconcile(member, target_epoch, target, names_changed, records)
        out.records.extend(map(share_record, records))
        age_ms = now.wall_ms - self.assigned_at_ms if target_epoch == self.target_epoch else 0
        response = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.standing.epoch,
            heartbeat_interval_ms=settings.next_heartbeat_ms(age_ms, target_epoch < group_epoch, len(self.members)),
        )
        is_full = request.subscribed_topic_names is not None
        if epoch == 0 or is_full or is_behind or member.standing.assigned != before.standing.assigned:
            response.assignment = ShareGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ShareGroupHeartbeatResponse.TopicPartitions(topic_id=topic, partitions=sorted(partitions))
                    for topic, partitions in member.standing.assigned.items()
                ]
            )
        self.heard_of(member_id, settings, now)
        if member_id not in self.members:
            out.if_failed(partial(self._not_joined, member_id))
        out.reply_when_committed(token, response, heartbeat_refusal)
        return group_epoch

    def _not_joined(self, member_id: str, _: Decision, code: ErrorCode, appended: bool, now: Now) -> None:
        if member_id not in self.members:
            self.forget_timers(member_id)

    def _member(self, request: ShareGroupHeartbeatRequest, config: ShareGroupConfig) -> ShareMember:
        """Who it is. Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, GROUP_MAX_SIZE_REACHED."""
        member_id, epoch = request.member_id, request.member_epoch
        member = self.members.get(member_id)
        if member is None:
            if epoch != 0:
                raise no_member(self.group_id, member_id)
            if len(self.members) >= config.max_size:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The group has {len(self.members)} members, more it may not have.",
                )
            return ShareMember(member_id)
        standing = member.standing
        if epoch not in (0, standing.epoch, standing.previous_epoch):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH, f"The member's epoch is {standing.epoch}, not {epoch}: it must rejoin."
            )
        return member

    def _raise_epoch(
        self, before: MemberMetadata, after: MemberMetadata, names_changed: bool, records: list[ShareRecord]
    ) -> int:
        """The group's epoch: the next one if the member changed something, topics look different, or other partitions
        are initialized than the target has.
        """
        must_rise = names_changed or (self.target_epoch >= self.epoch and not self.is_all_assigned())
        if not must_rise and not self.looks.is_due(self.epoch):
            return self.epoch
        counts = self.counts.copy()
        counts.forget(before)
        counts.add(after)
        epoch = self.epoch
        metadata_hash = self.context.metadata_hash(counts.topics)
        if must_rise or metadata_hash != self.metadata_hash:
            epoch = self.raised_epoch()
            records.append(GroupEpoch(self.group_id, epoch, metadata_hash))
            log.info("share group %r: epoch %d", self.group_id, epoch)
        self.looks.done(epoch)
        return epoch

    def _target(
        self, member: ShareMember, epoch: int, settings: GroupSettings, now: Now, records: list[ShareRecord]
    ) -> tuple[int, Partitions]:
        """Epoch and the member's part of the target: a new one if the group has moved on, and the last one is old
        enough.
        """
        if self.target_epoch >= epoch or not settings.may_assign(self.assigned_at_ms, now.wall_ms):
            return self.target_epoch, self.target.get(member.member_id, {})
        members = {**self.members, member.member_id: member}
        assigned = assign_simple(self.described(members.values()), self.assignable())
        records.extend(self.target_records(epoch, assigned, now))
        log.info("share group %r: target of epoch %d for %d members", self.group_id, epoch, len(members))
        return epoch, assigned[member.member_id]

    def _reconcile(
        self, member: ShareMember, epoch: int, target: Partitions, names_changed: bool, records: list[ShareRecord]
    ) -> ShareMember:
        """The member with its part of the target, as far as it subscribes to it."""
        if member.standing.epoch == epoch and not names_changed:
            return member
        subscribed = self.context.topics.ids(member.metadata.topic_names)
        assigned = {topic: partitions for topic, partitions in target.items() if topic in subscribed}
        standing = ShareStanding(epoch, member.standing.epoch, assigned)
        if standing != member.standing:
            records.append(MemberStanding(self.group_id, member.member_id, standing))
        return member._replace(standing=standing)

    # -- sessions ---------------------------------------------------------------------------------

    def heard_of(self, member_id: str, settings: GroupSettings, now: Now) -> None:
        """A member lives: its session begins anew."""
        self.arm(Due.SHARE_HEARTBEAT, member_id, settings.session_timeout_ms, now)

    def leave(self, member_id: str, token: Any, out: Decision) -> None:
        """A member leaves. Raises KafkaError UNKNOWN_MEMBER_ID."""
        if member_id not in self.members:
            raise no_member(self.group_id, member_id)
        self._take_out(self.members[member_id], out)
        response = ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEFT)
        out.reply_when_committed(token, response, heartbeat_refusal)

    def expire(self, member_id: str, out: Decision) -> None:
        """A member's session is over."""
        member = self.members.get(member_id)
        if member is None:
            return
        self.again_if_failed(Due.SHARE_HEARTBEAT, member_id, out)
        log.info("share group %r: %s: member %r", self.group_id, Due.SHARE_HEARTBEAT.value, member_id)
        self._take_out(member, out)

    def _take_out(self, member: ShareMember, out: Decision) -> None:
        out.records.extend(map(share_record, removal(self.group_id, member.member_id)))
        counts = self.counts.copy()
        counts.forget(member.metadata)
        epoch = self.next_epoch
        metadata_hash = self.context.metadata_hash(counts.topics)
        out.records.append(share_record(GroupEpoch(self.group_id, epoch, metadata_hash)))
        log.info("share group %r: epoch %d without member %r", self.group_id, epoch, member.member_id)


def check_member_id(request: ShareGroupHeartbeatRequest) -> None:
    """What comes before it is asked which topics a client may see. Raises KafkaError INVALID_REQUEST."""
    if not request.member_id or len(request.member_id) > _MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """The rest of what can be said without the group. Raises KafkaError INVALID_REQUEST."""
    check_member_id(request)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId is empty.")
    if request.rack_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "RackId is empty.")
    if request.member_epoch < LEFT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no member epoch {request.member_epoch}.")
    if request.member_epoch == 0 and not request.subscribed_topic_names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "SubscribedTopicNames is missing in a request to join.")
    if not fits(request.group_id, request.rack_id, *(request.subscribed_topic_names or ())):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name in the request is longer than 32767 bytes.")


def heartbeat_refusal(code: ErrorCode, message: str | None = None) -> ShareGroupHeartbeatResponse:
    """A heartbeat that was refused, by the machine or by the log."""
    return ShareGroupHeartbeatResponse(error_code=write_error(code), error_message=message)


def no_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not in group {group_id}.")
