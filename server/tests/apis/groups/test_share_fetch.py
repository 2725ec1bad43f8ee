"""ShareFetch and ShareAcknowledge: sessions, records, acknowledgements, waiting, and each error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.coordinator.share import AcknowledgeType, sessions
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ShareFetchRequest
from barnabas.kproto.records import iter_headers
from barnabas.replication import PartitionImage
from barnabas.server.coordinators.share import partitions
from barnabas.server.tests.apis.data_world import NOW
from barnabas.server.tests.apis.groups.share_world import found, share_world
from barnabas.server.tests.coordinators.share.persister_kit import settle

E = ErrorCode
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


async def answer_of(asked: Any) -> Any:
    await settle()
    return asked.answer


@pytest.mark.parametrize("version", [1, 2])
async def test_a_members_day(version: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(3, 3)
        first = await answer_of(w.fetch(0, version=version, max_wait_ms=100, max_records=2))
        assert (first.error_code, first.acquisition_lock_timeout_ms) == (E.NONE, 30_000)
        assert found(first) == {0: (E.NONE, E.NONE, [(0, 2, 1)])}
        (data,) = first.responses[0].partitions
        assert [(header.base_offset, header.last_offset) for _, header in iter_headers(data.records)] == [(0, 2)]
        second = await answer_of(w.fetch(1, (0, 1, ACCEPT), (2, 2, RELEASE), version=version))
        assert found(second) == {0: (E.NONE, E.NONE, [(2, 2, 2), (3, 5, 1)])}
        said = await answer_of(w.acknowledge(2, (2, 5, ACCEPT), version=version))
        assert [(each.partition_index, each.error_code) for each in said.responses[0].partitions] == [(0, E.NONE)]
        assert said.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)
        assert found(await answer_of(w.fetch(3, version=version))) == {}
        last = await answer_of(w.acknowledge(-1, version=version))
        assert last.error_code == E.NONE
        assert len(w.parts.shares.sessions) == len(w.parts.shares) == 0
        assert (await answer_of(w.acknowledge(-1))).error_code == E.SHARE_SESSION_NOT_FOUND


async def test_sessions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(2)
        assert (await answer_of(w.fetch(1))).error_code == E.SHARE_SESSION_NOT_FOUND
        assert (await answer_of(w.fetch(-1))).error_code == E.SHARE_SESSION_NOT_FOUND
        assert (await answer_of(w.fetch(0, (0, 0, ACCEPT)))).error_code == E.INVALID_REQUEST
        assert found(await answer_of(w.fetch(0, partitions=(0, 1), max_wait_ms=50))) == {
            0: (0, 0, [(0, 1, 1)]),
            1: (0, 0, []),
        }
        assert (await answer_of(w.fetch(2))).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert (await answer_of(w.acknowledge(0))).error_code == E.INVALID_SHARE_SESSION_EPOCH
        assert found(await answer_of(w.fetch(1, partitions=(2,), forgotten=(1,)))) == {2: (0, 0, [])}
        assert found(await answer_of(w.fetch(2, (0, 0, ACCEPT), partitions=(0,)))) == {0: (0, 0, [])}
        ended = await answer_of(w.fetch(-1, (1, 1, RELEASE), partitions=(0,)))
        assert found(ended) == {0: (0, 0, [])}, "nothing is fetched"
        got = found(await answer_of(w.fetch(0, member="b")))
        assert got == {0: (0, 0, [(1, 1, 2)])}


async def test_a_connection_that_is_closed_gives_back(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(2)
        assert found(await answer_of(w.fetch(0))) == {0: (0, 0, [(0, 1, 1)])}
        waiting = w.fetch(0, member="b", connection="two", max_wait_ms=10_000)
        await settle()
        assert waiting.waits
        w.parts.shares.connection_closed("one")
        assert found(await answer_of(waiting)) == {0: (0, 0, [(0, 1, 2)])}
        gone = w.fetch(1, member="b", connection="two", max_wait_ms=10_000)
        await settle()
        assert gone.waits
        gone.context.closed = True
        assert gone.context.close is not None
        gone.context.close()
        w.parts.shares.connection_closed("two")
        await trio.sleep(20)
        assert gone.waits
        assert len(w.parts.shares) == 0


async def test_there_are_no_more_sessions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path, group_share_max_size="1", group_share_max_share_sessions="1") as w:
        await answer_of(w.fetch(0, max_wait_ms=0))
        other = w.fetch(0, member="b", max_wait_ms=500)
        await trio.sleep(0.4)
        assert other.waits
        await trio.sleep(0.2)
        assert other.answer.error_code == E.SHARE_SESSION_LIMIT_REACHED
        assert (await answer_of(w.fetch(0, max_wait_ms=0))).error_code == E.NONE, "a member may begin anew"


async def test_a_session_that_would_be_too_large_ends(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "SESSION_PLACES_MAX", 2)
    async with share_world(tmp_path) as w:
        w.parts.produce(2)
        assert found(await answer_of(w.fetch(0))) == {0: (0, 0, [(0, 1, 1)])}
        assert (await answer_of(w.fetch(1, partitions=(0, 1, 2)))).error_code == E.SHARE_SESSION_LIMIT_REACHED
        assert len(w.parts.shares) == len(w.parts.shares.sessions) == 0
        assert found(await answer_of(w.fetch(0))) == {0: (0, 0, [(0, 1, 2)])}, "what it had was given back"


async def test_waiting(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        asked = w.fetch(0, max_wait_ms=500)
        await trio.sleep(0.4)
        assert asked.waits
        await trio.sleep(0.2)
        assert found(asked.answer) == {0: (0, 0, [])}
        asked = w.fetch(1, max_wait_ms=500)
        await settle()
        w.parts.produce(1)
        w.parts.partition.announce(1)
        assert found(await answer_of(asked)) == {0: (0, 0, [(0, 0, 1)])}
        size = w.parts.partition.log.size
        asked = w.fetch(2, max_wait_ms=500, min_bytes=2 * size)
        for _ in range(2):
            await settle()
            assert asked.waits
            w.parts.produce(1)
            w.parts.partition.announce(1)
        assert found(await answer_of(asked)) == {0: (0, 0, [(1, 2, 1)])}
        asked = w.fetch(3, max_wait_ms=500, min_bytes=2 * size)
        w.parts.produce(1)
        await trio.sleep(0.6)
        assert found(asked.answer) == {0: (0, 0, [(3, 3, 1)])}, "the time was over"


async def test_what_one_gives_back_another_gets(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(2)
        await answer_of(w.fetch(0))
        asked = w.fetch(0, member="b", max_wait_ms=60_000)
        await settle()
        await answer_of(w.fetch(1, (0, 0, RELEASE), (1, 1, ACCEPT), max_records=0))
        assert found(await answer_of(asked)) == {0: (0, 0, [(0, 0, 2)])}
        asked = w.fetch(2, member="a", max_wait_ms=60_000)
        await trio.sleep(31)
        assert found(asked.answer) == {0: (0, 0, [(0, 0, 3)])}, "b had it for too long"


async def test_limits(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(4, 4)
        hard = await answer_of(w.fetch(0, max_records=3, share_acquire_mode=1))
        assert found(hard) == {0: (0, 0, [(0, 2, 1)])}
        assert found(await answer_of(w.fetch(1, max_bytes=1))) == {0: (0, 0, [(3, 3, 1)])}, "one batch at least"
        for fields in ({"max_records": 0}, {"max_bytes": 0}):
            epoch = 2 if "max_records" in fields else 3
            assert found(await answer_of(w.fetch(epoch, max_wait_ms=10_000, **fields))) == {}


async def test_locks_are_renewed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(1)
        nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
        await answer_of(w.fetch(0))
        assert (await answer_of(w.fetch(1, is_renew_ack=True))).error_code == E.INVALID_REQUEST
        await trio.sleep(20)
        assert found(await answer_of(w.fetch(1, (0, 0, RENEW), **nothing))) == {0: (0, 0, [])}
        await trio.sleep(20)
        said = await answer_of(w.acknowledge(2, (0, 0, RENEW), is_renew_ack=True))
        assert said.responses[0].partitions[0].error_code == E.NONE
        said = await answer_of(w.acknowledge(3, (0, 0, RENEW)))
        assert said.responses[0].partitions[0].error_code == E.INVALID_REQUEST
        await trio.sleep(20)
        assert found(await answer_of(w.fetch(4, (0, 0, ACCEPT)))) == {0: (0, 0, [])}


async def test_errors_of_partitions(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        topic = ShareFetchRequest.FetchTopic
        one = [ShareFetchRequest.FetchPartition(partition_index=0)]
        asked = w.fetch(0, max_wait_ms=10_000, topics=[topic(topic_id=b"x" * 16, partitions=one)])
        assert found(await answer_of(asked)) == {0: (E.UNKNOWN_TOPIC_ID, 0, [])}
        asked = w.fetch(0, max_wait_ms=10_000, partitions=(3,))
        assert found(await answer_of(asked)) == {3: (E.UNKNOWN_TOPIC_OR_PARTITION, 0, [])}
        # A group that nobody has initialized: its members wait.
        asked = w.fetch(0, group_id="h", max_wait_ms=1_000)
        await trio.sleep(0.9)
        assert asked.waits
        await trio.sleep(0.2)
        assert found(asked.answer) == {0: (E.COORDINATOR_NOT_AVAILABLE, 0, [])}
        said = await answer_of(w.acknowledge(1, (0, 0, ACCEPT)))
        assert said.responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_leader_moves(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with share_world(tmp_path) as w:
        w.parts.produce(1)
        await answer_of(w.fetch(0))
        asked = w.fetch(1, max_wait_ms=10_000)
        await settle()
        w.parts.partition.follow(PartitionImage(0, 1, 5, 5, (0, 1), (0, 1)))
        answer = await answer_of(asked)
        assert found(answer) == {0: (E.NOT_LEADER_OR_FOLLOWER, 0, [])}
        (data,) = answer.responses[0].partitions
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (1, 5)
        assert [(each.node_id, each.host) for each in answer.node_endpoints] == [(1, "broker1")]
        said = await answer_of(w.acknowledge(2, (0, 0, ACCEPT)))
        assert said.responses[0].partitions[0].error_code == E.NOT_LEADER_OR_FOLLOWER
        assert said.responses[0].partitions[0].current_leader.leader_id == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": None},
        {"member_id": None},
        {"member_id": ""},
        {"member_id": "x" * 37},
        {"share_acquire_mode": 2},
        {"share_acquire_mode": -1},
    ],
)
async def test_what_is_refused(fields: dict[str, Any], tmp_path: Path) -> None:
    async with share_world(tmp_path) as w:
        assert (await answer_of(w.fetch(0, **fields))).error_code == E.INVALID_REQUEST
        assert len(w.parts.shares.sessions) == 0
        if "share_acquire_mode" not in fields:
            assert (await answer_of(w.acknowledge(1, **fields))).error_code == E.INVALID_REQUEST


async def test_the_feature_is_off(tmp_path: Path) -> None:
    async with share_world(tmp_path) as w:
        w.level = 0
        assert (await answer_of(w.fetch(0))).error_code == E.UNSUPPORTED_VERSION
        assert (await answer_of(w.acknowledge(1))).error_code == E.UNSUPPORTED_VERSION


async def test_a_session_that_is_over_gets_nothing_more(tmp_path: Path, autojump_clock: MockClock) -> None:
    """It may have begun on another connection, which is closed while a request of this one waits."""
    async with share_world(tmp_path) as w:
        await answer_of(w.fetch(0, member="b", connection="three", max_wait_ms=0))
        await answer_of(w.fetch(0, max_wait_ms=0))
        waiting = w.fetch(1, connection="two", max_wait_ms=10_000)
        await settle()
        assert waiting.waits
        w.parts.shares.connection_closed("one")
        w.parts.produce(2)
        w.parts.partition.announce(1)
        assert found(await answer_of(waiting)) == {}
        assert (await answer_of(w.fetch(2, connection="two"))).error_code == E.SHARE_SESSION_NOT_FOUND
        assert found(await answer_of(w.fetch(1, member="b", connection="three"))) == {0: (0, 0, [(0, 1, 1)])}


async def test_a_session_that_ends_while_something_is_stored(tmp_path: Path, autojump_clock: MockClock) -> None:
    """No share partition is made for it that nobody would end."""
    async with share_world(tmp_path) as w:
        w.parts.produce(2)
        await answer_of(w.fetch(0, partitions=(0, 1)))
        with w.unwritten():
            asked = w.fetch(1, (0, 1, ACCEPT), connection="two", max_wait_ms=10_000)
            assert asked.waits
            w.parts.shares.forget_all()
        assert found(await answer_of(asked)) == {0: (0, E.NOT_LEADER_OR_FOLLOWER, [])}
        assert len(w.parts.shares) == len(w.parts.shares.sessions) == 0


async def test_the_last_request_ends_a_session_of_another_connection(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Also if its own is closed before its answer."""
    async with share_world(tmp_path) as w:
        w.parts.produce(2)
        await answer_of(w.fetch(0))
        with w.unwritten():
            last = w.fetch(-1, (0, 0, ACCEPT), connection="two")
            assert last.waits
            last.context.closed = True
        await settle()
        assert len(w.parts.shares) == len(w.parts.shares.sessions) == 0


