"""A partition's replicas together: followers' fetches, high watermarks, acks=all, roles, the in-sync set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import FetchRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.logdir import AppendOrigin, LogConfig, UnexpectedOffset
from barnabas.replication import Refusal
from barnabas.server.apis.records import fetch as fetch_api
from barnabas.server.tests.partitions.replicas import (
    TOPIC,
    TOPIC_ID,
    Answer,
    ReplicaWorld,
    consume,
    offsets,
    replica_world,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicaWorld]:
    with replica_world(tmp_path) as world:
        yield world


# -- progress --------------------------------------------------------------------------------------------------------


def test_the_high_watermark_follows_the_slowest_in_sync(world: ReplicaWorld) -> None:
    world.lead(1)
    world[1].append(b"a", b"b")
    assert offsets(world, 1) == (0, 2)
    world.replicate(2, 3)
    assert [offsets(world, each) for each in (1, 2, 3)] == [(0, 2)] * 3
    world.replicate(2)
    assert offsets(world, 1) == (0, 2)  # of broker 3 only offset 0 was heard
    world.replicate(3)
    assert offsets(world, 1) == (2, 2)
    assert offsets(world, 3) == (2, 2)  # the fetch that moved it hears of it at once
    assert offsets(world, 2) == (0, 2)
    world.replicate(2)
    assert offsets(world, 2) == (2, 2)
    assert world[1].values() == world[2].values() == world[3].values() == [b"a", b"b"]


def test_an_append_wakes_followers_and_a_commit_consumers(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    world.replicate(2)
    follower = world.fetch(2, wait_ms=500)
    consumer = consume(world, 1, wait_ms=500)
    assert (follower.response, consumer.response) == (None, None)
    world[1].append(b"a")
    assert len(follower.only.records) > 61
    assert consumer.response is None
    world.take(2, follower)
    world.fetch(2)
    assert consumer.only.high_watermark == 1
    assert len(consumer.only.records) > 61


def test_a_consumer_counts_bytes_when_they_are_committed(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    request = FetchRequest(max_wait_ms=500, min_bytes=150, max_bytes=1 << 20)
    request.topics = [FetchRequest.FetchTopic(topic=TOPIC, partitions=[FetchRequest.FetchPartition(partition=0)])]
    request.topics[0].partitions[0].partition_max_bytes = 1 << 20
    consumer = world[1].ask(fetch_api.API, request, 12)
    for _ in range(2):
        world[1].append(b"a")
        world.replicate(2, 2)
        assert consumer.response is None
    world[1].append(b"a")
    assert consumer.response is None
    world.replicate(2, 2)
    assert len(consumer.only.records) >= 150


def test_a_waiting_follower_is_answered_when_its_time_is_over(world: ReplicaWorld) -> None:
    world.lead(1)
    waiting = world.fetch(2, wait_ms=500)
    world.seconds += 0.6
    world.expire()
    assert (waiting.only.error_code, waiting.only.high_watermark, len(waiting.only.records)) == (0, 0, 0)


def test_looking_again_is_no_progress(world: ReplicaWorld) -> None:
    """A parked fetch says what the follower had when it came in, and when that was."""
    world.lead(1)
    world.fetch(2, wait_ms=500)
    leader = world[1].replica.leader
    assert leader is not None
    world.seconds += 20
    world[1].append(b"a")
    assert (leader.followers[2].log_end_offset, leader.followers[2].caught_up_at) == (0, 1000.0)


def test_a_batch_longer_than_the_limit_reaches_the_follower_whole(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    world[1].append(b"x" * 5000)
    answer = world.fetch(2, partition_max_bytes=100)
    world.take(2, answer)
    assert offsets(world, 2) == (0, 1)


def test_the_last_written_state_moves_with_sessions_too(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    opened = world.fetch(2, session_epoch=0)
    session_id = opened.response.session_id
    assert session_id
    session = next(iter(world[1].svc.fetch_sessions._sessions.values()))
    assert session.privileged
    world.take(2, opened)

    def again(epoch: int, *, changed: bool) -> Answer:
        request = FetchRequest(session_id=session_id, session_epoch=epoch, max_bytes=1 << 20, min_bytes=1)
        request.max_wait_ms = 500
        request.replica_state = FetchRequest.ReplicaState(replica_id=2, replica_epoch=77)
        if changed:
            replica = world[2].replica
            asked = FetchRequest.FetchPartition(
                partition=0,
                current_leader_epoch=replica.leader_epoch,
                fetch_offset=replica.log_end_offset,
                partition_max_bytes=1 << 20,
            )
            request.topics = [FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[asked])]
        return world[1].ask(fetch_api.API, request, 17)

    waiting = again(1, changed=False)
    assert waiting.response is None
    world[1].append(b"a")
    world.take(2, waiting)
    waiting = again(2, changed=True)
    assert offsets(world, 1) == (1, 1)
    world.seconds += 1
    world.expire()
    assert waiting.only.high_watermark == 1  # news: it moved with this very fetch
    waiting = again(3, changed=False)
    world.seconds += 1
    world.expire()
    assert waiting.response.responses == []


# -- who may fetch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [9, 12, 13, 15, 17, 18])
def test_strangers_and_other_epochs_are_refused(world: ReplicaWorld, version: int) -> None:
    world.lead(1, 1, 2, replicas=(1, 2))
    world.state = replace(world.state, replicas=(1, 2, 3))
    world.lead(1, 1, 2, tell=False)
    world.tell(2)
    world.tell(3)  # the leader has not heard yet of the new epoch, nor of its new replica
    for follower in (2, 3):
        assert world.fetch(follower, version=version).only.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    stranger = world.fetch(3, version=version, current_leader_epoch=0).only
    assert stranger.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert world.fetch(3, version=version, current_leader_epoch=-1).only.error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    world.tell(1)
    assert world.fetch(3, version=version).only.error_code == ErrorCode.NONE
    assert world.fetch(2, version=version, current_leader_epoch=0).only.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_followers_are_served_by_the_leader_alone(world: ReplicaWorld) -> None:
    world.lead(1)
    answer = world.fetch(2, leader=3)
    assert answer.only.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (answer.only.current_leader.leader_id, answer.only.current_leader.leader_epoch) == (1, 0)
    assert [(each.node_id, each.host, each.port) for each in answer.response.node_endpoints] == [(1, "host1", 9001)]
    old = world.fetch(2, leader=3, version=15)
    assert (old.only.error_code, old.only.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_out_of_range_is_no_progress(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    world[1].append(b"a")
    answer = world.fetch(2, fetch_offset=5, last_fetched_epoch=-1)
    assert answer.only.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(world, 1) == (0, 1)


# -- elections -------------------------------------------------------------------------------------------------------


def test_a_diverging_follower_gets_the_offset_to_truncate_to(world: ReplicaWorld) -> None:
    world.lead(1)
    world[1].append(b"a")
    world.replicate(2, 3, 2, 3)
    world[1].append(b"lost")  # nobody fetches it
    world.lead(2, 2, 3)
    world[2].append(b"b", b"c")
    data = world.fetch(1).only
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset, len(data.records)) == (0, 1, 0)
    leader = world[2].replica.leader
    assert leader is not None
    assert leader.followers[1].log_end_offset == -1  # a fetch from beyond the truth is no progress
    world[1].replica.truncate_to(1)
    world.replicate(1, 3, 1, 3, 1)
    assert world[1].values() == world[3].values() == [b"a", b"b", b"c"]
    assert [offsets(world, each) for each in (1, 2, 3)] == [(3, 3)] * 3


def test_high_watermarks_survive_changes_of_role(world: ReplicaWorld) -> None:
    world.lead(1)
    world[1].append(b"a", b"b")
    world.replicate(2, 3, 2, 3, 2, 3)
    world[1].append(b"c")
    world.replicate(2, 3)
    assert [offsets(world, each) for each in (1, 2, 3)] == [(2, 3)] * 3
    world.lead(2)
    assert [offsets(world, each) for each in (1, 2, 3)] == [(2, 3)] * 3
    world.replicate(1, 3)
    assert offsets(world, 2) == (3, 3)


def test_the_high_watermark_falls_with_the_log_only(world: ReplicaWorld) -> None:
    world.lead(1)
    world[1].append(b"a", b"b")
    world[1].append(b"c")
    world.replicate(2, 3, 2, 3, 2, 3)
    replica = world[2].replica
    assert replica.high_watermark == 3
    replica.follow_offsets(1, 0)  # a new leader that does not know yet
    assert replica.high_watermark == 3
    replica.truncate_to(2)
    assert offsets(world, 2) == (2, 2)
    replica.restart_at(10)
    assert (offsets(world, 2), replica.log_start_offset) == ((10, 10), 10)


def test_waiting_producers_get_an_error_when_leadership_is_lost(world: ReplicaWorld) -> None:
    world.lead(1)
    outcome = world[1].commit(world[1].append(b"a"))
    world.lead(2)
    assert outcome == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(KafkaError) as refused:
        world[1].append(b"b")
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world[1].commit(0) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_dropped_callbacks_are_neither_kept_nor_called(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    partition = world[1].replica
    end = world[1].append(b"a")
    called: list[int] = []
    for number in range(2000):

        def callback(code: ErrorCode, number: int = number) -> None:
            called.append(number)

        partition.when_committed(end, callback)
        if number % 100:
            partition.drop_commit(callback)
    assert len(partition._commits) < 600
    world.replicate(2, 2)
    assert called == list(range(0, 2000, 100))
    assert len(partition._commits) == 0
    assert partition._commits._dropped == {}


def test_a_high_watermark_at_rest_keeps_little(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    for _ in range(1500):
        world[1].append(b"a")
    partition = world[1].replica
    assert len(partition._uncommitted) == 1024
    assert sum(size for _, size in partition._uncommitted) == partition.log.size
    world.replicate(2, 2)
    assert not partition._uncommitted


def test_a_waiting_follower_hears_of_a_new_leader(world: ReplicaWorld) -> None:
    world.lead(1)
    waiting = world.fetch(2, wait_ms=500)
    world.lead(3, tell=False)
    world.tell(1)
    assert waiting.only.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert waiting.only.current_leader.leader_id == 3


def test_led_again_in_a_new_epoch_fetches_of_the_old_one_end(world: ReplicaWorld) -> None:
    world.lead(1)
    waiting = world.fetch(2, wait_ms=500)
    consumer = consume(world, 1, wait_ms=500, epoch=0)
    world.lead(1)
    assert waiting.only.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert consumer.only.error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_what_was_staged_in_an_old_role_is_written_in_it(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    partition = world[1].replica
    partition.append(build_batch([Record(0, 1, None, b"a")]), origin=AppendOrigin.CLIENT, now_ms=1)
    world.lead(1, 1, 2)
    assert partition.log.end_offset_for_epoch(0) == (0, 1)
    world[1].append(b"b")
    assert partition.log.end_offset_for_epoch(1) == (1, 2)


def test_roles_are_refused(world: ReplicaWorld) -> None:
    world.lead(1)

    def code(broker: int, topic_id: bytes = TOPIC_ID) -> ErrorCode:
        partitions = world[broker].partitions
        if world.state.leader == broker:
            role = partial(partitions.become_leader, TOPIC, topic_id, world.state, {})
        else:
            role = partial(partitions.become_follower, TOPIC, topic_id, world.state, {}, None)
        with pytest.raises(KafkaError) as refused:
            role()
        return refused.value.code

    assert code(1) == code(2) == ErrorCode.STALE_CONTROLLER_EPOCH
    world.state = replace(world.state, leader_epoch=5)
    assert code(1, b"\1" * 16) == ErrorCode.INCONSISTENT_TOPIC_ID
    world.state = replace(world.state, replicas=(2, 3), leader=2)
    assert code(1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world[1].replica.is_leader  # nothing of that has happened


def test_stopping(world: ReplicaWorld) -> None:
    world.lead(1)
    outcome = world[1].commit(world[1].append(b"a"))
    partitions = world[1].partitions
    world.lead(1)
    with pytest.raises(KafkaError) as refused:
        partitions.stop(TOPIC, 0, 0, True)
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH
    partitions.stop(TOPIC, 0, 1, False)
    assert world[1].replica.is_leader
    assert outcome == []
    partitions.stop(TOPIC, 0, -2, True)
    assert outcome == [ErrorCode.NOT_LEADER_OR_FOLLOWER]  # the topic is still there: somebody else leads
    assert partitions.find(TOPIC, 0) is None
    partitions.stop(TOPIC, 0, -2, True)  # nothing to do
    world.lead(2, 2, 3, replicas=(2, 3))
    world.image = world.image.with_topics([], [TOPIC])
    outcome = world[2].commit(world[2].append(b"a"))
    world[2].partitions.stop(TOPIC, 0, -1, True)
    assert outcome == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# -- the in-sync set -------------------------------------------------------------------------------------------------


def test_acks_all_needs_enough_in_sync_before_and_after(world: ReplicaWorld) -> None:
    world.log_config = LogConfig(min_insync_replicas=2)
    world.lead(1, 1)
    with pytest.raises(KafkaError) as refused:
        world[1].append(b"a", acks=-1)
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    end = world[1].append(b"a")  # acks=1 does not care
    assert offsets(world, 1) == (0, 1)  # but nobody may see it
    outcome = world[1].commit(end)
    world.replicate(2, 2)
    assert (outcome, len(world.wishes)) == ([], 1)
    world.grant()
    assert outcome == [ErrorCode.NONE]
    world.seconds += 60
    world[1].append(b"b")
    world[1].replica.shrink_isr(world.seconds)
    world.grant()
    assert world[1].replica.isr == (1,)
    assert world[1].commit(end) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_a_follower_leaves_and_comes_back(world: ReplicaWorld) -> None:
    world.lead(1)
    world.replicate(2, 3)
    world.seconds += 31
    end = world[1].append(b"a")
    outcome = world[1].commit(end)
    world.replicate(2, 2)
    world[1].replica.shrink_isr(world.seconds)
    assert [proposal.isr for _, proposal in world.wishes] == [(1, 2)]
    assert outcome == []  # not before the controller agrees
    world.grant()
    assert outcome == [ErrorCode.NONE]
    world.fetch(3)
    assert world.wishes == []  # from offset 0
    world.replicate(3, 3)
    assert [proposal.isr for _, proposal in world.wishes] == [(1, 2, 3)]
    world[1].append(b"b")
    world.replicate(2, 2)
    assert offsets(world, 1) == (1, 2)  # broker 3 counts already
    world.grant()
    world.replicate(3, 3)
    assert offsets(world, 1) == (2, 2)


def test_refusals_reach_the_partition(world: ReplicaWorld) -> None:
    world.lead(1, 1)
    world.replicate(2)
    ((partition, proposal),) = world.wishes
    assert partition.isr_refused(proposal, ErrorCode.NOT_CONTROLLER) is Refusal.RETRY
    assert partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA) is Refusal.REVERTED
    world.lead(2, 1, 2)
    assert partition.isr_refused(proposal, ErrorCode.INELIGIBLE_REPLICA) is Refusal.STALE
    assert not partition.isr_accepted(proposal, (1, 2), 0, 9)


def test_the_dead_neither_join_nor_hold_up(world: ReplicaWorld) -> None:
    world.lead(1, 1)
    world.kill(2)
    world[1].append(b"a")
    world.replicate(2, 2)
    assert world.wishes == []
    world.replicate(3, 3)
    world[1].append(b"b")
    assert offsets(world, 1)[0] == 1  # broker 3 is alive and nearly there


def test_a_replica_that_stops_joining_does_not_delay_commits_for_long(world: ReplicaWorld) -> None:
    world.lead(1, 1)
    world.replicate(2)
    (wish,) = world.wishes
    wish[0].isr_refused(wish[1], ErrorCode.INELIGIBLE_REPLICA)
    outcome = world[1].commit(world[1].append(b"a"))
    assert outcome == []  # broker 2 was there a moment ago
    world.seconds += 31
    assert outcome == []
    world[1].replica.shrink_isr(world.seconds)
    assert outcome == [ErrorCode.NONE]


# -- the follower's side ---------------------------------------------------------------------------------------------


def test_appends_of_another_epoch_or_at_another_place_are_refused(world: ReplicaWorld) -> None:
    world.lead(1, 1, 2)
    world[1].append(b"a")
    data = world.fetch(2).only
    replica = world[2].replica
    world.lead(1, 1, 2)
    with pytest.raises(KafkaError) as refused:
        replica.append_as_follower(memoryview(bytearray(data.records)), 0, 1, 0)
    assert refused.value.code == ErrorCode.FENCED_LEADER_EPOCH
    replica.append_as_follower(memoryview(bytearray(data.records)), 1, 1, 0)
    with pytest.raises(UnexpectedOffset):
        replica.append_as_follower(memoryview(bytearray(data.records)), 1, 1, 0)
    assert offsets(world, 2) == (1, 1)


def test_the_log_start_follows_the_leaders(world: ReplicaWorld) -> None:
    world.lead(1)
    world[1].append(b"a", b"b")
    world[1].append(b"c")
    world.replicate(2, 3, 2, 3)
    partition = world[1].replica
    assert partition.low_watermark == 0
    partition.log.delete_records(2, partition.high_watermark)
    world.replicate(2)
    assert world[2].replica.log_start_offset == 2
    world.fetch(2)
    assert partition.low_watermark == 0
    world.kill(3)
    assert partition.low_watermark == 2
