"""ListOffsets: named places, times, isolation, epochs, old versions."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ListOffsetsRequest, ListOffsetsResponse
from barnabas.server.apis.records import list_offsets
from barnabas.server.apis.records.list_offsets import API
from barnabas.server.runtime.turns import UNFINISHED, Turns, first_turn
from barnabas.server.tests.apis.data_world import NOW, DataWorld, data_world

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
VERSIONS = range(1, 12)
Answer = ListOffsetsResponse.ListOffsetsPartitionResponse


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path) as made:
        yield made


def request(*asked, topic="t", replica_id=-1, isolation_level=0) -> ListOffsetsRequest:
    """`asked`: (partition, timestamp[, current leader epoch])."""
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=index,
                        timestamp=timestamp,
                        current_leader_epoch=epoch[0] if epoch else -1,
                    )
                    for index, timestamp, *epoch in asked
                ],
            )
        ],
    )


async def one(world: DataWorld, timestamp: int, version: int = 11, **options) -> tuple[int, int, int, int]:
    """(error, timestamp, offset, leader epoch) for partition 0 of topic t."""
    response = await world.ask(API, request((0, timestamp), **options), version)
    ((answer,),) = [topic.partitions for topic in response.topics]
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


async def test_latest_and_earliest_in_all_versions(world):
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW + 1, NOW + 2)
    world.new_epoch(partition, 5)
    world.append(partition, NOW + 3)
    for version in VERSIONS:
        latest_epoch, earliest_epoch = (5, 0) if version >= 4 else (-1, -1)
        assert await one(world, LATEST, version) == (0, -1, 4, latest_epoch), version
        assert await one(world, EARLIEST, version) == (0, -1, 0, earliest_epoch), version


async def test_empty_log(world):
    world.topic("t")
    assert await one(world, LATEST) == (0, -1, 0, 0)
    assert await one(world, EARLIEST) == (0, -1, 0, 0)
    assert await one(world, MAX_TIMESTAMP) == (0, -1, -1, -1)
    assert await one(world, 0) == (0, -1, -1, -1)


async def test_earliest_moves_with_the_log_start(world):
    (partition,) = world.topic("t")
    world.append(partition, NOW)
    world.new_epoch(partition, 3)
    world.append(partition, NOW, NOW)
    partition.log.delete_records(2, partition.high_watermark)
    assert await one(world, EARLIEST) == (0, -1, 2, 3)
    assert await one(world, EARLIEST_LOCAL) == (0, -1, 2, 3)
    assert await one(world, 0) == (0, NOW, 2, 3)


async def test_by_time(world):
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW + 10, NOW + 5)
    world.new_epoch(partition, 2)
    world.append(partition, NOW + 7, NOW + 20)
    for target, expected in [
        (0, (NOW, 0, 0)),
        (NOW, (NOW, 0, 0)),
        (NOW + 1, (NOW + 10, 1, 0)),  # the first record that is late enough, not the nearest in time
        (NOW + 10, (NOW + 10, 1, 0)),
        (NOW + 11, (NOW + 20, 4, 2)),
        (NOW + 20, (NOW + 20, 4, 2)),
        (NOW + 21, (-1, -1, -1)),
        (2**63 - 1, (-1, -1, -1)),
    ]:
        assert await one(world, target) == (0, *expected), target
        timestamp, offset, _ = expected
        assert await one(world, target, 1) == (0, timestamp, offset, -1), target


async def test_by_time_over_segments(world):
    (partition,) = world.topic("t", segment_bytes="300")
    for i in range(30):
        world.append(partition, NOW + 10 * i, value=b"v" * 100)
    assert partition.log.segment_count > 10
    for i in range(30):
        assert await one(world, NOW + 10 * i - 9) == (0, NOW + 10 * i, i, 0)


async def test_max_timestamp(world):
    (partition,) = world.topic("t", segment_bytes="400")
    for timestamps in [(NOW, NOW + 50), (NOW + 70, NOW + 99, NOW + 99), (NOW + 99,), (NOW + 60,)]:
        world.append(partition, *timestamps, value=b"v" * 100)
    assert await one(world, MAX_TIMESTAMP) == (0, NOW + 99, 3, 0)


async def test_tiered_places_without_tiered_storage(world):
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW)
    partition.log.delete_records(1, partition.high_watermark)
    assert await one(world, EARLIEST_LOCAL, 8) == (0, -1, 1, 0)
    assert await one(world, LATEST_TIERED, 9) == (0, -1, -1, -1)
    assert await one(world, EARLIEST_PENDING, 11) == (0, -1, -1, -1)


async def test_negative_timestamps_and_versions(world):
    world.topic("t")
    since = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
    for version in VERSIONS:
        for timestamp in (*since, -7, -(2**63)):
            error = (await one(world, timestamp, version))[0]
            expected = 0 if version >= since.get(timestamp, 99) else ErrorCode.UNSUPPORTED_VERSION
            assert error == expected, (version, timestamp)


async def test_isolation(world):
    """`read_committed` sees up to the first open transaction, whatever comes after it."""
    (partition,) = world.topic("t")
    world.append(partition, NOW)
    world.append(partition, NOW + 1, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    world.append(partition, NOW + 2)
    assert (await one(world, LATEST))[2] == 3
    assert (await one(world, LATEST, isolation_level=1))[2] == 1
    assert (await one(world, NOW + 1))[2] == 1
    assert await one(world, NOW + 1, isolation_level=1) == (0, -1, -1, -1)
    assert await one(world, MAX_TIMESTAMP, isolation_level=1) == (0, -1, -1, -1)
    world.end_transaction(partition, 7, 0, commit=True)
    assert (await one(world, LATEST, isolation_level=1))[2] == 4
    assert (await one(world, NOW + 2, isolation_level=1))[2] == 2


async def test_unknown_isolation_level(world):
    """Not the code one would choose, but Apache Kafka's."""
    world.topic("t")
    assert (await one(world, LATEST, isolation_level=2))[0] == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_limits_of_the_high_watermark(world):
    """What is not committed is neither the latest for clients nor found by time; replicas see the log's end."""
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW + 1)
    partition.high_watermark = 1
    assert (await one(world, LATEST))[2] == 1
    assert await one(world, NOW + 1) == (0, -1, -1, -1)
    assert (await one(world, LATEST, replica_id=2))[2] == 2
    assert (await one(world, NOW + 1, replica_id=2))[2] == 1


