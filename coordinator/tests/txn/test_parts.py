"""The parts of the transaction machine, each alone: with the store that it works on and none of the parts beside it."""

from __future__ import annotations

import pytest

from barnabas.coordinator.machine import Decision, Now, Result
from barnabas.coordinator.txn.changes import Changes
from barnabas.coordinator.txn.config import TxnConfig
from barnabas.coordinator.txn.ends import Ends
from barnabas.coordinator.txn.ids import Due, TransactionalId
from barnabas.coordinator.txn.markers import Marked, MarkersToWrite
from barnabas.coordinator.txn.partitions import PartitionsOfTransactions
from barnabas.coordinator.txn.producers import Producers
from barnabas.coordinator.txn.removal import Removal
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.store import TxnStore
from barnabas.coordinator.txn.stored import txn_record
from barnabas.coordinator.txn.time_outs import TimeOuts
from barnabas.coordinator.txn.transaction import NO_ID, Txn
from barnabas.coordinator.txn.views import TransactionViews
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import EndTxnRequest, InitProducerIdRequest

E = ErrorCode
NOW = Now(10.0, 1_700_000_000_000)
EMPTY = Txn(7, 3, 60_000, State.EMPTY, update_ms=NOW.wall_ms)
OPEN = EMPTY._replace(state=State.ONGOING, partitions=frozenset({("t", 0), ("t", 1)}), start_ms=NOW.wall_ms)


def a_store(**txns: Txn) -> TxnStore:
    """A store that was loaded with these ids."""
    store = TxnStore(TxnConfig(), 5)
    for name, txn in txns.items():
        record = txn_record(name, txn, 0)
        store.replay(record.key, record.value)
        store.ids[name].settle()
    store.is_loaded = True
    return store


def take(store: TxnStore, result: Result) -> Result:
    """The log takes what was decided, and commits it; returns what follows."""
    for record in result.records:
        store.replay(record.key, record.value)
    assert result.committed is not None
    return result.committed(NOW)


def busy(store: TxnStore, name: str = "x") -> TransactionalId:
    entry = store.ids[name]
    assert entry.is_busy
    return entry


def test_a_store_forgets_what_has_a_tombstone() -> None:
    store = a_store(x=OPEN)
    store.is_loaded = False
    record = txn_record("x", None, 0)
    store.replay(record.key, record.value)
    assert not store.ids


@pytest.mark.parametrize(
    ("name", "producer_id", "epoch", "code"),
    [("", 7, 3, E.INVALID_REQUEST), ("y", 7, 3, E.INVALID_PRODUCER_ID_MAPPING),
     ("x", 8, 3, E.INVALID_PRODUCER_ID_MAPPING), ("x", 7, 2, E.PRODUCER_FENCED)],
)  # fmt: skip
def test_a_store_knows_who_owns_an_id(name: str, producer_id: int, epoch: int, code: ErrorCode) -> None:
    store = a_store(x=OPEN)
    assert store.owned_by(name, producer_id, epoch) == code
    assert store.owned_by("x", 7, 3) == (store.ids["x"], OPEN)
    store.unload()
    assert store.owned_by("x", 7, 3) == E.NOT_COORDINATOR


def test_a_change_makes_busy_until_it_is_committed_or_refused() -> None:
    store, out = a_store(x=EMPTY), Decision()
    entry = store.ids["x"]
    Changes(store).write(entry, OPEN, out)
    result = out.result()
    assert (entry.is_busy, entry.txn) == (True, EMPTY)
    assert result.failed is not None
    result.failed(E.NOT_ENOUGH_REPLICAS, False, NOW)
    assert (entry.is_busy, entry.txn) == (False, EMPTY)
    out = Decision()
    Changes(store).write(entry, OPEN, out)
    take(store, out.result())
    assert (entry.is_busy, entry.txn) == (False, OPEN)
    assert store.deadlines.get(("x", Due.TIME_OUT)) == pytest.approx(NOW.seconds + 60.001)


