"""Whom a broker follows, and how leaders come, go and are lost, under a mock clock; answers stand in
`test_followers_answers`.
"""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, KafkaError
from barnabas.logdir import AppendOrigin
from barnabas.server.tests.partitions.fake_leaders import (
    NOW,
    TOPIC_ID,
    US,
    answer_offsets,
    batch,
    caught_up,
    fetched,
    following,
    part,
)

# ---- the usual course


async def test_records_and_offsets_come_from_the_leader(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        asked = await world.leader.asked()
        assert (asked.key, asked.version, asked.client_id) == (ApiKey.FETCH, 17, "broker-9-fetcher-0")
        request = asked.request
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (US, 77)
        assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (500, 1, 10_485_760)
        of = asked.partitions[0]
        assert (of.current_leader_epoch, of.fetch_offset, of.last_fetched_epoch) == (5, 0, -1)
        assert (of.log_start_offset, of.partition_max_bytes) == (0, 1_048_576)
        await asked.answer(fetched(part(0, batch(0, b"a", b"b"), batch(2, b"c"), high_watermark=2)))
        assert world.log() == (0, 3, 2)
        asked = await world.leader.asked()
        assert (asked.request.session_id, asked.request.session_epoch) == (33, 1)
        of = asked.partitions[0]
        assert (of.fetch_offset, of.last_fetched_epoch) == (3, 5), "which is how the leader hears of it"
        await asked.answer(fetched(part(0, high_watermark=3, log_start_offset=1)))
        assert world.log() == (1, 3, 3)
        asked = await world.leader.asked()
        assert asked.partitions[0].log_start_offset == 1
        await asked.answer(fetched())
        asked = await world.leader.asked()
        assert asked.partitions == {}
        assert asked.request.session_epoch == 3


async def test_settings_and_older_protocol(autojump_clock: MockClock) -> None:
    async with following(
        inter_broker_protocol_version="2.7",
        replica_fetch_max_bytes="1000",
        replica_fetch_response_max_bytes="5000",
        replica_fetch_wait_max_ms="70",
        replica_fetch_min_bytes="3",
    ) as world:
        world.follow()
        asked = await world.leader.asked()
        assert (asked.version, asked.request.replica_id) == (12, US)
        assert (asked.request.max_wait_ms, asked.request.min_bytes, asked.request.max_bytes) == (70, 3, 5000)
        assert asked.partitions[0].partition_max_bytes == 1000
        assert asked.request.topics[0].topic == "t"


async def test_topic_without_id(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow(topic_id=ZERO_UUID)
        asked = await world.leader.asked()
        assert (asked.version, asked.request.topics[0].topic) == (12, "t")
        await asked.answer(fetched(part(0)))
        asked = await world.leader.asked()
        with pytest.raises(KafkaError):
            world.follow(epoch=4)
        world.follow()  # the same epoch, now with an id
        await asked.answer(fetched())
        asked = await world.leader.asked()
        assert (asked.version, asked.request.session_epoch, asked.request.topics[0].topic_id) == (17, 0, TOPIC_ID)


async def test_answer_may_end_inside_a_batch(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, batch(0, b"a"), batch(1, b"b" * 100)[:90], high_watermark=9)))
        assert world.log() == (0, 1, 1)
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, batch(1, b"b" * 100)[:90], high_watermark=9)))
        asked = await world.leader.asked()
        assert asked.partitions == {}, "nothing of it was whole, so nothing changed"
        assert world.log() == (0, 1, 1)


async def test_leaders_log_starts_inside_a_batch(autojump_clock: MockClock) -> None:
    """DeleteRecords to 12, inside of the batch from 10 on: our log begins with that batch."""
    async with following() as world:
        world.follow()
        asked = await world.leader.asked()
        await asked.answer(fetched(part(0, code=ErrorCode.OFFSET_OUT_OF_RANGE)))
        await answer_offsets(world, 20)
        await answer_offsets(world, 12)
        assert world.log() == (12, 12, 12)
        asked = await world.leader.asked()
        assert asked.partitions[0].fetch_offset == 12
        values = [b"%d" % n for n in range(10, 20)]
        await asked.answer(fetched(part(0, batch(10, *values), high_watermark=20, log_start_offset=12)))
        assert world.log() == (12, 20, 20)


# ---- who is followed


async def test_idle_fetchers_end_with_their_connection(autojump_clock: MockClock) -> None:
    async with following() as world:
        partition = world.follow()
        await caught_up(world, 0)
        assert len(world.leader.streams) == 1
        world.followers.unfollow(partition)
        await wait_all_tasks_blocked()
        assert world.leader.closed == 1
        await trio.sleep(100)
        assert world.leader.waiting() == 0
        world.follow(epoch=6)
        assert (await world.leader.asked()).partitions[0].current_leader_epoch == 6
        assert len(world.leader.streams) == 2