async def test_new_leader_behind_its_epoch(world):
    """Until the high watermark reaches the start of its epoch a leader does not know what was committed before."""
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW + 1, NOW + 2)
    world.new_epoch(partition, 1)
    partition.high_watermark = 1
    unknown = (ErrorCode.OFFSET_NOT_AVAILABLE, -1, -1, -1)
    assert await one(world, LATEST) == unknown
    assert await one(world, NOW + 1) == unknown
    assert await one(world, NOW + 9) == unknown
    assert await one(world, MAX_TIMESTAMP) == unknown
    assert await one(world, LATEST, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, -1)
    assert await one(world, LATEST, 5) == unknown
    assert await one(world, EARLIEST) == (0, -1, 0, 0)
    assert await one(world, NOW) == (0, NOW, 0, 0)
    assert (await one(world, LATEST, replica_id=2))[2] == 3


async def test_leader_epochs(world):
    (partition,) = world.topic("t")
    world.new_epoch(partition, 4)
    response = await world.ask(API, request((0, LATEST, 4)), 4)
    assert response.topics[0].partitions[0].error_code == 0
    for epoch, code in [(3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)]:
        response = await world.ask(API, request((0, LATEST, epoch)), 4)
        assert response.topics[0].partitions[0] == Answer(partition_index=0, error_code=code)


