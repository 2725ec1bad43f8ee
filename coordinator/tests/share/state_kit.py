"""A share coordinator without a broker: one `StateShard` over a log that is a list, under a clock that tests move.

Whether the log refuses (`refuse`), when writes become committed (`commit_lag`, `commit`), when the coordinator dies and
is loaded again (`restart`), what is cut off the log (`prune`) is the test's to say. Tokens are ints; each gets one
reply, or the kit raises.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from barnabas.coordinator.group.topics import Topic, Topics
from barnabas.coordinator.machine import Now, Record, Result
from barnabas.coordinator.share import (
    ShareKey,
    ShareState,
    StateBatch,
    StateConfig,
    StateShard,
    WriteState,
)
from barnabas.kproto import ErrorCode

TOPIC_ID = bytes.fromhex("17cc317c752a46788da044f644f5367c")
GONE_ID = bytes(15) + b"\1"
KEY = ShareKey("sg1", TOPIC_ID, 0)
TOPICS = Topics(1, {"sa": Topic("sa", TOPIC_ID, 3)})


class StateKit:
    """See the module."""

    def __init__(self, config: StateConfig | None = None) -> None:
        self.config = config or StateConfig()
        self.seconds = 0.0
        self.log: list[Record] = []
        self.log_start = 0
        self.committed_to = 0
        self.commit_lag = False
        self.refuse: ErrorCode | None = None
        self.answers: dict[int, Any] = {}
        self.open: set[int] = set()
        self._tokens = 0
        self._held: deque[tuple[int, Result]] = deque()
        self.shard = self._new()

    def _new(self) -> StateShard:
        shard = StateShard(self.config)
        shard.set_topics(TOPICS)
        return shard

    @property
    def now(self) -> Now:
        return Now(self.seconds, 1_700_000_000_000 + round(self.seconds * 1_000))

    def run(self, result: Result) -> None:
        self._deliver(result.replies)
        if result.records and self.refuse is not None:
            if result.failed is not None:
                self.run(result.failed(self.refuse, False, self.now))
            return
        for record in result.records:
            self.shard.replay(record.key, record.value, len(self.log))
            self.log.append(record)
        assert not result.effects
        if result.held:
            self._held.append((len(self.log), result))
        if not self.commit_lag:
            self.commit()

    def _deliver(self, replies: Sequence[Any]) -> None:
        for token, response in replies:
            self.open.remove(token)
            self.answers[token] = response

    def commit(self) -> None:
        """The high watermark reaches the end of the log."""
        self.committed_to = len(self.log)
        while self._held and self._held[0][0] <= self.committed_to:
            self._deliver(self._held.popleft()[1].held)

    def time_out_commits(self) -> None:
        """Nothing becomes committed in time."""
        while self._held:
            _, result = self._held.popleft()
            assert result.failed is not None
            self.run(result.failed(ErrorCode.REQUEST_TIMED_OUT, True, self.now))

    def restart(self, *, lose_uncommitted: bool = False) -> None:
        """Another leader reads the log."""
        self.shard.unload()
        while self._held:
            _, result = self._held.popleft()
            assert result.failed is not None
            self._deliver(result.failed(ErrorCode.NOT_LEADER_OR_FOLLOWER, True, self.now).replies)
        if lose_uncommitted:
            del self.log[self.committed_to :]
        self.committed_to = len(self.log)
        self.shard = self._new()
        for offset in range(self.log_start, len(self.log)):
            record = self.log[offset]
            self.shard.replay(record.key, record.value, offset)
        self.run(self.shard.loaded(self.now))

    def prune(self) -> None:
        """What the server does now and then, by DeleteRecords."""
        offset = self.shard.redundant_to(self.committed_to)
        if offset is not None:
            assert offset <= self.committed_to
            self.log_start = max(self.log_start, offset)

    # -- operations -------------------------------------------------------------------------------

    def token(self) -> int:
        self._tokens += 1
        self.open.add(self._tokens)
        return self._tokens

    def initialize(self, key: ShareKey = KEY, state_epoch: int = 2, start_offset: int = -1) -> Any:
        token = self.token()
        self.run(self.shard.initialize(key, state_epoch, start_offset, token, self.now))
        return self.answers.get(token)

    def read(self, key: ShareKey = KEY, leader_epoch: int = -1) -> Any:
        token = self.token()
        self.run(self.shard.read(key, leader_epoch, token, self.now))
        return self.answers.get(token)

    def write(
        self,
        *batches: tuple[int, int, int, int],
        key: ShareKey = KEY,
        start_offset: int = -1,
        state_epoch: int = 2,
        leader_epoch: int = 0,
        complete: int = 0,
    ) -> Any:
        token = self.write_later(
            *batches,
            key=key,
            start_offset=start_offset,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            complete=complete,
        )
        return self.answers.get(token)

    def write_later(
        self,
        *batches: tuple[int, int, int, int],
        key: ShareKey = KEY,
        start_offset: int = -1,
        state_epoch: int = 2,
        leader_epoch: int = 0,
        complete: int = 0,
    ) -> int:
        token = self.token()
        write = WriteState(state_epoch, leader_epoch, start_offset, complete, tuple(StateBatch(*b) for b in batches))
        self.run(self.shard.write(key, write, token, self.now))
        return token

    def delete(self, key: ShareKey = KEY) -> Any:
        token = self.token()
        self.run(self.shard.delete(key, token, self.now))
        return self.answers.get(token)

    def summary(self, key: ShareKey = KEY) -> Any:
        token = self.token()
        self.run(self.shard.summary(key, token, self.now))
        return self.answers.get(token)

    def state(self, key: ShareKey = KEY) -> ShareState:
        return self.shard.store.partitions[key].state