async def test_partition_moves_to_another_leader(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow(0)
        world.follow(1)
        asked = await caught_up(world, 0, 1)
        world.follow(0, leader=2, epoch=6)
        other = await world.leaders[2].asked()
        assert (list(other.partitions), other.partitions[0].current_leader_epoch) == ([0], 6)
        # What the old leader still says of it is dropped.
        await asked.answer(fetched(part(0, batch(0, b"old"), high_watermark=1), part(1, batch(0, b"new"))))
        assert world.log(0) == (0, 0, 0)
        assert world.log(1) == (0, 1, 0)
        asked = await world.leader.asked()
        assert asked.forgotten == [0]
        await other.answer(fetched(part(0, batch(0, b"other", epoch=6), high_watermark=1)))
        assert world.log(0) == (0, 1, 1)


async def test_new_epoch_of_the_same_leader_while_a_fetch_is_in_flight(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        asked = await caught_up(world, 0)
        world.follow(epoch=6)
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1)))
        assert world.log() == (0, 0, 0)
        asked = await world.leader.asked()
        assert asked.partitions[0].current_leader_epoch == 6
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1)))
        assert world.log() == (0, 1, 1)


async def test_becoming_leader_while_a_fetch_is_in_flight(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow(0)
        world.follow(1)
        asked = await caught_up(world, 0, 1)
        partition = world.lead(0, epoch=6)
        partition.append(bytearray(batch(0, b"ours", epoch=-1)), origin=AppendOrigin.CLIENT, now_ms=NOW)
        partition.write()
        await asked.answer(fetched(part(0, batch(0, b"theirs", b"more"), high_watermark=2)))
        assert partition.log_end_offset == 1
        assert (await world.leader.asked()).forgotten == [0]


async def test_topic_deleted_while_a_fetch_is_in_flight(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow(0)
        world.follow(1)
        asked = await caught_up(world, 0, 1)
        world.partitions.stop("t", 0, -2, True)
        await asked.answer(fetched(part(0, batch(0, b"x"), high_watermark=1), part(1, batch(0, b"y"))))
        assert world.partitions.find("t", 0) is None
        assert world.log(1) == (0, 1, 0)
        assert (await world.leader.asked()).forgotten == [0]


async def test_topic_made_anew_while_a_fetch_is_in_flight(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow(0, epoch=0)
        asked = await caught_up(world, 0)
        world.partitions.stop("t", 0, -2, True)
        again = bytes(15) + b"\x08"
        world.follow(0, topic_id=again, epoch=0)
        await asked.answer(fetched(part(0, batch(0, b"of the old topic"), high_watermark=1)))
        assert world.log() == (0, 0, 0)
        asked = await world.leader.asked()
        assert (asked.forgotten, list(asked.partitions)) == ([0], [0])
        assert asked.request.forgotten_topics_data[0].topic_id == TOPIC_ID
        assert asked.request.topics[0].topic_id == again


async def test_what_is_added_does_not_wait_for_a_fetch_in_flight(autojump_clock: MockClock) -> None:
    """Nor does each of many cost a connection."""
    async with following() as world:
        world.follow(0)
        asked = await caught_up(world, 0)
        world.follow(1)
        world.follow(2)
        again = await world.leader.asked()
        assert again.at - asked.at == pytest.approx(0.03)
        assert (again.request.session_id, again.request.session_epoch) == (33, 0), "the old session is closed"
        assert sorted(again.partitions) == [0, 1, 2]
        assert (world.leader.closed, len(world.leader.streams)) == (1, 2)
        world.follow(3)
        await trio.sleep(0.4)
        assert world.leader.waiting() == 0, "not so soon again"
        await again.answer(fetched(*(part(index) for index in range(3))))
        asked = await world.leader.asked()
        assert list(asked.partitions) == [3]
        await asked.answer(fetched(part(3)))
        asked = await world.leader.asked()
        await trio.sleep(0.2)
        world.follow(4)
        await trio.sleep(0.02)
        await asked.answer(fetched(part(0, batch(0, b"a"), high_watermark=1)))
        assert world.log(0) == (0, 1, 1), "an answer in time counts"
        assert sorted((await world.leader.asked()).partitions) == [0, 4]
        assert len(world.leader.streams) == 2


async def test_one_fetcher_for_each_number(autojump_clock: MockClock) -> None:
    async with following(num_replica_fetchers="3") as world:
        for index in range(12):
            world.follow(index)
        first = [await world.leader.asked() for _ in range(3)]
        assert {asked.client_id for asked in first} == {f"broker-9-fetcher-{n}" for n in range(3)}
        assert sorted(index for asked in first for index in asked.partitions) == list(range(12))
        # java: Utils.abs(31 * "t".hashCode() + partition) % 3
        assert {asked.client_id: sorted(asked.partitions) for asked in first} == {
            f"broker-9-fetcher-{n}": [index for index in range(12) if (31 * ord("t") + index) % 3 == n]
            for n in range(3)
        }


async def test_more_and_fewer_fetchers_while_running(autojump_clock: MockClock) -> None:
    async with following() as world:
        for index in range(6):
            world.follow(index)
        asked = await caught_up(world, *range(6))
        world.config = world.config.with_dynamic(cluster={"num.replica.fetchers": "2"}, broker={})
        await asked.answer(fetched())
        both = [await world.leader.asked(), await world.leader.asked()]
        assert {each.client_id for each in both} == {"broker-9-fetcher-0", "broker-9-fetcher-1"}
        moved = next(each for each in both if each.client_id == "broker-9-fetcher-1")
        stayed = next(each for each in both if each.client_id == "broker-9-fetcher-0")
        assert sorted(moved.partitions) == sorted(stayed.forgotten)
        world.config = world.config.with_dynamic(cluster={}, broker={})
        await stayed.answer(fetched())
        asked = await world.leader.asked()
        assert sorted(asked.partitions) == sorted(moved.partitions)
        assert world.leader.closed == 1


# ---- trouble with the leader


async def test_leader_that_is_gone_is_tried_again(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.followers")
    async with following(replica_fetch_backoff_ms="2000") as world:
        world.follow()
        asked = await caught_up(world, 0)
        world.leader.refusing = True
        await asked.hang_up()
        await trio.sleep(60)
        world.leader.refusing = False
        began = trio.current_time()
        asked = await world.leader.asked()
        assert trio.current_time() - began <= 2.0
        assert (asked.request.session_id, asked.request.session_epoch) == (33, 0)
        assert list(asked.partitions) == [0]
        await asked.answer(fetched(part(0)))
        messages = [record.getMessage() for record in caplog.records]
        assert len([text for text in messages if text.startswith("fetching from broker 1")]) == 1
        assert "resumed fetching from broker 1" in messages
        assert max(record.levelno for record in caplog.records) == logging.WARNING


async def test_leader_that_does_not_answer(autojump_clock: MockClock) -> None:
    async with following(replica_socket_timeout_ms="4000") as world:
        world.follow()
        first = await world.leader.asked()
        second = await world.leader.asked()
        assert second.at - first.at == pytest.approx(5.0), "four seconds, and the back-off"
        assert world.leader.closed == 1


async def test_leader_at_another_address_is_asked_at_once(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        await caught_up(world, 0)
        now = trio.current_time()
        world.follow(epoch=6, broker=world.broker(1, epoch=101, host="moved"))
        asked = await world.leader.asked()
        assert asked.at == now
        assert asked.partitions[0].current_leader_epoch == 6
        assert (world.leader.closed, len(world.leader.streams)) == (1, 2)


async def test_leader_that_was_started_anew_is_asked_at_once(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        await caught_up(world, 0)
        now = trio.current_time()
        world.follow(epoch=6, broker=world.broker(1, epoch=200))
        assert (await world.leader.asked()).at == now
        assert world.leader.closed == 1


async def test_leader_without_a_listener_between_brokers(autojump_clock: MockClock) -> None:
    async with following() as world:
        broker = world.broker(1)
        world.follow(broker=type(broker)(1, (), epoch=100))
        await trio.sleep(30)
        assert world.leader.waiting() == 0
        world.follow(epoch=6)
        assert (await world.leader.asked()).partitions[0].current_leader_epoch == 6


async def test_garbage_closes_the_connection(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        await world.leader.asked()
        await world.leader.streams[0].send_all(b"\0\0\0\5" + b"garbage")
        asked = await world.leader.asked()
        assert asked.at == pytest.approx(1.0)
        assert len(world.leader.streams) == 2


async def test_stopping_closes_the_connections(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        async with following() as world:
            world.leaders[1].nursery = nursery
            world.follow()
            await caught_up(world, 0)
        await wait_all_tasks_blocked()
        assert world.leader.closed == 1
        nursery.cancel_scope.cancel()


# ---- many


async def test_two_thousand_idle_partitions(autojump_clock: MockClock) -> None:
    async with following() as world:
        for index in range(2000):
            world.follow(index)
        asked = await world.leader.asked()
        assert len(asked.partitions) == 2000
        await asked.answer(fetched(*(part(index) for index in range(2000))))
        for _ in range(20):
            asked = await world.leader.asked()
            assert (asked.request.topics, asked.forgotten) == ([], [])
            await trio.sleep(0.5)
            await asked.answer(fetched())
        asked = await world.leader.asked()
        await asked.answer(fetched(part(1234, batch(0, b"a"), high_watermark=1)))
        assert world.log(1234) == (0, 1, 1)
        assert list((await world.leader.asked()).partitions) == [1234]


async def test_leader_that_answers_nothing_without_waiting_is_not_asked_without_end(autojump_clock: MockClock) -> None:
    async with following() as world:
        world.follow()
        asked = await caught_up(world, 0)
        requests = 0
        while asked.at < 10:
            await asked.answer(fetched())
            asked = await world.leader.asked()
            requests += 1
        assert requests < 60
