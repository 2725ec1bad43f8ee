"""Replicas and those who read them: consumers on any replica, racks, throttles, ListOffsets; see `test_replicas`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import FetchRequest, ListOffsetsRequest
from barnabas.server.apis.records import fetch as fetch_api
from barnabas.server.apis.records import list_offsets
from barnabas.server.tests.apis.fakes import at_once
from barnabas.server.tests.partitions.replicas import TOPIC, TOPIC_ID, Answer, ReplicaWorld, consume, replica_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicaWorld]:
    with replica_world(tmp_path) as world:
        yield world


# -- consumers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [10, 11, 12, 16])
def test_any_replica_serves_consumers_that_know_how_to_ask(world: ReplicaWorld, version: int) -> None:
    world.lead(1)
    world[1].append(b"a")
    world.replicate(2, 3, 2, 3, 2, 3)
    world[1].append(b"b")
    world.replicate(2)
    version = 12 if version == 16 else version
    data = consume(world, 2, version=version).only
    if version < 11:
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 1, 1)
    assert len(data.records) < 100  # one of two batches
    assert consume(world, 2, 2, version=version).only.error_code == 0  # above the high watermark, not above the log
    assert consume(world, 2, 3, version=version).only.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert consume(world, 2, version=version, epoch=5).only.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    waiting = consume(world, 2, 1, version=version, wait_ms=500)
    assert waiting.response is None
    world.replicate(3, 2, 3, 2)
    assert (waiting.only.high_watermark, len(waiting.only.records) > 0) == (2, True)


@pytest.mark.parametrize("version", [8, 10, 11, 12])
def test_a_session_hears_of_a_leader_that_left(world: ReplicaWorld, version: int) -> None:
    """Also a consumer that names no epoch, and has everything."""
    world.lead(1, 1)
    world[1].append(b"a")

    def ask(session_id: int, epoch: int, *partitions: FetchRequest.FetchPartition) -> Answer:
        request = FetchRequest(session_id=session_id, session_epoch=epoch, max_wait_ms=500, min_bytes=1)
        request.max_bytes = 1 << 20
        if partitions:
            request.topics = [FetchRequest.FetchTopic(topic=TOPIC, partitions=list(partitions))]
        return world[1].ask(fetch_api.API, request, version)

    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    opened = ask(0, 0, asked)
    world.seconds += 1
    world.expire()
    session_id = opened.response.session_id
    assert session_id
    waiting = ask(session_id, 1)
    assert waiting.response is None
    world.lead(2, 2)
    if version < 11:
        assert waiting.only.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    else:
        assert waiting.response is None  # a follower serves it


RACKS = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.mark.parametrize(
    ("rack", "offset", "preferred"),
    [("rack2", 0, 2), ("rack1", 0, -1), ("nowhere", 0, -1), ("", 0, -1), ("rack2", 1, 2), ("rack3", 0, -1)],
)
def test_a_consumer_is_sent_to_a_replica_in_its_rack(tmp_path: Path, rack: str, offset: int, preferred: int) -> None:
    with replica_world(tmp_path, replica_selector_class=RACKS) as world:
        world.lead(1, 1, 2)
        world[1].append(b"a")
        world.replicate(2, 2)
        answer = consume(world, 1, offset, rack=rack, wait_ms=500)
        if preferred < 0:
            assert answer.only.preferred_read_replica == -1
            assert len(answer.only.records)
        else:
            assert (answer.only.preferred_read_replica, len(answer.only.records)) == (preferred, 0)
            assert answer.only.high_watermark == 1
        assert consume(world, 1, rack=rack, version=10).only.error_code == 0


def test_no_consumer_is_sent_to_a_replica_that_lacks_the_offset(tmp_path: Path) -> None:
    with replica_world(tmp_path, replica_selector_class=RACKS) as world:
        world.lead(1, 1, 2)
        world[1].append(b"a")
        assert consume(world, 1, 0, rack="rack2").only.preferred_read_replica == -1  # it has not fetched yet
        world.replicate(2)
        assert consume(world, 1, 0, rack="rack2").only.preferred_read_replica == 2
        assert consume(world, 1, 1, rack="rack2").only.preferred_read_replica == -1


def test_without_a_selector_racks_mean_nothing(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    world[1].append(b"a")
    world.replicate(2, 2)
    assert consume(world, 1, rack="rack2").only.preferred_read_replica == -1


def test_followers_that_serve_consumers_get_the_high_watermark_immediately(tmp_path: Path) -> None:
    with replica_world(tmp_path, replica_selector_class=RACKS) as world:
        world.lead(1, 1, 2, 3)
        world[1].append(b"a")
        opened = world.fetch(2, session_epoch=0, wait_ms=500)
        world.take(2, opened)
        world.replicate(3)
        request = FetchRequest(session_id=opened.response.session_id, session_epoch=1, max_wait_ms=500, min_bytes=1)
        request.max_bytes = 1 << 20
        request.replica_state = FetchRequest.ReplicaState(replica_id=2)
        asked = FetchRequest.FetchPartition(
            partition=0, current_leader_epoch=0, fetch_offset=1, partition_max_bytes=1 << 20
        )
        request.topics = [FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[asked])]
        waiting = world[1].ask(fetch_api.API, request, 17)
        assert waiting.response is None
        world.fetch(3)
        assert waiting.only.high_watermark == 1
        world[1].append(b"b")  # nobody waits any more
        assert not world[1].replica._waiters
        assert not world[1].replica._tail_waiters
        world.take(2, waiting)
        world.replicate(2, 3, 3)
        request.session_epoch = 2
        asked.fetch_offset = 2
        waiting = world[1].ask(fetch_api.API, request, 17)
        if waiting.response is not None:  # the high watermark moved with this very fetch
            request.session_epoch = 3
            waiting = world[1].ask(fetch_api.API, request, 17)
        assert waiting.response is None
        world.lead(1)
        assert waiting.only.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_version_18_says_which_high_watermark_it_knows(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    world[1].append(b"a")
    world.replicate(2)
    waiting = world.fetch(2, version=18, wait_ms=500, high_watermark=0)
    assert waiting.only.high_watermark == 1
    assert world.fetch(2, version=18, wait_ms=500, high_watermark=1).response is None
    assert world.fetch(2, version=18, wait_ms=500).response is None


# -- throttling ------------------------------------------------------------------------------------------------------


def test_the_leader_throttles_those_that_are_not_in_sync(tmp_path: Path) -> None:
    with replica_world(tmp_path) as world:
        world.lead(1, 1, 2)
        topic = world.image.topics[TOPIC]
        config = {"leader.replication.throttled.replicas": "0:1,5:2"}
        for number in range(3):
            world[1].append(b"%d" % number + b"x" * 1000)
        world.image = world.image.with_topics([replace(topic, config=config)])
        svc = world[1].svc
        svc.config = svc.config.with_dynamic(cluster={"leader.replication.throttled.rate": "100"})
        limit = {"partition_max_bytes": 1100}
        assert len(world.fetch(3, **limit).only.records)  # nothing was measured yet
        assert len(world.fetch(3, **limit).only.records) == 0
        assert len(world.fetch(2, **limit).only.records)  # in sync
        waiting = world.fetch(3, wait_ms=500)
        assert waiting.response is None
        world.seconds += 60
        world.expire()
        assert len(waiting.only.records)
        world.image = world.image.with_topics([replace(topic, config={})])
        for _ in range(3):
            assert len(world.fetch(3).only.records)


# -- other questions -------------------------------------------------------------------------------------------------


def list_one(world: ReplicaWorld, broker: int, timestamp: int, replica_id: int, epoch: int = -1) -> Answer:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[asked])
    answer = Answer(list_offsets.API, 7)
    request = ListOffsetsRequest(replica_id=replica_id, topics=[topic])
    answer.reply(at_once(list_offsets.handle(world[broker].svc, answer, request)))  # type: ignore[arg-type]
    return answer


def test_list_offsets_of_replicas(world: ReplicaWorld) -> None:
    world.lead(1)
    world[1].append(b"a", b"b")
    world.replicate(2, 3)

    def latest(broker: int, replica_id: int, epoch: int = -1) -> tuple[int, int]:
        data = list_one(world, broker, -1, replica_id, epoch).response.topics[0].partitions[0]
        return data.error_code, data.offset

    assert latest(1, -1) == (0, 0)
    assert latest(1, 2) == (0, 2)
    assert latest(1, 2, epoch=0) == (0, 2)
    assert latest(1, 2, epoch=1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
    for replica_id in (-1, 3):
        assert latest(2, replica_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert latest(2, -2) == (0, 2)
    world.lead(2)
    assert latest(2, -1) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert latest(2, 3) == (0, 2)
    assert latest(2, 3, epoch=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
    world.fetch(1)
    world.fetch(3)
    assert latest(2, -1) == (0, 2)
