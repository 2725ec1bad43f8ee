"""The share groups of one partition of `__consumer_offsets`: how records become groups, and the operations on them.

A part of what `barnabas.coordinator.group.shard` is the face of. It has the shape that `barnabas.coordinator.machine`
describes; what must be refused before (loading, not the coordinator, whether the feature is on, who may ask) is the
caller's to say. Effects: `InitializeState` and `DeleteState`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from barnabas.coordinator.group.config import GroupSettings
from barnabas.coordinator.group.consumer.assignors import TopicId
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.epochs.records import GroupEpoch, is_tombstone
from barnabas.coordinator.group.share import partitions
from barnabas.coordinator.group.share.assignor import NAME
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.group import ShareGroup, check_share_heartbeat, heartbeat_refusal
from barnabas.coordinator.group.share.partitions import Codes, DeleteState, InitializeState, Place
from barnabas.coordinator.group.share.state import ShareMember
from barnabas.coordinator.group.share.stored import ShareRecord, parse_share_group
from barnabas.coordinator.machine import NOTHING, Decision, Now, Result, answer
from barnabas.coordinator.stored import fits
from barnabas.kproto import ErrorCode, KafkaError, shortened
from barnabas.kproto.messages import ListGroupsResponse, ShareGroupDescribeResponse, ShareGroupHeartbeatRequest

log = logging.getLogger("barnabas.groups")

SHARE: Final = "share"
"""Type and protocol type of these groups."""


class ShareGroups:
    """See the module. groups: by id. is_taken: whether a group of another kind has the id. settings_of: the settings
    that a group has of its own.
    """

    def __init__(
        self,
        context: GroupContext,
        config: ShareGroupConfig,
        is_taken: Callable[[str], bool],
        settings_of: Callable[[str], GroupSettings | None] | None = None,
    ) -> None:
        self.groups: dict[str, ShareGroup] = {}
        self._context = context
        self._config = config
        self._is_taken = is_taken
        self._settings_of = settings_of
        self._unborn: ShareGroup | None = None

    def set_config(self, config: ShareGroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self._config = config

    def topics_changed(self, names: Collection[str]) -> None:
        """The context has another image of the cluster, in which these topics came, went or look different."""
        for group in self.groups.values():
            group.topics_changed(names)

    def _settings(self, group_id: str) -> GroupSettings:
        own = None if self._settings_of is None else self._settings_of(group_id)
        return self._config.settings if own is None else own

    # -- life -------------------------------------------------------------------------------------

    def replay_own(self, key: bytes | memoryview, value: bytes | memoryview | None) -> str | None:
        """One record of the log, live or on load; returns the group's id, None if it is no record of a share group.
        Raises `barnabas.kproto.DecodeError`; nothing changed then.
        """
        record = parse_share_group(key, value)
        if record is None:
            return None
        self.replay(record)
        return record.group_id

    def replay(self, record: ShareRecord) -> None:
        """A record of the log, live or on load."""
        group = self.groups.get(record.group_id)
        if group is None:
            if is_tombstone(record):
                return
            group = self.groups[record.group_id] = self._new(record.group_id)
            self._unborn = None
        group.apply(record)
        if isinstance(record, GroupEpoch) and record.epoch is None:
            for member_id in list(group.members):
                group.forget_timers(member_id)
            del self.groups[record.group_id]

    def _new(self, group_id: str) -> ShareGroup:
        """A group that becomes one of these with its first record. Until then it is the operation's that decides it."""
        if self._unborn is None or self._unborn.group_id != group_id:
            self._unborn = ShareGroup(group_id, self._context)
        return self._unborn

    def loaded(self, now: Now) -> None:
        """The log was read to its end: every member gets a new session."""
        for group in self.groups.values():
            settings = self._settings(group.group_id)
            for member_id in group.members:
                group.heard_of(member_id, settings, now)

    def expire(self, group_id: str, member_id: str) -> Result:
        """A deadline `SHARE_HEARTBEAT` has come."""
        out = Decision()
        group = self.groups.get(group_id)
        if group is not None:
            group.expire(member_id, out)
        return out.result()

    # -- members ----------------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str | None, client_host: str, token: Any, now: Now
    ) -> Result:
        """ShareGroupHeartbeat. `client_host`: as stored and shown (`/127.0.0.1`). Answers
        `ShareGroupHeartbeatResponse`.
        """
        out = Decision()
        group_id = request.group_id
        try:
            check_share_heartbeat(request)
            if not fits(client_id, client_host):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The client's name is longer than 32767 bytes.")
            group = self.groups.get(group_id)
            if group is None:
                if request.member_epoch != 0 or self._is_taken(group_id):
                    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, self._why_not(group_id))
                self._unborn = None
                group = self._new(group_id)
            if request.member_epoch < 0:
                group.leave(request.member_id, token, out)
                return out.result()
            epoch = group.heartbeat(
                request, client_id or "", client_host, self._config, self._settings(group_id), token, now, out
            )
        except KafkaError as error:
            return answer(token, heartbeat_refusal(error.code, error.message))
        names = set(group.counts.topics)
        if request.subscribed_topic_names is not None:
            names.update(request.subscribed_topic_names)
        partitions.initialize(group, names, epoch, self._retry_s, now, out)
        return out.result()

    @property
    def _retry_s(self) -> float:
        return self._config.initialize_retry_interval_ms / 1000

    def _why_not(self, group_id: str) -> str:
        is_there = group_id in self.groups or self._is_taken(group_id)
        return f"Group {shortened(group_id)} {'is not a share group.' if is_there else 'not found.'}"

    # -- partitions -------------------------------------------------------------------------------

    def initialized(self, effect: InitializeState, codes: Codes, now: Now) -> Result:
        """What an `InitializeState` came to."""
        out = Decision()
        group = self.groups.get(effect.group_id)
        if group is None:
            if effect.token is None:
                return NOTHING
            return answer(effect.token, dict.fromkeys(effect.starts, ErrorCode.GROUP_ID_NOT_FOUND))
        partitions.initialized(group, effect, codes, out)
        return out.result()

    def deleted(self, effect: DeleteState, codes: Codes, now: Now) -> Result:
        """What a `DeleteState` came to."""
        out = Decision()
        group = self.groups.get(effect.group_id)
        if group is None:
            if effect.token is None:
                return NOTHING
            told = ErrorCode.NONE if effect.is_whole else dict.fromkeys(effect.places, ErrorCode.NONE)
            return answer(effect.token, told)
        partitions.deleted(group, effect, codes, out)

        def go_on(then: Decision, at: Now) -> None:
            if self.groups.get(effect.group_id) is group and not group.is_empty:
                partitions.initialize(group, group.counts.topics, group.epoch, self._retry_s, at, then)

        if not group.is_empty and not effect.is_left_over:
            # Members that have come meanwhile need not wait for their next heartbeat.
            out.when_committed(go_on)
        return out.result()

    def alter_offsets(self, group_id: str, starts: Mapping[Place, int], token: Any, now: Now) -> Result:
        """AlterShareGroupOffsets, for partitions that exist; the group is made if there is none. Answers `Codes`, or an
        ErrorCode about all: GROUP_ID_NOT_FOUND for another kind, NON_EMPTY_GROUP.
        """
        group = self.groups.get(group_id)
        if group is None:
            if self._is_taken(group_id):
                return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
            self._unborn = None
            group = self._new(group_id)
        if not group.is_empty:
            return answer(token, ErrorCode.NON_EMPTY_GROUP)
        if not starts:
            return answer(token, {})
        out = Decision()
        partitions.begin_at(group, starts, token, now, out)
        return out.result()

    def delete_offsets(self, group_id: str, topics: Collection[TopicId], token: Any) -> Result:
        """DeleteShareGroupOffsets, for topics that exist. Answers `Codes` for those of which something is known, or an
        ErrorCode about all: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self.groups.get(group_id)
        if group is None:
            return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return answer(token, ErrorCode.NON_EMPTY_GROUP)
        known = {
            topic
            for topic in topics
            if any(topic in each for each in (group.partitions.initialized, group.partitions.deleting))
        }
        if not known:
            return answer(token, {})
        out = Decision()
        partitions.forget(group, known, False, token, out)
        return out.result()

    def delete_group(self, group_id: str, token: Any) -> Result:
        """DeleteGroups, for one group. Answers an `ErrorCode`."""
        group = self.groups.get(group_id)
        if group is None:
            return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        if not group.is_empty:
            return answer(token, ErrorCode.NON_EMPTY_GROUP)
        out = Decision()
        topics = {topic for each in group.partitions for topic in each}
        partitions.forget(group, topics, True, token, out)
        return out.result()

    def initialized_partitions(self, group_id: str) -> dict[TopicId, frozenset[int]] | None:
        """What DescribeShareGroupOffsets shows if it is not said which; None if there is no such group."""
        group = self.groups.get(group_id)
        return None if group is None else group.assignable()

    def topics_deleted(self, names: Collection[str]) -> Iterator[Result]:
        """Topics are gone from the cluster, and with them what share groups know of them; not of what has come in their
        place since.
        """
        for group in list(self.groups.values()):
            out = Decision()
            partitions.without_topics(group, names, out)
            if out.records:
                yield out.result()

    # -- views ------------------------------------------------------------------------------------

    def looked_through(
        self, states: Collection[str], types: Collection[str]
    ) -> Iterator[ListGroupsResponse.ListedGroup | None]:
        """ListGroups, as `barnabas.coordinator.group.views.GroupViews.looked_through`; both in small letters."""
        for group in list(self.groups.values()):
            name = group.state.value
            if (types and SHARE not in types) or (states and name.lower() not in states) or not fits(group.group_id):
                yield None
            else:
                yield ListGroupsResponse.ListedGroup(
                    group_id=group.group_id, protocol_type=SHARE, group_state=name, group_type=SHARE
                )

    def describe(self, group_id: str) -> ShareGroupDescribeResponse.DescribedGroup:
        """ShareGroupDescribe, for one group. GROUP_ID_NOT_FOUND if there is none, or it is of another kind."""
        group = self.groups.get(group_id)
        if group is None:
            return ShareGroupDescribeResponse.DescribedGroup(
                group_id=group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message=self._why_not(group_id)
            )
        return ShareGroupDescribeResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.target_epoch,
            assignor_name=NAME,
            members=[_described(group, member) for member in group.members.values()],
        )


def _described(group: ShareGroup, member: ShareMember) -> ShareGroupDescribeResponse.Member:
    by_id = group.context.topics.by_id
    return ShareGroupDescribeResponse.Member(
        member_id=member.member_id,
        rack_id=member.metadata.rack_id,
        member_epoch=member.standing.epoch,
        client_id=member.metadata.client_id,
        client_host=member.metadata.client_host,
        subscribed_topic_names=sorted(member.metadata.topic_names),
        assignment=ShareGroupDescribeResponse.Assignment(
            topic_partitions=[
                ShareGroupDescribeResponse.TopicPartitions(
                    topic_id=topic, topic_name=by_id[topic].name, partitions=sorted(numbers)
                )
                for topic, numbers in member.standing.assigned.items()
                if topic in by_id
            ]
        ),
    )
