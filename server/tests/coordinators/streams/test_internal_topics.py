"""Internal topics of streams groups: asked for once at a time, and what is told of those that cannot be made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from barnabas.coordinator.group.streams import InternalTopic
from barnabas.kproto import ErrorCode
from barnabas.replication import TopicRequest
from barnabas.server.coordinators.streams.internal_topics import InternalTopics

E = ErrorCode
Told = Callable[[Mapping[str, ErrorCode]], None]


class Maker:
    def __init__(self) -> None:
        self.asked: list[tuple[list[TopicRequest], Told]] = []
        self.runs = True
        self.now = 0.0
        self.charged: list[int] = []
        self.topics = InternalTopics(self, lambda: self.now)

    def ensure_topics_soon(self, requests: Collection[TopicRequest], told: Told, charge: Callable[[int], None]) -> bool:
        if self.runs:
            for request in requests:
                charge(request.partitions)
            self.asked.append((list(requests), told))
        return self.runs

    def want(self, *topics: InternalTopic) -> list[str]:
        """What is asked for."""
        before = len(self.asked)
        self.topics.want(topics, 10.0, self.charged.append)
        return [request.name for requests, _ in self.asked[before:] for request in requests]

    def tell(self, **codes: ErrorCode) -> None:
        self.asked.pop(0)[1](codes)


def topic(name: str, partitions: int = 2, factor: int = 0) -> InternalTopic:
    return InternalTopic(name, partitions, factor, (("cleanup.policy", "compact"),))


def test_topics_are_asked_for_as_they_are_wanted() -> None:
    maker = Maker()
    maker.want(topic("a"), topic("b", 3, 2), topic("c", 1, -1))
    requests = maker.asked[0][0]
    assert [(each.name, each.partitions, each.replication_factor) for each in requests] == [
        ("a", 2, -1),
        ("b", 3, 2),
        ("c", 1, -1),
    ]
    assert requests[0].configs == (("cleanup.policy", "compact"),)
    assert maker.charged == [2, 3, 1]


def test_one_request_at_a_time_for_each() -> None:
    maker = Maker()
    assert maker.want(topic("a"), topic("b")) == ["a", "b"]
    assert maker.want(topic("b"), topic("c")) == ["c"]
    maker.tell(a=E.NONE, b=E.NONE)
    assert maker.want(topic("b"), topic("c")) == ["b"]


def test_what_went_wrong_is_told_for_some_time() -> None:
    maker = Maker()
    maker.want(topic("a"), topic("b"), topic("c"), topic("d"))
    maker.tell(a=E.INVALID_CONFIG, b=E.NONE, c=E.LEADER_NOT_AVAILABLE, d=E.TOPIC_ALREADY_EXISTS)
    assert maker.topics.errors("abcd") == {"a": E.INVALID_CONFIG}
    maker.now = 9.0
    assert maker.topics.errors("a") == {"a": E.INVALID_CONFIG}
    maker.now = 10.0
    assert maker.topics.errors("a") == {}
    maker.want(topic("a"))
    maker.tell(a=E.NONE)
    assert maker.topics.errors("a") == {}


def test_what_went_wrong_is_not_tried_again_while_it_is_told() -> None:
    maker = Maker()
    maker.want(topic("a"), topic("b"), topic("c", 10_001))
    maker.tell(a=E.INVALID_CONFIG, b=E.NONE)
    assert maker.want(topic("a"), topic("b"), topic("c", 10_001)) == ["b"]
    assert maker.charged == [2, 2, 2]
    maker.tell(b=E.THROTTLING_QUOTA_EXCEEDED)
    maker.now = 9.0
    assert maker.want(topic("a"), topic("b")) == []
    maker.now = 10.0
    assert maker.want(topic("a"), topic("b")) == ["a", "b"]
    assert maker.topics.errors("abc") == {}


def test_too_many_partitions_are_not_asked_for() -> None:
    maker = Maker()
    assert maker.want(topic("a", 9_999), topic("b", 2), topic("c", 2**31 - 1)) == ["a"]
    assert maker.topics.errors("abc") == {"b": E.POLICY_VIOLATION, "c": E.POLICY_VIOLATION}


def test_each_of_many_that_are_too_many_is_looked_at_once() -> None:
    """And not all errors that are kept for each of them."""
    maker = Maker()
    asked = 0

    def now() -> float:
        nonlocal asked
        asked += 1
        return 0.0

    maker.topics = InternalTopics(maker, now)
    assert maker.want(*(topic(str(number), 10_001) for number in range(100))) == []
    assert asked == 1
    assert len(maker.topics.errors(map(str, range(200)))) == 100


def test_errors_are_bounded() -> None:
    maker = Maker()
    names = [str(number) for number in range(1_500)]
    maker.want(*(topic(name, 1) for name in names))
    maker.asked.pop(0)[1](dict.fromkeys(names, E.INVALID_CONFIG))
    assert len(maker.topics.errors(names)) == 1_000
    maker.now = 1.0
    maker.want(topic("a"))
    maker.tell(a=E.INVALID_CONFIG)
    assert len(maker.topics.errors([*names, "a"])) == 1_000
    assert maker.topics.errors("a") == {"a": E.INVALID_CONFIG}, "those go that are due first"


def test_a_broker_that_ends_asks_for_nothing() -> None:
    maker = Maker()
    maker.runs = False
    assert maker.want(topic("a")) == []
    maker.runs = True
    assert maker.want(topic("a")) == ["a"]
    maker.tell()  # it failed, and that was logged
    assert maker.want(topic("a")) == ["a"]
