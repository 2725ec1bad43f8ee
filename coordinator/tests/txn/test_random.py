"""Random producers, zombies among them, over a coordinator that dies, a log that refuses or lags, brokers that lose
markers: what must hold after each step and when all is well again.

- Every request gets exactly one answer.
- Epochs of an id only rise, and its records follow the table of states.
- Nobody whose id was handed to a new instance is accepted again.
- What a producer was told is in the committed log: its partitions, its outcome.
- Each partition has the markers of the decisions in the log, in their order, and no other.
- Replay gives the state that is alive, and nothing stays busy or open.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.tests.txn.txn_kit import A, B, C, Marker, Producer, TxnKit
from barnabas.coordinator.txn import Leader, TxnConfig
from barnabas.coordinator.txn.states import DECIDED, TRANSITIONS, State
from barnabas.coordinator.txn.stored import parse_txn, txn_record
from barnabas.coordinator.txn.transaction import LAST_EPOCH, Txn
from barnabas.kproto import ErrorCode

NAMES = ("x", "y")
PARTITIONS = (A, B, C, ("v", 1))
LOG_ERRORS = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.REQUEST_TIMED_OUT)
MARKER_ERRORS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.CORRUPT_MESSAGE,
)


class Client:
    """One instance of a producer. It may be a zombie and not know it."""

    def __init__(self, name: str, knows_two: bool) -> None:
        self.name = name
        self.knows_two = knows_two
        """Of transaction.version 2: it ends its transactions with EndTxn 5."""
        self.me: Producer | None = None
        self.before: Producer | None = None


class Run:
    """A random run; `level` is the finalised transaction.version, `near_the_end` starts with the last epochs."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.level = self.rng.choice((0, 1, 2, 2))
        self.kit = TxnKit(TxnConfig(transaction_version=self.level))
        if self.rng.random() < 0.3:
            for i, name in enumerate(NAMES):
                txn = Txn(i + 1, LAST_EPOCH - 1 - self.rng.randrange(6), 60_000, State.EMPTY, update_ms=0)
                self.kit.log.append(txn_record(name, txn._replace(previous_producer_id=i + 1), min(self.level, 1)))
            self.kit.committed_to = len(NAMES)
            self.kit.restart()
        self.clients = [Client(name, self.level > 0 and self.rng.random() < 0.7) for name in NAMES for _ in range(2)]
        self.waiting: list[tuple[int, Callable[[Any], None]]] = []
        # Per name: everybody who was ever handed out, and where the newest instance begins.
        self.handed: dict[str, list[Producer]] = {name: [] for name in NAMES}
        self.newest: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.told_commit = 0
        self.told_abort = 0

    # -- what clients do --------------------------------------------------------------------------

    def request(self, client: Client) -> None:
        rng, kit, name = self.rng, self.kit, client.name
        me = client.me
        if me is not None and client.before is not None and rng.random() < 0.1:
            me = client.before
        choice = rng.random()
        if me is None or choice < 0.12:
            owner = me if me is not None and rng.random() < 0.6 else None
            token = kit.init(name, owner=owner, timeout_ms=rng.choice((2_000, 60_000)))
            self.expect(token, client, owner, lambda answer: self.initialised(client, owner, answer))
        elif choice < 0.55:
            partitions = rng.sample(PARTITIONS, rng.choice((1, 1, 2, 3)))
            version = 5 if client.knows_two else 3
            told = kit.add(me, *partitions, name=name, version=version)
            if isinstance(told, ErrorCode):
                self.expect_now(client, me, told, lambda: self.added(name, me, set(partitions)))
            else:
                self.expect(told, client, me, lambda answer: self.added(name, me, set(partitions)))
        else:
            commit = rng.random() < 0.6
            version = 5 if client.knows_two else 4
            token = kit.end(me, commit, name=name, version=version)
            self.expect(token, client, me, lambda answer: self.ended(client, me, commit, version, answer))

    def expect(self, token: int, client: Client, who: Producer | None, then: Callable[[Any], None]) -> None:
        sent_at = self.newest[client.name]

        def check(answer: Any) -> None:
            code = ErrorCode(getattr(answer, "error_code", answer))
            if code == ErrorCode.NONE:
                self.is_no_zombie(client.name, who, sent_at)
                then(answer)
            elif code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                client.me = client.before = None

        self.waiting.append((token, check))

    def expect_now(self, client: Client, who: Producer, code: ErrorCode, then: Callable[[], None]) -> None:
        if code == ErrorCode.NONE:
            self.is_no_zombie(client.name, who, self.newest[client.name])
            then()

    def is_no_zombie(self, name: str, who: Producer | None, sent_at: int) -> None:
        if who is not None and who in self.handed[name]:
            assert who in self.handed[name][sent_at:], f"{name}: {who} was fenced: {self.handed[name]} from {sent_at}"

    def initialised(self, client: Client, owner: Producer | None, answer: Any) -> None:
        self.handed_out(client, Producer(answer.producer_id, answer.producer_epoch), owner is None)

    def handed_out(self, client: Client, who: Producer, is_new_instance: bool) -> None:
        handed = self.handed[client.name]
        if who not in handed:
            if handed and handed[-1].producer_id == who.producer_id:
                assert who.epoch > handed[-1].epoch, (client.name, handed, who)
            handed.append(who)
        else:
            assert not is_new_instance
            # A repeated request: nobody came since.
        if is_new_instance:
            self.newest[client.name] = handed.index(who)
        client.before, client.me = client.me, who

    def committed(self, name: str) -> list[Txn]:
        records = (parse_txn(*record[:2]) for record in self.kit.log[: self.kit.committed_to])
        return [record.txn for record in records if record.transactional_id == name and record.txn is not None]

    def added(self, name: str, me: Producer, partitions: set[tuple[str, int]]) -> None:
        assert any(
            txn.state is State.ONGOING and txn[:2] == me and txn.partitions >= partitions
            for txn in self.committed(name)
        ), (name, me, partitions)

    def ended(self, client: Client, me: Producer, commit: bool, version: int, answer: Any) -> None:
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        epoch = me.epoch + 1 if version == 5 else me.epoch
        assert any(txn.state is state and txn[:2] == (me.producer_id, epoch) for txn in self.committed(client.name)), (
            client.name,
            me,
            commit,
            version,
        )
        self.told_commit += commit
        self.told_abort += not commit
        if version == 5:
            self.handed_out(client, Producer(answer.producer_id, answer.producer_epoch), False)

    # -- what the world does ----------------------------------------------------------------------

    def fault(self) -> None:
        rng, kit = self.rng, self.kit
        kind = rng.randrange(12)
        if kind == 0:
            kit.commit_lag = not kit.commit_lag and rng.random() < 0.6
            if not kit.commit_lag:
                kit.commit()
                kit.settle()
        elif kind == 1:
            kit.time_out_commits()
        elif kind == 2:
            kit.refuse = None if kit.refuse is not None else rng.choice((None, None, *LOG_ERRORS))
        elif kind == 3:
            kit.restart(lose_uncommitted=rng.random() < 0.5)
        elif kind == 4:
            kit.markers_wait = not kit.markers_wait and rng.random() < 0.6
            kit.settle()
        elif kind == 5 and kit.sent:
            kit.deliver(lost=rng.random() < 0.4, lost_answer=rng.random() < 0.4)
        elif kind == 6:
            partition = rng.choice(PARTITIONS)
            kit.leaders[partition] = rng.choice((1, 2, 3, 1, 2, 3, Leader.UNKNOWN))
        elif kind == 7:
            partition = rng.choice(PARTITIONS)
            if kit.marker_errors:
                kit.marker_errors.clear()
            else:
                kit.marker_errors[partition] = rng.choice(MARKER_ERRORS)
        elif kind == 8:
            kit.ids_wait, kit.no_ids = rng.random() < 0.2, rng.random() < 0.2
            kit.settle()
        elif kind in (9, 10):
            kit.advance(rng.choice((0.05, 0.5, 3.0, 15.0)))
        elif self.level:
            self.level = rng.choice((1, 2))
            kit.set_config(TxnConfig(transaction_version=self.level))

    def step(self) -> None:
        if self.rng.random() < 0.75:
            # The first instance of each name works most of the time, the others are restarts and zombies.
            self.request(self.rng.choice(self.clients[:: 1 if self.rng.random() < 0.15 else 2]))
        else:
            self.fault()
        self.look()

    def look(self) -> None:
        waiting, self.waiting = self.waiting, []
        for token, check in waiting:
            if self.kit.waits(token):
                self.waiting.append((token, check))
            else:
                check(self.kit.answer(token))

    # -- what must hold ---------------------------------------------------------------------------

    def markers_are_those_of_the_decisions(self, whole: bool) -> None:
        decided: dict[tuple[tuple[str, int], int], list[Marker]] = {}
        for record in self.kit.log[: self.kit.committed_to]:
            txn = parse_txn(*record[:2]).txn
            if txn is not None and txn.state in DECIDED:
                marker = Marker(*txn[:2], txn.state is State.PREPARE_COMMIT, 0)
                for partition in txn.partitions:
                    decided.setdefault((partition, txn.producer_id), []).append(marker)
        written: dict[tuple[tuple[str, int], int], list[Marker]] = {}
        for partition, markers in self.kit.partitions.items():
            for marker in markers:
                written.setdefault((partition, marker.producer_id), []).append(marker._replace(coordinator_epoch=0))
        for key, markers in written.items():
            expected = _collapsed(decided.get(key, []))
            found = _collapsed(markers)
            assert found == expected[: len(found)], (key, found, expected)
        if whole:
            assert {key: _collapsed(markers) for key, markers in decided.items()} == {
                key: _collapsed(markers) for key, markers in written.items()
            }

    def records_follow_the_table(self) -> None:
        last: dict[str, Txn] = {}
        for record in self.kit.log:
            name, txn = parse_txn(*record[:2])
            assert txn is not None
            before = last.get(name)
            if before is not None:
                follow = {*TRANSITIONS[before.state].values()}
                if State.PREPARE_EPOCH_FENCE in follow:
                    follow.add(State.PREPARE_ABORT)
                assert txn.state in follow, (name, before, txn)
                if before.producer_id == txn.producer_id:
                    assert txn.producer_epoch >= before.producer_epoch
                else:
                    assert txn.producer_id > before.producer_id
                    assert txn.producer_epoch == 0
                    assert before.producer_epoch >= LAST_EPOCH - 1
            last[name] = txn

    def heal(self) -> None:
        kit = self.kit
        kit.refuse, kit.commit_lag, kit.markers_wait, kit.ids_wait, kit.no_ids = None, False, False, False, False
        kit.leaders.clear()
        kit.marker_errors.clear()
        kit.commit()
        kit.settle()
        kit.advance(120)
        self.look()
        assert not kit.open, "somebody got no answer"
        assert not self.waiting
        for name, entry in kit.shard.ids.items():
            assert not entry.is_busy, name
            assert entry.txn is not None
            assert entry.txn == entry.logged
            assert entry.txn.state not in DECIDED | {State.ONGOING}, (name, entry.txn)
        assert len(kit.queues) == 0
        self.markers_are_those_of_the_decisions(whole=True)
        for name in NAMES:
            producer = kit.producer(name)
            assert kit.add(producer, A, name=name) == ErrorCode.NONE
            assert kit.error(kit.end(producer, name=name)) == ErrorCode.NONE


def _collapsed(markers: list[Marker]) -> list[Marker]:
    """A marker that was written again is one; so are two transactions with one epoch and outcome."""
    return [marker for i, marker in enumerate(markers) if not i or markers[i - 1] != marker]


def run(seed: int, steps: int) -> Run:
    try:
        found = Run(seed)
        for step in range(steps):
            found.step()
            if step % 20 == 0:
                found.kit.check()
                found.markers_are_those_of_the_decisions(whole=False)
        found.heal()
        found.kit.check()
        found.records_follow_the_table()
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise
    return found


def test_random_producers() -> None:
    runs = [run(seed, 120) for seed in range(25)]
    assert sum(each.told_commit for each in runs) > 30
    assert sum(each.told_abort for each in runs) > 30


@pytest.mark.campaign
@pytest.mark.parametrize("first", range(1_000, 2_000, 250))
def test_more_random_producers(first: int) -> None:
    for seed in range(first, first + 250):
        run(seed, 150)
