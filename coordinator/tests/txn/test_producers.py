"""InitProducerId: new ids, fencing, KIP-360, the end of the epochs, what is refused."""

from __future__ import annotations

import pytest

from barnabas.coordinator.machine import Now
from barnabas.coordinator.tests.txn.txn_kit import TV2, A, B, Marker, Producer, TxnKit
from barnabas.coordinator.txn import TxnConfig
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.stored import txn_record
from barnabas.coordinator.txn.transaction import LAST_EPOCH, NO_TIMEOUT_MS, Txn
from barnabas.kproto import ErrorCode

BOTH = pytest.mark.parametrize("config", [TxnConfig(), TV2], ids=["tv0", "tv2"])


def at_epoch(config: TxnConfig, epoch: int, state: State = State.EMPTY) -> tuple[TxnKit, Producer]:
    """A kit that loads id "x" with this epoch."""
    kit = TxnKit(config)
    txn = Txn(7, epoch, 60_000, state, start_ms=kit.now.wall_ms, update_ms=kit.now.wall_ms)
    if state is State.ONGOING:
        txn = txn._replace(partitions=frozenset({A}))
    kit.log.append(txn_record("x", txn, 1))
    kit.committed_to = 1
    kit.restart()
    return kit, Producer(7, epoch)


def test_a_new_id_gets_a_producer_id_and_epoch_0_and_each_instance_the_next() -> None:
    kit = TxnKit()
    first = kit.producer()
    assert first == (1001, 0)
    assert kit.producer() == (1001, 1)
    assert kit.producer("y") == (1002, 0)
    assert kit.add(first, A) == ErrorCode.PRODUCER_FENCED
    assert kit.error(kit.end(first)) == ErrorCode.PRODUCER_FENCED
    assert kit.error(kit.init(owner=first)) == ErrorCode.PRODUCER_FENCED
    kit.check()


