"""Produce with transactional batches, against a broker in memory: who may open a transaction, and what readers see."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.replication.tree import features
from barnabas.server.coordinators.verification import TxnVerification
from barnabas.server.coordinators.verification_asks import Errors
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.transactions.raw_transactions import NEW, OLD, E, Transactions, batch, produce, told

T0, T1 = ("t", 0), ("t", 1)


@asynccontextmanager
async def transactions(**settings: str) -> AsyncIterator[Transactions]:
    defaults = {
        "num_partitions": "2",
        "transaction_state_log_num_partitions": "1",
        "transaction_state_log_replication_factor": "1",
        "transaction_state_log_min_isr": "1",
    }
    async with embedded_broker(**{**defaults, **settings}) as broker, connected(broker) as client:
        made = Transactions(broker, client)
        await made.ready()
        yield made


async def test_a_client_of_before_version_2(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        first = produce(("t", 0, batch(b"a", who)))
        assert await t.write(first, OLD) == [E.INVALID_TXN_STATE]
        assert await t.write(first, 11) == [E.TRANSACTION_ABORTABLE]
        await t.add(who, T0)
        assert await t.write(first, OLD) == [0]
        assert await t.write(produce(("t", 0, batch(b"b", who, 1))), OLD) == [1]
        assert await t.read() == []
        assert await t.read(committed=False) == [b"a", b"b"]
        await t.end(who)
        assert await t.read() == [b"a", b"b"]
        # The next transaction is another one.
        late = produce(("t", 0, batch(b"late", who, 2)))
        assert await t.write(late, OLD) == [E.INVALID_TXN_STATE]
        await t.add(who, T0)
        assert await t.write(late, OLD) == [3]
        await t.end(who, commit=False)
        assert await t.read() == [b"a", b"b"]


async def test_a_client_of_version_2_need_not_add_partitions(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        both = produce(("t", 0, batch(b"a", who)), ("t", 1, batch(b"b", who)))
        assert await t.write(both, NEW) == [0, 0]
        again = await t.end(who, version=5)
        assert again == (who[0], who[1] + 1)
        assert (await t.read(0), await t.read(1)) == ([b"a"], [b"b"])
        # A zombie of the last epoch is shut out, also where the new one has not written yet.
        zombie = produce(("t", 0, batch(b"z", who, 1)))
        assert await t.write(zombie, NEW) == [E.INVALID_PRODUCER_EPOCH]
        assert await t.write(produce(("t", 0, batch(b"c", again))), NEW) == [2]
        who = await t.end(again, commit=False, version=5)
        assert await t.read() == [b"a"]


async def test_a_marker_that_comes_before_the_confirmation(
    overtaken: list[Errors], autojump_clock: trio.abc.Clock
) -> None:
    async with transactions() as t:
        who = await t.init()
        assert await t.write(produce(("t", 0, batch(b"a", who))), NEW) == [0]
        assert overtaken[0] == overtaken[-1] == {}
        assert len(overtaken) > 1
        await t.end(who, version=5)
        assert await t.read() == [b"a"]


@pytest.mark.parametrize("version", [OLD, NEW])
async def test_a_fenced_producer_does_not_harm_its_successor(
    version: int, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    check = TxnVerification.check
    held: list[Callable[[], None]] = []
    monkeypatch.setattr(TxnVerification, "check", lambda *what: held.append(partial(check, *what)))
    async with transactions() as t, connected(t.broker) as other, trio.open_nursery() as nursery:
        zombie, winner = await t.init(), await t.init()
        if version == OLD:
            await t.add(winner, T0)
        told_of: dict[int, list[ErrorCode | int]] = {}

        async def write(client: Client, who: tuple[int, int]) -> None:
            told_of[who[1]] = await Transactions(t.broker, client).write(produce(("t", 0, batch(b"a", who))), version)

        for client, who in ((other, zombie), (t.client, winner)):
            nursery.start_soon(write, client, who)
            await trio.sleep(1)
        assert len(held) == 2, "both wait for the coordinator"
        # The coordinator's answers may come in any order; that to the zombie is the first.
        for ask in held:
            ask()
            t.broker.services.partitions.write_staged()
            await trio.sleep(1)
        assert told_of == {zombie[1]: [E.INVALID_PRODUCER_EPOCH], winner[1]: [0]}
        await t.end(winner, version=5 if version == NEW else 4)


async def test_trouble_of_single_partitions(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        request = produce(
            ("t", 0, batch(b"a", who)),
            ("t", 1, batch(b"b", who, transactional=False)),
            ("t", 7, batch(b"c", who)),
            ("u", 0, batch(b"d", who)),
        )
        assert await t.write(request, NEW) == [0, 0, E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_OR_PARTITION]


async def test_requests_that_are_rejected_immediately(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        nameless = produce(("t", 0, batch(b"a", who)), transactional_id=None)
        assert await t.write(nameless, NEW) == [E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        two = produce(("t", 0, batch(b"a", who)), ("t", 1, batch(b"b", (who[0], 9))))
        assert await t.write(two, NEW) == [E.INVALID_PRODUCER_ID_MAPPING] * 2
        assert await t.write(produce(("t", 0, batch(b"a", (77, 0)))), NEW) == [E.INVALID_PRODUCER_ID_MAPPING]
        assert await t.write(produce(("t", 0, batch(b"a", (who[0], 9)))), NEW) == [E.INVALID_PRODUCER_EPOCH]
        await t.add(who, T0)
        assert await t.write(produce(("t", 0, batch(b"a", who))), OLD) == [0]
        outside = produce(("t", 0, batch(b"b", who, 1, transactional=False)))
        assert await t.write(outside, OLD) == [E.INVALID_TXN_STATE]


async def test_without_verification_every_batch_is_accepted(autojump_clock: trio.abc.Clock) -> None:
    async with transactions(transaction_partition_verification_enable="false") as t:
        who = await t.init()
        assert await t.write(produce(("t", 0, batch(b"hangs", who))), OLD) == [0]
        assert await t.read() == []


async def test_later_requests_of_the_connection_wait_for_the_verification(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        for version in (NEW, OLD):
            requests = [produce(("t", 0, batch(b"%d" % i, who, i))) for i in range(5)]
            if version == OLD:
                await t.add(who, T0)
            for request in requests:
                await t.client.send(request, version)
            answers = [told(await t.client.receive(request, version)) for request in requests]
            start = answers[0][0]
            assert answers == [[start + i] for i in range(5)]
            who = await t.end(who, version=5)


async def test_acks_0_is_silent_and_trouble_closes(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        await t.client.send(produce(("t", 0, batch(b"a", who)), acks=0), NEW)
        assert await t.read(committed=False) == [b"a"]
        await t.client.send(produce(("t", 1, batch(b"a", (77, 0))), acks=0), NEW)
        with pytest.raises(EOFError):
            await t.client.receive_frame()


async def test_the_next_transaction_waits_a_little_for_the_markers_of_the_last(
    autojump_clock: trio.abc.Clock,
) -> None:
    async with transactions() as t:
        who = await t.init()
        assert await t.write(produce(("t", 0, batch(b"a", who))), NEW) == [0]
        markers = t.broker.services.markers
        held: list[tuple[object, object]] = []
        write = markers.write
        markers.write = lambda request, token: held.append((request, token))  # type: ignore[method-assign]
        who = await t.end(who, version=5)
        request = produce(("t", 0, batch(b"b", who)))
        before = trio.current_time()
        assert await t.write(request, NEW) == [E.CONCURRENT_TRANSACTIONS]
        assert 0.1 <= trio.current_time() - before < 0.2
        # An older client gets an error that it will retry.
        assert await t.write(request, OLD) == [E.NOT_ENOUGH_REPLICAS]
        await t.client.send(request, NEW)
        await trio.sleep(0.03)
        markers.write = write  # type: ignore[method-assign]
        for each in held:
            write(*each)  # type: ignore[arg-type]
        t.broker.services.partitions.write_staged()
        assert told(await t.client.receive(request, NEW)) == [2]
        assert await t.read() == [b"a"]


async def test_levels_change_while_a_transaction_is_open(autojump_clock: trio.abc.Clock) -> None:
    async with transactions() as t:
        who = await t.init()
        for number, level in enumerate((0, 2, 1, 2)):
            before = t.broker.services.features.level("transaction.version")
            request = produce(("t", 0, batch(b"%d" % number, who)))
            assert await t.write(request, NEW) == [2 * number]
            how = features.UPGRADE if level > before else features.SAFE_DOWNGRADE
            update = features.FeatureUpdate("transaction.version", level, how)
            await t.broker.services.features.update([update], validate_only=False)
            # A producer goes on as it began; the next one may be of another kind.
            who = await t.end(who, version=5)
        assert await t.read() == [b"0", b"1", b"2", b"3"]
        old = await t.init("y")
        await t.add(old, T0, name="y")
        first = produce(("t", 0, batch(b"old", old)), transactional_id="y")
        assert await t.write(first, OLD) == [8]
        await t.end(old, name="y")
        assert (await t.read())[-1] == b"old"