async def test_places_that_are_not_here(world):
    partitions = world.topic("t", 3, elsewhere=1)
    partitions[1].resign()
    response = await world.ask(API, request(*((i, LATEST) for i in range(5))), 11)
    assert [answer.error_code for answer in response.topics[0].partitions] == [
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert (await one(world, LATEST, topic="nowhere"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_partition_named_twice(world):
    world.topic("t", 2)
    response = await world.ask(API, request((0, LATEST), (1, LATEST), (0, EARLIEST)), 11)
    answers = {answer.partition_index: answer.error_code for answer in response.topics[0].partitions}
    assert answers == {0: ErrorCode.INVALID_REQUEST, 1: 0}


async def test_look_ups_let_others_run(world):
    """Look-ups by time read from disk; many of them must not hold the loop."""
    world.topic("t", 50)
    ctx = SimpleNamespace(api_version=11)
    steps = list_offsets.handle(world.svc, ctx, request(*((i, NOW) for i in range(50))))
    turns = 1
    while (response := first_turn(steps)) is UNFINISHED:
        turns += 1
    assert turns >= 9
    assert len(response.topics[0].partitions) == 50


@pytest.mark.parametrize("asked", [[(7, NOW)] * 3000, [(50 + i, NOW) for i in range(3000)]], ids=["twice", "unknown"])
async def test_what_is_refused_costs_no_look_up(world, asked):
    """Thousands of refused places took a turn of the whole broker for every five."""
    world.topic("t", 50)
    steps = list_offsets.handle(world.svc, SimpleNamespace(api_version=11), request(*asked))
    turns = 1
    while (response := first_turn(steps)) is UNFINISHED:
        turns += 1
    assert turns <= 6
    assert all(answer.error_code for answer in response.topics[0].partitions)


# ---- version 0


async def old_style(world: DataWorld, timestamp: int, count: int = 10, **options) -> list[int]:
    asked = request((0, timestamp), **options)
    asked.topics[0].partitions[0].max_num_offsets = count
    response = await world.ask(API, asked, 0)
    answer = response.topics[0].partitions[0]
    assert answer.error_code == 0
    return answer.old_style_offsets


async def test_version_0(world):
    (partition,) = world.topic("t", segment_bytes="250")
    world.wall_ms = NOW + 1000
    for i in range(4):
        world.append(partition, NOW + i, value=b"v" * 100)
    assert partition.log.segment_bases == [0, 1, 2, 3]
    assert await old_style(world, LATEST) == [4, 3, 2, 1, 0]
    assert await old_style(world, LATEST, 1) == [4]
    assert await old_style(world, LATEST, 3) == [4, 3, 2]
    assert await old_style(world, LATEST, 0) == []
    assert await old_style(world, LATEST, -1) == []
    assert await old_style(world, EARLIEST) == [0]
    assert await old_style(world, NOW + 1) == [1, 0]
    assert await old_style(world, NOW + 3) == [3, 2, 1, 0]
    assert await old_style(world, NOW - 1) == []
    assert await old_style(world, NOW + 2000, 1) == [4]


async def test_version_0_without_timestamps(world):
    """What clients older than 0.10 produce has none: then a segment is as old as its file."""
    (partition,) = world.topic("t", segment_bytes="250")
    for _ in range(3):
        world.append(partition, -1, value=b"v" * 100)
    world.wall_ms = 1 << 60
    for name, seconds in (("0" * 20, 1000), (f"{1:020}", 3000), (f"{2:020}", 2000)):
        os.utime(f"{partition.log.directory}/{name}.log", (seconds, seconds))
    assert await old_style(world, 999_999) == []
    assert await old_style(world, 1_000_000) == [0]
    assert await old_style(world, 2_000_000) == [2, 1, 0]
    assert await old_style(world, LATEST) == [3, 2, 1, 0]


async def test_version_0_of_an_empty_log(world):
    (partition,) = world.topic("t")
    for timestamp in (LATEST, EARLIEST, NOW):
        assert await old_style(world, timestamp) == [0]
    world.append(partition, NOW)
    partition.log.delete_records(1, 1)
    assert await old_style(world, LATEST) == [1, 1]
    assert await old_style(world, EARLIEST) == [1]


async def test_version_0_and_the_high_watermark(world):
    (partition,) = world.topic("t", segment_bytes="250")
    for i in range(4):
        world.append(partition, NOW + i, value=b"v" * 100)
    partition.high_watermark = 2
    assert await old_style(world, LATEST) == [2, 2, 1, 0]
    assert await old_style(world, LATEST, 1) == [2]
    assert await old_style(world, LATEST, replica_id=1) == [4, 3, 2, 1, 0]


async def test_version_0_errors(world):
    world.topic("t")
    response = await world.ask(API, request((0, MAX_TIMESTAMP), (1, LATEST)), 0)
    assert [(a.error_code, a.old_style_offsets) for a in response.topics[0].partitions] == [
        (ErrorCode.UNSUPPORTED_VERSION, []),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


@pytest.fixture
def elsewhere(world, monkeypatch) -> list[int]:
    """The ends of the batches that were looked through off the loop."""
    batches: list[int] = []
    leave = Turns.elsewhere

    async def noted(turns: Turns, function, *args):
        batches.append(function.__self__.last_offset)
        return await leave(turns, function, *args)

    monkeypatch.setattr(Turns, "elsewhere", noted)
    return batches


async def test_batches_that_take_long_are_looked_through_off_the_loop(world, elsewhere):
    (partition,) = world.topic("t")
    world.append(partition, NOW, NOW + 1)
    world.append(partition, *range(NOW + 10, NOW + 10 + 1500))
    assert await one(world, NOW + 1) == (0, NOW + 1, 1, 0)
    assert elsewhere == [], "a short one"
    assert await one(world, NOW + 1000) == (0, NOW + 1000, 992, 0)
    assert await one(world, NOW + 1000, 3) == (0, NOW + 1000, 992, -1)
    assert await one(world, MAX_TIMESTAMP) == (0, NOW + 1509, 1501, 0)
    assert await one(world, NOW + 2000) == (0, -1, -1, -1)
    assert elsewhere == [1501] * 3
    response = await world.ask(API, request((0, NOW + 9), (1, NOW), (0, LATEST)), 8)
    (topic,) = response.topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [
        (0, ErrorCode.INVALID_REQUEST),
        (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_compressed_batches_are_looked_through_off_the_loop(world, elsewhere):
    (partition,) = world.topic("t")
    world.append(partition, NOW, codec=1)
    world.append(partition, NOW + 1, codec=1, value=os.urandom(2000))
    assert await one(world, NOW) == (0, NOW, 0, 0)
    assert elsewhere == []
    assert await one(world, NOW + 1) == (0, NOW + 1, 1, 0)
    assert elsewhere == [1]


async def test_the_record_is_behind_the_batch_that_took_long(world, elsewhere):
    """It has been deleted in the first one, and what is left of that is older."""
    (partition,) = world.topic("t")
    world.append(partition, NOW + 100, *[NOW] * 1500)
    world.append(partition, *[NOW + 100] * 1200)
    partition.log.delete_records(1, partition.high_watermark)
    assert await one(world, NOW + 90) == (0, NOW + 100, 1501, 0)
    assert elsewhere == [1500, 2700]


async def test_a_long_look_up_may_lose_the_partition(world, elsewhere, monkeypatch):
    (partition,) = world.topic("t")
    world.append(partition, *range(NOW, NOW + 1500))
    leave = Turns.elsewhere

    async def lost(turns: Turns, function, *args):
        found = await leave(turns, function, *args)
        world.svc.partitions.delete("t", 0)
        return found

    monkeypatch.setattr(Turns, "elsewhere", lost)
    assert (await one(world, NOW + 5))[0] in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