@pytest.mark.parametrize(
    ("fields", "switches", "code"),
    [
        ({"name": ""}, {}, ErrorCode.INVALID_REQUEST),
        ({"owner": Producer(5, -1)}, {}, ErrorCode.INVALID_REQUEST),
        ({"owner": Producer(-1, 5)}, {}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_000}, {}, ErrorCode.NONE),
        ({}, {"enable_two_phase_commit": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({}, {"keep_prepared_txn": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_is_refused_whatever_the_state(fields: dict, switches: dict, code: ErrorCode) -> None:
    kit = TxnKit()
    assert kit.error(kit.init(**fields, **switches)) == code
    if code != ErrorCode.NONE:
        assert kit.shard.ids == {}
        assert kit.log == []


def test_a_producer_of_a_two_phase_commit_never_runs_out_of_time() -> None:
    kit = TxnKit(TxnConfig(transaction_two_phase_commit_enable=True))
    producer = kit.producer(timeout_ms=0, enable_two_phase_commit=True)
    assert kit.add(producer, A) == ErrorCode.NONE
    assert kit.shard.describe("x").transaction_timeout_ms == NO_TIMEOUT_MS
    kit.advance(10**6)
    kit.restart()
    kit.advance(10**6)
    assert kit.state() == "Ongoing"


@BOTH
def test_an_open_transaction_is_aborted_first(config: TxnConfig) -> None:
    kit = TxnKit(config)
    kit.markers_wait = True
    old = kit.open_transaction(A, B)
    assert kit.error(kit.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.state() == "PrepareAbort"
    assert kit.error(kit.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.error(kit.end(old)) in (ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS)
    kit.deliver()
    assert kit.partitions[A] == [Marker(old.producer_id, old.epoch + 1, False, 0)]
    new = kit.producer()
    assert new == (old.producer_id, old.epoch + 2)
    assert kit.add(old, A) == ErrorCode.PRODUCER_FENCED
    assert kit.verify(old, A) == [ErrorCode.PRODUCER_FENCED]
    kit.check()


def test_the_owner_of_the_present_epoch_gets_the_next_and_may_ask_again() -> None:
    """KIP-360: a producer that lost the answer looks like one that never sent the request."""
    kit = TxnKit()
    first = kit.producer()
    second = kit.producer(owner=first)
    assert second == (first.producer_id, 1)
    assert kit.producer(owner=first) == second
    assert kit.producer(owner=first) == second
    assert kit.producer(owner=second) == (first.producer_id, 2)
    assert kit.error(kit.init(owner=first)) == ErrorCode.PRODUCER_FENCED
    # A new instance without the id of the old: from then on nobody may ask again.
    third = kit.producer()
    assert kit.error(kit.init(owner=second)) == ErrorCode.PRODUCER_FENCED
    assert kit.producer(owner=third) == (first.producer_id, 4)
    assert kit.error(kit.init(owner=Producer(9, 4))) == ErrorCode.PRODUCER_FENCED


def test_a_repetition_is_not_known_after_the_coordinator_moved() -> None:
    kit = TxnKit()
    first = kit.producer()
    kit.producer(owner=first)
    kit.restart()
    assert kit.error(kit.init(owner=first)) == ErrorCode.PRODUCER_FENCED


def test_an_owner_of_an_unknown_id_is_accepted() -> None:
    kit = TxnKit()
    assert kit.producer(owner=Producer(5, 9)) == (1001, 0)


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90), (5, 90)])
def test_fencing_has_its_own_error_from_version_4_on(version: int, code: int) -> None:
    kit = TxnKit()
    first = kit.producer()
    kit.producer()
    assert kit.error(kit.init(owner=first, version=version)) == code


# -- the end of the epochs ------------------------------------------------------------------------


@BOTH
def test_an_exhausted_epoch_brings_a_new_producer_id(config: TxnConfig) -> None:
    kit, last = at_epoch(config, LAST_EPOCH - 2)
    last = kit.producer(owner=last)
    assert last == (7, LAST_EPOCH - 1)
    new = kit.producer(owner=last)
    assert new == (1001, 0)
    # The answer may have been lost.
    assert kit.producer(owner=last) == new
    assert kit.producer(owner=new) == (1001, 1)
    assert kit.error(kit.init(owner=last)) == ErrorCode.PRODUCER_FENCED
    kit.check()


def test_a_repetition_at_the_end_of_the_epochs_is_answered() -> None:
    """Apache Kafka fails with an exception there."""
    kit, before = at_epoch(TV2, LAST_EPOCH - 2)
    last = kit.producer(owner=before)
    assert kit.producer(owner=before) == last
    assert kit.error(kit.init(owner=Producer(7, 12))) == ErrorCode.PRODUCER_FENCED


@BOTH
def test_a_new_instance_does_not_need_the_old_epoch(config: TxnConfig) -> None:
    kit, last = at_epoch(config, LAST_EPOCH - 1)
    assert kit.producer() == (1001, 0)
    # An exhausted previous epoch may be a lost answer; but a new instance was there since.
    assert kit.error(kit.init(owner=last)) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
@BOTH
def test_an_exhausted_producer_can_be_fenced(config: TxnConfig, epoch: int) -> None:
    kit, old = at_epoch(config, epoch, State.ONGOING)
    assert kit.error(kit.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.partitions[A][-1][:3] == (7, LAST_EPOCH, False)
    assert kit.state() == "CompleteAbort"
    new = kit.producer()
    assert new.producer_id != 7
    assert kit.add(old, A) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    kit.check()


def test_the_end_of_a_transaction_can_exhaust_the_epochs() -> None:
    """Version 2: the markers have the last epoch of the old id, the producer goes on with the new one."""
    kit, last = at_epoch(TV2, LAST_EPOCH - 1, State.ONGOING)
    kit.markers_wait = True
    token = kit.end(last, version=5)
    new = kit.ended(token)
    assert new == (1001, 0)
    assert kit.error(kit.end(last, version=5)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.add(new, B) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    kit.restart()
    assert kit.state() == "PrepareCommit"
    kit.markers_wait = False
    kit.advance(1)
    assert kit.partitions[A][-1][:3] == (7, LAST_EPOCH, True)
    # The answer was lost; the id before and its last epoch tell so, also after the coordinator moved.
    assert kit.ended(kit.end(last, version=5)) == new
    assert kit.error(kit.end(last, False, version=5)) == ErrorCode.INVALID_TXN_STATE
    kit.restart()
    assert kit.ended(kit.end(last, version=5)) == new
    assert kit.add(new, B) == ErrorCode.NONE
    assert kit.error(kit.end(last, version=5)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    kit.check()


# -- ids from the controller ----------------------------------------------------------------------


def test_without_a_producer_id_the_request_fails_and_nothing_stays() -> None:
    kit = TxnKit()
    kit.no_ids = True
    assert kit.error(kit.init()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert kit.shard.ids == {}
    kit, last = at_epoch(TV2, LAST_EPOCH - 1, State.ONGOING)
    kit.no_ids = True
    assert kit.error(kit.end(last, version=5)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert kit.error(kit.init()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert kit.state() == "Ongoing"
    kit.no_ids = False
    assert kit.ended(kit.end(last, version=5)) == (1001, 0)


def test_two_first_requests_wait_for_ids() -> None:
    kit = TxnKit()
    kit.ids_wait = True
    one, two = kit.init(), kit.init()
    assert kit.waits(one)
    assert kit.waits(two)
    kit.ids_wait = False
    kit.settle()
    assert kit.answer(one).producer_epoch == 0
    assert kit.answer(two).producer_epoch == 1
    kit.ids_wait = True
    late = kit.init("late")
    kit.restart()
    kit.ids_wait = False
    kit.settle()
    assert kit.error(late) == ErrorCode.NOT_COORDINATOR
    assert "late" not in kit.shard.ids


# -- when the log refuses -------------------------------------------------------------------------

LOG_ERRORS = [
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("refused", "told"), LOG_ERRORS)
def test_the_answer_when_the_log_rejects_the_records(refused: ErrorCode, told: ErrorCode) -> None:
    kit = TxnKit()
    kit.refuse = refused
    assert kit.error(kit.init()) == told
    assert kit.shard.ids == {}
    kit.refuse = None
    producer = kit.producer()
    kit.refuse = refused
    assert kit.error(kit.init()) == told
    assert kit.add(producer, A) == told
    assert kit.add_offsets(producer) == told
    kit.refuse = None
    assert kit.add(producer, A) == ErrorCode.NONE
    kit.refuse = refused
    assert kit.error(kit.end(producer)) == told
    assert kit.state() == "Ongoing"
    kit.refuse = None
    assert kit.error(kit.end(producer)) == ErrorCode.NONE
    kit.check()


def test_a_fence_that_was_not_written_holds_and_is_not_raised_again() -> None:
    kit = TxnKit()
    old = kit.open_transaction()
    kit.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert kit.error(kit.init()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert kit.add(old, B) == ErrorCode.PRODUCER_FENCED
        assert kit.shard.describe("x").producer_epoch == old.epoch + 1
    kit.refuse = None
    assert kit.error(kit.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.partitions[A] == [Marker(old.producer_id, old.epoch + 1, False, 0)]
    assert kit.producer() == (old.producer_id, old.epoch + 2)
    kit.check()


def test_a_write_that_takes_too_long_keeps_the_id_busy() -> None:
    kit = TxnKit()
    producer = kit.open_transaction()
    kit.commit_lag = True
    token = kit.end(producer)
    assert kit.waits(token)
    kit.time_out_commits()
    assert kit.error(token) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kit.error(kit.end(producer)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.markers_asked == []
    kit.commit_lag = False
    kit.commit()
    assert kit.state() == "CompleteCommit"
    assert kit.error(kit.end(producer)) == ErrorCode.NONE
    kit.check()


def test_no_client_is_served_after_the_partition_moved() -> None:
    kit = TxnKit()
    producer = kit.open_transaction()
    kit.commit_lag = True
    token = kit.end(producer)
    shard = kit.shard
    written = kit._held[-1][1]
    kit.restart()
    assert written.committed is not None
    assert not written.committed(kit.now).effects
    assert kit.error(token) == ErrorCode.NOT_COORDINATOR
    assert kit.state() == "Ongoing"
    kit.shard = shard
    assert kit.error(kit.init()) == ErrorCode.NOT_COORDINATOR
    assert kit.add(producer, B) == ErrorCode.NOT_COORDINATOR
    assert kit.verify(producer, A) == [ErrorCode.NOT_COORDINATOR]
    assert kit.error(kit.end(producer)) == ErrorCode.NOT_COORDINATOR
    assert kit.shard.describe("x").error_code == ErrorCode.NOT_COORDINATOR
    assert shard.deadline() is None
    assert shard.expire(Now(1e9, 10**15)).records == ()
