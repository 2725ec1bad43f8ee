"""A group with epochs whose members commit offsets: consumer groups of the next generation and streams groups. What the
groups of a partition are asked as one: which offsets may be committed and read, what is due, how they end.

A share group is none: the share coordinator keeps its offsets.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from barnabas.coordinator.commit_records import TopicPartition
from barnabas.coordinator.group.classic.states import Rebalances, Why
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.state import EpochState, MemberT, TargetT
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.machine import Decision, Now, Record
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.groups")


class CommittingGroup(EpochState[MemberT, TargetT]):
    """See the module. Hard: `offsets`. Soft: `rebalances`, how many began here, and why.

    protocol_type: as ListGroups shows it. ends_with: the record whose tombstone is the end of the group.
    """

    protocol_type: ClassVar[str]
    ends_with: ClassVar[type[Any]]

    def __init__(self, group_id: str, context: GroupContext, offsets: Offsets | None = None) -> None:
        super().__init__(group_id, context)
        self.offsets = Offsets() if offsets is None else offsets
        self.rebalances: Rebalances = Counter()

    # -- what each kind has of its own ------------------------------------------------------------

    @property
    def subscribed(self) -> Collection[str]:
        """Topics that a member reads: their offsets do not expire, and are not to be deleted."""
        raise NotImplementedError

    @property
    def is_void(self) -> bool:
        """Nothing would be lost if the group were forgotten."""
        raise NotImplementedError

    def revocation_timeout_ms(self, member: MemberT) -> int | None:
        """How long a member may take to give up what it was asked to; None: it was asked for nothing."""
        raise NotImplementedError

    def assigned_since(self, member: MemberT, topic: str, partition: int) -> int | None:
        """Since which epoch a member reads a partition; None if it does not."""
        raise NotImplementedError

    def session_timeout_ms(self) -> int:
        """How long a member may be silent."""
        raise NotImplementedError

    def is_classic(self, member: MemberT) -> bool:
        """Whether a member speaks the classic protocol still."""
        return False

    def fence(self, members: Collection[MemberT], now: Now, out: Decision, why: Why = Why.LEFT) -> None:
        """Take members out. Never fails: time calls it, too."""
        raise NotImplementedError

    def removal_records(self) -> Iterable[Record]:
        """Records that remove the group."""
        raise NotImplementedError

    # -- life -------------------------------------------------------------------------------------

    def restore(self, now: Now, out: Decision) -> None:
        """The log was read to its end: every member gets a new session."""
        for member in self.members.values():
            self.heard_of(member, now)

    def unload(self, now: Now, out: Decision) -> None:
        """The partition moved; no member waits in such a group."""

    def send_away(self, code: ErrorCode, out: Decision) -> None:
        """As `ClassicGroup.send_away`."""

    def forget(self) -> None:
        """Another kind of group has replaced this one."""
        for member_id in self.members:
            self.forget_timers(member_id)

    def heard_of(self, member: MemberT, now: Now) -> None:
        """A member lives: its session begins anew. One that has to give something up has its rebalance time-out for it,
        counted from its last step. member: as it will be.
        """
        member_id = member.member_id
        self.arm(Due.HEARTBEAT, member_id, self.session_timeout_ms(), now)
        timeout_ms = self.revocation_timeout_ms(member)
        if timeout_ms is None:
            self.disarm(Due.REVOKE, member_id)
            return
        present = self.members.get(member_id)
        is_armed = (self.group_id, Due.REVOKE, member_id) in self.context.deadlines
        if not is_armed or present is None or present.standing != member.standing:
            self.arm(Due.REVOKE, member_id, timeout_ms, now)

    def expire(self, due: Due, member_id: str, now: Now, out: Decision) -> None:
        """A deadline of this group has come."""
        member = self.members.get(member_id)
        if member is None or (due is Due.REVOKE and self.revocation_timeout_ms(member) is None):
            return
        self.again_if_failed(due, member_id, out)
        log.info("group %r: %s: member %r", self.group_id, due.value, member_id)
        self.fence([member], now, out, Why.TIMED_OUT)

    # -- offsets ----------------------------------------------------------------------------------

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
        """Whether offsets of `partitions` may be committed. A member that has moved on meanwhile may commit what it had
        already at the epoch that it names (KIP-1251).
        """
        if generation < 0 and not self.members:
            return None
        if is_transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_classic = self.is_classic(member)
        if not is_transactional and not is_classic and version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        epoch: int = member.standing.epoch
        if generation == epoch:
            return None
        stale = ErrorCode.STALE_MEMBER_EPOCH
        if is_classic or is_transactional:
            stale = ErrorCode.ILLEGAL_GENERATION
        if generation > epoch:
            return stale
        for name, partition in partitions:
            since = self.assigned_since(member, name, partition)
            if since is None or generation < since:
                return stale
        return None

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Whether a member may read offsets: at its present epoch alone."""
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = None if member_id is None else self.members.get(member_id)
        if member is None:
            # Apache Kafka does not expect an epoch without a member.
            return ErrorCode.UNKNOWN_SERVER_ERROR if member_id is None else ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.standing.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if self.is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH
