"""Share coordinators are asked, here and on another broker, until there is an answer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.share import ShareKey, StateBatch, StateRead, Stored, Summary, WriteState, coordinator_key
from barnabas.coordinator.share.state_shard import StateShard
from barnabas.kproto import ApiKey, ErrorCode
from barnabas.server.coordinators.share.persister import GIVE_UP_S
from barnabas.server.coordinators.share.state_wire import Delete, Initialize, Read, Summarize
from barnabas.server.tests.coordinators.share.persister_kit import TOPIC, Answers, persister_rig, settle

E = ErrorCode
OK = Stored(E.NONE)
WRITE = WriteState(3, 5, 10, 2, (StateBatch(10, 11, 2, 1), StateBatch(12, 12, 0, 2)))


@pytest.mark.parametrize("leader", [0, 1], ids=["here", "on another broker"])
@pytest.mark.parametrize("newest", [0, 1])
async def test_all_that_can_be_asked(leader: int, newest: int, tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.newest = newest
        r.topic(leader)
        assert (await r.told(Read(0))).code == E.INVALID_REQUEST
        assert await r.told(Initialize(3, 10)) == OK
        assert (await r.told(Initialize(2, 10))).code == E.FENCED_STATE_EPOCH
        assert await r.told(Read(5)) == StateRead(E.NONE, None, 3, 10, ())
        assert (await r.told(Read(4))).code == E.FENCED_LEADER_EPOCH
        assert await r.told(WRITE) == OK
        assert (await r.told(WRITE._replace(leader_epoch=4))).code == E.FENCED_LEADER_EPOCH
        assert (await r.told(WRITE._replace(state_epoch=2))).code == E.FENCED_STATE_EPOCH
        assert await r.told(Read(5)) == StateRead(E.NONE, None, 3, 10, WRITE.batches)
        # Version 0 has no count.
        count = 2 if leader == 0 or newest else -1
        assert await r.told(Summarize()) == Summary(E.NONE, None, 3, 5, 10, count)
        assert await r.told(Delete()) == OK
        assert await r.told(Summarize()) == Summary(E.NONE)
        assert (await r.told(Initialize(3, 10), r.key(partition=3))).code == E.UNKNOWN_TOPIC_OR_PARTITION
        assert bool(r.received) == (leader == 1)
        assert {version for key, version, _ in r.received if key is ApiKey.WRITE_SHARE_GROUP_STATE} <= {newest}


@pytest.mark.parametrize(
    "batch",
    [StateBatch(3, 2, 2, 1), StateBatch(-1, 2, 2, 1), StateBatch(0, 2, 1, 1), StateBatch(0, 2, 2, -1)],
)
async def test_what_cannot_be_stored(batch: StateBatch, tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(1)
        assert await r.told(Initialize(3, 0)) == OK
        assert (await r.told(WRITE._replace(batches=(batch,)))).code == E.INVALID_REQUEST
        assert await r.told(Read(5)) == StateRead(E.NONE, None, 3, 0, ())


async def test_the_topic_is_made(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with persister_rig(tmp_path) as r:
        answers = r.ask(Initialize(1, 0))
        await trio.sleep(0.1)
        assert r.created == [TOPIC]
        assert answers == [OK]


async def test_what_comes_at_once_is_one_request(tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(1)
        all_told: list[dict[ShareKey, Any]] = []
        keys = [r.key(partition=n) for n in range(3)]
        r.persister.ask_all({key: Initialize(1, 0) for key in keys}, all_told.append)
        other = r.ask(Initialize(1, 0), r.key("h"))
        await settle()
        assert all_told == [dict.fromkeys(keys, OK)]
        assert other == [OK]
        assert [request.group_id for _, _, request in r.received] == ["g", "h"]
        first, second = r.ask(Summarize()), r.ask(Summarize())
        await settle()
        assert [answers[0].state_epoch for answers in (first, second)] == [1, 1]


@pytest.mark.parametrize("leader", [0, 1], ids=["here", "on another broker"])
async def test_the_life_of_a_partition_is_told_in_order(leader: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    """Whatever goes into one request, or must be asked again."""
    async with persister_rig(tmp_path) as r:
        r.topic(leader)
        assert await r.told(Initialize(7, 0)) == OK
        answers = Answers()
        for key, asked in ((r.key(partition=1), Initialize(1, 0)), (r.key(), Delete()), (r.key(), Initialize(2, 0))):
            r.persister.ask(key, asked, answers)
        await settle()
        assert answers == [OK] * 3
        assert (await r.told(Summarize())).state_epoch == 2
        r.lead_elsewhere(5)  # which there is not
        answers = Answers()
        r.persister.ask(r.key(), Delete(), answers)
        await trio.sleep(0.05)
        r.lead_elsewhere(leader, 2)
        r.persister.ask(r.key(), Initialize(1, 0), answers)
        assert not answers
        await trio.sleep(1)
        assert answers == [OK] * 2
        assert (await r.told(Summarize())).state_epoch == 1
        assert not r.persister._in_line


async def test_a_coordinator_that_is_away(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(1)
        r.is_away = True
        with caplog.at_level(logging.INFO, "barnabas"):
            answers = r.ask(Initialize(1, 0))
            await trio.sleep(3)
            assert answers == []
            r.is_away = False
            await trio.sleep(1)
        assert answers == [OK]
        assert [record.message.split(":")[0] for record in caplog.records] == [
            "cannot ask the share coordinator on broker 1, retrying",
            "the share coordinator on broker 1 answers again",
        ]
        r.is_away = True
        await r.persister._peers[1].close()
        answers = r.ask(Summarize())
        await trio.sleep(GIVE_UP_S - 2)
        assert answers == []
        await trio.sleep(2)
        assert [told.code for told in answers] == [E.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("leader", [0, 1], ids=["here", "on another broker"])
async def test_what_is_not_wanted_any_more(leader: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    """As another broker coordinates the group, and may have told the share coordinator something else meanwhile."""
    async with persister_rig(tmp_path) as r:
        r.topic(leader)
        assert await r.told(Initialize(1, 7)) == OK
        r.lead_elsewhere(5)  # which there is not
        is_wanted = True
        answers = Answers()
        for asked in (Delete(), Initialize(2, 0)):
            r.persister.ask(r.key(), asked, answers, lambda: is_wanted)
        await trio.sleep(2)
        assert not answers
        is_wanted = False
        r.lead_elsewhere(leader, 2)
        await trio.sleep(2)
        assert [told.code for told in answers] == [E.COORDINATOR_NOT_AVAILABLE] * 2
        assert await r.told(Summarize()) == Summary(E.NONE, None, 1, 0, 7, 0)
        assert not r.persister._in_line


async def test_a_coordinator_that_has_moved(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Here, while the broker that was asked has lost its power: nothing comes from it."""
    async with persister_rig(tmp_path) as r:
        r.topic(1)
        r.is_silent = True
        answers = r.ask(Initialize(1, 0))
        await trio.sleep(3)
        assert len(r.received) == 1
        r.topic(0)
        await trio.sleep(2)
        assert answers == [OK]
        assert len(r.received) == 1


