"""A driver without a broker: one `GroupShard` over a log that is a list, under a clock that tests move.

It does what `barnabas.server.coordinators.groups` does, with every choice in the test's hands: whether the log refuses
(`refuse`), when writes become committed (`commit_lag`, `commit`), when the coordinator dies and is loaded again
(`restart`). Tokens are ints; each gets exactly one reply, or the kit raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.coordinator.commit_records import CommitRecords
from barnabas.coordinator.group.classic.group import ClassicGroup
from barnabas.coordinator.group.config import GroupConfig
from barnabas.coordinator.group.offset_operations import FetchedOffset, OffsetToCommit
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.streams.stored import parse_streams_group
from barnabas.coordinator.machine import Now, Record, Reply, Result
from barnabas.coordinator.stored import parse
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from barnabas.kproto.records_plain import plain_records


def told(records: Sequence[Record]) -> Sequence[Record]:
    """The records, if what they say they mean is what can be read in them, and their bytes are those of others."""
    for record in records:
        if record.meaning is not None:
            read = parse(record.key, record.value) or parse_streams_group(record.key, record.value)
            assert record.meaning == read
    if isinstance(records, CommitRecords):
        for _ in range(2):
            for delta in (0, 60, 511, 8191):
                assert records.encoded(delta) == plain_records(list(records), delta)
            records.layout.prepare()
    return records


WALL_START_MS = 1_700_000_000_000
"""What the wall clock shows at second 0 of the monotonic one."""

QUICK = GroupConfig(group_initial_rebalance_delay_ms=0)
"""Settings of most tests: no initial delay."""


def subscription(*topics: str) -> bytes:
    """Metadata of a consumer that subscribes to `topics` (version 0: topics, then null user data)."""
    parts = [b"\0\0", len(topics).to_bytes(4, "big")]
    for topic in topics:
        parts += [len(topic).to_bytes(2, "big"), topic.encode()]
    return b"".join([*parts, b"\xff\xff\xff\xff"])


class Kit:
    """See the module."""

    def __init__(self, config: GroupConfig = QUICK) -> None:
        self.config = config
        self.effects: list[Any] = []
        self.shard = self.new_shard()
        self.seconds = 0.0
        self.log: list[Record] = []
        self.committed_to = 0
        self.commit_lag = False
        self.refuse: ErrorCode | None = None
        self.answers: dict[int, Any] = {}
        self.open: set[int] = set()
        self._tokens = 0
        self._unique = 0
        self._held: list[tuple[int, Result]] = []

    @property
    def now(self) -> Now:
        return Now(self.seconds, WALL_START_MS + round(self.seconds * 1000))

    # -- what the driver does ---------------------------------------------------------------------

    def new_shard(self) -> GroupShard:
        return GroupShard(self.config)

    def run(self, result: Result) -> None:
        self._deliver(result.replies)
        self.effects.extend(result.effects)
        if result.records and self.refuse is not None:
            assert result.failed is not None or not result.held
            if result.failed is not None:
                self.run(result.failed(self.refuse, False, self.now))
            return
        base_offset = len(self.log)
        self.log.extend(told(result.records))
        self.shard.replay_decided(result.records, base_offset, self.committed_to, -1)
        if not self.commit_lag:
            self.commit()
        if result.held and self.committed_to < len(self.log):
            self._held.append((len(self.log), result))
        else:
            self._deliver(result.held)

    def run_all(self, results: Iterable[Result]) -> None:
        for result in results:
            self.run(result)

    def commit(self) -> None:
        """The high watermark reaches the end of the log."""
        self.committed_to = len(self.log)
        held, self._held = self._held, []
        for _, result in held:
            self._deliver(result.held)

    def time_out_commits(self) -> None:
        """The writes that are not committed yet take too long."""
        held, self._held = self._held, []
        for _, result in held:
            assert result.failed is not None
            self.run(result.failed(ErrorCode.REQUEST_TIMED_OUT, True, self.now))

    def restart(self, *, lose_uncommitted: bool = True) -> None:
        """The partition moves away and comes back: waiting clients get an error, the state is loaded again."""
        self._deliver(self.shard.unload(self.now).replies)
        held, self._held = self._held, []
        for _, result in held:
            assert result.failed is not None
            told = result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, self.now)
            assert not told.records
            assert not told.held
            self._deliver(told.replies)
        if lose_uncommitted:
            del self.log[self.committed_to :]
        self.committed_to = len(self.log)
        self.shard = self.new_shard()
        for i, record in enumerate(self.log):
            self.shard.replay(record.key, record.value, i, len(self.log))
        self.run(self.shard.loaded(self.now))

    def _deliver(self, replies: Iterable[Reply]) -> None:
        for token, response in replies:
            assert token in self.open, f"token {token} was answered twice: {response}"
            self.open.discard(token)
            self.answers[token] = response

    def token(self) -> int:
        self._tokens += 1
        self.open.add(self._tokens)
        return self._tokens

    def advance(self, seconds: float) -> None:
        """Let time pass, doing what is due at its time."""
        end = self.seconds + seconds
        while (due := self.shard.deadline()) is not None and due <= end:
            self.seconds = max(self.seconds, due)
            self.run(self.shard.expire(self.now))
        self.seconds = end

    # -- requests ---------------------------------------------------------------------------------

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 9,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        protocol_type: str = "consumer",
        protocols: Sequence[tuple[str, bytes]] = (("range", b""),),
        client_id: str | None = "c",
    ) -> int:
        """Send a JoinGroup; returns its token."""
        token = self.token()
        self._unique += 1
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data or subscription("t"))
                for name, data in protocols
            ],
        )
        self.run(self.shard.join(request, version, client_id, "/127.0.0.1", str(self._unique), token, self.now))
        return token

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        version: int = 5,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> int:
        token = self.token()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
        )
        self.run(self.shard.sync(request, version, token, self.now))
        return token

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance
        )
        return ErrorCode(self.shard.heartbeat(request, self.now).error_code)

    def leave(
        self, *members: str | tuple[str, str | None], group: str = "g", version: int = 5, reason: str | None = None
    ) -> LeaveGroupResponse:
        """`members`: member ids, or (member id, instance id)."""
        token = self.token()
        if version < 3:
            (member_id,) = members
            request = LeaveGroupRequest(group_id=group, member_id=member_id)
        else:
            pairs = [(member, None) if isinstance(member, str) else member for member in members]
            request = LeaveGroupRequest(
                group_id=group,
                members=[
                    LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance, reason=reason)
                    for member_id, instance in pairs
                ],
            )
        self.run(self.shard.leave(request, version, token, self.now))
        answer = self.answer(token)
        assert isinstance(answer, LeaveGroupResponse)
        return answer

    def commit_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        group: str = "g",
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        retention_ms: int = -1,
        metadata: str = "",
        version: int = 8,
    ) -> int:
        token = self.token()
        to_commit = [OffsetToCommit(*partition, offset, metadata=metadata) for partition, offset in offsets.items()]
        self.run(
            self.shard.commit(
                group, generation, member_id, instance, retention_ms, to_commit, token, self.now, version=version
            )
        )
        return token

    def committed(self, group: str = "g") -> dict[tuple[str, int], int]:
        return {(each.topic, each.partition): each.offset for each in self.fetch(group=group)}

    def fetch(self, *, group: str = "g", stable: bool = False) -> list[FetchedOffset]:
        return self.shard.fetch(group, self.shard.with_offsets(group), stable, self.committed_to, only_found=True)

    def delete_group(self, group: str = "g") -> ErrorCode:
        token = self.token()
        self.run_all(self.shard.delete_group(group, token, self.now))
        return ErrorCode(self.answer(token))

    # -- answers ----------------------------------------------------------------------------------

    def waits(self, token: int) -> bool:
        return token in self.open

    def check_tokens(self) -> None:
        """Who has no answer yet is known to the machine, or waits for a write to be committed."""
        parked = {reply.token for _, result in self._held for reply in result.held}
        for group in self.shard.groups.values():
            for member in group.members if isinstance(group, ClassicGroup) else ():
                parked |= {waiting.token for waiting in (member.joining, member.syncing) if waiting is not None}
        assert self.open == parked, f"tokens {self.open ^ parked} are lost, or were answered and are still kept"

    def answer(self, token: int) -> Any:
        """The answer to `token`; it must be there, and is given once."""
        assert token not in self.open, f"token {token} still waits"
        return self.answers.pop(token)

    def joined(self, token: int) -> JoinGroupResponse:
        answer = self.answer(token)
        assert isinstance(answer, JoinGroupResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def error(self, token: int) -> ErrorCode:
        return ErrorCode(self.answer(token).error_code)

    def assignment(self, token: int) -> bytes:
        answer = self.answer(token)
        assert isinstance(answer, SyncGroupResponse)
        assert answer.error_code == ErrorCode.NONE, answer
        return bytes(answer.assignment)

    # -- whole stories ----------------------------------------------------------------------------

    def member(self, **join: Any) -> str:
        """An id for a dynamic member: the first of the two steps of joining."""
        answer = self.answer(self.join(**join))
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, answer
        return str(answer.member_id)

    def stable(self, count: int, **join: Any) -> list[str]:
        """A new group of `count` dynamic members, the first of them the leader; generation 1 or 2."""
        ids = [self.member(**join) for _ in range(count)]
        tokens = {member_id: self.join(member_id, **join) for member_id in ids}
        if count > 1 and not self.waits(tokens[ids[0]]):
            # Without initial delay the first member is a generation of its own when nobody else is pending.
            self.answer(tokens[ids[0]])
            tokens[ids[0]] = self.join(ids[0], **join)
        generation = {self.joined(token).generation_id for token in tokens.values()}
        assert len(generation) == 1
        self.settle(ids[0], ids, generation.pop(), **{k: v for k, v in join.items() if k == "group"})
        return ids

    def settle(self, leader: str, ids: Sequence[str], generation: int, **sync: Any) -> None:
        """All members sync; each one's assignment is its id and the generation."""
        assignments = {member_id: assignment_of(member_id, generation) for member_id in ids}
        tokens = {member_id: self.sync(member_id, generation, **sync) for member_id in ids if member_id != leader}
        tokens[leader] = self.sync(leader, generation, assignments, **sync)
        for member_id, token in tokens.items():
            assert self.assignment(token) == assignments[member_id]

    def state(self, group: str = "g") -> str:
        return str(self.shard.describe(group, 5).group_state)

    def generation(self, group: str = "g") -> int:
        return self.shard.groups[group].generation


def assignment_of(member_id: str, generation: int) -> bytes:
    """What the kit's leaders assign."""
    return f"{member_id}@{generation}".encode()
