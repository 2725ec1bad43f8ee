"""TxnOffsetCommit against a broker in memory: every version, pending until the marker, and who is refused."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.server.coordinators.verification_asks import Errors
from barnabas.server.tests.apis.records.test_produce_in_transactions import transactions
from barnabas.server.tests.apis.transactions.raw_transactions import E, Transactions, batch, produce

T0, T1 = ("t", 0), ("t", 1)
WAIT = E.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("version", range(6))
async def test_every_version(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        if version < 5:
            assert await t.commit_offsets(who, {T0: 3}, version) == [
                E.TRANSACTION_ABORTABLE if version == 4 else E.INVALID_TXN_STATE
            ]
            await t.add_offsets(who)
        told = await t.commit_offsets(who, {T0: 3, T1: 4, ("u", 0): 5, ("t", 9): 6}, version)
        assert told == [E.NONE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION]
        assert await t.offsets(T0, T1) == [WAIT, WAIT]
        assert await t.offsets(T0, T1, stable=False) == [-1, -1]
        who = await t.end(who, version=5 if version == 5 else 4)
        assert await t.offsets(T0, T1) == [3, 4]
        if version < 5:
            await t.add_offsets(who)
        assert await t.commit_offsets(who, {T0: 30}, version) == [E.NONE]
        await t.end(who, commit=False, version=5 if version == 5 else 4)
        assert await t.offsets(T0, T1) == [3, 4]


async def test_offsets_and_records_in_one_transaction(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        assert await t.write(produce(("t", 0, batch(b"a", who))), 12) == [0]
        assert await t.commit_offsets(who, {T1: 7}, 5) == [E.NONE]
        assert (await t.read(), await t.offsets(T1)) == ([], [WAIT])
        await t.end(who, version=5)
        assert (await t.read(), await t.offsets(T1)) == ([b"a"], [7])


@pytest.mark.parametrize(
    ("generation", "member_id", "version", "code"),
    [
        (-1, "", 3, E.NONE),
        (4, "m", 3, E.ILLEGAL_GENERATION),
        (4, "m", 2, E.NONE),  # it has no place for them
    ],
)
async def test_members(
    generation: int, member_id: str, version: int, code: ErrorCode, autojump_clock: trio.abc.Clock
) -> None:
    async with transactions() as t:
        who = await t.init()
        await t.add_offsets(who)
        fields = {"generation": generation, "member_id": member_id} if version >= 3 else {}
        assert await t.commit_offsets(who, {T0: 3}, version, **fields) == [code]  # type: ignore[arg-type]


async def test_who_is_refused(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        assert await t.commit_offsets(who, {T0: 3}, 5, group="") == [E.INVALID_GROUP_ID]
        assert await t.commit_offsets((77, 0), {T0: 3}, 5) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert await t.commit_offsets((who[0], 8), {T0: 3}, 5) == [E.INVALID_PRODUCER_EPOCH]
        assert await t.commit_offsets(who, {T0: 3}, 5) == [E.NONE]
        again = await t.end(who, version=5)
        assert await t.commit_offsets(again, {T0: 4}, 5) == [E.NONE]
        assert await t.commit_offsets(who, {T0: 5}, 5) == [E.INVALID_PRODUCER_EPOCH]
        await t.end(again, version=5)
        assert await t.offsets(T0) == [4]


async def test_a_coordinator_that_is_away(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        groups = t.broker.services.groups
        place = groups.place("g")
        assert place is not None
        groups.resign(place.index)
        assert await t.commit_offsets(who, {T0: 3}, 5) == [E.NOT_COORDINATOR]
        groups.lead(t.broker.services.partitions.get("__consumer_offsets", place.index))
        t.broker.services.transactions.resign(0)
        assert await t.commit_offsets(who, {T0: 3}, 5) == [E.NOT_COORDINATOR]
        assert await t.commit_offsets(who, {T0: 3}, 0) == [E.NOT_COORDINATOR]


async def test_a_marker_that_comes_before_the_confirmation(
    overtaken: list[Errors], autojump_clock: trio.abc.Clock
) -> None:
    async with transactions() as t:
        who = await t.init()
        assert await t.commit_offsets(who, {T0: 3}, 5) == [E.NONE]
        assert overtaken[0] == overtaken[-1] == {}
        assert len(overtaken) > 1
        await t.end(who, version=5)
        assert await t.offsets(T0) == [3]


async def test_pending_offsets_are_there_after_a_load(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        assert await t.commit_offsets(who, {T0: 3}, 5) == [E.NONE]
        await reload(t)
        assert await t.offsets(T0) == [WAIT]
        await t.end(who, version=5)
        assert await t.offsets(T0) == [3]
        await reload(t)
        assert await t.offsets(T0) == [3]


async def reload(t: Transactions) -> None:
    groups = t.broker.services.groups
    place = groups.place("g")
    assert place is not None
    groups.resign(place.index)
    groups.lead(t.broker.services.partitions.get("__consumer_offsets", place.index))
    await trio.testing.wait_all_tasks_blocked()
    assert groups.is_loaded(place.index)
