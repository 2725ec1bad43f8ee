"""What a peer knows of a broker: names, ids, epochs and offsets, given or learnt from answers.

Every pool is short and forgets its oldest entries, so that what was learnt lately, and so is alive, is chosen often.
Names with one of the `secret` prefixes, those of the honest client and of a load, are never learnt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from barnabas.kproto import ZERO_UUID, ApiKey

T = TypeVar("T")
FIXED_TOPICS = ("t0", "t1", "compacted", "stamped")
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
GROUPS = ("g0", "g1", "g2", "m0", "m1")
SHARE_GROUPS = ("s0", "s1")
TRANSACTIONAL_IDS = ("tx0", "tx1", "tx2")


class Member(NamedTuple):
    """Of a group: `epoch` is a generation or, in the newer protocol, a member epoch."""

    group: str
    member_id: str
    epoch: int
    instance: str | None = None


class Producer(NamedTuple):
    transactional_id: str | None
    producer_id: int
    epoch: int


class Sent(NamedTuple):
    """What of a request is needed to understand its answer."""

    group: str = ""
    instance: str | None = None
    transactional_id: str | None = None


class Pool(Generic[T]):
    """Some values that stay and the last `size` learnt ones."""

    def __init__(self, fixed: Sequence[T], size: int = 6) -> None:
        self.all = list(fixed)
        self._fixed = len(self.all)
        self._size = size

    def learn(self, value: T) -> bool:
        """Remember it; False if it is known."""
        if value in self.all:
            return False
        if len(self.all) - self._fixed >= self._size:
            del self.all[self._fixed]
        self.all.append(value)
        return True


class Pools:
    """All of them. `see` learns from an answer and returns what is new of the kinds that differ from run to run."""

    def __init__(self, secret: Sequence[str] = ()) -> None:
        self.secret = tuple(secret)
        self.topics = Pool(FIXED_TOPICS, 4)
        self.topic_ids = Pool((ZERO_UUID, bytes(15) + b"\x01"), 8)
        self.members = Pool((Member("g0", "", -1), Member("g0", "nobody", 0), Member("m0", "nobody", 1)), 10)
        self.producers = Pool((Producer(None, -1, -1), Producer(None, 0, 0), Producer("tx0", 1, 0)), 8)
        self.sessions: Pool[tuple[int, int]] = Pool(((0, -1), (0, 0)), 6)
        self.offsets = Pool((0, 1), 6)
        self.brokers = Pool((1,), 3)

    def _is_secret(self, name: str | None) -> bool:
        return name is None or name.startswith(self.secret) if self.secret else name is None

    def see(self, key: int, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        learn = _LEARNERS.get(key)
        return learn(self, sent, answer) if learn is not None else []

    # -- one method for each kind of answer that tells something ---------------------------------------------------

    def _metadata(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        fresh = []
        for broker in answer.brokers[:3]:
            self.brokers.learn(broker.node_id)
        for topic in answer.topics[:50]:
            if self._is_secret(topic.name) or topic.error_code:
                continue
            if len(topic.name) < 60 and not topic.name.startswith("__"):
                self.topics.learn(topic.name)
            if topic.topic_id != ZERO_UUID and not topic.name.startswith("__") and self.topic_ids.learn(topic.topic_id):
                fresh.append(("topic id", topic.topic_id))
        return fresh

    def _created(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        fresh = []
        for topic in answer.topics[:20]:
            if topic.error_code == 0 and not self._is_secret(topic.name):
                if len(topic.name) < 60:
                    self.topics.learn(topic.name)
                if topic.topic_id != ZERO_UUID and self.topic_ids.learn(topic.topic_id):
                    fresh.append(("topic id", topic.topic_id))
        return fresh

    def _joined(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        if not answer.member_id or len(answer.member_id) > 200:
            return []
        self.members.learn(Member(sent.group, answer.member_id, answer.generation_id, sent.instance))
        return [("member id", answer.member_id.encode())]

    def _heartbeat(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        if not answer.member_id or len(answer.member_id) > 200:
            return []
        self.members.learn(Member(sent.group, answer.member_id, answer.member_epoch, sent.instance))
        return [("member id", answer.member_id.encode())]

    def _producer(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        if answer.producer_id >= 0:
            self.producers.learn(Producer(sent.transactional_id, answer.producer_id, answer.producer_epoch))
        return []

    def _fetched(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        for topic in answer.responses[:3]:
            for partition in topic.partitions[:3]:
                if partition.high_watermark > 0:
                    self.offsets.learn(partition.high_watermark)
        if answer.session_id and self.sessions.learn((answer.session_id, 1)):
            return [("fetch session", answer.session_id.to_bytes(4, "big", signed=True))]
        return []

    def _listed(self, sent: Sent, answer: Any) -> list[tuple[str, bytes]]:
        for topic in answer.topics[:3]:
            for partition in topic.partitions[:3]:
                if partition.offset > 0:
                    self.offsets.learn(partition.offset)
        return []


_LEARNERS = {
    int(ApiKey.METADATA): Pools._metadata,
    int(ApiKey.CREATE_TOPICS): Pools._created,
    int(ApiKey.JOIN_GROUP): Pools._joined,
    int(ApiKey.CONSUMER_GROUP_HEARTBEAT): Pools._heartbeat,
    int(ApiKey.INIT_PRODUCER_ID): Pools._producer,
    int(ApiKey.FETCH): Pools._fetched,
    int(ApiKey.LIST_OFFSETS): Pools._listed,
}
"""What is learnt from whose answers."""
