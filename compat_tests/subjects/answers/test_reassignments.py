"""AlterPartitionReassignments of what is not there, and of what is not on the move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from barnabas.kproto import ApiKey
from compat_tests.harness.brokers import Broker
from compat_tests.subjects.access.connection import Connection, request

pytestmark = pytest.mark.slow

NONE, UNKNOWN_PARTITION, INVALID_REPLICAS, NOT_ON_THE_MOVE = 0, 3, 39, 85


@pytest.fixture
def asked(broker: Broker) -> Iterator[Connection]:
    with closing(Connection(broker.address)) as connection:
        yield connection


@pytest.mark.parametrize("version", [0, 1])
def test_the_partition_is_looked_for_first(asked: Connection, unique: Callable[..., str], version: int) -> None:
    name, missing = unique(), unique("missing")
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
    made = asked.ask(request(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000}), 7)
    assert [each.error_code for each in made.topics] == [NONE]

    def codes(replicas: list[int] | None) -> list[int]:
        """Of the partition that is there, of another one, of a topic that is not there."""
        named = [
            {"name": name, "partitions": [{"partition_index": index, "replicas": replicas} for index in (0, 9)]},
            {"name": missing, "partitions": [{"partition_index": 0, "replicas": replicas}]},
        ]
        moves = request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, {"topics": named, "timeout_ms": 30_000})
        answer = asked.ask(moves, version)
        assert answer.error_code == NONE
        return [each.error_code for topic in answer.responses for each in topic.partitions]

    elsewhere = [UNKNOWN_PARTITION, UNKNOWN_PARTITION]
    assert codes(None) == [NOT_ON_THE_MOVE, *elsewhere]
    assert codes([]) == [INVALID_REPLICAS, *elsewhere]
    assert codes([4711]) == [INVALID_REPLICAS, *elsewhere]
    assert codes([-1]) == [INVALID_REPLICAS, *elsewhere]
