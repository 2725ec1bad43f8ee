"""Questions to transaction coordinators: one request per broker at a time, who shares it, and what its answer means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from barnabas.replication import BrokerImage, Endpoint, Image, PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.coordinators.verification import TxnVerification
from barnabas.server.coordinators.verification_asks import (
    Ask,
    Asks,
    Errors,
    Operation,
    operation_of_offset_commit,
    operation_of_produce,
    request_of,
    settle,
)
from barnabas.server.coordinators.verification_own import OwnCoordinator
from barnabas.server.network.peers import PeerError
from barnabas.server.runtime.timers import Timers

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)
OLD, VERIFY, ADD = Operation.VERIFY_FOR_OLD, Operation.VERIFY, Operation.ADD
_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


def answer(request: AddPartitionsToTxnRequest, code_of: Callable[[str, int], ErrorCode]) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            _Result(
                transactional_id=each.transactional_id,
                topic_results=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                                partition_index=index, partition_error_code=code_of(each.transactional_id, index)
                            )
                            for index in topic.partitions
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in request.transactions
        ]
    )


class Rig:
    """`verification` of broker 0; who coordinates an id is in `leaders` (else broker 0).

    asked: (broker, version or None for ourselves, request). Answers wait in `owed` until `reply`.
    """

    def __init__(self, **settings: str) -> None:
        config = BrokerConfig.from_values({"broker.id": "0", **settings})
        self.leaders: dict[str, int | None] = {}
        self.leader_epoch = 0
        self.asked: list[tuple[int, int | None, AddPartitionsToTxnRequest]] = []
        self.owed: list[Callable[[AddPartitionsToTxnResponse], None]] = []
        self.versions = {ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5)}
        self.broken = False
        self.writes = 0
        self.timers = Timers()
        brokers = {i: BrokerImage(i, (Endpoint("PLAINTEXT", f"b{i}", 9092, "PLAINTEXT"),)) for i in (0, 1, 2)}
        self.image = Image(brokers=brokers)
        self.verification = TxnVerification(
            self,
            SimpleNamespace(write_staged=self._written),  # type: ignore[arg-type]
            self.timers,
            self._connect,
            current_config=lambda: config,
            current_image=lambda: self.image,
            now=trio.current_time,
        )

    def _written(self) -> None:
        self.writes += 1

    async def _connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        raise AssertionError("peers are fakes here")

    # -- the coordinator of this broker

    def place(self, key: str) -> PartitionImage | None:
        leader = self.leaders.get(key, 0)
        return None if leader is None else PartitionImage(0, leader, self.leader_epoch, 0, (0, 1, 2), (0, 1, 2))

    def add_partitions(self, request: AddPartitionsToTxnRequest, version: int, token: Any) -> None:
        self.asked.append((0, None, request))
        self.owed.append(token.reply)

    # -- the others

    def peer(self, broker_id: int) -> Any:
        async def versions(endpoint: Endpoint) -> Any:
            await trio.lowlevel.checkpoint()
            return self.versions

        async def ask(endpoint: Endpoint, request: AddPartitionsToTxnRequest, version: int) -> Any:
            if self.broken:
                raise PeerError("cut off")
            self.asked.append((broker_id, version, request))
            send, receive = trio.open_memory_channel[AddPartitionsToTxnResponse](1)
            self.owed.append(send.send_nowait)
            return await receive.receive()

        async def close() -> None:
            await trio.lowlevel.checkpoint()

        return SimpleNamespace(versions=versions, ask=ask, close=close)

    # -- what tests say

    def check(
        self, name: str = "x", *partitions: tuple[str, int], epoch: int = 0, operation: Operation = VERIFY
    ) -> list[Errors]:
        """Where the answer comes."""
        told: list[Errors] = []
        self.verification.check(name, 7, epoch, partitions or (T0,), operation, told.append)
        return told

    async def reply(self, code_of: Callable[[str, int], ErrorCode] = lambda name, index: E.NONE) -> None:
        """Answer the oldest request."""
        owed, asked = self.owed.pop(0), self.asked[-len(self.owed) - 1]
        owed(answer(asked[2], code_of))
        await trio.testing.wait_all_tasks_blocked()


@asynccontextmanager
async def rig(**settings: str) -> AsyncIterator[Rig]:
    made = Rig(**settings)
    made.verification._others._peers = {i: made.peer(i) for i in (1, 2)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.timers.run)
        nursery.start_soon(made.verification.run)
        await trio.testing.wait_all_tasks_blocked()
        yield made
        nursery.cancel_scope.cancel()


def names(request: AddPartitionsToTxnRequest) -> list[tuple[str, int, bool, list[tuple[str, int]]]]:
    return [
        (
            each.transactional_id,
            each.producer_epoch,
            each.verify_only,
            [(topic.name, index) for topic in each.topics for index in topic.partitions],
        )
        for each in request.transactions
    ]


def test_what_the_versions_of_requests_mean() -> None:
    assert [operation_of_produce(version) for version in (3, 10, 11, 12, 13)] == [OLD, OLD, VERIFY, ADD, ADD]
    assert [operation_of_offset_commit(version) for version in (0, 3, 4, 5)] == [OLD, OLD, VERIFY, ADD]


async def test_the_own_broker_verifies_by_a_direct_call() -> None:
    async with rig() as r:
        told = r.check("x", T0, T1)
        ((broker, _, request),) = r.asked
        assert (broker, names(request)) == (0, [("x", 0, True, [T0, T1])])
        r.check("y", operation=ADD)  # ids do not wait for one another
        assert names(r.asked[1][2]) == [("y", 0, False, [T0])]
        assert told == []
        r.owed.pop(0)(answer(request, lambda name, index: E.TRANSACTION_ABORTABLE if index else E.NONE))
        assert told == [{T1: E.TRANSACTION_ABORTABLE}]


async def test_another_broker_has_one_request_at_a_time() -> None:
    async with rig() as r:
        r.leaders = {"x": 1, "y": 1, "z": 1, "w": 2}
        first, second = r.check("x"), r.check("y", operation=ADD)
        await trio.testing.wait_all_tasks_blocked()
        ((broker, version, request),) = r.asked  # both in one, as they came in one round
        assert (broker, version, [name for name, *_ in names(request)]) == (1, 5, ["x", "y"])
        third, other = r.check("z"), r.check("w")
        await trio.testing.wait_all_tasks_blocked()
        assert [broker for broker, *_ in r.asked] == [1, 2]  # `z` waits, `w` does not
        r.owed[0](answer(request, lambda name, index: E.NONE))
        await trio.testing.wait_all_tasks_blocked()
        assert (first, second, third, other) == ([{}], [{}], [], [])
        assert r.writes == 1
        assert names(r.asked[2][2]) == [("z", 0, True, [T0])]


async def test_the_same_producer_twice_shares_a_request() -> None:
    async with rig() as r:
        r.leaders = {"x": 1}
        r.check("y")
        first, second = r.check("x", T0), r.check("x", T0, T1)
        await trio.testing.wait_all_tasks_blocked()
        assert names(r.asked[1][2]) == [("x", 0, True, [T0, T1])]
        r.owed[1](answer(r.asked[1][2], lambda name, index: E.TRANSACTION_ABORTABLE if index else E.NONE))
        await trio.testing.wait_all_tasks_blocked()
        assert (first, second) == ([{}], [{T1: E.TRANSACTION_ABORTABLE}])


async def test_of_two_epochs_the_lower_one_is_fenced() -> None:
    async with rig() as r:
        r.leaders = {"x": 1}
        low, high = r.check(epoch=1), r.check(epoch=2)
        assert (low, high) == ([{T0: E.INVALID_PRODUCER_EPOCH}], [])
        assert r.check(epoch=1) == [{T0: E.INVALID_PRODUCER_EPOCH}]
        await trio.testing.wait_all_tasks_blocked()
        assert names(r.asked[0][2]) == [("x", 2, True, [T0])]
        # The same epoch with another operation cannot share; the earlier one is to be tried again.
        waiting = r.check(epoch=2)
        r.check(epoch=2, operation=ADD)
        assert waiting == [{T0: E.NETWORK_EXCEPTION}]


@pytest.mark.parametrize(
    ("operation", "said", "told"),
    [
        (OLD, E.TRANSACTION_ABORTABLE, E.INVALID_TXN_STATE),
        (VERIFY, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (ADD, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (OLD, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (ADD, E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (VERIFY, E.CONCURRENT_TRANSACTIONS, E.CONCURRENT_TRANSACTIONS),
        (VERIFY, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (VERIFY, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
async def test_which_error_a_client_gets(operation: Operation, said: ErrorCode, told: ErrorCode) -> None:
    async with rig() as r:
        got = r.check(operation=operation)
        await r.reply(lambda name, index: said)
        assert got == [{T0: told}]


async def test_no_coordinator_to_ask() -> None:
    async with rig() as r:
        for leader in (None, -1, 9):
            r.leaders["x"] = leader
            assert r.check() == [{T0: E.COORDINATOR_NOT_AVAILABLE}]
        r.leaders["x"], r.broken = 1, True
        cut_off = r.check()
        await trio.testing.wait_all_tasks_blocked()
        assert cut_off == [{T0: E.NETWORK_EXCEPTION}]
        r.broken = False
        r.check()
        await trio.testing.wait_all_tasks_blocked()
        assert len(r.asked) == 1


async def test_a_coordinator_that_has_moved_is_not_waited_for(autojump_clock: trio.abc.Clock) -> None:
    async with rig() as r:
        r.leaders = {"x": 1, "y": 1}
        told = r.check("x")
        await trio.sleep(5)
        assert told == []
        waiting = r.check("y")
        r.leader_epoch = 1  # the broker is back, and knows nothing of the question
        await trio.sleep(1.5)
        assert (told, waiting) == ([{T0: E.NETWORK_EXCEPTION}], [])
        assert names(r.asked[-1][2]) == [("y", 0, True, [T0])]


async def test_brokers_of_other_versions() -> None:
    async with rig() as r:
        r.leaders["x"] = 1
        r.versions[ApiKey.ADD_PARTITIONS_TO_TXN] = (0, 4)
        told = r.check()
        await trio.testing.wait_all_tasks_blocked()
        assert r.asked[0][1] == 4
        await r.reply()
        assert told == [{}]
        r.versions[ApiKey.ADD_PARTITIONS_TO_TXN] = (0, 3)
        unverified = r.check()
        await trio.testing.wait_all_tasks_blocked()
        assert (unverified, len(r.asked)) == ([{}], 1)


async def test_a_request_that_is_refused_as_a_whole() -> None:
    async with rig() as r:
        for code, expected in (
            (E.CLUSTER_AUTHORIZATION_FAILED, E.INVALID_TXN_STATE),
            (E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
            (-7, E.UNKNOWN_SERVER_ERROR),
        ):
            told = r.check()
            r.owed.pop(0)(AddPartitionsToTxnResponse(error_code=code))
            assert told == [{T0: expected}]


async def test_a_failing_customer_does_not_harm_the_others() -> None:
    async with rig() as r:
        r.leaders = {"x": 1}

        def fails(errors: Errors) -> None:
            raise RuntimeError("a bug")

        r.verification.check("x", 7, 0, (T0,), VERIFY, fails)
        told = r.check("x")
        await trio.testing.wait_all_tasks_blocked()
        await r.reply()
        assert told == [{}]


async def test_what_is_tried_again(autojump_clock: trio.abc.Clock) -> None:
    async with rig() as r:
        busy = {T0: E.CONCURRENT_TRANSACTIONS}
        again: list[float] = []

        def look() -> None:
            again.append(trio.current_time())

        start = trio.current_time()
        assert not r.verification.tries_again(VERIFY, busy, start, look)
        assert not r.verification.tries_again(ADD, {T0: E.NOT_COORDINATOR}, start, look)
        assert r.verification.tries_again(ADD, busy, start, look)
        await trio.sleep(0.05)
        assert again == [start + 0.02]
        assert r.writes == 1
        await trio.sleep(0.06)
        assert not r.verification.tries_again(ADD, busy, start, look)


# -- the parts, each alone ---------------------------------------------------------------------------------------------


def an_ask(told: list[Errors], *partitions: tuple[str, int], name: str = "x", epoch: int = 0) -> Ask:
    ask = Ask(name, 7, epoch, VERIFY)
    ask.add(partitions or (T0,), told.append)
    return ask


def test_verifications_of_one_producer_are_merged() -> None:
    asks, first, second, other = Asks(), list[Errors](), list[Errors](), list[Errors]()
    asks.add(an_ask(first, T0))
    asks.add(an_ask(second, T1))
    asks.add(an_ask(other, name="y"))
    taken = asks.take()
    assert not asks
    assert [list(ask.partitions) for ask in taken] == [[T0, T1], [T0]]
    told = answer(request_of(taken), lambda name, index: E.INVALID_TXN_STATE if index else E.NONE)
    settle(taken, told)
    assert (first, second, other) == ([{}], [{T1: E.INVALID_TXN_STATE}], [{}])


def test_of_two_epochs_the_lower_is_refused() -> None:
    asks, low, high, lowest = Asks(), list[Errors](), list[Errors](), list[Errors]()
    asks.add(an_ask(low, epoch=1))
    asks.add(an_ask(high, epoch=2))
    asks.add(an_ask(lowest, epoch=0))
    assert (low, lowest) == ([{T0: E.INVALID_PRODUCER_EPOCH}], [{T0: E.INVALID_PRODUCER_EPOCH}])
    settle(asks.take(), None)
    assert high == [{T0: E.NETWORK_EXCEPTION}]


def test_our_own_coordinator_verifies_an_id_once_at_a_time() -> None:
    r = Rig()
    own, first, second, other = OwnCoordinator(r), list[Errors](), list[Errors](), list[Errors]()
    own.ask(an_ask(first))
    own.ask(an_ask(second))
    own.ask(an_ask(other, name="y"))
    assert [[each.transactional_id for each in asked[2].transactions] for asked in r.asked] == [["x"], ["y"]]
    r.owed[0](answer(r.asked[0][2], lambda name, index: E.NONE))
    assert (first, second, len(r.asked)) == ([{}], [], 3)
    r.owed[2](answer(r.asked[2][2], lambda name, index: E.NONE))
    assert (second, other) == ([{}], [])
