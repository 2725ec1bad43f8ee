"""The rebalance of a classic group: how one generation of members follows another.

Begin a rebalance, wait for the members, form the next generation, take members out, let time pass. What the requests
add is in `joining` and `syncing`.

`now` is `machine.Now`; time-outs are milliseconds. Sources: KIP-62 (rebalance time-out), KIP-134 (initial delay),
KIP-345 (static members stay).
"""

from __future__ import annotations

import logging

from barnabas.coordinator.group.answers import sync_error
from barnabas.coordinator.group.classic.state import ClassicState
from barnabas.coordinator.group.classic.states import TRANSITIONS, Event, State, Why
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import group_record
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.groups")

_RETRY_S = 1.0
_LAST_GENERATION = 2**31 - 1


class Rebalance:
    """See the module. Methods that decide write into the `Decision` of the operation.

    An Empty group waits for `group.initial.rebalance.delay.ms`, and as long again while members come, but no longer
    than a rebalance may take. _initial_delay_ms: the wait under way, None in other rebalances; _initial_left_ms: what
    may follow; _new_member_added: whether a member joined.
    """

    __slots__ = ("_group", "_initial_delay_ms", "_initial_left_ms", "_new_member_added")

    def __init__(self, group: ClassicState) -> None:
        self._group = group
        self._initial_delay_ms: int | None = None
        self._initial_left_ms = 0
        self._new_member_added = False

    # -- the way to the next generation -----------------------------------------------------------

    def maybe_prepare(self, why: Why, reason: str, now: Now, out: Decision) -> None:
        """Begin a rebalance, if the group's state allows it."""
        if Event.REBALANCE in TRANSITIONS[self._group.state]:
            self.prepare(why, reason, now, out)

    def prepare(self, why: Why, reason: str, now: Now, out: Decision) -> None:
        """Begin a rebalance: the members have to join again. reason: for the log."""
        group = self._group
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members:
                member.assignment = b""
                waiting, member.syncing = member.syncing, None
                if waiting is not None:
                    out.reply(waiting.token, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
                    group.heard_of(member, now)
        group.unsynced.clear()
        group.disarm(Due.SYNC)
        wait_ms = group.members.rebalance_timeout_ms
        self._initial_delay_ms = None
        if group.state is State.EMPTY:
            self._initial_delay_ms = delay_ms = group.config.group_initial_rebalance_delay_ms
            self._initial_left_ms = max(wait_ms - delay_ms, 0)
            wait_ms = delay_ms
        group.rebalances[why] += 1
        log.info("group %r: rebalance after generation %d, %s", group.group_id, group.generation, reason)
        group.fire(Event.REBALANCE, now)
        group.arm(Due.JOIN, "", now.seconds + wait_ms / 1000)
        self.maybe_complete_join(now, out)

    def member_added(self) -> None:
        """A member is about to join for the first time: the first generation of all waits for more of them."""
        if self._group.state is State.PREPARING_REBALANCE and self._group.generation == 0:
            self._new_member_added = True

    def maybe_complete_join(self, now: Now, out: Decision) -> None:
        """Form the next generation, if the group prepares one and all members have joined."""
        group = self._group
        if group.state is not State.PREPARING_REBALANCE:
            return
        if self._initial_delay_ms is None:
            if group.members.all_joined:
                self._complete_join(now, out)
        elif self._initial_delay_ms <= 0:
            self._join_expired(now, out)

    def _join_expired(self, now: Now, out: Decision) -> None:
        group, delay_ms = self._group, self._initial_delay_ms
        if delay_ms is not None and self._new_member_added and self._initial_left_ms > 0:
            self._new_member_added = False
            self._initial_delay_ms = min(group.config.group_initial_rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms = max(self._initial_left_ms - delay_ms, 0)
            group.arm(Due.JOIN, "", now.seconds + self._initial_delay_ms / 1000)
        else:
            self._complete_join(now, out)

    def _complete_join(self, now: Now, out: Decision) -> None:
        """Form the next generation of those who joined, and of static members even if they have not."""
        group = self._group
        for member in group.members:
            if member.joining is None and member.instance_id is None:
                log.info("group %r: member %r did not join in time", group.group_id, member.member_id)
                self.remove(member.member_id, out)
        if group.members and not self._elect_leader():
            # Only static members are left and none joined, so there is no leader to assign. Their sessions will end, or
            # one of them returns.
            seconds = max(group.members.rebalance_timeout_ms / 1000, _RETRY_S)
            group.arm(Due.JOIN, "", now.seconds + seconds)
            self._initial_delay_ms = None
            return
        group.disarm(Due.JOIN)
        self._initial_delay_ms = None
        self._new_member_added = False
        group.unsynced.clear()
        # The number wraps to 1. It is never negative, as a negative one stands for a client that is no member.
        group.generation = group.generation + 1 if 0 <= group.generation < _LAST_GENERATION else 1
        if not group.members:
            group.protocol = None
            group.fire(Event.NO_MEMBERS, now)
            group.note_subscriptions()
            log.info("group %r: generation %d is empty", group.group_id, group.generation)
            out.records.append(group_record(group.group_id, group.to_store({})))
            # Should the write fail, a restart brings the former members back for one session: harmless.
            return
        group.protocol = group.members.choose_protocol()
        group.fire(Event.FORMED, now)
        group.note_subscriptions()
        log.info("group %r: generation %d has %d members", group.group_id, group.generation, len(group.members))
        for member in group.members:
            waiting = group.members.set_joining(member, None)
            if waiting is not None:
                out.reply(waiting.token, group.joined(member, waiting.version))
            group.heard_of(member, now)
            member.is_new = False
            group.unsynced.add(member.member_id)
        group.arm(Due.SYNC, "", now.seconds + group.members.rebalance_timeout_ms / 1000)

    def _elect_leader(self) -> bool:
        """Keep the leader if it joined, else take the first that did. False: no member joined."""
        group = self._group
        leader = None if group.leader is None else group.members.get(group.leader)
        if leader is None or leader.joining is None:
            leader = group.members.any_joining()
        if leader is None:
            return False
        group.leader = leader.member_id
        return True

    # -- members that go --------------------------------------------------------------------------

    def remove(self, member_id: str, out: Decision) -> None:
        """Forget a member or a pending id; what it waits for is answered UNKNOWN_MEMBER_ID, so that it starts over."""
        group = self._group
        member = group.members.get(member_id)
        if member is not None:
            group.answer_waiting(member, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID, out)
        group.members.remove(member_id)
        group.unsynced.discard(member_id)
        group.disarm(Due.SESSION, member_id)
        group.disarm(Due.PENDING, member_id)
        if group.leader == member_id:
            first = group.members.first()
            group.leader = None if first is None else first.member_id

    def remove_and_rebalance(self, member_id: str, why: Why, reason: str, now: Now, out: Decision) -> None:
        """Forget a member; the others take over what it had. reason: for the log."""
        self.remove(member_id, out)
        if self._group.state is State.PREPARING_REBALANCE:
            log.info("group %r: %s", self._group.group_id, reason)
            self.maybe_complete_join(now, out)
        else:
            self.maybe_prepare(why, reason, now, out)

    # -- time -------------------------------------------------------------------------------------

    def expire(self, due: Due, member_id: str, now: Now, out: Decision) -> None:
        """A deadline of this group has come."""
        if due is Due.JOIN:
            self._join_expired(now, out)
        elif due is Due.SYNC:
            self._sync_expired(now, out)
        elif due is Due.PENDING:
            if member_id in self._group.members.pending:
                self.remove(member_id, out)
                self.maybe_complete_join(now, out)
        else:
            member = self._group.members.get(member_id)
            # A waiting member cannot heartbeat; it is armed again when answered. A new member's wait is itself limited.
            if member is not None and (member.is_new or not member.is_waiting):
                reason = f"member {member_id!r} was not heard of in time"
                self.remove_and_rebalance(member_id, Why.TIMED_OUT, reason, now, out)

    def _sync_expired(self, now: Now, out: Decision) -> None:
        group = self._group
        late = [member_id for member_id in group.unsynced if member_id in group.members]
        if not late or group.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        for member_id in late:
            self.remove(member_id, out)
        self.prepare(Why.NOT_SYNCED, f"{len(late)} members did not sync in time", now, out)
