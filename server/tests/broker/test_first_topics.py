"""Topics that a broker is started with: how they are written, and that they are there."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.replication import TopicRequest
from barnabas.server.broker.first_topics import REST_S, TRIES, VARIABLE, make_topics, parse_topic, topics_in
from barnabas.server.testing import embedded_broker, embedded_cluster

E = ErrorCode


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("orders", TopicRequest("orders")),
        ("orders:3", TopicRequest("orders", 3)),
        ("orders:3:2", TopicRequest("orders", 3, 2)),
        ("orders:3:2:compact", TopicRequest("orders", 3, 2, configs=(("cleanup.policy", "compact"),))),
    ],
)
def test_how_a_topic_is_written(text: str, topic: TopicRequest) -> None:
    assert parse_topic(text) == topic


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the empty string is not allowed"),
        ("a b", "other than ASCII"),
        ("a:0", "must be written as NAME:PARTITIONS:REPLICAS"),
        ("a:x", "must be written as NAME:PARTITIONS:REPLICAS"),
        ("a:1:", "must be written as NAME:PARTITIONS:REPLICAS"),
        ("a:1:1:compact:x", "must be written as NAME:PARTITIONS:REPLICAS"),
        ("a:1:1:shrink", "shrink must be one of delete, compact"),
    ],
)
def test_what_is_no_topic(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_topic(text)


def test_the_variable_of_container_images() -> None:
    assert topics_in({}) == topics_in({VARIABLE: " "}) == []
    names = [topic.name for topic in topics_in({VARIABLE: "a:1:1,b:2:1:compact,\n c\nd:1"})]
    assert names == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match=f"^{VARIABLE}=a,b:x is refused: 'b:x' must be written as"):
        topics_in({VARIABLE: "a,b:x"})


async def test_they_are_created_unless_they_exist(caplog: pytest.LogCaptureFixture) -> None:
    async with embedded_broker(num_partitions="2") as broker:
        await make_topics(broker, [parse_topic("a"), parse_topic("b:3"), parse_topic("c:1:1:compact")])
        await make_topics(broker, [parse_topic("b:7"), parse_topic("d:1:5")])
        topics = broker.services.cluster.image.topics
        assert {name: len(topic.partitions) for name, topic in topics.items()} == {"a": 2, "b": 3, "c": 1}
        assert topics["c"].config == {"cleanup.policy": "compact"}
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["cannot create topic d: INVALID_REPLICATION_FACTOR"]


class Controller:
    """Answers one call after the other with what it was given; the last answer stays."""

    def __init__(self, *answers: dict[str, ErrorCode]) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    async def ensure_topics(self, requests: Sequence[TopicRequest]) -> dict[str, ErrorCode]:
        self.asked.append([request.name for request in requests])
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def member(controller: Controller) -> Any:
    return SimpleNamespace(config=SimpleNamespace(is_clustered=True), services=SimpleNamespace(topics=controller))


async def test_in_a_cluster_other_brokers_are_waited_for(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    missing = E.INVALID_REPLICATION_FACTOR
    controller = Controller({"a": missing, "b": E.NONE}, {"a": missing}, {"a": E.LEADER_NOT_AVAILABLE})
    await make_topics(member(controller), [parse_topic("a:1:3"), parse_topic("b")])
    assert controller.asked == [["a", "b"], ["a"], ["a"]]
    assert trio.current_time() == 2 * REST_S
    assert caplog.messages == []
    never = Controller({"a": missing})
    await make_topics(member(never), [parse_topic("a:1:3")])
    assert len(never.asked) == TRIES
    assert caplog.messages == ["cannot create topic a: INVALID_REPLICATION_FACTOR"]


async def test_a_member_that_is_not_the_controller_makes_them_once_there_are_brokers_enough(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "barnabas.controller")
    async with embedded_cluster(1) as cluster:
        second = await cluster.start(2)
        await cluster.all_alive()
        assert second.services.cluster.image.controller_id == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_topics, second, [parse_topic("orders:2:3")])
            await trio.sleep(5 * REST_S)
            assert "orders" not in second.services.cluster.image.topics
            await cluster.start(3)
        await cluster.image_until(lambda image: "orders" in image.topics)
        topic = second.services.cluster.image.topics["orders"]
        assert [sorted(partition.replicas) for partition in topic.partitions] == [[1, 2, 3]] * 2
    assert not any("cannot create topic" in text for text in caplog.messages)
    assert "topic orders found in the store: 2 partitions, replication factor 3" in caplog.messages
