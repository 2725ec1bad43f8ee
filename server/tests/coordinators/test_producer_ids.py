"""Producer ids: unique, fetched ahead, waited for, and refused when the store cannot give any."""

from __future__ import annotations

import pytest
import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import EmbeddedStore, ProducerIdBlock, ProducerIdsExhausted, StoreFailed, take_producer_ids
from barnabas.replication.store.store import Create
from barnabas.server.coordinators.producer_ids import ProducerIds


class Blocks:
    """Blocks of ten; `gate` holds them up, `failure` replaces them."""

    def __init__(self) -> None:
        self.taken = 0
        self.gate = trio.Event()
        self.gate.set()
        self.failure: Exception | None = None

    async def take(self) -> ProducerIdBlock:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.taken += 1
        return ProducerIdBlock(1, self.taken * 10, self.taken * 10 + 9)


async def test_ids_in_order_and_the_next_block_in_time(nursery: trio.Nursery) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.take)
    nursery.start_soon(ids.run)
    assert [await ids.next_id() for _ in range(9)] == list(range(10, 19))
    await trio.testing.wait_all_tasks_blocked()
    assert blocks.taken == 1
    assert await ids.next_id() == 19, "the id at 90 %"
    await trio.testing.wait_all_tasks_blocked()
    assert blocks.taken == 2
    assert [await ids.next_id() for _ in range(25)] == list(range(20, 45))


async def test_many_at_once_get_different_ones(nursery: trio.Nursery) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks.take)
    nursery.start_soon(ids.run)
    got: list[int] = []

    async def take() -> None:
        got.append(await ids.next_id())

    async with trio.open_nursery() as takers:
        for _ in range(95):
            takers.start_soon(take)
    assert sorted(got) == list(range(10, 105))


async def test_failure_is_retriable_and_passes(nursery: trio.Nursery) -> None:
    blocks = Blocks()
    blocks.failure = StoreFailed("disk")
    ids = ProducerIds(blocks.take)
    nursery.start_soon(ids.run)
    for failure in (StoreFailed("disk"), ProducerIdsExhausted("all")):
        blocks.failure = failure
        with pytest.raises(KafkaError) as caught:
            await ids.next_id()
        assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    blocks.failure = None
    assert await ids.next_id() == 10


async def test_requests_wait_while_a_block_is_fetched(nursery: trio.Nursery) -> None:
    blocks = Blocks()
    blocks.gate = trio.Event()
    ids = ProducerIds(blocks.take)
    nursery.start_soon(ids.run)
    got: list[int] = []

    async def take() -> None:
        got.append(await ids.next_id())

    nursery.start_soon(take)
    nursery.start_soon(take)
    await trio.testing.wait_all_tasks_blocked()
    assert got == []
    blocks.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(got) == [10, 11]


async def test_brokers_never_share_a_block_and_the_end_is_an_end() -> None:
    store = EmbeddedStore.open()
    blocks: list[ProducerIdBlock] = []

    async def take(broker: int) -> None:
        session = store.connect()
        for _ in range(5):
            blocks.append(await take_producer_ids(session, broker))

    async with trio.open_nursery() as brokers:
        for broker in range(6):
            brokers.start_soon(take, broker)
    assert sorted(block.first for block in blocks) == [1000 * number for number in range(30)]
    last = 2**63 - 1
    other = EmbeddedStore.open().connect()
    data = f'{{"version":1,"broker":1,"block_start":"{last - 1998}","block_end":"{last - 999}"}}'
    await other.commit([Create("/latest_producer_id_block", data.encode())])
    with pytest.raises(ProducerIdsExhausted):
        await take_producer_ids(other, 1)
