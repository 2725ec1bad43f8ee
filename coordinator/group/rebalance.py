"""The rebalance of a classic group: how one generation of members follows another.

`Generations` holds the group's state and moves it: begin a rebalance, wait for the members, form the next generation,
take members out, let time pass. `barnabas.coordinator.group.classic` adds what the requests do. Hard and soft state are
told apart there.

`now` is `machine.Now`; time-outs are milliseconds. Sources: KIP-62 (rebalance time-out), KIP-134 (initial delay),
KIP-345 (static members stay).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum

from barnabas.coordinator.group.answers import join_error, sync_error
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.members import Member, Members
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.states import TRANSITIONS, Event, State
from barnabas.coordinator.group.subscriptions import CONSUMER, subscribed_topics
from barnabas.coordinator.machine import Deadlines, Decision, Now
from barnabas.coordinator.stored import StoredGroup, StoredMember, group_record
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupResponse

log = logging.getLogger("barnabas.groups")

_RETRY_SECONDS = 1.0
_LAST_GENERATION = 2**31 - 1


class Due(Enum):
    """What a deadline of a group is about: the first four of a classic one, the others of a next-generation one."""

    SESSION = "a member was not heard of for its session time-out"
    PENDING = "an id was handed out and nobody joined with it"
    JOIN = "the time to join is up"
    SYNC = "the time to sync is up"
    HEARTBEAT = "a member of a next-generation group was not heard of for its session time-out"
    REVOKE = "a member did not give up its partitions within its rebalance time-out"
    REJOIN = "a classic member of a next-generation group did not join again"
    RESYNC = "a classic member of a next-generation group did not ask for its assignment"


GroupDeadlines = Deadlines[tuple[str, Due, str]]
"""By (group id, what, member id or "")."""


class Generations:
    """See the module. Methods that decide write into the `Decision` of the operation."""

    def __init__(
        self, group_id: str, config: GroupConfig, deadlines: GroupDeadlines, offsets: Offsets | None = None
    ) -> None:
        self.group_id = group_id
        self.config = config
        self._deadlines = deadlines
        # Hard.
        self.stored: StoredGroup | None = None
        self.offsets = Offsets() if offsets is None else offsets
        # Soft.
        self.state = State.EMPTY
        self.state_time_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members = Members()
        self.unsynced: set[str] = set()
        self.subscribed: frozenset[str] | None = None
        self._initial_delay_ms: int | None = None
        self._initial_left_ms = 0
        self._new_member_added = False

    def __repr__(self) -> str:
        return f"<{self.group_id!r} {self.state.value}, generation {self.generation}, {len(self.members)} members>"

    @property
    def is_void(self) -> bool:
        """Nothing would be lost, in memory or in the log, if the group were forgotten."""
        return self.state is State.EMPTY and self.stored is None and not self.offsets and not self.members.pending

    @property
    def is_empty(self) -> bool:
        """No members: it may be deleted, or become another kind of group."""
        return self.state is State.EMPTY

    @property
    def state_name(self) -> str:
        return self.state.value

    def _fire(self, event: Event, now: Now) -> None:
        self.state = TRANSITIONS[self.state][event]
        self.state_time_ms = now.wall_ms

    # -- the rebalance ----------------------------------------------------------------------------

    def _maybe_prepare_rebalance(self, reason: str, now: Now, out: Decision) -> None:
        if Event.REBALANCE in TRANSITIONS[self.state]:
            self._prepare_rebalance(reason, now, out)

    def _prepare_rebalance(self, reason: str, now: Now, out: Decision) -> None:
        if self.state is State.COMPLETING_REBALANCE:
            for member in self.members:
                member.assignment = b""
                waiting, member.syncing = member.syncing, None
                if waiting is not None:
                    out.reply(waiting.token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
                    self._heard_of(member, now)
        self.unsynced.clear()
        self._disarm(Due.SYNC)
        wait_ms = self.members.rebalance_timeout_ms
        self._initial_delay_ms = None
        if self.state is State.EMPTY:
            self._initial_delay_ms = delay_ms = self.config.group_initial_rebalance_delay_ms
            self._initial_left_ms = max(wait_ms - delay_ms, 0)
            wait_ms = delay_ms
        log.info("group %r: rebalance after generation %d, %s", self.group_id, self.generation, reason)
        self._fire(Event.REBALANCE, now)
        self._arm(Due.JOIN, "", now.seconds + wait_ms / 1000)
        self._maybe_complete_join(now, out)

    def _maybe_complete_join(self, now: Now, out: Decision) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self._initial_delay_ms is None:
            if self.members.all_joined:
                self._complete_join(now, out)
        elif self._initial_delay_ms <= 0:
            self._join_expired(now, out)

    def _join_expired(self, now: Now, out: Decision) -> None:
        delay_ms = self._initial_delay_ms
        if delay_ms is not None and self._new_member_added and self._initial_left_ms > 0:
            self._new_member_added = False
            self._initial_delay_ms = min(self.config.group_initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms = max(self._initial_left_ms - delay_ms, 0)
            self._arm(Due.JOIN, "", now.seconds + self._initial_delay_ms / 1000)
        else:
            self._complete_join(now, out)

    def _complete_join(self, now: Now, out: Decision) -> None:
        """Form the next generation of those who joined, and of static members even if they have not."""
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                log.info("group %r: member %r did not join in time", self.group_id, member.member_id)
                self._remove(member.member_id, out)
        if self.members and not self._elect_leader():
            # Only static members are left and none came: nobody could assign. Their sessions will end, or one of them
            # returns.
            seconds = max(self.members.rebalance_timeout_ms / 1000, _RETRY_SECONDS)
            self._arm(Due.JOIN, "", now.seconds + seconds)
            self._initial_delay_ms = None
            return
        self._disarm(Due.JOIN)
        self._initial_delay_ms = None
        self._new_member_added = False
        self.unsynced.clear()
        # After the last number there is the first again. None is negative, for that means nobody's.
        self.generation = self.generation + 1 if 0 <= self.generation < _LAST_GENERATION else 1
        if not self.members:
            self.protocol = None
            self._fire(Event.NO_MEMBERS, now)
            self._note_subscriptions()
            log.info("group %r: generation %d is empty", self.group_id, self.generation)
            out.records.append(group_record(self.group_id, self._to_store({})))
            # Should the write fail, a restart brings the former members back for one session: harmless.
            return
        self.protocol = self.members.choose_protocol()
        self._fire(Event.FORMED, now)
        self._note_subscriptions()
        log.info("group %r: generation %d has %d members", self.group_id, self.generation, len(self.members))
        for member in self.members:
            waiting = self.members.set_joining(member, None)
            if waiting is not None:
                out.reply(waiting.token, self._joined(member, waiting.version))
            self._heard_of(member, now)
            member.is_new = False
            self.unsynced.add(member.member_id)
        self._arm(Due.SYNC, "", now.seconds + self.members.rebalance_timeout_ms / 1000)

    def _elect_leader(self) -> bool:
        """Keep the leader if it joined, else take the first that did. False: nobody joined."""
        leader = None if self.leader is None else self.members.get(self.leader)
        if leader is None or leader.joining is None:
            leader = self.members.any_joining()
        if leader is None:
            return False
        self.leader = leader.member_id
        return True

    def _joined(
        self, member: Member, version: int, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The answer that lets `member` into the current generation. `leader`: to tell another one than there is."""
        told = self.leader if leader is None else leader
        members = []
        if told == member.member_id:
            members = [
                JoinGroupResponse.JoinGroupResponseMember(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    metadata=each.metadata(self.protocol),
                )
                for each in self.members
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol if version >= 7 or self.protocol is not None else "",
            leader=told or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )

    def _to_store(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_time_ms,
            tuple(
                StoredMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata(self.protocol),
                    assignments.get(member.member_id, b""),
                )
                for member in self.members
            ),
        )

    # -- time -------------------------------------------------------------------------------------

    def expire(self, due: Due, member_id: str, now: Now, out: Decision) -> None:
        """A deadline of this group has come."""
        if due is Due.JOIN:
            self._join_expired(now, out)
        elif due is Due.SYNC:
            self._sync_expired(now, out)
        elif due is Due.PENDING:
            if member_id in self.members.pending:
                self._remove(member_id, out)
                self._maybe_complete_join(now, out)
        else:
            member = self.members.get(member_id)
            # Who waits cannot heartbeat and is armed again when answered; a new member's wait is itself limited.
            if member is not None and (member.is_new or not member.is_waiting):
                self._remove_and_rebalance(member_id, f"member {member_id!r} was not heard of in time", now, out)

    def _sync_expired(self, now: Now, out: Decision) -> None:
        late = [member_id for member_id in self.unsynced if member_id in self.members]
        if not late or self.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        for member_id in late:
            self._remove(member_id, out)
        self._prepare_rebalance(f"{len(late)} members did not sync in time", now, out)

    # -- the end ----------------------------------------------------------------------------------

    def send_away(self, code: ErrorCode, out: Decision) -> None:
        """Answer everybody who waits with an error."""
        for member in self.members:
            self._answer_waiting(member, code, code, out)

    def unload(self, now: Now, out: Decision) -> None:
        """The partition moved: everybody who waits is sent to look for the new coordinator."""
        self._bury(Event.UNLOADED, ErrorCode.NOT_COORDINATOR, now, out)

    def delete(self, now: Now, out: Decision) -> None:
        """The group is gone for good; it was Empty, so nobody waits."""
        self._bury(Event.DELETED, ErrorCode.UNKNOWN_MEMBER_ID, now, out)

    def _bury(self, event: Event, code: ErrorCode, now: Now, out: Decision) -> None:
        for member in self.members:
            self._answer_waiting(member, code, code, out)
            self._disarm(Due.SESSION, member.member_id)
        for member_id in self.members.pending:
            self._disarm(Due.PENDING, member_id)
        self._disarm(Due.JOIN)
        self._disarm(Due.SYNC)
        self._fire(event, now)

    # -- small parts ------------------------------------------------------------------------------

    def _remove_and_rebalance(self, member_id: str, reason: str, now: Now, out: Decision) -> None:
        self._remove(member_id, out)
        if self.state is State.PREPARING_REBALANCE:
            log.info("group %r: %s", self.group_id, reason)
            self._maybe_complete_join(now, out)
        else:
            self._maybe_prepare_rebalance(reason, now, out)

    def _remove(self, member_id: str, out: Decision) -> None:
        """Forget a member or a pending id; what it waits for is answered with 25, so that it starts over."""
        member = self.members.get(member_id)
        if member is not None:
            self._answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, out)
        self.members.remove(member_id)
        self.unsynced.discard(member_id)
        self._disarm(Due.SESSION, member_id)
        self._disarm(Due.PENDING, member_id)
        if self.leader == member_id:
            first = self.members.first()
            self.leader = None if first is None else first.member_id

    def _answer_waiting(self, member: Member, joining: ErrorCode, syncing: ErrorCode, out: Decision) -> None:
        waiting = self.members.set_joining(member, None)
        if waiting is not None:
            told = "" if joining == ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            out.reply(waiting.token, join_error(joining, told, waiting.version))
        waiting, member.syncing = member.syncing, None
        if waiting is not None:
            out.reply(waiting.token, sync_error(syncing))

    def _note_subscriptions(self) -> None:
        """What the members of a `consumer` group subscribe to; None when that cannot be known."""
        if self.protocol_type != CONSUMER:
            self.subscribed = None
        else:
            self.subscribed = subscribed_topics(member.metadata(self.protocol) for member in self.members)

    def _heard_of(self, member: Member, now: Now) -> None:
        self._arm(Due.SESSION, member.member_id, now.seconds + member.session_timeout_ms / 1000)

    def _arm(self, due: Due, member_id: str, seconds: float) -> None:
        self._deadlines.set((self.group_id, due, member_id), seconds)

    def _disarm(self, due: Due, member_id: str = "") -> None:
        self._deadlines.cancel((self.group_id, due, member_id))
