"""The coordinator of transactions: real partitions on disk, a virtual clock, no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import AddPartitionsToTxnRequest, InitProducerIdRequest, ListTransactionsRequest
from barnabas.replication import PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.tests.apis.fakes import at_once
from barnabas.server.tests.coordinators.txn_rig import TOPIC, Token, txn_rig

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


async def test_a_transaction_of_this_broker_is_complete_in_one_round(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.init()
        assert who == (4000, 0)
        added = r.add(who, T0, T1)
        assert added.waits
        r.round()
        assert r.added(added) == [E.NONE, E.NONE]
        ended = r.end(who)
        assert ended.waits
        assert not r.markers
        r.round()
        assert ended.answer.error_code == E.NONE
        assert r.markers == [(4000, 0, True, 0, T0), (4000, 0, True, 0, T1)]
        assert r.state() == "CompleteCommit"
        assert r.transactions.unmarked == 0
        assert await r.init() == (4000, 1)


async def test_which_broker_coordinates_what(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        assert r.transactions.place("x") is None
        with pytest.raises(KafkaError) as raised:
            r.ask_init()
        assert raised.value.code == E.NOT_COORDINATOR
        r.transactions.want_topic()
        await trio.testing.wait_all_tasks_blocked()
        assert r.created == [TOPIC]
        r.topic(3)
        with pytest.raises(KafkaError) as raised:
            r.ask_init("")
        assert raised.value.code == E.INVALID_REQUEST
        place = r.transactions.place("x")
        assert place is not None
        await r.init()
        r.transactions.resign(place.index)
        assert r.state() == "NOT_COORDINATOR"
        assert r.added(r.add((4000, 0), T0)) == [E.NOT_COORDINATOR]
        assert at_once(r.transactions.listed(ListTransactionsRequest(), None)).transaction_states == []


async def test_partitions_that_do_not_exist_keep_the_others_out(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.init()
        assert r.added(r.add(who, T0, ("t", 3), ("u", 0))) == [
            E.OPERATION_NOT_ATTEMPTED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert r.state() == "Empty"


async def test_brokers_ask_for_several_transactions_at_once(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.ongoing(T0)
        other = await r.init("y")
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]

        def part(name: str, who: tuple[int, int], verify_only: bool = False) -> Any:
            return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=who[0],
                producer_epoch=who[1],
                verify_only=verify_only,
                topics=topics,
            )

        request = AddPartitionsToTxnRequest(
            transactions=[
                part("x", who, verify_only=True),
                part("y", other),
                part("z", who),
            ]
        )
        token = Token()
        r.transactions.add_partitions(request, 4, token)
        assert token.waits
        r.round()
        told = {
            each.transactional_id: [p.partition_error_code for p in each.topic_results[0].results_by_partition]
            for each in token.answer.results_by_transaction
        }
        mapping = E.INVALID_PRODUCER_ID_MAPPING
        assert told == {"x": [0, E.TRANSACTION_ABORTABLE], "y": [0, 0], "z": [mapping, mapping]}
        empty = Token()
        r.transactions.add_partitions(AddPartitionsToTxnRequest(), 4, empty)
        assert empty.answer.results_by_transaction == []


async def test_offsets_of_a_group_are_a_partition_like_others(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.init()
        r.add_offsets(who, "g")  # nobody has made __consumer_offsets yet
        r.round()
        (topic,) = r.transactions.describe("x").topics
        assert (topic.topic, topic.partitions) == ("__consumer_offsets", [103 % 50])
        r.world.topic("__consumer_offsets", 5)
        r.add_offsets(who, "g")
        r.round()
        (topic,) = r.transactions.describe("x").topics
        assert topic.partitions == [3]


# -- the log refuses, or is slow ---------------------------------------------------------------------


async def test_records_that_the_log_rejects_have_no_effect(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.world.topic(TOPIC, min_insync_replicas="2")
        r.partition.replicas = (0, 99)
        r.transactions.lead(r.partition)
        token = r.ask_init()
        await r.settle()
        assert token.answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        assert r.state() == "TRANSACTIONAL_ID_NOT_FOUND"
        r.partition.isr = (0, 99)
        who = await r.ongoing()
        r.partition.isr = (0,)
        assert r.end(who).answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        assert r.state() == "Ongoing"
        assert r.added(r.add(who, T1)) == [E.COORDINATOR_NOT_AVAILABLE]
        r.partition.isr = (0, 99)
        ended = r.end(who)
        r.round()
        assert ended.answer.error_code == E.NONE
        assert r.state() == "CompleteCommit"


async def test_the_end_of_a_transaction_is_written_when_the_log_takes_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.world.topic(TOPIC, min_insync_replicas="2")
        r.partition.replicas, r.partition.isr = (0, 99), (0, 99)
        r.transactions.lead(r.partition)
        who = await r.ongoing()
        r.hold = True
        r.end(who)
        r.round()
        r.partition.isr = (0,)
        r.held.pop()()
        await r.settle()
        assert r.state() == "PrepareCommit"
        assert r.end(who).answer.error_code == E.CONCURRENT_TRANSACTIONS
        r.partition.isr = (0, 99)
        await trio.sleep(1.1)
        assert r.state() == "CompleteCommit"


async def test_a_change_that_is_committed_late_still_counts(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path, request_timeout_ms="30000") as r:
        r.topic()
        who = await r.ongoing()
        r.isr(0, 1)
        token = r.end(who)
        r.round()
        await trio.sleep(29)
        assert token.waits
        await trio.sleep(1.1)
        assert token.answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        # It may be committed yet, so the id is busy, and nothing follows from it.
        assert r.end(who).answer.error_code == E.CONCURRENT_TRANSACTIONS
        assert r.state() == "Ongoing"
        assert not r.markers
        r.isr(0)
        await trio.testing.wait_all_tasks_blocked()
        assert r.state() == "CompleteCommit"
        assert r.end(who).answer.error_code == E.NONE
        assert [marker[2] for marker in r.markers] == [True]


async def test_a_change_that_too_few_replicas_got_is_refused_and_holds(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.world.topic(TOPIC, min_insync_replicas="2")
        r.isr(0, 1)
        r.transactions.lead(r.partition)
        token = r.ask_init()
        await r.settle()
        assert token.waits
        r.partition.isr = (0,)  # it has shrunk when the high watermark passes
        r.partition.leader.maximal_isr = frozenset((0,))
        r.partition._commit_up_to(1)
        assert token.answer.error_code == E.COORDINATOR_NOT_AVAILABLE
        await trio.testing.wait_all_tasks_blocked()
        assert r.state() == "Empty"  # it is in the log, and safe by now


# -- coordinators come and go --------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit"])
async def test_what_was_decided_is_brought_to_its_end_by_the_next_coordinator(
    state: str, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.init()
        if state != "Empty":
            r.add(who, T0, T1)
            r.round()
        if state.startswith("Prepare"):
            r.hold = True
        if state not in ("Empty", "Ongoing"):
            r.end(who, state.endswith("Commit"))
            r.round()
        assert r.state() == state
        r.markers.clear()
        r.hold = False
        r.world.new_epoch(r.partition, 5)
        await r.restart()
        if state.startswith("Prepare"):
            commit = state == "PrepareCommit"
            assert r.markers == [(*who, commit, 5, T0), (*who, commit, 5, T1)]
            assert r.state() == state.replace("Prepare", "Complete")
            # What the coordinator before asked for is answered in vain.
            for answer in r.held:
                answer()
            await r.settle()
        else:
            assert not r.markers
            assert r.state() == state
        if state == "Ongoing":
            # Its time goes on running.
            await trio.sleep(61)
            assert r.state() == "CompleteAbort"
            assert {marker[:4] for marker in r.markers} == {(who[0], who[1] + 1, False, 5)}


async def test_nothing_is_served_before_all_that_was_loaded_is_committed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.ongoing()
        r.hold = True
        r.end(who)
        r.round()
        r.markers.clear()
        r.isr(0, 1)
        # What a leader before us acknowledged, and the high watermark does not cover yet.
        r.partition.high_watermark -= 1
        await r.restart()
        await trio.sleep(60)
        assert r.state() == "COORDINATOR_LOAD_IN_PROGRESS"
        assert r.added(r.add(who, T0)) == [E.COORDINATOR_LOAD_IN_PROGRESS]
        listed = at_once(r.transactions.listed(ListTransactionsRequest(), None))
        assert (listed.error_code, listed.transaction_states) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
        assert not r.markers
        r.isr(0)
        await trio.testing.wait_all_tasks_blocked()
        assert r.state() == "PrepareCommit"
        assert len(r.markers) == 1


async def test_waiting_clients_get_an_error_when_leadership_is_lost(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        await r.ongoing()
        r.isr(0, 1)
        new = r.ask_init("y")  # waits for the commit
        again = r.ask_init()  # fences the open transaction
        r.producer_ids.failure = KafkaError(E.COORDINATOR_LOAD_IN_PROGRESS)
        await r.settle()
        assert new.answer.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        r.producer_ids.failure = None
        third = r.ask_init("z")
        await trio.testing.wait_all_tasks_blocked()
        late = r.ask_init("late")  # its producer id comes when all is over
        r.partition.follow(PartitionImage(0, 1, 7, 7, (0, 1, 2), (1,)))
        assert again.answer.error_code == E.NOT_COORDINATOR
        assert third.answer.error_code == E.NOT_COORDINATOR
        await trio.testing.wait_all_tasks_blocked()
        assert late.answer.error_code == E.NOT_COORDINATOR
        assert r.state() == "NOT_COORDINATOR"
        await trio.sleep(100)
        assert not r.markers


async def test_markers_end_with_the_coordinator(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.ongoing()
        r.code = E.NOT_LEADER_OR_FOLLOWER
        r.end(who)
        r.round()
        await trio.sleep(1)
        assert len(r.markers) > 5
        r.transactions.resign(0)
        assert r.transactions.unmarked == 0
        r.markers.clear()
        await trio.sleep(10)
        assert not r.markers


async def test_a_new_epoch_of_the_same_leader_keeps_all_state(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.ongoing()
        r.world.new_epoch(r.partition, 5)
        r.transactions.lead(r.partition)
        assert r.state() == "Ongoing"
        r.end(who)
        r.round()
        assert r.state() == "CompleteCommit"


# -- time --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 2])
async def test_a_transaction_that_is_out_of_time_is_aborted(
    level: int, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with txn_rig(tmp_path) as r:
        r.level = level
        r.topic()
        who = await r.ongoing(timeout_ms=5_000)
        await trio.sleep(4.9)
        assert r.state() == "Ongoing"
        await trio.sleep(0.2)
        assert r.state() == "CompleteAbort"
        assert r.markers == [(who[0], who[1] + 1, False, 0, T0)]
        assert r.end(who).answer.error_code == E.PRODUCER_FENCED


async def test_unused_ids_are_removed(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with txn_rig(tmp_path, transactional_id_expiration_ms="7300000") as r:
        r.topic()
        await r.init()
        await r.init("y")
        await trio.sleep(7000)
        await r.init("y")
        await trio.sleep(400)
        assert r.state() == "Empty"
        await trio.sleep(3700)
        assert r.state() == "TRANSACTIONAL_ID_NOT_FOUND"
        assert r.state("y") == "Empty"
        await r.restart()
        assert r.state() == "TRANSACTIONAL_ID_NOT_FOUND"
        assert r.state("y") == "Empty"


async def test_settings_hold_from_the_next_decision_on(tmp_path: Path) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic()
        who = await r.init()
        r.config = BrokerConfig.from_values({"transaction.max.timeout.ms": "1000"})
        r.level = 2
        r.transactions.config_changed()
        assert r.ask_init(timeout_ms=1001).answer.error_code == E.INVALID_TRANSACTION_TIMEOUT
        r.add(who, T0, version=4)
        r.round()
        ended = r.end(who, version=5)
        r.round()
        assert (ended.answer.producer_id, ended.answer.producer_epoch) == (who[0], who[1] + 1)
        # Records are of the new layout: they bring the id back as it was.
        await r.restart()
        request = InitProducerIdRequest(
            transactional_id="x", transaction_timeout_ms=1000, producer_id=who[0], producer_epoch=who[1] + 1
        )
        token = Token()
        r.transactions.init_producer_id(request, 4, token)
        await r.settle()
        assert (token.answer.error_code, token.answer.producer_epoch) == (E.NONE, who[1] + 2)


async def test_what_is_listed(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with txn_rig(tmp_path) as r:
        r.topic(2)
        await r.ongoing()
        await r.init("y")
        await trio.sleep(2)

        def listed(matches: object = None, **filters: object) -> set[str]:
            told = at_once(r.transactions.listed(ListTransactionsRequest(**filters), matches))  # type: ignore[arg-type]
            return {each.transactional_id for each in told.transaction_states}

        assert listed() == {"x", "y"}
        assert listed(state_filters=["Ongoing", "Lost"]) == {"x"}
        assert at_once(
            r.transactions.listed(ListTransactionsRequest(state_filters=["Lost"]), None)
        ).unknown_state_filters == ["Lost"]
        assert listed(producer_id_filters=[4001]) == {"y"}
        assert listed("y".__eq__) == {"y"}