async def test_who_waits_for_a_session_and_leaves(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Nothing is kept for it, however long it was ready to wait."""
    async with share_world(tmp_path, group_share_max_size="1", group_share_max_share_sessions="1") as w:
        await answer_of(w.fetch(0, max_wait_ms=0))
        other = w.fetch(0, member="b", max_wait_ms=500)
        assert other.context.close is not None
        other.context.close()
        await trio.sleep(1)
        assert other.waits


async def test_very_much_is_given_back_in_portions(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who begins anew meanwhile keeps what it gets then."""
    monkeypatch.setattr(partitions, "_GIVEN_BACK_AT_ONCE", 1)
    async with share_world(tmp_path) as w:
        for index in range(3):
            w.groups.at.world.append(w.groups.at.world.partitions.get("t", index), NOW)
        await answer_of(w.fetch(0, partitions=(0, 1, 2), max_wait_ms=0))
        got = {index: (0, 0, [(0, 0, 1)]) for index in range(3)}
        assert found(await answer_of(w.fetch(1, partitions=()))) == got
        await answer_of(w.fetch(0, member="b", connection="two", partitions=(0, 1, 2), max_wait_ms=0))
        w.parts.shares.connection_closed("one")
        await settle()
        (first,) = found(await answer_of(w.fetch(1, member="b", connection="two", partitions=())))
        await trio.sleep(1)
        others = found(await answer_of(w.fetch(2, member="b", connection="two", partitions=())))
        assert sorted((first, *others)) == [0, 1, 2]
        assert not w.parts.shares._giving_up
        w.parts.shares.connection_closed("two")
        again = w.fetch(0, member="b", connection="three", partitions=(0, 1, 2), max_wait_ms=500)
        assert not w.parts.shares._giving_up
        await trio.sleep(1)
        rest = await answer_of(w.fetch(1, member="b", connection="three", partitions=()))
        acquired = [(index, got) for answer in (again.answer, rest) for index, (_, _, got) in found(answer).items()]
        assert sorted(each for each in acquired if each[1]) == [(index, [(0, 0, 3)]) for index in range(3)]
        said = await answer_of(w.acknowledge(2, (0, 0, ACCEPT), member="b"))
        assert said.responses[0].partitions[0].error_code == E.NONE, "they are its own"
        w.parts.shares.connection_closed("three")
        await trio.sleep(1)
        assert len(w.parts.shares) == len(w.parts.shares.sessions) == 0


async def test_what_all_members_had_is_given_back_before_the_group_is_forgotten(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much the first one had: else records that end all members at once are delivered for the first time for
    ever.
    """
    monkeypatch.setattr(partitions, "_GIVEN_BACK_AT_ONCE", 1)
    async with share_world(tmp_path) as w:
        for index in range(3):
            w.groups.at.world.append(w.groups.at.world.partitions.get("t", index), NOW)
        for member, places in (("a", (0, 1)), ("b", (2,))):
            await answer_of(w.fetch(0, member=member, connection=member, partitions=places, max_wait_ms=0))
            got = found(await answer_of(w.fetch(1, member=member, connection=member, partitions=())))
            assert got == {index: (0, 0, [(0, 0, 1)]) for index in places}
        w.parts.shares.connection_closed("a")
        w.parts.shares.connection_closed("b")
        await trio.sleep(1)
        assert len(w.parts.shares) == 0
        await answer_of(w.fetch(0, member="c", connection="c", partitions=(0, 1, 2), max_wait_ms=0))
        got = found(await answer_of(w.fetch(1, member="c", connection="c", partitions=())))
        assert got == {index: (0, 0, [(0, 0, 2)]) for index in range(3)}


async def test_whoever_begins_anew_at_once_gives_back_in_turns(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "_GIVEN_BACK_AT_ONCE", 1)
    async with share_world(tmp_path) as w:
        shares = w.parts.shares
        for index in range(3):
            w.groups.at.world.append(w.groups.at.world.partitions.get("t", index), NOW)
        await answer_of(w.fetch(0, partitions=(0, 1, 2), max_wait_ms=0))
        assert len(found(await answer_of(w.fetch(1, partitions=())))) == 3
        shares.connection_closed("one")
        left = []
        for cost in shares.before_session("g", "a"):
            assert cost > 30
            left.append(len(shares._giving_up.get(("g", "a"), ())))
        assert left == [1, 0]
        assert list(shares.before_session("g", "a")) == []


async def test_partitions_that_there_are_not_do_not_pile_up(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Sessions may have very many, and end again and again."""
    async with share_world(tmp_path) as w:
        for _ in range(3):
            assert len(found(await answer_of(w.fetch(0, partitions=range(3, 403))))) == 400
            w.parts.shares.connection_closed("one")
            assert not w.parts.shares._giving_up


async def test_the_end_of_a_session_that_another_one_has_replaced(tmp_path: Path, autojump_clock: MockClock) -> None:
    """It comes late, as what was acknowledged with it had to be stored: what the new session has is not given back."""
    async with share_world(tmp_path) as w:
        w.parts.produce(1, 1)
        await answer_of(w.fetch(0, max_wait_ms=0))
        assert found(await answer_of(w.fetch(1, max_records=1))) == {0: (0, 0, [(0, 0, 1)])}
        with w.unwritten():
            last = w.fetch(-1, (0, 0, ACCEPT))
            begun = w.fetch(0, connection="two", max_wait_ms=0)
            assert last.waits
        await settle()
        assert found(last.answer) == {0: (0, 0, [])}
        assert found(begun.answer) == {0: (0, 0, [(1, 1, 1)])}
        assert found(await answer_of(w.fetch(0, member="b", connection="b", max_wait_ms=0))) == {0: (0, 0, [])}
        said = await answer_of(w.acknowledge(1, (1, 1, ACCEPT)))
        assert said.responses[0].partitions[0].error_code == E.NONE
