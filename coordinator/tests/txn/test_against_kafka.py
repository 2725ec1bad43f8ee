"""What Apache Kafka 4.3.1 answered to random requests, and the state it showed after each: the machine does the same.

`data/txn_tv*.jsonl` were captured over the wire, one file per finalised transaction.version, one client, waiting after
each request until DescribeTransactions shows no decided transaction; in the `_last_epochs` files the ids are near the
end of their epochs ("skip": thousands of InitProducerId requests are left out). A line is a request, what was told, and
what DescribeTransactions showed: error, state, time-out, producer id, epoch, partitions, whether it has a start.
Producer ids are whatever the brokers handed out, so ours are matched to theirs as they appear.

In one case the machine deviates on purpose (`barnabas.coordinator.txn.ending`), which some lines of the traces show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.coordinator.tests.txn.txn_kit import Producer, TxnKit
from barnabas.coordinator.txn import TxnConfig
from barnabas.coordinator.txn.states import State
from barnabas.coordinator.txn.stored import txn_record
from barnabas.coordinator.txn.transaction import Txn
from barnabas.kproto import ErrorCode

DATA = Path(__file__).parent / "data"
TRACES = sorted(DATA.glob("txn_tv*.jsonl"))


class Replayed:
    """A kit and which of its producer ids stands for which of the trace."""

    def __init__(self, level: int) -> None:
        self.kit = TxnKit(TxnConfig(transaction_version=level))
        self.ours: dict[int, int] = {-1: -1}

    def producer(self, producer_id: int, epoch: int) -> Producer:
        return Producer(self.ours.get(producer_id, 10**9 + producer_id), epoch)

    def learn(self, theirs: int, ours: int) -> int:
        """Their number for ours."""
        if theirs not in self.ours and ours not in self.ours.values():
            self.ours[theirs] = ours
        for known, mine in self.ours.items():
            if mine == ours:
                return known
        return -2

    def do(self, op: list[Any], told: Any) -> Any:
        """Carry out one line. Returns the machine's answer, in the trace's form."""
        kit = self.kit
        if op[0] == "init":
            _, name, version, producer_id, epoch, timeout_ms = op
            answer = kit.answer(
                kit.init(name, owner=self.producer(producer_id, epoch), version=version, timeout_ms=timeout_ms)
            )
            return [answer.error_code, self.learn(told[1], answer.producer_id), answer.producer_epoch]
        if op[0] == "end":
            _, name, version, producer_id, epoch, commit = op
            answer = kit.answer(kit.end(self.producer(producer_id, epoch), commit, name=name, version=version))
            if version < 5:
                return [answer.error_code, -1, -1]
            return [answer.error_code, self.learn(told[1], answer.producer_id), answer.producer_epoch]
        if op[0] == "offsets":
            _, name, version, producer_id, epoch, partition = op
            return kit.add_offsets(self.producer(producer_id, epoch), name=name, version=version, partition=partition)
        if op[0] in ("add", "verify"):
            _, name, version, producer_id, epoch, listed = op
            partitions = [(topic, partition) for topic, partition in listed]
            producer = self.producer(producer_id, epoch)
            if op[0] == "verify":
                codes = kit.verify(producer, *partitions, name=name)
            else:
                codes = [kit.error(kit.add(producer, *partitions, name=name, version=version))] * len(partitions)
            return sorted([*partition, code] for partition, code in zip(partitions, codes, strict=True))
        if op[0] == "timeout":
            kit.advance(0.6)
            return None
        assert op[0] == "skip"
        _, name, producer_id, epoch = op
        kit.ids_given += 1
        self.learn(producer_id, kit.ids_given)
        txn = Txn(kit.ids_given, epoch, 60_000, State.EMPTY, update_ms=kit.now.wall_ms)
        txn = txn._replace(previous_producer_id=kit.ids_given)
        kit.log.append(txn_record(name, txn, 1 if kit.config.transaction_version else 0))
        kit.committed_to = len(kit.log)
        kit.restart()
        return None

    def described(self, name: str, theirs: list[Any]) -> list[Any]:
        shown = self.kit.shard.describe(name)
        partitions = sorted([topic.topic, partition] for topic in shown.topics for partition in topic.partitions)
        if shown.error_code != ErrorCode.NONE:
            return [shown.error_code, *theirs[1:]]
        return [
            shown.error_code,
            shown.transaction_state,
            shown.transaction_timeout_ms,
            self.learn(theirs[3], shown.producer_id),
            shown.producer_epoch,
            partitions,
            shown.transaction_start_time_ms >= 0,
        ]

    def is_kept_out(self, op: list[Any]) -> bool:
        """EndTxn 5 with the epoch before the present one, when the last end was one of an older client."""
        if op[0] != "end" or op[2] < 5:
            return False
        entry = self.kit.shard.ids.get(op[1])
        txn = None if entry is None else entry.txn
        return txn is not None and txn.client_version < 2 and txn[:2] == self.producer(op[3], op[4] + 1)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_the_machine_answers_as_apache_kafka_did(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    replayed = Replayed(lines[0]["transaction_version"])
    kept_out = 0
    for number, line in enumerate(lines[1:], 2):
        op, told, after = line["do"], line["told"], line["after"]
        where = f"{path.name}:{number} {op}"
        if replayed.is_kept_out(op):
            kept_out += told[0] != ErrorCode.PRODUCER_FENCED
            told = [ErrorCode.PRODUCER_FENCED, -1, -1]
        assert replayed.do(op, told) == told, where
        assert replayed.described(op[1], after) == after, where
        if number % 20 == 0:
            replayed.kit.check()
    assert (kept_out > 0) is (lines[0]["transaction_version"] == 2)


def test_there_are_traces() -> None:
    assert len(TRACES) == 5
