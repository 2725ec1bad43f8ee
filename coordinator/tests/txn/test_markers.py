"""Delivery of markers: which broker gets which, what each answer means, and that none is dropped."""

from __future__ import annotations

import pytest

from barnabas.coordinator.tests.txn.txn_kit import TV2, A, B, C, Marker, TxnKit
from barnabas.coordinator.txn import Leader, MarkerQueues, MarkersToWrite
from barnabas.coordinator.txn.markers import OUTCOMES, PARTITIONS_PER_REQUEST, RETRY_S, SLOW_RETRY_S, Outcome
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import WriteTxnMarkersResponse


def markers(name: str = "x", producer_id: int = 7, *partitions: tuple[str, int]) -> MarkersToWrite:
    return MarkersToWrite(name, producer_id, 3, True, frozenset(partitions or (A,)), 5, 2)


def response(producer_id: int, codes: dict[tuple[str, int], int]) -> WriteTxnMarkersResponse:
    result = WriteTxnMarkersResponse
    return WriteTxnMarkersResponse(
        markers=[
            result.WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    result.WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            result.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
                        ],
                    )
                    for (topic, partition), code in codes.items()
                ],
            )
        ]
    )


def test_one_request_per_broker_holds_all_its_markers() -> None:
    queues = MarkerQueues()
    leaders: dict[tuple[str, int], int | Leader] = {A: 1, B: 2, C: 1}
    queues.add("s", markers("x", 7, A, B, C))
    queues.add("s", markers("y", 8, A))
    to_send, gone = queues.requests(lambda *partition: leaders[partition], 0.0)
    assert not gone
    told = {send.broker_id: send.request.markers for send in to_send}
    assert sorted(told) == [1, 2]
    first, second = told[1]
    assert [(topic.name, topic.partition_indexes) for topic in first.topics] == [("t", [0]), ("u", [0])]
    assert (first.producer_id, first.producer_epoch, first.transaction_result) == (7, 3, True)
    assert (first.coordinator_epoch, first.transaction_version) == (5, 2)
    assert second.producer_id == 8
    # What comes meanwhile waits for the answer.
    queues.add("s", markers("z", 9, A))
    assert queues.requests(lambda *_: 1, 0.0) == ([], [])
    done = queues.answered(1, response(7, {A: 0, C: 0}), 0.0)
    assert [(each.markers.transactional_id, each.partitions) for each in done] == [("x", {A, C})]
    (send,), _ = queues.requests(lambda *_: 1, 0.0)
    assert [marker.producer_id for marker in send.request.markers] == [9]
    assert len(queues) == 3


def test_every_error_settles_the_partition_or_is_retried() -> None:
    for code in ErrorCode:
        queues = MarkerQueues()
        queues.add("s", markers())
        queues.requests(lambda *_: 1, 10.0)
        done = queues.answered(1, response(7, {A: code}), 10.0)
        outcome = OUTCOMES.get(code, Outcome.SLOW)
        assert bool(done) is (outcome is Outcome.DONE), code
        pause = {Outcome.DONE: None, Outcome.RETRY: RETRY_S, Outcome.SLOW: SLOW_RETRY_S}[outcome]
        assert queues.deadline() == (None if pause is None else 10.0 + pause), code
        if pause is not None:
            assert queues.requests(lambda *_: 2, 10.0) == ([], [])
            (send,), _ = queues.requests(lambda *_: 2, 10.0 + pause)
            assert send.broker_id == 2


