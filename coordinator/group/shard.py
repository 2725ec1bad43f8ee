"""All groups of one partition of `__consumer_offsets`: what the driver holds per partition it leads.

Life: `replay` every record from the log start to the high watermark, then `loaded(now)`; operations from then on;
`unload(now)` when the partition is led elsewhere. What must be refused before (loading, not the coordinator, an
invalid group id) is the driver's to say, for it knows.

Operations take requests as Kafka's messages or as plain values, the API version where behaviour differs by it, an
opaque token and `now`; see `coordinator.machine`. `committed_to` is the high watermark of the partition: reads tell
nothing that may still be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from coordinator.group.answers import commit_write_error, join_error, sync_error
from coordinator.group.classic import ClassicGroup
from coordinator.group.config import GroupConfig
from coordinator.group.offsets import TopicPartition
from coordinator.group.rebalance import Due
from coordinator.group.states import State
from coordinator.group.subscriptions import CONSUMER
from coordinator.machine import NOTHING, Deadlines, Decision, Now, Result, answer
from coordinator.stored import CommittedOffset, GroupRecord, OffsetRecord, group_record, offset_record, parse
from kproto import ErrorCode
from kproto.messages import (
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsResponse,
    SyncGroupRequest,
)

log = logging.getLogger("barnabas.groups")

_REMOVALS_PER_BATCH = 1_000
"""Keeps a batch of tombstones far below `message.max.bytes`, whatever the names' lengths (at most 249 + 32767 bytes,
in practice 50).
"""

GROUP_TYPE = "classic"
_NEVER_MS = (1 << 63) - 1


class OffsetToCommit(NamedTuple):
    """One partition of a commit. `leader_epoch` and `commit_time_ms` -1: not told (the latter: taken from the
    broker's clock).
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None
    commit_time_ms: int = -1


class FetchedOffset(NamedTuple):
    """One partition of an answer to OffsetFetch. `offset` -1: nothing committed. `error`: NONE or
    UNSTABLE_OFFSET_COMMIT.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode


class GroupShard:
    """See the module. Hard: `ClassicGroup.stored` and `.offsets` of every group, written by `replay` alone. Soft: the
    rest.
    """

    def __init__(self, config: GroupConfig) -> None:
        self.config = config
        self.groups: dict[str, ClassicGroup] = {}
        self._deadlines: Deadlines[tuple[str, Due, str]] = Deadlines()
        self._open_transactions: dict[int, set[str]] = {}

    def set_config(self, config: GroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self.config = config
        for group in self.groups.values():
            group.config = config

    def _group(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self.config, self._deadlines)
        return group

    # -- replay -----------------------------------------------------------------------------------

    def replay(
        self,
        key: bytes | memoryview,
        value: bytes | memoryview | None,
        record_offset: int,
        committed_to: int,
        producer_id: int = -1,
    ) -> None:
        """One record of the log. `producer_id`: of its batch if that is transactional. Raises `kproto.DecodeError`;
        nothing changed then.
        """
        record = parse(key, value)
        if isinstance(record, OffsetRecord):
            self._replay_offset(record, record_offset, committed_to, producer_id)
        elif isinstance(record, GroupRecord):
            if record.stored is None and record.group_id not in self.groups:
                return
            group = self._group(record.group_id)
            group.replay_stored(record.stored)
            self._forget_if_void(group)

    def _replay_offset(self, record: OffsetRecord, record_offset: int, committed_to: int, producer_id: int) -> None:
        group_id, partition = record.group_id, (record.topic, record.partition)
        if record.committed is None and group_id not in self.groups:
            return
        group = self._group(group_id)
        if producer_id >= 0:
            group.offsets.put_pending(producer_id, partition, record.committed, record_offset)
            self._open_transactions.setdefault(producer_id, set()).add(group_id)
        elif record.committed is not None:
            group.offsets.put(partition, record.committed, record_offset, committed_to)
        else:
            group.offsets.remove(partition)
            self._forget_if_void(group)

    def replay_end_of_transaction(self, producer_id: int, committed: bool) -> None:
        """A control batch of the log: the commits of this producer's transaction become real or vanish."""
        for group_id in self._open_transactions.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed)
                self._forget_if_void(group)

    def loaded(self, now: Now) -> Result:
        """The log was replayed: bring the stored generations to life."""
        out = Decision()
        for group in list(self.groups.values()):
            group.restore(now, out)
        return out.result()

    def unload(self, now: Now) -> Result:
        """The partition is led elsewhere: everybody who waits gets NOT_COORDINATOR; the shard is at its end."""
        out = Decision()
        for group in self.groups.values():
            group.unload(now, out)
        self.groups.clear()
        return out.result()

    def _done(self, group: ClassicGroup, out: Decision) -> Result:
        """End an operation that may have left nothing of `group`. Once it had a generation, only a tombstone or the
        periodic clean-up forgets it, so that generations rise.
        """
        if group.generation == 0:
            self._forget_if_void(group)
        return out.result()

    def _forget_if_void(self, group: ClassicGroup) -> None:
        if group.is_void and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    # -- time -------------------------------------------------------------------------------------

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self._deadlines.next()

    def expire(self, now: Now) -> Result:
        """Do one thing that is due; call again until `deadline()` lies ahead. One at a time, as each may write and
        change what the next one finds.
        """
        due = self._deadlines.pop(now.seconds)
        if due is None:
            return NOTHING
        group_id, what, member_id = due
        group = self.groups.get(group_id)
        if group is None:
            return NOTHING
        out = Decision()
        group.expire(what, member_id, now, out)
        return self._done(group, out)

    # -- membership -------------------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        client_id: str | None,
        client_host: str,
        unique: str,
        token: Any,
        now: Now,
    ) -> Result:
        """JoinGroup. `client_host`: as stored and shown (`/127.0.0.1`). `unique`: random text for a new member's id.

        Answers `JoinGroupResponse`, usually much later.
        """
        out = Decision()
        member_id = request.member_id
        if (
            not self.config.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= self.config.group_max_session_timeout_ms
        ):
            return answer(token, join_error(ErrorCode.INVALID_SESSION_TIMEOUT, member_id, version))
        group = self.groups.get(request.group_id)
        if group is None:
            if member_id:
                return answer(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, member_id, version))
            group = self._group(request.group_id)
            group.state_time_ms = now.wall_ms
        group.join(request, version, client_id or "", client_host, unique, token, now, out)
        return self._done(group, out)

    def sync(self, request: SyncGroupRequest, version: int, token: Any, now: Now) -> Result:
        """SyncGroup. Answers `SyncGroupResponse` once the leader's assignment is committed."""
        if version >= 5 and (request.protocol_type is None or request.protocol_name is None):
            return answer(token, sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        group = self.groups.get(request.group_id)
        if group is None:
            return answer(token, sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        out = Decision()
        group.sync(request, token, now, out)
        return out.result()

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> HeartbeatResponse:
        """Heartbeat; nothing to write, so the answer is the result."""
        group = self.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return HeartbeatResponse(
            error_code=group.heartbeat(request.generation_id, request.member_id, request.group_instance_id, now)
        )

    def leave(self, request: LeaveGroupRequest, version: int, token: Any, now: Now) -> Result:
        """LeaveGroup: one member below version 3, a list (also an administrator's) from there on. Answers
        `LeaveGroupResponse`.
        """
        out = Decision()
        group = self.groups.get(request.group_id)
        members = request.members
        if version < 3:
            members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)]
        told = []
        for member in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                code = group.leave(member.member_id, member.group_instance_id, member.reason, now, out)
            told.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
                )
            )
        if version < 3:
            out.reply(token, LeaveGroupResponse(error_code=told[0].error_code))
        else:
            out.reply(token, LeaveGroupResponse(members=told))
        return out.result() if group is None else self._done(group, out)

    # -- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        group_id: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        retention_ms: int,
        offsets: Sequence[OffsetToCommit],
        token: Any,
        now: Now,
    ) -> Result:
        """OffsetCommit. `retention_ms` -1: the broker's. Answers a list of `ErrorCode`, one for each of `offsets`."""
        group = self.groups.get(group_id)
        if group is not None:
            refusal = group.check_commit(generation, member_id, instance_id, now)
        else:
            refusal = None if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        if refusal is not None:
            return answer(token, [refusal] * len(offsets))
        out = Decision()
        codes = []
        expire_time_ms = -1 if retention_ms == -1 else min(now.wall_ms + retention_ms, _NEVER_MS)
        limit = self.config.offset_metadata_max_bytes
        for to_commit in offsets:
            metadata = to_commit.metadata or ""
            if len(metadata) > limit:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            commit_time_ms = now.wall_ms if to_commit.commit_time_ms == -1 else to_commit.commit_time_ms
            committed = CommittedOffset(
                to_commit.offset, to_commit.leader_epoch, metadata, commit_time_ms, expire_time_ms
            )
            out.records.append(offset_record(group_id, to_commit.topic, to_commit.partition, committed))
            codes.append(ErrorCode.NONE)

        def refused(code: ErrorCode) -> list[ErrorCode]:
            mapped = commit_write_error(code)
            return [mapped if each == ErrorCode.NONE else each for each in codes]

        out.reply_when_committed(token, codes, refused)
        return out.result()

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, require_stable: bool, committed_to: int
    ) -> list[FetchedOffset]:
        """OffsetFetch of one group; `partitions` None: all that have an offset. Answers in any state of the group."""
        group = self.groups.get(group_id)
        if group is None:
            return [FetchedOffset(topic, index, -1, -1, "", ErrorCode.NONE) for topic, index in partitions or ()]
        offsets = group.offsets
        found: Iterator[tuple[TopicPartition, CommittedOffset | None]]
        if partitions is None:
            found = ((partition, committed) for partition, committed in offsets.items(committed_to))
        else:
            found = ((partition, offsets.get(partition, committed_to)) for partition in partitions)
        fetched = []
        for partition, committed in found:
            if require_stable and offsets.is_pending(partition):
                fetched.append(FetchedOffset(*partition, -1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif committed is None:
                fetched.append(FetchedOffset(*partition, -1, -1, "", ErrorCode.NONE))
            else:
                fetched.append(
                    FetchedOffset(
                        *partition, committed.offset, committed.leader_epoch, committed.metadata, ErrorCode.NONE
                    )
                )
        return fetched

    def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition], token: Any) -> Result:
        """OffsetDelete. Answers a list of `ErrorCode` for `partitions`, or one `ErrorCode` for the whole request."""
        group = self.groups.get(group_id)
        if group is None:
            return answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed: Collection[str] | None = ()
        if group.state is not State.EMPTY:
            if group.protocol_type != CONSUMER:
                return answer(token, ErrorCode.NON_EMPTY_GROUP)
            subscribed = group.subscribed
        out = Decision()
        codes = []
        for partition in partitions:
            # A subscription that cannot be read may contain any topic.
            if subscribed is None or partition[0] in subscribed:
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            codes.append(ErrorCode.NONE)
            if partition in group.offsets:
                out.records.append(offset_record(group_id, *partition, None))
        out.reply_when_committed(token, codes, commit_write_error)
        return out.result()

    # -- removal ----------------------------------------------------------------------------------

    def delete_group(self, group_id: str, token: Any, now: Now) -> Iterator[Result]:
        """DeleteGroups, for one group. Answers an `ErrorCode`. Several results, to be handled in order, when it has
        many offsets.
        """
        group = self.groups.get(group_id)
        if group is None:
            yield answer(token, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if group.state is not State.EMPTY:
            yield answer(token, ErrorCode.NON_EMPTY_GROUP)
            return
        records = [offset_record(group_id, *partition, None) for partition in group.offsets.partitions()]
        if group.stored is not None:
            records.append(group_record(group_id, None))
        log.info("group %r is deleted, with %d offsets", group_id, len(group.offsets))
        while len(records) > _REMOVALS_PER_BATCH:
            yield Result(records[:_REMOVALS_PER_BATCH])
            del records[:_REMOVALS_PER_BATCH]
        out = Decision()
        out.records.extend(records)
        out.reply_when_committed(token, ErrorCode.NONE, commit_write_error)
        if not records:
            self._drop(group, now, out)
        yield out.result()

    def expire_offsets(self, now: Now) -> Iterator[Result]:
        """The periodic clean-up (KIP-211): offsets that nobody came back for, then groups that have nothing left."""
        retention_ms = self.config.offsets_retention_ms
        for group in list(self.groups.values()):
            gone = _expired(group, now.wall_ms, retention_ms)
            yield from self._remove_offsets(group, gone, now)
            if gone:
                log.info("group %r: %d offsets expired", group.group_id, len(gone))

    def topics_deleted(self, topics: Collection[str], now: Now) -> Iterator[Result]:
        """Topics are gone from the cluster, and with them what groups committed for them."""
        for group in list(self.groups.values()):
            gone = [partition for partition in group.offsets.partitions() if partition[0] in topics]
            if gone:
                yield from self._remove_offsets(group, gone, now)

    def _remove_offsets(self, group: ClassicGroup, gone: list[TopicPartition], now: Now) -> Iterator[Result]:
        for start in range(0, len(gone), _REMOVALS_PER_BATCH):
            batch = gone[start : start + _REMOVALS_PER_BATCH]
            yield Result([offset_record(group.group_id, *partition, None) for partition in batch])
        if group.state is not State.EMPTY or group.offsets or group.members.pending:
            return
        if group.stored is not None:
            yield Result([group_record(group.group_id, None)])
        elif self.groups.get(group.group_id) is group:
            out = Decision()
            self._drop(group, now, out)
            yield out.result()

    def _drop(self, group: ClassicGroup, now: Now, out: Decision) -> None:
        """Forget a group that has nothing in the log."""
        group.delete(now, out)
        self.groups.pop(group.group_id, None)

    # -- views ------------------------------------------------------------------------------------

    def describe(self, group_id: str, version: int) -> DescribeGroupsResponse.DescribedGroup:
        """DescribeGroups, for one group. Unknown ones are "Dead", from version 6 on with error 69 as well."""
        group = self.groups.get(group_id)
        if group is None:
            unknown = DescribeGroupsResponse.DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if version >= 6:
                unknown.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                unknown.error_message = f"Group {group_id} not found."
            return unknown
        stable = group.state is State.STABLE
        return DescribeGroupsResponse.DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=group.protocol or "" if stable else "",
            members=[
                DescribeGroupsResponse.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol) if stable else b"",
                    member_assignment=member.assignment if stable else b"",
                )
                for member in group.members
            ],
        )

    def listed(self, states: Collection[str], types: Collection[str]) -> Iterator[ListGroupsResponse.ListedGroup]:
        """ListGroups. `states` and `types`: names in any case to keep; empty: all."""
        if types and GROUP_TYPE not in {name.lower() for name in types}:
            return
        wanted = {name.lower() for name in states}
        for group in self.groups.values():
            if not wanted or group.state.value.lower() in wanted:
                yield ListGroupsResponse.ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=GROUP_TYPE,
                )


def _expired(group: ClassicGroup, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Offsets of `group` that nobody came back for, by what kind of group it is."""
    if group.protocol_type is None:
        # A consumer that assigns partitions to itself: there is no state to tell whether it is alive.
        return group.offsets.expired(now_ms, retention_ms, None, ())
    if group.state is State.EMPTY:
        since_ms = None if group.state_time_ms == -1 else group.state_time_ms
        return group.offsets.expired(now_ms, retention_ms, since_ms, ())
    if group.state is State.STABLE and group.protocol_type == CONSUMER and group.subscribed is not None:
        return group.offsets.expired(now_ms, retention_ms, None, group.subscribed)
    return []
