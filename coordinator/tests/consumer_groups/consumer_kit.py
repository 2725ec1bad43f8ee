"""The kit with next-generation groups (KIP-848): heartbeats, topics that come and go, patterns.

Topics are told as partition counts by name, assignments as partitions by topic name. Patterns are looked up by
`look_up`, with Python's regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from barnabas.coordinator import ResolvePatterns, Topic, Topics
from barnabas.coordinator.group.config import GroupConfig, GroupSettings
from barnabas.coordinator.group.consumer.stored import ConsumerRecord, parse_consumer_group
from barnabas.coordinator.group.shard import GroupShard
from barnabas.coordinator.tests.kit import QUICK, Kit
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    LeaveGroupRequest,
)
from barnabas.kproto.stored import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_versioned,
    encode_versioned,
)

AT_ONCE = replace(QUICK, consumer_assignment_interval_ms=0)
"""No time between two targets."""
JOIN = {"rebalance_timeout_ms": 30_000, "topic_partitions": ()}

Parts = dict[str, list[int]]


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\1")


def subscribe(*topics: str, owned: Mapping[str, Iterable[int]] | None = None, version: int = 1) -> bytes:
    """Metadata of a classic consumer."""
    return encode_versioned(
        ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[
                ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=list(partitions))
                for topic, partitions in (owned or {}).items()
            ],
        ),
        version,
    )


def assign(parts: Mapping[str, Iterable[int]], user_data: bytes | None = None) -> bytes:
    """What a classic leader assigns."""
    return encode_versioned(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
                for topic, partitions in parts.items()
            ],
            user_data=user_data,
        ),
        1,
    )


def assigned(data: bytes) -> Parts:
    message = decode_versioned(ConsumerProtocolAssignment, data)[1]
    return {each.topic: list(each.partitions) for each in message.assigned_partitions}


class ConsumerKit(Kit):
    """See the module."""

    def __init__(self, config: GroupConfig = AT_ONCE, **topics: int) -> None:
        self.topics = Topics(1, {name: Topic(name, topic_id(name), count) for name, count in topics.items()})
        self.settings: dict[str, GroupSettings] = {}
        super().__init__(config)

    def new_shard(self) -> GroupShard:
        shard = GroupShard(self.config, lambda group_id: self.settings.get(group_id))
        shard.set_topics(self.topics, list(self.topics.by_name))
        return shard

    def set_topics(self, **counts: int | None) -> None:
        """Topics come, get partitions, or go (None)."""
        changes = {
            name: None if count is None else Topic(name, topic_id(name), count) for name, count in counts.items()
        }
        self.topics = self.topics.with_changes(self.topics.version + 1, changes)
        self.shard.set_topics(self.topics, list(changes))

    def send(self, member_id: str = "a", epoch: int = 0, *, group: str = "g", version: int = 1, **fields: Any) -> int:
        """Send a heartbeat; returns its token. `owned`: partitions by topic, for `topic_partitions`."""
        owned = fields.pop("owned", None)
        if owned is not None:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id(name), partitions=list(partitions))
                for name, partitions in owned.items()
            ]
        elif "topic_partitions" in fields:
            fields["topic_partitions"] = list(fields["topic_partitions"])
        request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
        token = self.token()
        self._unique += 1
        self.run(
            self.shard.consumer_heartbeat(
                request, version, "c", "/127.0.0.1", f"made-{self._unique}", why_invalid, token, self.now
            )
        )
        return token

    def beat(self, member_id: str = "a", epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """A heartbeat and its answer, which must be there."""
        answer = self.answer(self.send(member_id, epoch, **fields))
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def enter(self, member_id: str = "a", *topics: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join with all that is needed; it must be allowed."""
        names = list(topics) if topics or "subscribed_topic_regex" not in fields else None
        answer = self.beat(member_id, 0, subscribed_topic_names=names, **{**JOIN, **fields})
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    def code(self, member_id: str = "a", epoch: int = 0, **fields: Any) -> ErrorCode:
        return ErrorCode(self.beat(member_id, epoch, **fields).error_code)

    def parts(self, answer: ConsumerGroupHeartbeatResponse) -> Parts | None:
        """The assignment in an answer; None if there is none."""
        if answer.assignment is None:
            return None
        by_id = self.topics.by_id
        return {by_id[each.topic_id].name: list(each.partitions) for each in answer.assignment.topic_partitions}

    def settle_all(self, *member_ids: str, group: str = "g", rounds: int = 6) -> dict[str, Parts]:
        """Heartbeats of members that follow their assignments, until nothing changes. Returns what each has then."""
        has: dict[str, Parts] = {}
        for _ in range(rounds):
            for member_id in member_ids:
                member = self.shard.groups[group].members[member_id]
                names = {topic.topic_id: name for name, topic in self.topics.by_name.items()}
                owned = {names[topic]: list(held) for topic, held in member.standing.assigned.items() if topic in names}
                answer = self.beat(member_id, member.standing.epoch, owned=owned, group=group)
                assert answer.error_code == ErrorCode.NONE, answer
                has[member_id] = owned
        return has

    def leave_later(self, member_id: str) -> int:
        """Send a LeaveGroup of a classic member; returns its token."""
        token = self.token()
        request = LeaveGroupRequest(group_id="g", members=[LeaveGroupRequest.MemberIdentity(member_id=member_id)])
        self.run(self.shard.leave(request, 5, token, self.now))
        return token

    def view(self, group: str = "g") -> ConsumerGroupDescribeResponse.DescribedGroup:
        return self.shard.consumer_describe(group)

    def epochs(self, group: str = "g") -> tuple[int, int]:
        """Of the group and of its target."""
        view = self.view(group)
        return view.group_epoch, view.assignment_epoch

    def members(self, group: str = "g") -> dict[str, int]:
        """Members with their epochs."""
        return {member.member_id: member.member_epoch for member in self.view(group).members}

    def look_up(self) -> int:
        """Carry the effects out. How many there were."""
        effects, self.effects = self.effects, []
        for effect in effects:
            assert isinstance(effect, ResolvePatterns)
            found = {
                # As the broker does: one that is invalid came out of a log, and matches nothing.
                pattern: [
                    name for name in effect.topics.by_name if not why_invalid(pattern) and re.fullmatch(pattern, name)
                ]
                for pattern in effect.patterns
            }
            self.run(self.shard.patterns_resolved(effect, found, self.now.wall_ms, self.now))
        return len(effects)

    def records(self, start: int = 0) -> list[ConsumerRecord]:
        """What next-generation groups wrote, from a position in the log."""
        parsed = (parse_consumer_group(record.key, record.value) for record in self.log[start:])
        return [record for record in parsed if record is not None]


def why_invalid(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return str(error)
    return None