def test_apache_kafkas_table() -> None:
    """`TransactionMarkerRequestCompletionHandler`: removed, retried, given up (here: see the module), fatal."""
    removed = {"NONE", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNSUPPORTED_VERSION", "INVALID_PRODUCER_EPOCH"}
    retried = {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "NOT_LEADER_OR_FOLLOWER",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "REQUEST_TIMED_OUT",
        "KAFKA_STORAGE_ERROR",
    }
    assert {code.name for code, outcome in OUTCOMES.items() if outcome is Outcome.DONE} == removed
    assert {code.name for code, outcome in OUTCOMES.items() if outcome is Outcome.RETRY} == retried


@pytest.mark.parametrize(
    "answer",
    [None, WriteTxnMarkersResponse(), response(8, {A: 0}), response(7, {B: 0}), response(7, {A: 12345})],
    ids=["none", "empty", "other producer", "other partition", "unknown error"],
)
def test_an_answer_that_says_nothing_is_no_success(answer: WriteTxnMarkersResponse | None) -> None:
    queues = MarkerQueues()
    queues.add("s", markers())
    queues.requests(lambda *_: 1, 0.0)
    assert queues.answered(1, answer, 0.0) == []
    assert len(queues) == 1


def test_a_partition_without_leader_waits_and_one_that_is_gone_needs_nothing() -> None:
    queues = MarkerQueues()
    leaders: dict[tuple[str, int], int | Leader] = {A: Leader.UNKNOWN, B: Leader.GONE}
    queues.add("s", markers("x", 7, A, B))
    to_send, gone = queues.requests(lambda *partition: leaders[partition], 0.0)
    assert not to_send
    assert [each.partitions for each in gone] == [{B}]
    assert queues.deadline() == RETRY_S
    leaders[A] = 4
    (send,), _ = queues.requests(lambda *partition: leaders[partition], RETRY_S)
    assert send.broker_id == 4
    assert len(queues.answered(4, response(7, {A: 0}), 1.0)) == 1
    assert len(queues) == 0
    assert queues.deadline() is None


def test_requests_stay_small_and_lose_nothing() -> None:
    queues = MarkerQueues()
    for i in range(5):
        queues.add("s", markers(f"x{i}", i, *(("t", p) for p in range(PARTITIONS_PER_REQUEST // 2 - 1))))
    queues.add("s", markers("large", 99, *(("t", p) for p in range(PARTITIONS_PER_REQUEST + 1))))
    sizes = []
    while True:
        to_send, _ = queues.requests(lambda *_: 1, 0.0)
        if not to_send:
            break
        sizes.append(len(to_send[0].request.markers))
        for marker in to_send[0].request.markers:
            queues.add("answered", markers("a", marker.producer_id))
        queues.answered(1, None, 0.0)
        queues.remove("answered")
    assert sizes == [2, 2, 1, 1]
    assert len(queues) == 5 * (PARTITIONS_PER_REQUEST // 2 - 1) + PARTITIONS_PER_REQUEST + 1


def test_a_shard_that_moves_takes_its_markers_along() -> None:
    queues = MarkerQueues()
    queues.add("s", markers("x", 7, A))
    queues.add("r", markers("y", 8, A))
    queues.requests(lambda *_: 1, 0.0)
    queues.add("s", markers("z", 9, B))
    queues.remove("s")
    assert [each.source for each in queues.answered(1, None, 0.0)] == []
    (send,), _ = queues.requests(lambda *_: 1, 1.0)
    assert [marker.producer_id for marker in send.request.markers] == [8]


def test_the_transaction_is_complete_when_the_last_partition_has_its_marker() -> None:
    kit = TxnKit()
    kit.leaders = {A: 1, B: 2, C: Leader.UNKNOWN}
    kit.markers_wait = True
    producer = kit.open_transaction(A, B, C)
    assert kit.error(kit.end(producer)) == ErrorCode.NONE
    kit.deliver()
    kit.deliver(lost=True)
    assert kit.state() == "PrepareCommit"
    assert [(each.topic, each.partitions) for each in kit.shard.describe("x").topics] == [("t", [1]), ("u", [0])]
    kit.leaders[B] = 3
    kit.leaders[C] = Leader.GONE
    kit.markers_wait = False
    kit.advance(1)
    assert kit.state() == "CompleteCommit"
    assert kit.partitions[A] == kit.partitions[B] == [Marker(*producer, True, 0)]
    assert C not in kit.partitions
    kit.check()


def test_a_lost_answer_only_repeats_the_marker() -> None:
    kit = TxnKit(TV2)
    kit.markers_wait = True
    producer = kit.open_transaction(A)
    kit.end(producer, False, version=5)
    kit.deliver(lost_answer=True)
    assert kit.state() == "PrepareAbort"
    kit.markers_wait = False
    kit.advance(1)
    assert kit.partitions[A] == [Marker(producer.producer_id, producer.epoch + 1, False, 0)] * 2
    assert kit.state() == "CompleteAbort"


def test_what_was_asked_by_an_earlier_coordinator_or_transaction_counts_for_nothing() -> None:
    kit = TxnKit()
    kit.markers_wait = True
    producer = kit.open_transaction(A)
    kit.end(producer)
    kit.restart()
    old, new = kit.markers_asked
    assert (old.coordinator_epoch, new.coordinator_epoch) == (0, 1)
    stale = MarkerQueues()
    stale.add(0, old)
    stale.requests(lambda *_: 1, 0.0)
    (marked,) = stale.answered(1, response(producer.producer_id, {A: 0}), 0.0)
    kit.run(kit.shard.marked(marked, kit.now))
    assert kit.state() == "PrepareCommit"
    kit.deliver(lost=True)
    kit.markers_wait = False
    kit.advance(1)
    assert kit.state() == "CompleteCommit"
    kit.run(kit.shard.marked(marked._replace(markers=new), kit.now))
    assert kit.state() == "CompleteCommit"
    kit.check()


def test_the_end_is_written_again_when_the_log_refused_it() -> None:
    kit = TxnKit()
    kit.markers_wait = True
    producer = kit.open_transaction(A)
    kit.end(producer)
    kit.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    kit.deliver()
    kit.advance(5)
    assert kit.state() == "PrepareCommit"
    assert kit.error(kit.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    kit.refuse = None
    kit.advance(2)
    assert kit.state() == "CompleteCommit"
    assert len(kit.partitions[A]) == 1
    kit.check()
