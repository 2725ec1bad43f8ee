"""SyncGroup in a classic group: members are parked until the leader sends the assignment, which becomes one record; its
replay makes the group Stable, and its commit answers all members.

`now` is `machine.Now`. Sources: KIP-62, KIP-559 (protocol type and name). Difference from Apache Kafka: a parked
request that is superseded by a second one of the same member is answered REBALANCE_IN_PROGRESS.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.coordinator.group.answers import group_write_error, sync_error
from barnabas.coordinator.group.classic.members import Waiting
from barnabas.coordinator.group.classic.rebalance import Rebalance
from barnabas.coordinator.group.classic.state import ClassicState
from barnabas.coordinator.group.classic.states import State, Why
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.machine import Decision, Now, Record
from barnabas.coordinator.stored import group_record
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import SyncGroupRequest, SyncGroupResponse


class Syncing:
    """See the module. Methods that decide write into the `Decision` of the operation."""

    __slots__ = ("_group", "_rebalance")

    def __init__(self, group: ClassicState, rebalance: Rebalance) -> None:
        self._group = group
        self._rebalance = rebalance

    def sync(self, request: SyncGroupRequest, token: Any, now: Now, out: Decision) -> None:
        """A member requests its assignment; the leader sends those of all members."""
        group = self._group
        refusal = self._check(request)
        if refusal is not None:
            out.reply(token, sync_error(refusal))
            return
        member = group.members[request.member_id]
        assignments: dict[str, bytes] = {}
        record: Record | None = None
        if group.state is State.COMPLETING_REBALANCE and member.member_id == group.leader:
            # Made before anything changes: what cannot be written is this request's failure alone.
            assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
            record = group_record(group.group_id, group.to_store(assignments))
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            group.disarm(Due.SYNC)
        if group.state is State.STABLE:
            out.reply_when_committed(token, self._synced(member.assignment), _refusal)
            group.heard_of(member, now)
            return
        superseded, member.syncing = member.syncing, Waiting(token, 0)
        if superseded is not None:
            out.reply(superseded.token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        if record is not None:
            self._assign(record, assignments, now, out)

    def _check(self, request: SyncGroupRequest) -> ErrorCode | None:
        group = self._group
        refusal = group.check_member(request.member_id, request.group_instance_id)
        if refusal is not None:
            return refusal
        if request.generation_id != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != group.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != group.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if group.state is State.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return None

    def _assign(self, record: Record, assignments: Mapping[str, bytes], now: Now, out: Decision) -> None:
        """Write the generation, `record`; its replay makes the group Stable. Members that the leader forgot get nothing
        to do.
        """
        group, generation = self._group, self._group.generation

        def undo(instead: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if generation == group.generation and group.state in (State.COMPLETING_REBALANCE, State.STABLE):
                reason = f"{code.name} when the assignment was written"
                self._rebalance.prepare(Why.NOT_WRITTEN, reason, then, instead)

        out.records.append(record)
        out.if_failed(undo)
        for member in group.members:
            waiting, member.syncing = member.syncing, None
            if waiting is not None:
                synced = self._synced(assignments.get(member.member_id, b""))
                out.reply_when_committed(waiting.token, synced, _refusal)
                group.heard_of(member, now)

    def _synced(self, assignment: bytes) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self._group.protocol_type,
            protocol_name=self._group.protocol,
            assignment=assignment,
        )


def _refusal(code: ErrorCode) -> SyncGroupResponse:
    return sync_error(group_write_error(code))
