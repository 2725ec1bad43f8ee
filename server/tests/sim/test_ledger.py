"""What the simulation's checker of transactions finds: each wrong outcome is distinguished from the allowed ones."""

from __future__ import annotations

import pytest

from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.server.sim.ledger import Fate, Ledger, Transaction, read_committed
from barnabas.server.sim.world import World

X0, X1 = ("x", 0), ("x", 1)


def log(*batches: tuple[int, Transaction | bool, tuple[str, int]], key: tuple[str, int]) -> bytes:
    """(producer id, what, partition): a transaction's records there, or a marker; those of other partitions are left
    out.
    """
    content, offset = b"", 0
    for producer_id, what, where in batches:
        if where != key:
            continue
        if isinstance(what, bool):
            content += build_control_batch(
                producer_id=producer_id,
                producer_epoch=0,
                commit=what,
                coordinator_epoch=0,
                timestamp=0,
                base_offset=offset,
            )
            offset += 1
        else:
            records = [Record(value=entry.encode()) for entry in what.entries[key]]
            content += build_batch(
                records,
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            offset += len(records)
    return content


def ledger_of_one() -> tuple[Ledger, Transaction]:
    """A transaction of two records in x-0 and one in x-1, with an offset."""
    ledger = Ledger(World(1))
    transaction = ledger.begin("a")
    for key in (X0, X0, X1):
        transaction.entry(key)
    transaction.group_offset = 1
    return ledger, transaction


@pytest.mark.parametrize(
    ("fate", "visible", "offset", "wrong"),
    [
        (Fate.DONE, (True, True), 1, None),
        (Fate.DOUBT, (True, True), 1, None),
        (Fate.DOUBT, (False, False), -1, None),
        (Fate.NONE, (False, False), -1, None),
        (Fate.DONE, (False, False), -1, "is lost"),
        (Fate.DONE, (True, False), 1, "there is x-0: [0, 1] of x-0: [0, 1], x-1: [2]"),
        (Fate.DOUBT, (False, True), 1, "there is x-1: [2]"),
        (Fate.NONE, (True, True), 1, "is visible"),
        (Fate.DONE, (True, True), -1, "committed 1"),
        (Fate.DOUBT, (False, False), 1, "committed -1"),
    ],
)
def test_a_transaction_is_visible_as_its_commit_was_answered(
    fate: Fate, visible: tuple[bool, bool], offset: int, wrong: str | None
) -> None:
    ledger, transaction = ledger_of_one()
    transaction.fate = fate
    batches = [(7, transaction, X0), (7, transaction, X1), (7, visible[0], X0), (7, visible[1], X1)]
    logs = {key: log(*batches, key=key) for key in (X0, X1)}
    for key, content in logs.items():
        ledger.shown[key] = read_committed(content)
    ledger.check(logs, {"a": offset})
    violations = ledger.world.violations
    assert (violations == []) if wrong is None else (wrong in violations[0])


def test_what_a_consumer_was_shown_is_what_the_log_has() -> None:
    ledger, transaction = ledger_of_one()
    transaction.fate = Fate.DONE
    batches = [(7, transaction, X0), (7, transaction, X1), (7, True, X0), (7, True, X1)]
    logs = {key: log(*batches, key=key) for key in (X0, X1)}
    ledger.record_shown(X0, transaction.entries[X0][0], 0)
    ledger.check(logs, {"a": 1})
    assert "offset 1: a consumer was shown None" in ledger.world.violations[0]


def test_a_consumer_is_shown_nothing_of_what_is_not_to_be_committed() -> None:
    ledger, transaction = ledger_of_one()
    ledger.record_shown(X0, transaction.entries[X0][0], 0)
    assert "was not to be committed" in ledger.world.violations[0]


def test_a_record_without_its_marker_is_not_committed_and_two_producers_are_kept_apart() -> None:
    one, other = Transaction("a", 1), Transaction("b", 1)
    for transaction in (one, other, other):
        transaction.entry(X0)
    assert read_committed(log((7, one, X0), key=X0)) == {}
    content = log((7, one, X0), (8, other, X0), (7, False, X0), (8, True, X0), key=X0)
    assert read_committed(content) == {1: other.entries[X0][0], 2: other.entries[X0][1]}


def test_zombies() -> None:
    ledger = Ledger(World(1))
    ledger.initialised("a", 1)
    ledger.world._time = 1.0
    ledger.initialised("a", 2)
    ledger.world._time = 3.0
    ledger.confirmed("EndTxn", "a", 1, 0.5)
    ledger.confirmed("EndTxn", "a", 2, 2.0)
    ledger.confirmed("EndTxn", "b", 1, 2.0)
    assert ledger.world.violations == []
    ledger.confirmed("EndTxn", "a", 1, 2.0)
    assert "EndTxn of life 1 of a" in ledger.world.violations[0]
