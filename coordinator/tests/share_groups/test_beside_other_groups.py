"""Share groups in the log of consumer groups: who has an id, what is listed and removed, what is replayed; and that
nothing becomes of them where they are not served.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.group.share.config import ShareGroupConfig
from barnabas.coordinator.group.share.partitions import DeleteState, InitializeState
from barnabas.coordinator.machine import Result, StepFailed
from barnabas.coordinator.tests.consumer_groups.consumer_kit import ConsumerKit, topic_id
from barnabas.coordinator.tests.kit import QUICK
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

E = ErrorCode
AT_ONCE = ShareGroupConfig(assignment_interval_ms=0)


class SharedKit(ConsumerKit):
    """Groups of all kinds; share coordinators that do as they are told."""

    share_config: ShareGroupConfig | None = AT_ONCE

    def new_shard(self) -> GroupShard:
        share_config = self.share_config
        shard = GroupShard(
            self.config,
            lambda group_id: self.settings.get(group_id),
            None if share_config is None else lambda: share_config,
        )
        shard.set_topics(self.topics, list(self.topics.by_name))
        return shard

    def run(self, result: Result) -> None:
        super().run(result)
        if result.committed is not None and self.refuse is None:
            self.run(result.committed(self.now))

    def share(self, member_id: str, epoch: int, *topics: str, group: str = "s") -> ShareGroupHeartbeatResponse:
        token = self.token()
        request = ShareGroupHeartbeatRequest(
            group_id=group, member_id=member_id, member_epoch=epoch, subscribed_topic_names=list(topics) or None
        )
        shares = self.shard.wanted_shares()
        assert shares is not None
        self.run(shares.heartbeat(request, "c", "/127.0.0.1", token, self.now))
        self.carry_out()
        answer = self.answer(token)
        assert isinstance(answer, ShareGroupHeartbeatResponse)
        return answer

    def carry_out(self) -> None:
        while self.effects:
            effect, shares = self.effects.pop(0), self.shard.shares
            assert shares is not None
            if isinstance(effect, InitializeState):
                self.run(shares.initialized(effect, dict.fromkeys(effect.starts, E.NONE), self.now))
            else:
                assert isinstance(effect, DeleteState)
                self.run(shares.deleted(effect, dict.fromkeys(effect.places, E.NONE), self.now))

    def remove(self, group: str) -> Any:
        token = self.token()
        for result in self.shard.delete_group(group, token, self.now):
            self.run(result)
        self.carry_out()
        return self.answer(token)

    def listed(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> dict[str, tuple[str, str, str]]:
        return {
            each.group_id: (each.protocol_type, each.group_state, each.group_type)
            for each in self.shard.listed(states, types)
        }


@pytest.fixture
def kit() -> SharedKit:
    kit = SharedKit(QUICK, t=2)
    kit.share("a", 0, "t")
    for _ in range(2):
        kit.share("a", kit.share("a", 0, "t").member_epoch)
    return kit


def test_an_id_is_of_one_group(kit: SharedKit) -> None:
    kit.enter("m", "t", group="g")
    assert kit.share("a", 0, "t", group="g").error_code == E.GROUP_ID_NOT_FOUND
    assert kit.code("m", 0, subscribed_topic_names=["t"], rebalance_timeout_ms=9, topic_partitions=(), group="s") == (
        E.GROUP_ID_NOT_FOUND
    )
    assert kit.answer(kit.join(group="s")).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert kit.shard.describe("s", 6).error_code == E.GROUP_ID_NOT_FOUND
    assert kit.shard.consumer_describe("s").error_code == E.GROUP_ID_NOT_FOUND
    assert kit.shard.shares is not None
    assert kit.shard.shares.describe("g").error_message == "Group g is not a share group."


def test_lists(kit: SharedKit) -> None:
    kit.enter("m", "t", group="g")
    assert kit.listed() == {"g": ("consumer", "Stable", "consumer"), "s": ("share", "Stable", "share")}
    assert list(kit.listed(types=("Share",))) == ["s"]
    assert list(kit.listed(states=("stable",), types=("consumer",))) == ["g"]
    assert kit.listed(states=("Empty",)) == {}


def test_removal(kit: SharedKit) -> None:
    assert kit.remove("s") == E.NON_EMPTY_GROUP
    kit.share("a", -1)
    assert kit.remove("s") == E.NONE
    assert kit.listed() == {}
    assert kit.enter("m", "t", group="s").error_code == E.NONE, "the id is free"


def test_another_leader(kit: SharedKit) -> None:
    before = kit.shard.shares.groups["s"].members  # type: ignore[union-attr]
    kit.restart()
    assert kit.shard.shares is not None
    assert kit.shard.shares.groups["s"].members == before
    kit.advance(44)
    assert kit.shard.shares.groups["s"].members
    kit.advance(1)
    assert not kit.shard.shares.groups["s"].members


def test_deleted_topics(kit: SharedKit) -> None:
    shares = kit.shard.shares
    assert shares is not None
    assert list(shares.groups["s"].partitions.initialized) == [topic_id("t")]
    kit.set_topics(t=None)
    for result in kit.shard.topics_deleted(["t"], kit.now):
        kit.run(result)
    assert list(shares.groups["s"].partitions.initialized) == []


def test_a_step_that_fails(kit: SharedKit, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ValueError("a bug")

    shares = kit.shard.shares
    assert shares is not None
    monkeypatch.setattr(shares.groups["s"], "expire", broken)
    kit.seconds += 46
    with pytest.raises(StepFailed):
        kit.shard.expire(kit.now)
    assert kit.shard.deadline() == kit.seconds + 60, "it is tried again"


def test_where_they_are_not_served(kit: SharedKit) -> None:
    kit.share_config = None
    kit.restart()
    assert kit.shard.shares is None
    assert kit.listed() == {}
    kit.advance(100)
    assert kit.remove("s") == E.GROUP_ID_NOT_FOUND
    assert kit.answer(kit.join(group="s")).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    kit.share_config = AT_ONCE
    kit.restart()
    assert list(kit.listed()) == ["s"], "their records stay"
