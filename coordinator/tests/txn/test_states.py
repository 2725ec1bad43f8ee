"""The table of states: every transition is walked by requests, answers and time, and nothing else is possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from barnabas.coordinator.tests.txn.txn_kit import TV2, A, B, Producer, TxnKit
from barnabas.coordinator.txn import TxnConfig
from barnabas.coordinator.txn.states import AT_REST, DECIDED, STORED, TRANSITIONS, Event, State
from barnabas.coordinator.txn.stored import parse_txn
from barnabas.coordinator.txn.transaction import Txn, completed, ended, fenced, initialised, rotated, with_partitions
from barnabas.kproto import ErrorCode

LEVELS = [TxnConfig(), TxnConfig(transaction_version=1), TV2]
REACHABLE = [state for state in State if state in STORED]

# The same request means something else there, which has an entry of its own.
OTHER_EVENT = {
    (State.ONGOING, Event.INITIALISED): Event.FENCE,
    (State.ONGOING, Event.ABORT_NOTHING): Event.ABORT,
}


def make(state: State, config: TxnConfig) -> tuple[TxnKit, Producer]:
    """A kit whose id "x" is in `state`, and who its producer is."""
    kit = TxnKit(config)
    bumping = 5 if config.transaction_version == 2 else 4
    producer = kit.producer()
    if state is State.EMPTY:
        return kit, producer
    assert kit.add(producer, A) == ErrorCode.NONE
    if state is State.ONGOING:
        kit.markers_wait = True
        return kit, producer
    kit.markers_wait = state in DECIDED
    token = kit.end(producer, state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT), version=bumping)
    told = kit.ended(token)
    kit.markers_wait = True
    return kit, told if bumping == 5 else producer


def expire_ids(kit: TxnKit) -> None:
    kit.set_config(replace(kit.config, transactional_id_expiration_ms=-1))
    for result in kit.shard.remove_expired(kit.now):
        kit.run(result)


DO: dict[Event, Callable[[TxnKit, Producer], object]] = {
    Event.INITIALISED: lambda kit, producer: kit.init(),
    Event.PARTITIONS_ADDED: lambda kit, producer: kit.add(producer, B),
    Event.COMMIT: lambda kit, producer: kit.end(producer, True),
    Event.ABORT: lambda kit, producer: kit.end(producer, False),
    Event.ABORT_NOTHING: lambda kit, producer: kit.end(producer, False, version=5),
    Event.FENCE: lambda kit, producer: kit.advance(61),
    Event.MARKED: lambda kit, producer: kit.sent and kit.deliver(),
    Event.EXPIRED: lambda kit, producer: expire_ids(kit),
}


@pytest.mark.parametrize("config", LEVELS, ids=["tv0", "tv1", "tv2"])
@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", REACHABLE)
def test_requests_and_time_follow_the_table(state: State, event: Event, config: TxnConfig) -> None:
    if (state, event) in OTHER_EVENT:
        event = OTHER_EVENT[state, event]
    kit, producer = make(state, config)
    assert kit.state() == state.value
    DO[event](kit, producer)
    after = TRANSITIONS[state].get(event, state)
    if after is State.PREPARE_EPOCH_FENCE:
        after = TRANSITIONS[after][Event.ABORT]
    if event is Event.ABORT_NOTHING and event in TRANSITIONS[state]:
        # There is nothing to wait for.
        assert parse_txn(*kit.log[-2][:2]).txn.state is after
        after = TRANSITIONS[after][Event.MARKED]
    if after is State.DEAD:
        assert kit.shard.ids == {}
        assert kit.log[-1].value is None
    else:
        assert kit.state() == after.value
    assert not kit.open
    kit.check()
    kit.restart()
    assert kit.state() == ("" if after is State.DEAD else after.value)


@pytest.mark.parametrize("state", State)
def test_values_cannot_leave_the_table(state: State) -> None:
    txn = Txn(7, 3, 1000, state, frozenset({A}), 5, 6)
    follow: dict[Event, Callable[[], object]] = {
        Event.INITIALISED: lambda: (initialised(txn, None, 1, 9), rotated(txn, None, 8, 1, 9)),
        Event.PARTITIONS_ADDED: lambda: with_partitions(txn, {B}, 0, 9),
        Event.COMMIT: lambda: ended(txn, Event.COMMIT, 2, -1, 9),
        Event.ABORT: lambda: ended(txn, Event.ABORT, 0, -1, 9),
        Event.ABORT_NOTHING: lambda: ended(txn, Event.ABORT_NOTHING, 2, -1, 9),
        Event.FENCE: lambda: fenced(txn, 2, -1, 9),
        Event.MARKED: lambda: completed(txn, 9),
    }
    for event, make_next in follow.items():
        if event in TRANSITIONS[state]:
            make_next()
        else:
            with pytest.raises(KeyError):
                make_next()


def test_the_table_is_apache_kafkas() -> None:
    """States that may come before each, as `TransactionState` of 4.3 lists them."""
    before: dict[State, set[State]] = {state: set() for state in State}
    for state, events in TRANSITIONS.items():
        for after in events.values():
            before[after].add(state)
    rest = set(AT_REST)
    assert before == {
        State.EMPTY: rest,
        State.ONGOING: {State.ONGOING, *rest},
        State.PREPARE_COMMIT: {State.ONGOING},
        State.PREPARE_ABORT: {State.ONGOING, State.PREPARE_EPOCH_FENCE, *rest},
        State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
        State.COMPLETE_ABORT: {State.PREPARE_ABORT},
        State.DEAD: rest,
        State.PREPARE_EPOCH_FENCE: {State.ONGOING},
    }
    assert {state for state, events in TRANSITIONS.items() if Event.EXPIRED in events} == rest


@pytest.mark.parametrize("event", Event)
def test_nothing_happens_to_an_id_that_is_being_removed(event: Event) -> None:
    kit, producer = make(State.COMPLETE_COMMIT, TxnConfig())
    kit.commit_lag = True
    expire_ids(kit)
    assert kit.entry().pending is State.DEAD
    records = len(kit.log)
    DO[event](kit, producer)
    assert len(kit.log) == records
    assert all(kit.error(token) == ErrorCode.CONCURRENT_TRANSACTIONS for token in list(kit.answers))
    kit.commit()
    assert kit.shard.ids == {}


@pytest.mark.parametrize("config", LEVELS, ids=["tv0", "tv1", "tv2"])
@pytest.mark.parametrize("state", REACHABLE)
def test_an_id_is_busy_until_its_record_is_committed(state: State, config: TxnConfig) -> None:
    """No other request can change it, readers see the state before, no marker is sent."""
    kit, producer = make(state, config)
    if state in DECIDED:
        kit.deliver(lost=True)
        kit.commit_lag = True
        kit.advance(0.2)
        kit.deliver()
        assert kit.entry().target is not None
    else:
        kit.commit_lag = True
        kit.add(producer, B) if state is not State.ONGOING else kit.end(producer)
    asked = len(kit.markers_asked)
    assert kit.state() == state.value
    assert kit.error(kit.init()) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.add(producer, ("v", 0)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.error(kit.end(producer)) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert kit.error(kit.end(producer, version=5)) == ErrorCode.CONCURRENT_TRANSACTIONS
    expire_ids(kit)
    assert len(kit.markers_asked) == asked
    kit.commit()
    assert kit.state() != state.value
    assert not kit.open
    kit.check()
