"""OffsetForLeaderEpoch: where epochs end."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from barnabas.server.apis.records.offset_for_leader_epoch import API
from barnabas.server.tests.apis.data_world import NOW, data_world

Answer = OffsetForLeaderEpochResponse.EpochEndOffset


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path) as made:
        yield made


def request(*asked, topic="t") -> OffsetForLeaderEpochRequest:
    """`asked`: (partition, epoch, current leader epoch)."""
    return OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                        partition=index, leader_epoch=epoch, current_leader_epoch=current
                    )
                    for index, epoch, current in asked
                ],
            )
        ]
    )


@pytest.mark.parametrize("version", range(5))
async def test_epochs(world, version):
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW)
    world.new_epoch(partition, 3)
    world.append(partition, NOW, NOW, NOW)
    world.new_epoch(partition, 7)
    world.append(partition, NOW)
    for epoch, (found, end_offset) in {
        0: (0, 2),
        1: (0, 2),  # never was: the one before it
        2: (0, 2),
        3: (3, 5),
        6: (3, 5),
        7: (7, 6),  # the newest: the log's end
        8: (-1, -1),
        -1: (-1, -1),
    }.items():
        response = await world.ask(API, request((0, epoch, -1)), version)
        (answer,) = response.topics[0].partitions
        assert response.topics[0].topic == "t"
        assert answer == Answer(partition=0, leader_epoch=found if version >= 1 else -1, end_offset=end_offset), epoch


async def test_below_the_first_epoch_that_is_left(world):
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW)
    world.new_epoch(partition, 3)
    world.append(partition, NOW, NOW)
    partition.log.delete_records(3, partition.high_watermark)
    response = await world.ask(API, request((0, 0, -1)), 4)
    assert response.topics[0].partitions == [Answer(partition=0, leader_epoch=0, end_offset=3)]


async def test_current_leader_epoch(world):
    (partition,) = world.topic("t")
    world.new_epoch(partition, 4)
    codes = {3: ErrorCode.FENCED_LEADER_EPOCH, 4: 0, 5: ErrorCode.UNKNOWN_LEADER_EPOCH, -1: 0}
    for current, code in codes.items():
        response = await world.ask(API, request((0, 9, current)), 2)
        assert response.topics[0].partitions == [Answer(partition=0, error_code=code)], current


async def test_places_that_are_not_here(world):
    world.topic("t", 2, elsewhere=1)
    response = await world.ask(API, request((0, 0, -1), (1, 0, -1), (2, 0, -1)), 4)
    assert response.topics[0].partitions == [
        Answer(partition=0, leader_epoch=0, end_offset=0),
        Answer(partition=1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(partition=2, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    response = await world.ask(API, request((0, 0, -1), topic="nowhere"), 4)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_error_of_the_whole_request(world):
    answer = world.error_answer(API, request((0, 0, -1), (1, 0, -1)), ErrorCode.UNKNOWN_SERVER_ERROR, 4)
    assert [(a.partition, a.error_code) for a in answer.topics[0].partitions] == [(0, -1), (1, -1)]
