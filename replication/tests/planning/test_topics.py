"""What may be created and added: names, counts, assignments, and the order in which mistakes are reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from barnabas.kproto import ErrorCode, KafkaError, uuid_to_text
from barnabas.replication.planning.topics import (
    NewTopic,
    TopicDefaults,
    TopicRequest,
    check_total,
    fold,
    name_fault,
    new_uuid,
    plan_creation,
    plan_expansion,
)
from barnabas.replication.values.image import BrokerImage, Image, PartitionImage, TopicImage

THREE = Image().with_brokers({broker: BrokerImage(broker, ()) for broker in (1, 2, 3)})


def topic(name: str, *replicas: tuple[int, ...]) -> TopicImage:
    return TopicImage(
        name,
        name.encode().ljust(16)[:16],
        tuple(PartitionImage(index, r[0], 0, 0, r, r) for index, r in enumerate(replicas)),
    )


def no_config(config: Mapping[str, str]) -> None:
    if "bad" in config:
        raise KafkaError(ErrorCode.INVALID_CONFIG)


def plan(request: TopicRequest, image: Image = THREE, **kw: Any) -> NewTopic:
    return plan_creation(image, request, TopicDefaults(4, 2), check_config=no_config, rng=Random(3), **kw)


def code_of(*args: Any, **kw: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        plan(*args, **kw)
    return caught.value.code


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_", "-"])
def test_good_names(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "é", "a/b", "a\0", "a\n", "٣"])
def test_bad_names(name: str) -> None:
    assert name_fault(name)
    assert code_of(TopicRequest(name)) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_defaults_and_numbers() -> None:
    new = plan(TopicRequest("t"))
    assert len(new.assignments) == 4
    assert new.replication_factor == 2
    new = plan(TopicRequest("t", 2, 3, configs=(("a", "1"), ("b", "2"), ("a", "3"))))
    assert (len(new.assignments), new.replication_factor) == (2, 3)
    assert new.config == {"a": "3", "b": "2"}


def test_collisions() -> None:
    image = THREE.with_topics([topic("a.b", (1,)), topic("plain", (1,))])
    assert code_of(TopicRequest("a_b"), image) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(TopicRequest("a.b"), image) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert plan(TopicRequest("a-b"), image).name == "a-b"
    reserved = {fold("n.x"): "n.x"}
    assert code_of(TopicRequest("n_x"), reserved=reserved) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(TopicRequest("n.x"), reserved=reserved) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert code_of(TopicRequest("old"), deleting={"old"}) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_manual_assignments() -> None:
    good = TopicRequest("t", assignments=((1, (2, 3)), (0, (1, 2))))
    assert plan(good).assignments == {0: (1, 2), 1: (2, 3)}
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert code_of(good._replace(assignments=((0, (1, 2)), (1, (1,))))) == bad
    assert code_of(good._replace(assignments=((0, (1, 9)),))) == bad
    assert code_of(good._replace(assignments=((-1, (1,)), (0, (1,))))) == bad
    assert code_of(good._replace(partitions=2)) == ErrorCode.INVALID_REQUEST
    assert code_of(good._replace(replication_factor=2)) == ErrorCode.INVALID_REQUEST


def test_the_first_of_several_mistakes_is_reported() -> None:
    image = THREE.with_topics([topic("t", (1,))])
    everything_wrong = TopicRequest("t", 0, 0, ((0, ()),), (("bad", None),))
    assert code_of(everything_wrong, image) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert code_of(everything_wrong._replace(name="u"), image) == ErrorCode.INVALID_CONFIG
    assert code_of(everything_wrong._replace(name="u", configs=()), image) == ErrorCode.INVALID_REQUEST
    assert code_of(TopicRequest("a b", 0, 9, (), (("bad", "1"),))) == ErrorCode.INVALID_PARTITIONS
    assert code_of(TopicRequest("a b", 1, 9, (), (("bad", "1"),))) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert code_of(TopicRequest("a b", 1, 1, (), (("bad", "1"),))) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert code_of(TopicRequest("ab", 1, 1, (), (("bad", "1"),))) == ErrorCode.INVALID_CONFIG


def test_too_many() -> None:
    assert code_of(TopicRequest("t", 10_001)) == ErrorCode.POLICY_VIOLATION
    assert code_of(TopicRequest("t", 2**31 - 1)) == ErrorCode.POLICY_VIOLATION
    check_total(
        [TopicRequest("a", 5000), TopicRequest("b", 4996), TopicRequest("c"), TopicRequest("d", -9)], TopicDefaults(4)
    )
    with pytest.raises(KafkaError):
        check_total([TopicRequest("a", 5000), TopicRequest("b", 4997), TopicRequest("c")], TopicDefaults(4))


def test_expansion_follows_the_first_leader() -> None:
    image = THREE.with_topics([topic("t", (2, 3), (3, 1))])
    added = plan_expansion(image, "t", 5, None, rng=Random(1))
    assert sorted(added) == [2, 3, 4]
    assert [replicas[0] for replicas in added.values()] == [1, 2, 3]
    assert plan_expansion(image, "t", 3, [[1, 2]], rng=Random(1)) == {2: (1, 2)}


@pytest.mark.parametrize(
    ("name", "count", "manual", "code"),
    [
        ("no", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", -1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 20_000, None, ErrorCode.POLICY_VIOLATION),
        ("t", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("moving", 2, None, ErrorCode.REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_expansions_that_may_not_be(name: str, count: int, manual: Any, code: ErrorCode) -> None:
    moving = topic("moving", (1, 2))
    moving = moving.with_partitions([dataclasses.replace(moving.partitions[0], adding_replicas=(2,))])
    image = THREE.with_topics([topic("t", (2, 3), (3, 1)), moving])
    with pytest.raises(KafkaError) as caught:
        plan_expansion(image, name, count, manual, rng=Random(1))
    assert caught.value.code == code


def test_topic_ids_are_version_4_and_no_options() -> None:
    rng = Random(5)
    ids = [new_uuid(rng) for _ in range(2000)]
    assert len(set(ids)) == len(ids)
    assert all(topic_id[6] >> 4 == 4 and topic_id[8] >> 6 == 2 for topic_id in ids)
    assert not any(uuid_to_text(topic_id).startswith("-") for topic_id in ids)
