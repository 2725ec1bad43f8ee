"""Time-outs, unused ids, loading in every state, what a log may hold, the views."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.coordinator.machine import Record
from barnabas.coordinator.tests.txn.test_states import LEVELS, REACHABLE, expire_ids, make
from barnabas.coordinator.tests.txn.txn_kit import TV2, A, B, C, Marker, TxnKit
from barnabas.coordinator.txn import TxnConfig, TxnShard, unknown_state_filters
from barnabas.coordinator.txn.removal import _REMOVALS_PER_BATCH
from barnabas.coordinator.txn.states import DECIDED, State
from barnabas.coordinator.txn.stored import parse_txn, txn_record
from barnabas.coordinator.txn.transaction import LAST_EPOCH, Txn
from barnabas.kproto import DecodeError, ErrorCode

LEVEL = pytest.mark.parametrize("config", LEVELS, ids=["tv0", "tv1", "tv2"])

# -- time-outs ------------------------------------------------------------------------------------


@LEVEL
def test_a_transaction_that_is_out_of_time_is_aborted(config: TxnConfig) -> None:
    kit = TxnKit(config)
    producer = kit.open_transaction(A, B, timeout_ms=5000)
    kit.advance(3)
    assert kit.add(producer, C) == ErrorCode.NONE
    kit.advance(2)
    assert kit.state() == "Ongoing"
    kit.advance(0.01)
    assert kit.state() == "CompleteAbort"
    assert kit.partitions[A] == kit.partitions[C] == [Marker(producer.producer_id, producer.epoch + 1, False, 0)]
    assert kit.add(producer, A) == ErrorCode.PRODUCER_FENCED
    assert kit.error(kit.end(producer)) == ErrorCode.PRODUCER_FENCED
    if config.transaction_version == 2:
        assert kit.error(kit.end(producer, version=5)) == ErrorCode.INVALID_TXN_STATE
        assert kit.ended(kit.end(producer, False, version=5)) == (producer.producer_id, producer.epoch + 1)
    assert kit.shard.deadline() is None
    kit.check()


def test_the_time_runs_from_the_first_partition_and_anew_for_each_transaction() -> None:
    kit = TxnKit()
    producer = kit.producer(timeout_ms=5000)
    for _ in range(3):
        kit.advance(60)
        kit.add(producer, A)
        kit.advance(4)
        assert kit.error(kit.end(producer)) == ErrorCode.NONE
    assert [marker.commit for marker in kit.partitions[A]] == [True] * 3


def test_time_passes_while_the_coordinator_moves() -> None:
    kit = TxnKit()
    kit.open_transaction(timeout_ms=5000)
    kit.advance(3)
    kit.restart()
    kit.advance(1.9)
    assert kit.state() == "Ongoing"
    kit.advance(0.2)
    assert kit.state() == "CompleteAbort"
    kit.open_transaction(name="y", timeout_ms=5000)
    kit.shard.unload()
    kit.seconds += 100
    kit.restart()
    assert kit.state("y") == "CompleteAbort"


@LEVEL
def test_an_abort_that_cannot_be_written_is_tried_again(config: TxnConfig) -> None:
    kit = TxnKit(config)
    old = kit.open_transaction(timeout_ms=1000)
    kit.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    kit.advance(25)
    assert kit.state() == "Ongoing"
    # Versions 0 and 1 fence at once: the epoch is raised before it is written.
    fenced = config.transaction_version < 2
    assert kit.add(old, A) == (ErrorCode.PRODUCER_FENCED if fenced else ErrorCode.NONE)
    kit.refuse = None
    kit.advance(10)
    assert kit.state() == "CompleteAbort"
    assert kit.partitions[A] == [Marker(old.producer_id, old.epoch + 1, False, 0)]


def test_a_time_out_waits_for_a_change_that_is_being_written() -> None:
    kit = TxnKit()
    producer = kit.open_transaction(timeout_ms=1000)
    kit.commit_lag = True
    token = kit.end(producer)
    kit.advance(60)
    kit.commit_lag = False
    kit.commit()
    assert kit.error(token) == ErrorCode.NONE
    assert kit.partitions[A] == [Marker(*producer, True, 0)]
    producer = kit.producer(timeout_ms=1000)
    kit.commit_lag = True
    kit.add(producer, B)
    kit.advance(60)
    kit.commit_lag = False
    kit.commit()
    kit.advance(0)
    assert kit.state() == "CompleteAbort"


def test_a_time_out_at_the_last_epoch_needs_a_producer_id() -> None:
    kit = TxnKit(TV2)
    txn = Txn(7, LAST_EPOCH - 1, 1000, State.ONGOING, frozenset({A}), kit.now.wall_ms, kit.now.wall_ms)
    kit.log.append(txn_record("x", txn, 1))
    kit.committed_to = 1
    kit.restart()
    kit.no_ids = True
    kit.advance(15)
    assert kit.state() == "Ongoing"
    kit.no_ids = False
    kit.advance(10)
    assert kit.partitions[A] == [Marker(7, LAST_EPOCH, False, 1)]
    assert kit.last().txn[:2] == (1001, 0)
    kit.check()


# -- ids that nobody uses -------------------------------------------------------------------------


def test_unused_ids_expire() -> None:
    kit = TxnKit(TxnConfig(transactional_id_expiration_ms=60_000, transaction_max_timeout_ms=10**9))
    kit.producer("empty")
    done = kit.open_transaction(name="done")
    kit.end(done, name="done")
    kit.open_transaction(name="open", timeout_ms=10**9)
    kit.markers_wait = True
    decided = kit.open_transaction(B, name="decided")
    kit.end(decided, name="decided")
    kit.advance(59.9)
    for result in kit.shard.remove_expired(kit.now):
        kit.run(result)
    assert sorted(kit.shard.ids) == ["decided", "done", "empty", "open"]
    kit.producer("empty")
    kit.advance(0.1)
    for result in kit.shard.remove_expired(kit.now):
        kit.run(result)
    assert sorted(kit.shard.ids) == ["decided", "empty", "open"]
    assert kit.shard.describe("done").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert kit.add(done, A, name="done") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert kit.producer("done").producer_id != done.producer_id
    kit.check()


def test_a_removal_that_is_refused_or_lost_leaves_the_id() -> None:
    kit = TxnKit()
    producer = kit.producer()
    kit.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    expire_ids(kit)
    kit.refuse = None
    assert kit.add(producer, A) == ErrorCode.NONE
    kit.end(producer)
    kit.commit_lag = True
    expire_ids(kit)
    kit.restart()
    kit.commit_lag = False
    assert kit.add(producer, A) == ErrorCode.NONE


def test_many_ids_go_in_batches() -> None:
    kit = TxnKit(TxnConfig(transactional_id_expiration_ms=-1))
    count = _REMOVALS_PER_BATCH + 1
    for i in range(count):
        kit.log.append(txn_record(str(i), Txn(i, 0, 1, State.EMPTY, update_ms=0), 0))
    kit.committed_to = count
    kit.restart()
    sizes = []
    for result in kit.shard.remove_expired(kit.now):
        sizes.append(len(result.records))
        kit.run(result)
    assert sizes == [_REMOVALS_PER_BATCH, 1]
    assert kit.shard.ids == {}
    kit.restart()
    assert kit.shard.ids == {}


# -- loading --------------------------------------------------------------------------------------


@LEVEL
@pytest.mark.parametrize("state", REACHABLE)
@pytest.mark.parametrize("sent", [False, True], ids=["nothing sent", "partly sent"])
def test_a_coordinator_goes_on_where_the_last_one_stopped(state: State, config: TxnConfig, sent: bool) -> None:
    kit, _ = make(state, config)
    if sent and state in DECIDED:
        kit.deliver(lost_answer=True)
    before = kit.entry().logged
    for _ in range(2):
        kit.restart()
        assert kit.entry().logged == before._replace(last_epoch=-1, previous_producer_id=kit.entry().logged[8])
        assert kit.state() == state.value
    kit.markers_wait = False
    kit.advance(120)
    ends = {
        State.ONGOING: "CompleteAbort",
        State.PREPARE_COMMIT: "CompleteCommit",
        State.PREPARE_ABORT: "CompleteAbort",
    }
    assert kit.state() == ends.get(state, state.value)
    assert len({marker.commit for marker in kit.partitions.get(A, ())}) <= 1
    assert kit.producer() is not None
    kit.check()


def test_loading_takes_the_last_record_of_each_id() -> None:
    kit = TxnKit()
    records = [
        txn_record("x", Txn(1, 0, 1000, State.EMPTY, update_ms=1), 0),
        txn_record("y", Txn(2, 0, 1000, State.EMPTY, update_ms=1), 1),
        txn_record("x", None, 0),
        txn_record("y", Txn(2, 1, 1000, State.ONGOING, frozenset({A}), 5, 6), 0),
        txn_record("unknown", None, 0),
        txn_record("z", Txn(3, 0, 1000, State.PREPARE_ABORT, frozenset(), 5, 6), 1),
        Record(b"\0\7whatever", b"of a newer release"),
    ]
    shard = TxnShard(TV2, 4)
    for record in records:
        shard.replay(record.key, record.value)
    assert sorted(shard.ids) == ["y", "z"]
    result = shard.loaded(kit.now)
    assert not result.records
    assert [effect.transactional_id for effect in result.effects] == []
    # No partition needs a marker: only the end is missing.
    kit.shard = shard
    kit.log = records
    kit.advance(0)
    assert kit.state("z") == "CompleteAbort"
    assert kit.state("y") == "CompleteAbort"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\0", b""),
        (b"\0\0", b""),
        (b"\0\0\0\5x", b""),
        (b"\0\0\0\1x", b""),
        (b"\0\0\0\1x", b"\0\2" + bytes(40)),
        (b"\0\0\0\1x", b"\0\0" + bytes(20)),
        (b"\0\0\0\1x", b"\0\0" + bytes(14) + b"\6" + b"\xff" * 4 + bytes(16)),
        (b"\0\0\0\1x", b"\0\0" + bytes(14) + b"\7" + b"\xff" * 4 + bytes(16)),
        (b"\0\0\0\1x", b"\0\0" + bytes(14) + b"\xff" + b"\xff" * 4 + bytes(16)),
        (b"\0\0\0\1x", b"\0\0" + bytes(14) + b"\1\x7f\xff\xff\xff" + bytes(16)),
    ],
)
def test_what_cannot_be_read_changes_nothing(key: bytes, value: bytes) -> None:
    shard = TxnShard(TxnConfig(), 0)
    shard.replay(*txn_record("x", Txn(1, 0, 1000, State.EMPTY, update_ms=1), 0)[:2])
    with pytest.raises(DecodeError):
        shard.replay(key, value)
    assert shard.ids["x"].logged.producer_id == 1


# Written by Apache Kafka 4.3.1: at transaction.version 0, 1, 2, 2 and 2 (the last two: the epoch is used up).
GOLDEN = [
    (
        "000000057331302d30",
        "0000000000000000000f00020000ea6002000000010001740000000100000002000001a200b150f8000001a200b150a4",
        Txn(15, 2, 60000, State.PREPARE_COMMIT, frozenset({("t", 2)}), 1795307950244, 1795307950328),
    ),
    (
        "000000057331312d34",
        "0001000000000000001500070000ea600501000001a200b1a5f7000001a200b1a5f50100080000000000000015",
        Txn(21, 7, 60000, State.COMPLETE_ABORT, frozenset(), 1795307972085, 1795307972087, -1, 21),
    ),
    (
        "0000000473322d33",
        "0001000000000000000200030000ea60030302740200000002000275020000000100000001a200ae4a36000001a200ae4978"
        "020008000000000000000202020002",
        Txn(
            2,
            3,
            60000,
            State.PREPARE_ABORT,
            frozenset({("t", 2), ("u", 1)}),
            1795307751800,
            1795307751990,
            -1,
            2,
            -1,
            2,
        ),
    ),
    (
        "000000057332322d31",
        "000100000000000000197fff0000ea6003020275020000000000000001a200b3565d000001a200b35659"
        "03000800000000000000190108000000000000001b02020002",
        Txn(25, 32767, 60000, State.PREPARE_ABORT, frozenset({("u", 0)}), 1795308082777, 1795308082781, -1, 25, 27, 2),
    ),
    (
        "000000057332322d30",
        "0001000000000000001a00000000ea600000000001a200b35616ffffffffffffffff020008000000000000001802020002",
        Txn(26, 0, 60000, State.EMPTY, frozenset(), -1, 1795308082710, -1, 24, -1, 2),
    ),
]


@pytest.mark.parametrize(("key", "value", "txn"), GOLDEN)
def test_records_are_apache_kafkas(key: str, value: str, txn: Txn) -> None:
    record = Record(bytes.fromhex(key), bytes.fromhex(value))
    read = parse_txn(*record[:2])
    assert read is not None
    assert read.txn == txn
    assert txn_record(read.transactional_id, txn, record.value[1]) == record
    assert parse_txn(record.key, None) == (read.transactional_id, None)


# -- views ----------------------------------------------------------------------------------------


def test_describe() -> None:
    kit = TxnKit()
    producer = kit.open_transaction(B, C, A, timeout_ms=7000)
    told = kit.shard.describe("x")
    assert (told.error_code, told.transaction_state, told.transaction_timeout_ms) == (0, "Ongoing", 7000)
    assert (told.producer_id, told.producer_epoch) == producer
    assert told.transaction_start_time_ms == kit.now.wall_ms
    assert [(topic.topic, topic.partitions) for topic in told.topics] == [("t", [0, 1]), ("u", [0])]
    assert kit.shard.describe("").error_code == ErrorCode.INVALID_REQUEST
    assert kit.shard.describe("y").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    kit.commit_lag = True
    kit.init("new")
    assert kit.shard.describe("new").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["done", "empty", "old", "open"]),
        ({"states": ["Ongoing"]}, ["old", "open"]),
        ({"states": ["ongoing"]}, []),
        ({"states": ["Ongoing", "Empty", "nonsense"]}, ["empty", "old", "open"]),
        ({"producer_ids": [1001, 1003]}, ["done", "old"]),
        ({"producer_ids": [1001], "states": ["Empty"]}, []),
        ({"duration_ms": 0}, ["done", "empty", "old"]),
        # What never began began at -1, as in Apache Kafka.
        ({"duration_ms": 9_999}, ["done", "empty", "old"]),
        ({"duration_ms": 10_000, "states": ["Ongoing"]}, []),
        ({"matches": lambda name: name.startswith("o")}, ["old", "open"]),
    ],
)
def test_list(filters: dict, names: list[str]) -> None:
    kit = TxnKit()
    kit.open_transaction(name="old")
    kit.producer("empty")
    kit.end(kit.open_transaction(name="done"), name="done")
    kit.advance(10)
    kit.open_transaction(name="open")
    asked = {"states": [], "producer_ids": [], "duration_ms": -1, "matches": None} | filters
    listed = list(kit.shard.listed(**asked, now=kit.now))
    assert sorted(each.transactional_id for each in listed) == names
    assert all(each.transaction_state == kit.state(each.transactional_id) for each in listed)


def test_unknown_state_filters() -> None:
    assert unknown_state_filters(["Ongoing", "ongoing", "Dead", "", "PrepareEpochFence"]) == ["ongoing", ""]


def test_settings_change_at_once() -> None:
    kit = TxnKit()
    kit.set_config(replace(kit.config, transaction_max_timeout_ms=1000))
    assert kit.error(kit.init(timeout_ms=1001)) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
