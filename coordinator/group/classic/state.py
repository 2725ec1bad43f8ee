"""What the parts of one classic group share: the stored generation, the committed offsets, the members, and where the
group stands between two generations.

Hard: `stored` (the last generation in the log, with assignments) and `offsets`. Soft: all the rest, the rebalance under
way included: when the coordinator moves, members of a generation that was not assigned yet simply join again.

`now` is `machine.Now`; time-outs are milliseconds. Methods that answer a request write into the `Decision` of the
operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from barnabas.coordinator.group.answers import join_error, sync_error
from barnabas.coordinator.group.classic.members import Member, Members
from barnabas.coordinator.group.classic.states import TRANSITIONS, Event, Rebalances, State
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.deadlines import Due, GroupDeadlines
from barnabas.coordinator.group.offsets import Offsets
from barnabas.coordinator.group.subscriptions import CONSUMER, subscribed_topics
from barnabas.coordinator.machine import Decision, Now
from barnabas.coordinator.stored import StoredGroup, StoredMember
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import JoinGroupResponse


class ClassicState:
    """See the module.

    config: replaced whole. deadlines: those of all groups of the partition. state: changed by `fire` alone, as the
    table allows; state_time_ms: when, -1 before the first time. generation: of the members as they are now; it is
    ahead of `stored` until their assignment is written. protocol, leader: of that generation; the leader is always a
    member, and there is one when there are members. unsynced: members that have not asked for their assignment.
    subscribed: topics of the members of a `consumer` group; None: not known. rebalances: how many began here, and why.
    """

    __slots__ = (
        "config",
        "deadlines",
        "generation",
        "group_id",
        "leader",
        "members",
        "offsets",
        "protocol",
        "protocol_type",
        "rebalances",
        "state",
        "state_time_ms",
        "stored",
        "subscribed",
        "unsynced",
    )

    def __init__(
        self, group_id: str, config: GroupConfig, deadlines: GroupDeadlines, offsets: Offsets | None = None
    ) -> None:
        self.group_id = group_id
        self.config = config
        self.deadlines = deadlines
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
        self.rebalances: Rebalances = Counter()

    @property
    def is_void(self) -> bool:
        """Nothing would be lost, in memory or in the log, if the group were forgotten."""
        return self.state is State.EMPTY and self.stored is None and not self.offsets and not self.members.pending

    def fire(self, event: Event, now: Now) -> None:
        """Take the transition. Raises KeyError if there is none."""
        self.state = TRANSITIONS[self.state][event]
        self.state_time_ms = now.wall_ms

    # -- members ----------------------------------------------------------------------------------

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode | None:
        """None if the member is in the group, and its instance id stands for it."""
        if instance_id is not None:
            current = self.members.static_id(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return None if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def note_subscriptions(self) -> None:
        """What the members of a `consumer` group subscribe to; None when that cannot be known."""
        if self.protocol_type != CONSUMER:
            self.subscribed = None
        else:
            self.subscribed = subscribed_topics(member.metadata(self.protocol) for member in self.members)

    def to_store(self, assignments: Mapping[str, bytes]) -> StoredGroup:
        """The present generation as it is stored. assignments: by member id."""
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

    # -- answers ----------------------------------------------------------------------------------

    def joined(
        self, member: Member, version: int, *, leader: str | None = None, skip_assignment: bool = False
    ) -> JoinGroupResponse:
        """The answer that admits `member` to the current generation. `leader`: to name another one than there is."""
        leader_id = self.leader if leader is None else leader
        members = []
        if leader_id == member.member_id:
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
            leader=leader_id or "",
            skip_assignment=skip_assignment,
            member_id=member.member_id,
            members=members,
        )

    def answer_waiting(self, member: Member, joining: ErrorCode, syncing: ErrorCode, out: Decision) -> None:
        """What a member waits for is answered with an error: `joining` its JoinGroup, `syncing` its SyncGroup."""
        waiting = self.members.set_joining(member, None)
        if waiting is not None:
            member_id = "" if joining == ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
            out.reply(waiting.token, join_error(joining, member_id, waiting.version))
        waiting, member.syncing = member.syncing, None
        if waiting is not None:
            out.reply(waiting.token, sync_error(syncing))

    # -- time -------------------------------------------------------------------------------------

    def heard_of(self, member: Member, now: Now) -> None:
        """A member gave a sign of life."""
        self.arm(Due.SESSION, member.member_id, now.seconds + member.session_timeout_ms / 1000)

    def arm(self, due: Due, member_id: str, seconds: float) -> None:
        """Set a deadline of the group (member id ""), or of a member."""
        self.deadlines.set((self.group_id, due, member_id), seconds)

    def disarm(self, due: Due, member_id: str = "") -> None:
        self.deadlines.cancel((self.group_id, due, member_id))

    def disarm_all(self) -> None:
        """Nothing of this group falls due any more."""
        for member in self.members:
            self.disarm(Due.SESSION, member.member_id)
        for member_id in self.members.pending:
            self.disarm(Due.PENDING, member_id)
        self.disarm(Due.JOIN)
        self.disarm(Due.SYNC)
