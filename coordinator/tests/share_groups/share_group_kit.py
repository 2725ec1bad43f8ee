"""The share groups of one partition without a broker: a log that is a list, share coordinators that are a dictionary,
a clock that tests move.

Whether the log refuses (`refuse`), when writes become committed (`commit_lag`, `commit`), what share coordinators
answer (`store_waits`, `store_error`), when the coordinator dies and is loaded again (`restart`) is the test's to say.
Topics are told as partition counts by name. Tokens are ints; each gets one reply, or the kit raises.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from barnabas.coordinator.group.config import GroupConfig, GroupSettings
from barnabas.coordinator.group.context import GroupContext
from barnabas.coordinator.group.deadlines import Due
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.group import ShareGroup
from barnabas.coordinator.group.share.groups import ShareGroups
from barnabas.coordinator.group.share.partitions import DeleteState, InitializeState
from barnabas.coordinator.group.share.stored import ShareRecord, parse_share_group, share_record
from barnabas.coordinator.group.topics import Topic, Topics
from barnabas.coordinator.machine import Deadlines, Now, Record, Result
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

Parts = dict[str, list[int]]
START_MS = 1_700_000_000_000


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


class ShareGroupKit:
    """See the module."""

    def __init__(self, config: ShareGroupConfig | None = None, **topics: int) -> None:
        self.config = config or ShareGroupConfig()
        self.settings: dict[str, GroupSettings] = {}
        self.taken: set[str] = set()
        self.topics = Topics(1, {name: Topic(name, topic_id(name), count) for name, count in topics.items()})
        self.generations: Counter[str] = Counter()
        """How often each topic was deleted."""
        self.seconds = 0.0
        self.log: list[Record] = []
        self.committed_to = 0
        self.commit_lag = False
        self.refuse: ErrorCode | None = None
        self.answers: dict[int, Any] = {}
        self.open: set[int] = set()
        self._tokens = 0
        self._held: deque[tuple[int, Result]] = deque()
        self.store: dict[tuple[str, bytes, int], tuple[int, int]] = {}
        """(state epoch, start offset) of what share coordinators know."""
        self.store_waits = False
        self.store_error = ErrorCode.NONE
        self.asked: list[InitializeState | DeleteState] = []
        self.late: list[InitializeState] = []
        """What coordinators that are gone asked: it may still reach the share coordinators."""
        self._load()

    def _load(self) -> None:
        self.context = GroupContext(GroupConfig(), Deadlines(), None)
        self.context.set_topics(self.topics, list(self.topics.by_name))
        self.groups = ShareGroups(
            self.context,
            self.config,
            lambda group_id: group_id in self.taken,
            lambda group_id: self.settings.get(group_id),
        )

    @property
    def now(self) -> Now:
        return Now(self.seconds, START_MS + round(self.seconds * 1_000))

    def run(self, result: Result) -> None:
        self._deliver(result.replies)
        if result.records and self.refuse is not None:
            if result.failed is not None:
                self.run(result.failed(self.refuse, False, self.now))
            return
        for record in result.records:
            self.log.append(record)
            meaning = parse_share_group(record.key, record.value)
            assert meaning is not None
            assert share_record(meaning)[:2] == record[:2], "what is read is what was written"
            self.groups.replay(meaning)
        self._carry_out(result.effects)
        if result.held or result.committed is not None:
            self._held.append((len(self.log), result))
        if not self.commit_lag:
            self.commit()

    def _deliver(self, replies: Sequence[Any]) -> None:
        for token, response in replies:
            self.open.remove(token)
            self.answers[token] = response

    def _carry_out(self, effects: Sequence[Any]) -> None:
        self.asked.extend(effects)
        while self.asked and not self.store_waits:
            self.store_now()

    def store_now(self, *, is_lost: bool = False) -> None:
        """The oldest request reaches the share coordinators. is_lost: its answer does not come back."""
        effect = self.asked.pop(0)
        codes = self._stored(effect)
        if isinstance(effect, InitializeState):
            self.run(self.groups.initialized(effect, {} if is_lost else codes, self.now))
        else:
            self.run(self.groups.deleted(effect, {} if is_lost else codes, self.now))

    def store_late(self) -> None:
        """The oldest request of a coordinator that is gone reaches the share coordinators."""
        self._stored(self.late.pop(0))

    def _stored(self, effect: InitializeState | DeleteState) -> dict[tuple[bytes, int], ErrorCode]:
        codes = {}
        for topic, number in effect.starts if isinstance(effect, InitializeState) else effect.places:
            code = codes[topic, number] = self.store_error
            key = (effect.group_id, topic, number)
            if code == ErrorCode.NONE and isinstance(effect, DeleteState):
                self.store.pop(key, None)
            elif code == ErrorCode.NONE:
                assert isinstance(effect, InitializeState)
                if key in self.store and effect.state_epoch < self.store[key][0]:
                    codes[topic, number] = ErrorCode.FENCED_STATE_EPOCH
                else:
                    self.store[key] = (effect.state_epoch, effect.starts[topic, number])
        return codes

    def commit(self) -> None:
        """The high watermark reaches the end of the log."""
        self.committed_to = len(self.log)
        while self._held and self._held[0][0] <= self.committed_to:
            _, result = self._held.popleft()
            self._deliver(result.held)
            if result.committed is not None:
                self.run(result.committed(self.now))

    def time_out_commits(self) -> None:
        """Clients are told that nothing became committed in time; it may yet."""
        held, self._held = self._held, deque()
        for end_offset, result in held:
            if result.failed is not None:
                self.run(result.failed(ErrorCode.REQUEST_TIMED_OUT, True, self.now))
            self._held.append((end_offset, result._replace(held=(), failed=None)))

    def restart(self, *, lose_uncommitted: bool = False) -> None:
        """Another broker leads the partition, and reads the log. What share coordinators were asked is not answered."""
        while self._held:
            _, result = self._held.popleft()
            if result.failed is not None:
                self._deliver(result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, self.now).replies)
        for effect in self.asked:
            if effect.token is not None:
                self._deliver([(effect.token, ErrorCode.NOT_COORDINATOR)])
        self.late.extend(effect for effect in self.asked if isinstance(effect, InitializeState))
        self.asked.clear()
        if lose_uncommitted:
            del self.log[self.committed_to :]
        self.committed_to = len(self.log)
        self._load()
        for record in self.log:
            meaning = parse_share_group(record.key, record.value)
            assert meaning is not None
            self.groups.replay(meaning)
        self.groups.loaded(self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass, and do what falls due at its time."""
        end = self.seconds + seconds
        deadlines = self.context.deadlines
        while (due := deadlines.next()) is not None and due <= end:
            self.seconds = max(self.seconds, due)
            key = deadlines.pop(self.seconds)
            assert key is not None
            assert key[1] is Due.SHARE_HEARTBEAT
            self.run(self.groups.expire(key[0], key[2]))
        self.seconds = end

    def topic_id(self, name: str) -> bytes:
        """Of the topic that is there, or will be; that of the first one is `topic_id`."""
        return topic_id(name)[:15] + bytes([self.generations[name] + 1])

    def set_topics(self, **counts: int | None) -> None:
        """Topics come, get partitions, or go (None)."""
        gone = {self.topics.by_name[name].topic_id for name, count in counts.items() if count is None}
        changes = {
            name: None if count is None else Topic(name, self.topic_id(name), count) for name, count in counts.items()
        }
        self.topics = self.topics.with_changes(self.topics.version + 1, changes)
        self.context.set_topics(self.topics, list(changes))
        self.groups.topics_changed(list(changes))
        if gone:
            self.generations.update(name for name, count in counts.items() if count is None)
            self.store = {key: value for key, value in self.store.items() if key[1] not in gone}
            for result in self.groups.topics_deleted(list(changes)):
                self.run(result)

    # -- operations -------------------------------------------------------------------------------

    def token(self) -> int:
        self._tokens += 1
        self.open.add(self._tokens)
        return self._tokens

    def send(
        self,
        member_id: str = "a",
        epoch: int = 0,
        *topics: str,
        group: str = "g",
        rack: str | None = None,
        names: list[str] | None = None,
        client_id: str | None = "c",
    ) -> int:
        """Send a heartbeat; returns its token."""
        token = self.token()
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            rack_id=rack,
            subscribed_topic_names=list(topics) if topics else names,
        )
        self.run(self.groups.heartbeat(request, client_id, "/127.0.0.1", token, self.now))
        return token

    def beat(self, member_id: str = "a", epoch: int = 0, *topics: str, **fields: Any) -> ShareGroupHeartbeatResponse:
        """A heartbeat and its answer, which must be there."""
        answer = self.answers[self.send(member_id, epoch, *topics, **fields)]
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def code(self, member_id: str = "a", epoch: int = 0, *topics: str, **fields: Any) -> ErrorCode:
        return ErrorCode(self.beat(member_id, epoch, *topics, **fields).error_code)

    def again(self, member_id: str, group: str = "g") -> ShareGroupHeartbeatResponse:
        """A heartbeat with the member's own epoch."""
        return self.beat(member_id, self.group(group).members[member_id].standing.epoch, group=group)

    def settle(self, *member_ids: str, group: str = "g", rounds: int = 3) -> dict[str, Parts]:
        """Heartbeats, each round further on than two targets must be apart. What each member has then."""
        for _ in range(rounds):
            self.advance(self.config.assignment_interval_ms / 1_000)
            for member_id in member_ids:
                assert self.again(member_id, group).error_code == ErrorCode.NONE
        return self.assigned(group)

    def assigned(self, group: str = "g") -> dict[str, Parts]:
        """What members have, by the group's description."""
        described = self.groups.describe(group)
        return {
            member.member_id: {each.topic_name: list(each.partitions) for each in member.assignment.topic_partitions}
            for member in described.members
        }

    def parts(self, answer: ShareGroupHeartbeatResponse) -> Parts | None:
        """The assignment in an answer; None if there is none."""
        if answer.assignment is None:
            return None
        return {
            self.topics.by_id[each.topic_id].name: list(each.partitions) for each in answer.assignment.topic_partitions
        }

    def group(self, group_id: str = "g") -> ShareGroup:
        return self.groups.groups[group_id]

    def records(self, start: int = 0) -> list[ShareRecord]:
        """What was written, from a position in the log."""
        parsed = (parse_share_group(record.key, record.value) for record in self.log[start:])
        return [record for record in parsed if record is not None]

    def kinds(self, start: int = 0) -> list[int]:
        """Types of the records."""
        return [int.from_bytes(record.key[:2], "big") for record in self.log[start:]]

    def hard(self) -> dict[str, Any]:
        """Hard state of all groups."""
        return {
            group_id: (
                group.epoch,
                group.metadata_hash,
                group.members,
                group.target_epoch,
                group.assigned_at_ms,
                group.target,
                group.partitions,
            )
            for group_id, group in self.groups.groups.items()
        }
