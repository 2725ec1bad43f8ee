"""DescribeProducers: what the log knows of producer ids."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import DescribeProducersRequest, DescribeProducersResponse
from barnabas.server.apis.transactions.describe_producers import API
from barnabas.server.tests.apis.data_world import NOW, data_world

State = DescribeProducersResponse.ProducerState


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path) as made:
        yield made


def request(*indexes: int, topic: str = "t") -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(indexes))]
    )


async def states(world) -> list[State]:
    response = await world.ask(API, request(0), 0)
    (answer,) = response.topics[0].partitions
    assert (answer.partition_index, answer.error_code, answer.error_message) == (0, 0, None)
    return sorted(answer.active_producers, key=lambda state: state.producer_id)


async def test_producers(world):
    (partition,) = world.topic("t")
    world.append(partition, NOW)
    assert await states(world) == []
    world.append(partition, NOW, NOW + 3, producer_id=5, producer_epoch=2, base_sequence=0)
    world.append(partition, NOW + 4, producer_id=5, producer_epoch=2, base_sequence=2)
    world.append(partition, NOW + 9, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    plain = State(
        producer_id=5,
        producer_epoch=2,
        last_sequence=2,
        last_timestamp=NOW + 4,
        coordinator_epoch=-1,
        current_txn_start_offset=-1,
    )
    assert await states(world) == [
        plain,
        State(
            producer_id=7,
            producer_epoch=0,
            last_sequence=0,
            last_timestamp=NOW + 9,
            coordinator_epoch=-1,
            current_txn_start_offset=4,
        ),
    ]
    world.end_transaction(partition, 7, 0, commit=False)
    ended = (await states(world))[1]
    assert (ended.coordinator_epoch, ended.current_txn_start_offset, ended.last_sequence) == (3, -1, 0)


async def test_places_that_are_not_here(world):
    world.topic("t", 2, elsewhere=1)
    response = await world.ask(API, request(0, 1, 2), 0)
    assert [answer.error_code for answer in response.topics[0].partitions] == [
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    for topic, code in [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]:
        response = await world.ask(API, request(0, topic=topic), 0)
        (answer,) = response.topics[0].partitions
        assert answer.error_code == code
        assert (answer.error_message is not None) is (code == ErrorCode.INVALID_TOPIC_EXCEPTION)


async def test_error_of_the_whole_request(world):
    answer = world.error_answer(API, request(0, 3), ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert [(a.partition_index, a.error_code) for a in answer.topics[0].partitions] == [(0, -1), (3, -1)]
