"""Epochs, members and targets of one group as the log has them: hard state, changed by `apply` alone; and the timers of
its members.

A kind of group adds its members' values, its own records, and what it counts. Times are milliseconds since the epoch.
Source: `ConsumerGroup`, `StreamsGroup` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.epochs.records import (
    FIRST_EPOCH,
    LAST_EPOCH,
    GroupEpoch,
    Member,
    MemberStanding,
    TargetEpoch,
    TargetMember,
)
from barnabas.coordinator.group.topics import TopicLooks
from barnabas.coordinator.machine import Decision, Now
from barnabas.kproto import ErrorCode, KafkaError

_RETRY_S: Final = 1.0


class HasStanding(Protocol):
    """A member: a named tuple, replaced whole."""

    @property
    def member_id(self) -> str: ...
    @property
    def metadata(self) -> Any: ...
    @property
    def standing(self) -> Any: ...
    def _replace(self, *args: Any, **kwargs: Any) -> Any: ...


MemberT = TypeVar("MemberT", bound=HasStanding)
TargetT = TypeVar("TargetT")


class EpochState(Generic[MemberT, TargetT]):
    """See the module. Hard: `epoch`, `metadata_hash` (how its topics looked), `members`, `target_epoch`,
    `assigned_at_ms`, `target`. Soft: `looks`.

    kind: as ListGroups shows it. dues: the timers of a member.
    """

    kind: ClassVar[str]
    dues: ClassVar[tuple[Due, ...]]

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.context = context
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.members: dict[str, MemberT] = {}
        self.target_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.target: dict[str, TargetT] = {}
        self.looks = TopicLooks()

    def __repr__(self) -> str:
        return f"<{self.group_id!r} {self.state_name}, epoch {self.epoch}, {len(self.members)} members>"

    # -- what each kind has of its own ------------------------------------------------------------

    @property
    def state_name(self) -> str:
        """As clients see it."""
        raise NotImplementedError

    @property
    def watched(self) -> Collection[str]:
        """Topics whose looks the group's epoch follows."""
        raise NotImplementedError

    def new_member(self, member_id: str) -> MemberT:
        """A member of which nothing is known yet."""
        raise NotImplementedError

    def _gone(self, member: MemberT) -> Any:
        """The standing of a member between the tombstones that take it away."""
        return self.new_member(member.member_id).standing

    def _count(self, member: MemberT) -> None:
        """A member is there, as it is now."""

    def _uncount(self, member: MemberT) -> None:
        """A member is no longer there, or no longer as it was."""

    def _apply_own(self, record: Any) -> None:
        """A record that only this kind has."""
        raise NotImplementedError

    def _own_tombstones(self) -> Iterator[Any]:
        """What the end of a group takes away beside members and targets; the last one ends it."""
        raise NotImplementedError

    # -- replay -----------------------------------------------------------------------------------

    def apply(self, record: Any) -> None:
        """A record of this group was read from the log or has just been appended."""
        if isinstance(record, MemberStanding):
            member = self.members.get(record.member_id)
            if record.standing is not None:
                self._put((member or self.new_member(record.member_id))._replace(standing=record.standing))
            elif member is not None:
                self._put(member._replace(standing=self._gone(member)))
        elif isinstance(record, Member):
            if record.metadata is not None:
                member = self.members.get(record.member_id) or self.new_member(record.member_id)
                self._put(member._replace(metadata=record.metadata))
            else:
                self._remove(record.member_id)
        elif isinstance(record, TargetMember):
            if record.part is not None:
                self.target[record.member_id] = record.part
            else:
                self.target.pop(record.member_id, None)
        elif isinstance(record, GroupEpoch):
            self.epoch = FIRST_EPOCH if record.epoch is None else record.epoch
            self.metadata_hash = record.metadata_hash
        elif isinstance(record, TargetEpoch):
            self.target_epoch = FIRST_EPOCH if record.epoch is None else record.epoch
            self.assigned_at_ms = record.assigned_at_ms
        else:
            self._apply_own(record)

    def _put(self, member: MemberT) -> None:
        before = self.members.get(member.member_id)
        if before is not None:
            self._uncount(before)
        self.members[member.member_id] = member
        self._count(member)

    def _remove(self, member_id: str) -> None:
        self.forget_timers(member_id)
        member = self.members.pop(member_id, None)
        if member is not None:
            self._uncount(member)

    # -- what follows -----------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def next_epoch(self) -> int:
        """The next epoch, where that must not fail."""
        return min(self.epoch + 1, LAST_EPOCH)

    def raised_epoch(self) -> int:
        """The next epoch. Raises KafkaError UNKNOWN_SERVER_ERROR if there is none."""
        if self.epoch >= LAST_EPOCH:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "The group's epoch cannot rise any more: use another group."
            )
        return self.epoch + 1

    def topics_changed(self, names: Collection[str]) -> None:
        """Topics came, went or look different."""
        self.looks.changed(names, self.watched)

    def target_records(
        self, epoch: int, parts: Mapping[str, TargetT], now: Now
    ) -> Iterator[TargetMember[TargetT] | TargetEpoch]:
        """A new target: what is different in it, and its epoch."""
        for member_id, part in parts.items():
            if part != self.target.get(member_id):
                yield TargetMember(self.group_id, member_id, part)
        yield TargetEpoch(self.group_id, epoch, now.wall_ms)

    # -- the end ----------------------------------------------------------------------------------

    def tombstones(self, renamed: Mapping[str, str] | None = None) -> Iterator[Any]:
        """Records that remove the group. `renamed`: members whose record stands under another id by then."""
        ids = [(renamed or {}).get(member_id, member_id) for member_id in self.members]
        for member_id in ids:
            yield MemberStanding(self.group_id, member_id, None)
        for member_id in ids:
            yield TargetMember(self.group_id, member_id, None)
        yield TargetEpoch(self.group_id, None)
        for member_id in ids:
            yield Member(self.group_id, member_id, None)
        yield from self._own_tombstones()

    # -- timers -----------------------------------------------------------------------------------

    def arm(self, due: Due, member_id: str, timeout_ms: int, now: Now) -> None:
        """Something of a member is due so much later."""
        self.context.deadlines.set((self.group_id, due, member_id), now.seconds + timeout_ms / 1000)

    def disarm(self, due: Due, member_id: str) -> None:
        self.context.deadlines.cancel((self.group_id, due, member_id))

    def forget_timers(self, member_id: str) -> None:
        """A member is gone."""
        for due in self.dues:
            self.disarm(due, member_id)

    def again_if_failed(self, due: Due, member_id: str, out: Decision) -> None:
        """What this deadline leads to is to be written; if it cannot be, the deadline comes again."""

        def again(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if not appended and member_id in self.members:
                self.context.deadlines.set((self.group_id, due, member_id), then.seconds + _RETRY_S)

        out.if_failed(again)


def removal(group_id: str, member_id: str) -> Iterable[Any]:
    """Records that remove a member."""
    return (
        MemberStanding(group_id, member_id, None),
        TargetMember(group_id, member_id, None),
        Member(group_id, member_id, None),
    )
