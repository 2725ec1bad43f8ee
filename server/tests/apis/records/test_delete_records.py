"""DeleteRecords: moving the log start."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import DeleteRecordsRequest, DeleteRecordsResponse
from barnabas.server.apis.records.delete_records import API
from barnabas.server.tests.apis.data_world import NOW, data_world

Answer = DeleteRecordsResponse.DeleteRecordsPartitionResult


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path) as made:
        yield made


def request(*asked, topic="t") -> DeleteRecordsRequest:
    """`asked`: (partition, offset)."""
    return DeleteRecordsRequest(
        timeout_ms=60_000,
        topics=[
            DeleteRecordsRequest.DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
                    for index, offset in asked
                ],
            )
        ],
    )


async def delete(world, offset: int, version: int = 2, *, topic: str = "t") -> tuple[int, int]:
    """(error, low watermark)"""
    response = await world.ask(API, request((0, offset), topic=topic), version)
    (answer,) = response.topics[0].partitions
    assert response.topics[0].name == topic
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", range(3))
async def test_delete(world, version):
    (partition,) = world.topic("t")
    world.append(partition, *[NOW] * 10)
    assert await delete(world, 4, version) == (0, 4)
    assert partition.log_start_offset == 4
    assert await delete(world, 2, version) == (0, 4)  # already gone: fine, and nothing comes back
    assert await delete(world, 4, version) == (0, 4)
    assert await delete(world, -1, version) == (0, 10)
    assert partition.log_start_offset == partition.log_end_offset == 10
    with pytest.raises(KafkaError) as caught:
        partition.read(9, 1000, upper_offset=10, min_one_batch=True)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.append(partition, NOW) == 10


async def test_out_of_range(world):
    (partition,) = world.topic("t")
    world.append(partition, *[NOW] * 10)
    partition.high_watermark = 5
    for offset in (6, 10, 11, -2, 2**63 - 1, -(2**63)):
        assert await delete(world, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1), offset
    assert partition.log_start_offset == 0
    assert await delete(world, -1) == (0, 5)


async def test_retention_removes_the_files(world):
    (partition,) = world.topic("t", segment_bytes="300")
    for i in range(6):
        world.append(partition, NOW + i, value=b"v" * 150)
    assert partition.log.segment_count == 6
    assert await delete(world, 4) == (0, 4)
    partition.log.retain(NOW, partition.high_watermark)
    assert partition.log.segment_bases == [4, 5]


async def test_policies(world):
    (compacted,) = world.topic("compacted", cleanup_policy="compact")
    (both,) = world.topic("both", cleanup_policy="compact,delete")
    for partition in (compacted, both):
        world.append(partition, NOW, NOW)
    assert await delete(world, 1, topic="compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert await delete(world, 1, topic="both") == (0, 1)


async def test_internal_topics(world):
    world.topic("__consumer_offsets")
    assert await delete(world, 0, topic="__consumer_offsets") == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert await delete(world, 0, topic="__transaction_state") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_places_that_are_not_here(world):
    partitions = world.topic("t", 3, elsewhere=1)
    partitions[1].resign()
    response = await world.ask(API, request(*((i, 0) for i in range(4))), 2)
    assert response.topics[0].partitions == [
        Answer(partition_index=0, low_watermark=0),
        Answer(partition_index=1, low_watermark=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(partition_index=2, low_watermark=-1, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Answer(partition_index=3, low_watermark=-1, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_error_of_the_whole_request(world):
    answer = world.error_answer(API, request((0, 5)), ErrorCode.UNKNOWN_SERVER_ERROR, 2)
    assert answer.topics[0].partitions == [Answer(partition_index=0, low_watermark=-1, error_code=-1)]