def test_a_decided_transaction_is_complete_when_all_is_marked() -> None:
    store, out = a_store(x=OPEN._replace(state=State.PREPARE_COMMIT)), Decision()
    changes = Changes(store)
    changes.follow_up(store.ids["x"], NOW, out)
    (markers,) = out.effects
    assert isinstance(markers, MarkersToWrite)
    assert (markers.partitions, markers.coordinator_epoch) == (OPEN.partitions, 5)
    first = changes.marked(Marked(None, markers, frozenset({("t", 0)})), NOW)
    assert not first.records
    take(store, changes.marked(Marked(None, markers, frozenset({("t", 1)})), NOW))
    txn = store.ids["x"].txn
    assert txn is not None
    assert txn.state is State.COMPLETE_COMMIT


def test_producers_wait_for_an_id() -> None:
    store = a_store()
    producers = Producers(store, Changes(store))
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1_000)
    (wanted,) = producers.init_producer_id(request, 4, "token", NOW).effects
    (refused,) = wanted.refused(E.COORDINATOR_LOAD_IN_PROGRESS, NOW).replies
    assert refused.response.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    (held,) = wanted.given(9, NOW).held
    assert (held.token, held.response.producer_id, held.response.producer_epoch) == ("token", 9, 0)
    assert busy(store).txn is None


def test_partitions_open_a_transaction() -> None:
    store = a_store(x=EMPTY)
    partitions = PartitionsOfTransactions(store, Changes(store))
    take(store, partitions.add_partitions("x", 7, 3, OPEN.partitions, 3, "token", NOW))
    assert store.ids["x"].txn == OPEN._replace(previous_producer_id=7)
    told = partitions.verify_partitions("x", 7, 3, [("t", 0), ("t", 2)])
    assert told == {("t", 0): E.NONE, ("t", 2): E.TRANSACTION_ABORTABLE}


@pytest.mark.parametrize(("commit", "state"), [(True, State.PREPARE_COMMIT), (False, State.PREPARE_ABORT)])
def test_an_end_is_decided(commit: bool, state: State) -> None:
    store = a_store(x=OPEN)
    request = EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, committed=commit)
    result = Ends(store, Changes(store)).end(request, 4, "token", NOW)
    (held,) = result.held
    assert held.response.error_code == E.NONE
    assert len(take(store, result).effects) == 1
    txn = busy(store).txn
    assert txn is not None
    assert txn.state is state


def test_a_time_out_aborts_and_shuts_out_the_producer() -> None:
    store, out = a_store(x=OPEN), Decision()
    time_outs = TimeOuts(store, Changes(store))
    time_outs.time_out(store.ids["x"], NO_ID, NOW, out)
    assert (out.records, store.deadlines.get(("x", Due.TIME_OUT))) == ([], pytest.approx(NOW.seconds + 60.001))
    time_outs.time_out(store.ids["x"], NO_ID, Now(71.0, NOW.wall_ms + 61_000), out)
    take(store, out.result())
    txn = busy(store).txn
    assert txn is not None
    assert (txn.state, txn.producer_epoch) == (State.PREPARE_ABORT, 4)


def test_removal_spares_what_is_used() -> None:
    store = a_store(x=EMPTY, y=OPEN, z=EMPTY._replace(update_ms=NOW.wall_ms + 1))
    later = Now(20.0, NOW.wall_ms + store.config.transactional_id_expiration_ms)
    (result,) = Removal(store, Changes(store)).remove_expired(later)
    take(store, result)
    assert sorted(store.ids) == ["y", "z"]


def test_views_of_a_store() -> None:
    store = a_store(x=OPEN)
    views = TransactionViews(store)
    assert views.describe("x").transaction_state == "Ongoing"
    assert views.describe("y").error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert [each.transactional_id for each in views.listed(["Ongoing"], [7], -1, None, NOW)] == ["x"]
    assert not list(views.listed(["Empty"], [], -1, None, NOW))
