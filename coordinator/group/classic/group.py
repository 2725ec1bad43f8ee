"""A classic group: join, sync, heartbeat, leave, and the time-outs between them.

The life of a generation: members send JoinGroup and are parked (PreparingRebalance) until all known ones have, or
time is up; all are answered together, the leader alone with the list of members (CompletingRebalance); members send
SyncGroup and are parked until the leader's has the assignment; that becomes one record, and its replay makes the group
Stable.

`ClassicGroup` is the face of parts that share one `ClassicState`:

    state.py       what is known of the group; what of it is hard, and what soft
    rebalance.py   from one generation to the next, time-outs
    joining.py     JoinGroup
    syncing.py     SyncGroup

Here: the life of the group as a whole, and the requests that only read the state (Heartbeat, LeaveGroup,
whether offsets may be committed).

`now` is `machine.Now`; time-outs are milliseconds. Differences from Apache Kafka, all in what it leaves unanswered: a
parked request that is superseded by a second one of the same member, or whose member is removed while it waits for
the assignment, gets an answer here (REBALANCE_IN_PROGRESS and UNKNOWN_MEMBER_ID); a pending id that expires takes its
otherwise empty group along. Sources: KIP-62, KIP-134 (initial delay), KIP-345 and KIP-814 (static members), KIP-394,
KIP-559.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.coordinator.commit_records import TopicPartition
from barnabas.coordinator.group.classic.joining import Joining, given
from barnabas.coordinator.group.classic.members import Member
from barnabas.coordinator.group.classic.rebalance import Rebalance
from barnabas.coordinator.group.classic.state import ClassicState
from barnabas.coordinator.group.classic.states import TRANSITIONS, Event, Rebalances, State, Why
from barnabas.coordinator.group.classic.syncing import Syncing
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.deadlines import Due, GroupDeadlines
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import StoredGroup
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupRequest, SyncGroupRequest


class ClassicGroup:
    """See the module. Methods that decide write into the `Decision` of the operation.

    members, offsets: the state's own, which are never replaced.
    """

    kind = "classic"
    dues = (Due.SESSION, Due.PENDING, Due.JOIN, Due.SYNC)

    __slots__ = ("_joining", "_rebalance", "_state", "_syncing", "group_id", "members", "offsets")

    def __init__(
        self, group_id: str, config: GroupConfig, deadlines: GroupDeadlines, offsets: Offsets | None = None
    ) -> None:
        state = self._state = ClassicState(group_id, config, deadlines, offsets)
        self.group_id = group_id
        self.members = state.members
        self.offsets = state.offsets
        self._rebalance = Rebalance(state)
        self._joining = Joining(state, self._rebalance)
        self._syncing = Syncing(state, self._rebalance)

    def __repr__(self) -> str:
        return f"<{self.group_id!r} {self.state.value}, generation {self.generation}, {len(self.members)} members>"

    # -- what it is -------------------------------------------------------------------------------

    @property
    def rebalances(self) -> Rebalances:
        """How many began here, and why."""
        return self._state.rebalances

    @property
    def stored(self) -> StoredGroup | None:
        """The last generation in the log."""
        return self._state.stored

    @property
    def state(self) -> State:
        return self._state.state

    @property
    def state_name(self) -> str:
        """As clients see it."""
        return self._state.state.value

    @property
    def state_time_ms(self) -> int:
        """When the state changed; -1: not known."""
        return self._state.state_time_ms

    @property
    def generation(self) -> int:
        return self._state.generation

    @property
    def protocol_type(self) -> str | None:
        return self._state.protocol_type

    @property
    def protocol(self) -> str | None:
        """The protocol of the present generation."""
        return self._state.protocol

    @property
    def leader(self) -> str | None:
        """The id of the member that assigns."""
        return self._state.leader

    @property
    def subscribed(self) -> frozenset[str] | None:
        """Topics that the members of a `consumer` group subscribe to; None: not known."""
        return self._state.subscribed

    @property
    def is_void(self) -> bool:
        """Nothing would be lost, in memory or in the log, if the group were forgotten."""
        return self._state.is_void

    @property
    def is_empty(self) -> bool:
        """No members: it may be deleted, or become another kind of group."""
        return self._state.state is State.EMPTY

    def configure(self, config: GroupConfig) -> None:
        """New settings; they hold from the next decision on."""
        self._state.config = config

    # -- hard state -------------------------------------------------------------------------------

    def replay_stored(self, stored: StoredGroup | None) -> None:
        """A generation of this group (None: its removal) was read from the log or has just been appended."""
        group = self._state
        group.stored = stored
        if stored is None or group.state is not State.COMPLETING_REBALANCE or stored.generation != group.generation:
            return
        for each in stored.members:
            member = group.members.get(each.member_id)
            if member is not None:
                member.assignment = each.assignment
        group.state = TRANSITIONS[group.state][Event.ASSIGNED]
        group.state_time_ms = stored.state_time_ms

    # -- beginning and end ------------------------------------------------------------------------

    def begin(self, now: Now) -> None:
        """It has just been made, for its first member."""
        self._state.state_time_ms = now.wall_ms

    def restore(self, now: Now, out: Decision) -> None:
        """The log was read to its end: bring the stored generation to life; its members get a new session."""
        stored = self._state.stored
        if stored is None:
            self.begin(now)
            return
        members = [
            Member(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout_ms,
                each.session_timeout_ms,
                ((stored.protocol or "", each.subscription),),
                each.assignment,
            )
            for each in stored.members
        ]
        self.revive(stored, members, now)
        if len(self.members) > self._state.config.group_max_size:
            self._rebalance.prepare(Why.TOO_MANY, "more members than group.max.size allows", now, out)

    def revive(self, stored: StoredGroup, members: Iterable[Member], now: Now) -> None:
        """Begin life with a stored generation and its members; each gets a new session."""
        group = self._state
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol = stored.protocol
        group.state_time_ms = stored.state_time_ms
        for member in members:
            group.members.add(member)
            group.heard_of(member, now)
        if stored.members:
            group.leader = stored.leader
            group.state = TRANSITIONS[group.state][Event.LOADED]
            group.note_subscriptions()

    def rebalance(self, reason: str, now: Now, out: Decision) -> None:
        """Have the members join again."""
        self._rebalance.prepare(Why.PROTOCOL, reason, now, out)

    def ask_to_rejoin(self, now: Now, out: Decision) -> None:
        """The group is about to become a next-generation one: answer waiting members so that they join that."""
        group = self._state
        for member in group.members:
            if member.is_waiting:
                group.answer_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS, out)
                # If the log rejects the change, the group stays classic, and members that do not return must expire.
                group.heard_of(member, now)

    def forget(self) -> None:
        """Another kind of group has replaced this one, and no member waits any more."""
        self._state.disarm_all()

    def send_away(self, code: ErrorCode, out: Decision) -> None:
        """Answer all waiting members with an error."""
        for member in self.members:
            self._state.answer_waiting(member, code, code, out)

    def unload(self, now: Now, out: Decision) -> None:
        """The partition moved: waiting members get NOT_COORDINATOR, and find the new one."""
        self._end(Event.UNLOADED, ErrorCode.NOT_COORDINATOR, now, out)

    def delete(self, now: Now, out: Decision) -> None:
        """The group is removed; it was Empty, so no member waits."""
        self._end(Event.DELETED, ErrorCode.UNKNOWN_MEMBER_ID, now, out)

    def _end(self, event: Event, code: ErrorCode, now: Now, out: Decision) -> None:
        self.send_away(code, out)
        self._state.disarm_all()
        self._state.fire(event, now)

    def expire(self, due: Due, member_id: str, now: Now, out: Decision) -> None:
        """A deadline of this group has come."""
        self._rebalance.expire(due, member_id, now, out)

    # -- requests of members ----------------------------------------------------------------------

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        client_id: str,
        client_host: str,
        unique: str,
        token: Any,
        now: Now,
        out: Decision,
    ) -> None:
        """JoinGroup, see `Joining.join`."""
        self._joining.join(request, version, client_id, client_host, unique, token, now, out)

    def sync(self, request: SyncGroupRequest, token: Any, now: Now, out: Decision) -> None:
        """SyncGroup, see `Syncing.sync`."""
        self._syncing.sync(request, token, now, out)

    def heartbeat(self, generation: int, member_id: str, instance_id: str | None, now: Now) -> ErrorCode:
        """NONE, or what the member must do: join again at REBALANCE_IN_PROGRESS, start over at any other."""
        group = self._state
        refusal = group.check_member(member_id, instance_id)
        if refusal is not None:
            return refusal
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        group.heard_of(group.members[member_id], now)
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, reason: str | None, now: Now, out: Decision) -> ErrorCode:
        """Remove one member, at its own request or an administrator's, who may name the instance id alone."""
        members, rebalance = self.members, self._rebalance
        if not member_id:
            member_id = members.static_id(instance_id) or "" if instance_id is not None else ""
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in members.pending:
            rebalance.remove(member_id, out)
            rebalance.maybe_complete_join(now, out)
            return ErrorCode.NONE
        else:
            refusal = self._state.check_member(member_id, instance_id)
            if refusal is not None:
                return refusal
        rebalance.remove_and_rebalance(member_id, Why.LEFT, f"member {member_id!r} left{given(reason)}", now, out)
        return ErrorCode.NONE

    def check_commit(
        self,
        generation: int,
        member_id: str,
        instance_id: str | None,
        now: Now,
        *,
        partitions: Iterable[TopicPartition] = (),
        version: int = 9,
        is_transactional: bool = False,
    ) -> ErrorCode | None:
        """Whether offsets may be committed; a member's commit counts as a sign of life. A producer need not name the
        member, and may continue while the group rebalances. `partitions` and `version` matter to other groups.
        """
        group = self._state
        if generation < 0 and group.state is State.EMPTY:
            # An administrator, or a consumer that assigns partitions to itself.
            return None
        if generation < 0 and not member_id and instance_id is None:
            return None if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
        refusal = group.check_member(member_id, instance_id)
        if refusal is not None:
            return refusal
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if is_transactional:
            return None
        if group.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        group.heard_of(group.members[member_id], now)
        return None