async def test_a_coordinator_that_is_led_elsewhere_by_now(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The broker that is asked knows it, and says so."""
    async with persister_rig(tmp_path) as r:
        r.topic(0)
        assert await r.told(Initialize(1, 7)) == OK
        r.lead_elsewhere(1)
        answers = r.ask(Summarize())
        await trio.sleep(0.5)
        assert answers == []
        r.lead_elsewhere(0, 2)
        await trio.sleep(1)
        assert [told.start_offset for told in answers] == [7]


async def test_a_shard_that_ends_meanwhile(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(0)
        answers = r.ask(Initialize(1, 7))
        r.states.resign(0)
        await trio.sleep(1)
        assert answers == []
        r.states.lead(r.world.partitions.get(TOPIC, 0))
        await trio.sleep(1)
        assert answers == [OK]


async def test_whoever_fails_keeps_nobody_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(0)

        def fail(told: Any) -> None:
            raise ZeroDivisionError

        r.persister.ask(r.key(), Initialize(1, 0), fail)
        answers = r.ask(Initialize(1, 0), r.key(partition=1))
        await settle()
        assert answers == [OK]
        assert "what follows from INITIALIZE_SHARE_GROUP_STATE" in caplog.text


async def test_a_coordinator_here_that_fails_keeps_nobody_in_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(0)
        initialize = StateShard.initialize

        def fail(shard: StateShard, key: ShareKey, state_epoch: int, *rest: Any) -> Any:
            if state_epoch == 1:
                raise ZeroDivisionError
            return initialize(shard, key, state_epoch, *rest)

        monkeypatch.setattr(StateShard, "initialize", fail)
        answers = [r.ask(asked) for asked in (Initialize(1, 0), Initialize(1, 0), Initialize(2, 0))]
        other = r.ask(Initialize(2, 0), r.key(partition=1))
        await settle()
        assert answers == [[Stored(E.UNKNOWN_SERVER_ERROR)], [Stored(E.UNKNOWN_SERVER_ERROR)], [OK]]
        assert other == [OK]
        assert not r.persister._in_line
        assert "asking this broker's share coordinator" in caplog.text


async def test_partitions_have_coordinators_of_their_own(tmp_path: Path) -> None:
    async with persister_rig(tmp_path) as r:
        r.topic(0, 1)
        keys = [r.key(f"g{n}") for n in range(20)]
        answers = {key: r.ask(Initialize(1, 0), key) for key in keys}
        await settle()
        assert all(told == Answers([OK]) for told in answers.values())
        places = {key: r.states.place(coordinator_key(key)) for key in keys}
        for states, leader in ((r.states, 0), (r.others, 1)):
            (led,) = states.runtime.shards.values()
            assert set(led.shard.store.partitions) == {
                key for key, place in places.items() if place is not None and place.leader == leader
            }
