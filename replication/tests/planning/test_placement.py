"""Replica placement: Kafka's documented examples, spread, racks, limits."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.planning.placement import alternate_racks, assign_replicas


def plain(*brokers: int) -> dict[int, str | None]:
    return dict.fromkeys(brokers)


def test_the_example_of_apache_kafka_without_racks() -> None:
    assigned = assign_replicas(plain(0, 1, 2, 3, 4), 10, 3, Random(0), start=0)
    assert assigned == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_the_example_of_apache_kafka_with_racks() -> None:
    assert alternate_racks(RACKS) == [0, 3, 1, 5, 4, 2]
    assert assign_replicas(dict(RACKS), 7, 3, Random(0), start=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_racks_of_different_sizes_alternate_as_long_as_they_last() -> None:
    assert alternate_racks({0: "a", 1: "a", 2: "b", 3: "c", 4: "a"}) == [0, 2, 3, 1, 4]


@pytest.mark.parametrize("seed", range(30))
def test_spread_and_validity(seed: int) -> None:
    rng = Random(seed)
    count = rng.randrange(1, 12)
    ids = rng.sample(range(100), count)
    factor = rng.randrange(1, count + 1)
    partitions = rng.randrange(1, 60)
    racks: dict[int, str | None] = dict.fromkeys(ids)
    if rng.random() < 0.5:
        racks = {broker: f"r{rng.randrange(4)}" for broker in ids}
    assigned = assign_replicas(racks, partitions, factor, rng)
    assert sorted(assigned) == list(range(partitions)), f"seed {seed}"
    for replicas in assigned.values():
        assert len(set(replicas)) == factor, f"seed {seed}"
        assert set(replicas) <= set(ids)
        used = {racks[broker] for broker in replicas}
        assert len(used) == min(factor, len(set(racks.values()))), f"seed {seed}: racks before repeats"
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders.get(broker, 0) for broker in ids) <= 1, f"seed {seed}"


def test_more_partitions_go_on_where_the_first_ones_stopped() -> None:
    whole = assign_replicas(plain(1, 2, 3), 8, 2, Random(0), start=1)
    first = assign_replicas(plain(1, 2, 3), 5, 2, Random(0), start=1)
    rest = assign_replicas(plain(1, 2, 3), 3, 2, Random(0), start=1, first_partition=5)
    assert [replicas[0] for replicas in (first | rest).values()] == [replicas[0] for replicas in whole.values()]
    assert sorted(rest) == [5, 6, 7]


def test_one_broker() -> None:
    assert assign_replicas(plain(7), 3, 1, Random(0)) == {0: (7,), 1: (7,), 2: (7,)}
    assert assign_replicas({7: "r"}, 2, 1, Random(0)) == {0: (7,), 1: (7,)}


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "code"),
    [
        (plain(1), 0, 1, ErrorCode.INVALID_PARTITIONS),
        (plain(1), -3, 1, ErrorCode.INVALID_PARTITIONS),
        (plain(1), 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (plain(1), 1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({}, 1, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({1: "r", 2: None}, 1, 1, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_cannot_be_placed(brokers: dict[int, str | None], partitions: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        assign_replicas(brokers, partitions, factor, Random(0))
    assert caught.value.code == code
