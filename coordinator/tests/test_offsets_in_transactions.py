"""Offsets that are committed in transactions: pending until the marker is committed, whatever comes between; compared
with a model that reads the log from its start.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from barnabas.coordinator import GroupConfig, GroupShard, OffsetToCommit
from barnabas.coordinator.machine import Record
from barnabas.coordinator.stored import OffsetRecord, parse
from barnabas.coordinator.tests.kit import Kit, told
from barnabas.kproto import ErrorCode

E = ErrorCode
P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
SEEDS = int(os.environ.get("BARNABAS_OFFSET_SEEDS", "6"))


class TxnKit(Kit):
    """A log whose entries may belong to a producer's transaction, or end one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.producers: dict[int, int] = {}
        self.markers: dict[int, tuple[int, bool]] = {}

    def commit_in_txn(
        self,
        producer_id: int,
        offsets: dict[tuple[str, int], int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        metadata: str = "",
        group: str = "g",
    ) -> list[ErrorCode]:
        token = self.token()
        to_commit = [OffsetToCommit(*partition, offset, metadata=metadata) for partition, offset in offsets.items()]
        result = self.shard.commit_in_transaction(group, generation, member_id, instance, to_commit, token, self.now)
        base_offset = len(self.log)
        self.log.extend(told(result.records))
        self.producers.update(dict.fromkeys(range(base_offset, len(self.log)), producer_id))
        self.shard.replay_decided(result.records, base_offset, self.committed_to, producer_id)
        self.settle_log()
        self._deliver(result.replies or result.held)
        return list(self.answer(token))

    def end(self, producer_id: int, *, commit: bool = True) -> None:
        self.log.append(Record(b"", None))
        offset = len(self.log) - 1
        self.markers[offset] = (producer_id, commit)
        self.shard.replay_end_of_transaction(producer_id, commit, offset, self.committed_to)
        self.settle_log()

    def settle_log(self) -> None:
        if not self.commit_lag:
            self.commit()

    def restart(self, *, lose_uncommitted: bool = True) -> None:
        self._deliver(self.shard.unload(self.now).replies)
        if lose_uncommitted:
            del self.log[self.committed_to :]
        self.committed_to = end = len(self.log)
        self.producers = {at: who for at, who in self.producers.items() if at < end}
        self.markers = {at: what for at, what in self.markers.items() if at < end}
        self.shard = GroupShard(self.config)
        for at, record in enumerate(self.log):
            if at in self.markers:
                self.shard.replay_end_of_transaction(*self.markers[at], at, end)
            else:
                self.shard.replay(record.key, record.value, at, end, self.producers.get(at, -1))
        self.run(self.shard.loaded(self.now))

    def seen(self, *, stable: bool = False) -> dict[tuple[str, int], int | str]:
        """What a reader gets of P0, P1 and P2."""
        told = self.shard.fetch("g", [P0, P1, P2], stable, self.committed_to)
        return {
            (each.topic, each.partition): each.offset if each.error == E.NONE else each.error.name
            for each in told
            if each.offset != -1 or each.error != E.NONE
        }


WAIT = E.UNSTABLE_OFFSET_COMMIT.name


def test_the_marker_makes_them_real_or_nothing() -> None:
    kit = TxnKit()
    assert kit.commit_in_txn(7, {P0: 5, P1: 6}) == [E.NONE, E.NONE]
    assert kit.seen() == {}
    assert kit.seen(stable=True) == {P0: WAIT, P1: WAIT}
    kit.end(7)
    assert kit.seen() == kit.seen(stable=True) == {P0: 5, P1: 6}
    kit.commit_in_txn(7, {P0: 50})
    kit.end(7, commit=False)
    assert kit.seen(stable=True) == {P0: 5, P1: 6}
    kit.end(7)  # nothing is open
    assert kit.seen(stable=True) == {P0: 5, P1: 6}


def test_a_marker_that_may_be_lost_is_not_believed() -> None:
    kit = TxnKit()
    kit.answer(kit.commit_offsets({P0: 1}))
    kit.commit_in_txn(7, {P0: 5, P1: 6})
    kit.commit_lag = True
    kit.end(7)
    assert kit.seen() == {P0: 1}
    assert kit.seen(stable=True) == {P0: WAIT, P1: WAIT}
    kit.restart()
    assert kit.seen(stable=True) == {P0: WAIT, P1: WAIT}
    kit.end(7)
    kit.commit()
    assert kit.seen(stable=True) == {P0: 5, P1: 6}


def test_the_later_commit_wins_not_the_later_marker() -> None:
    kit = TxnKit()
    kit.commit_in_txn(1, {P0: 10})
    kit.commit_in_txn(2, {P0: 20})
    kit.end(2)
    kit.end(1)
    assert kit.seen() == {P0: 20}
    kit.commit_in_txn(1, {P0: 30})
    kit.answer(kit.commit_offsets({P0: 40}))
    kit.end(1)
    assert kit.seen() == {P0: 40}


def test_which_clients_may_commit() -> None:
    kit = TxnKit()
    assert kit.commit_in_txn(7, {P0: 1}, generation=3, member_id="m") == [E.ILLEGAL_GENERATION]
    (member,) = kit.stable(1)
    generation = kit.generation()
    # Producers before version 3 of the request do not say for whom they commit.
    assert kit.commit_in_txn(7, {P0: 1}) == [E.NONE]
    assert kit.commit_in_txn(7, {P0: 1}, generation=generation, member_id=member) == [E.NONE]
    assert kit.commit_in_txn(7, {P0: 1}, generation=generation + 1, member_id=member) == [E.ILLEGAL_GENERATION]
    assert kit.commit_in_txn(7, {P0: 1}, generation=generation, member_id="x") == [E.UNKNOWN_MEMBER_ID]
    # While the group rebalances its members may end what they are at.
    kit.join(kit.member())
    assert kit.state() == "PreparingRebalance"
    assert kit.commit_in_txn(7, {P0: 2}, generation=generation, member_id=member) == [E.NONE]


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    kit = TxnKit()
    first = kit.joined(kit.join(instance="i")).member_id
    kit.settle(first, [first], 1, instance="i")
    second = kit.joined(kit.join(instance="i")).member_id
    assert second != first
    told = kit.commit_in_txn(7, {P0: 1}, generation=kit.generation(), member_id=first, instance="i")
    assert told == [E.FENCED_INSTANCE_ID]


def test_metadata_has_a_limit() -> None:
    kit = TxnKit(config=GroupConfig(offset_metadata_max_bytes=4))
    assert kit.commit_in_txn(7, {P0: 1}, metadata="12345") == [E.OFFSET_METADATA_TOO_LARGE]
    assert kit.seen(stable=True) == {}
    assert kit.commit_in_txn(7, {P0: 1}, metadata="1234") == [E.NONE]


def test_a_removal_takes_what_is_pending_along() -> None:
    kit = TxnKit()
    kit.answer(kit.commit_offsets({P1: 1}))
    kit.commit_in_txn(7, {P0: 5, P1: 6})
    token = kit.token()
    kit.run(kit.shard.delete_offsets("g", [P0, P2], token))
    assert kit.answer(token) == [E.NONE, E.NONE]
    kit.restart()
    kit.end(7)
    assert kit.seen(stable=True) == {P1: 6}


def test_a_group_that_is_deleted_stays_away_when_the_transaction_commits() -> None:
    kit = TxnKit()
    kit.commit_in_txn(7, {P0: 5})
    assert kit.delete_group() == E.NONE
    assert not kit.shard.groups
    kit.end(7)
    kit.restart()
    assert not kit.shard.groups
    assert kit.seen(stable=True) == {}


def test_topics_that_are_deleted_lose_what_is_pending_for_them() -> None:
    kit = TxnKit()
    kit.commit_in_txn(7, {P0: 5, ("u", 0): 6})
    kit.run_all(kit.shard.topics_deleted(["t"], kit.now))
    kit.end(7)
    assert kit.committed() == {("u", 0): 6}


def test_nothing_expires_under_an_open_transaction() -> None:
    kit = TxnKit()
    kit.answer(kit.commit_offsets({P0: 1, P1: 1}))
    kit.commit_in_txn(7, {P0: 5})
    kit.seconds = 8 * 86_400
    kit.run_all(kit.shard.expire_offsets(kit.now))
    assert kit.seen() == {P0: 1}
    kit.end(7, commit=False)
    kit.run_all(kit.shard.expire_offsets(kit.now))
    assert not kit.shard.groups


def expected(kit: TxnKit) -> dict[tuple[str, int], int]:
    """What the committed part of the log says."""
    real: dict[tuple[str, int], tuple[int, int]] = {}
    pending: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
    for at, entry in enumerate(kit.log[: kit.committed_to]):
        if at in kit.markers:
            producer_id, commit = kit.markers[at]
            for partition, value in pending.pop(producer_id, {}).items():
                if commit and real.get(partition, (-1, 0))[0] < value[0]:
                    real[partition] = value
            continue
        record = parse(entry.key, entry.value)
        if not isinstance(record, OffsetRecord):
            continue
        partition = (record.topic, record.partition)
        if record.committed is None:
            real.pop(partition, None)
            for of_producer in pending.values():
                of_producer.pop(partition, None)
        elif at in kit.producers:
            pending.setdefault(kit.producers[at], {})[partition] = (at, record.committed.offset)
        else:
            real[partition] = (at, record.committed.offset)
    return {partition: offset for partition, (_, offset) in real.items()}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_mixture_reads_as_the_log_says(seed: int) -> None:
    rng = Random(seed)
    kit = TxnKit()
    kit.commit_lag = True
    for step in range(80):
        what = rng.randrange(20)
        partitions = rng.sample([P0, P1, P2], rng.randrange(1, 4))
        producer_id = rng.randrange(3)
        if what < 6:
            kit.commit_in_txn(producer_id, dict.fromkeys(partitions, step))
        elif what < 10:
            kit.commit_offsets(dict.fromkeys(partitions, step))
        elif what < 14:
            kit.end(producer_id, commit=rng.random() < 0.7)
        elif what == 14:
            # A removal holds from when it is replayed, so it is committed at once here.
            kit.commit()
            kit.run(kit.shard.delete_offsets("g", partitions, kit.token()))
            kit.commit()
        elif what == 15:
            kit.restart(lose_uncommitted=rng.random() < 0.5)
        elif what == 16 and not kit.shard.groups.keys() - {"g"}:
            kit.commit()
            kit.run_all(kit.shard.delete_group("g", kit.token(), kit.now))
            kit.commit()
        else:
            kit.commit()
        told = expected(kit)
        assert kit.seen() == told, f"seed {seed}, step {step}"
        stable = kit.seen(stable=True)
        assert all(offset == WAIT or told.get(partition) == offset for partition, offset in stable.items())
