"""Fetch with `read_committed`: last stable offsets, aborted transactions, over segments, restarts and Apache Kafka's
files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto.messages import ListOffsetsRequest
from barnabas.kproto.records import (
    Record,
    build_batch,
    build_control_batch,
    iter_headers,
    iter_records,
    parse_control_record,
)
from barnabas.logdir import AppendOrigin
from barnabas.server.broker.broker import Broker
from barnabas.server.partitions.partition import Partition
from barnabas.server.testing import connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.records.test_fetch import MIB, fetch, flat
from barnabas.server.tests.apis.records.test_produce import topic

NOW = 1_750_000_000_000


class Writer:
    """Appends to a partition as producers and a coordinator would; what it wrote, as a reader is to see it."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.visible: dict[int, bytes] = {}  # offset to value, of what is committed
        self.aborted: list[tuple[int, int, int]] = []  # producer, first offset, marker

    def _append(self, buf: bytearray, origin: AppendOrigin) -> int:
        info = self.partition.append(buf, origin=origin, now_ms=NOW)
        self.partition.write()
        return info.base_offset

    def data(self, value: bytes, producer: int = -1) -> int:
        sequence = self.sequences.get(producer, 0)
        fields: dict[str, Any] = {}
        if producer >= 0:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
            self.sequences[producer] = sequence + 1
        offset = self._append(build_batch([Record(timestamp=NOW, value=value)], **fields), AppendOrigin.CLIENT)
        if producer >= 0:
            self.open.setdefault(producer, []).append(offset)
        self.visible[offset] = value
        return offset

    def end(self, producer: int, *, commit: bool) -> int:
        marker = build_control_batch(
            producer_id=producer, producer_epoch=0, commit=commit, coordinator_epoch=1, timestamp=NOW
        )
        offset = self._append(marker, AppendOrigin.COORDINATOR)
        offsets = self.open.pop(producer, [])
        if offsets and not commit:
            self.aborted.append((producer, offsets[0], offset))
            for each in offsets:
                del self.visible[each]
        return offset

    @property
    def stable(self) -> int:
        return min((offsets[0] for offsets in self.open.values()), default=self.partition.log_end_offset)


def committed(data: Any) -> dict[int, bytes]:
    """What a `read_committed` consumer makes of an answer, by the rules of the protocol."""
    waiting = sorted(data.aborted_transactions, key=lambda each: each.first_offset)
    aborting: set[int] = set()
    found: dict[int, bytes] = {}
    raw = bytes(data.records)
    for position, header in iter_headers(raw):
        while waiting and waiting[0].first_offset <= header.last_offset:
            aborting.add(waiting.pop(0).producer_id)
        for record in iter_records(raw, position):
            if header.is_control:
                if parse_control_record(record)[0] == 0:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                found[record.offset] = bytes(record.value or b"")
    return found


async def started(broker: Broker) -> Writer:
    await topic(broker)
    return Writer(broker.services.partitions.get("t", 0))


async def latest(client: Any, isolation_level: int) -> int:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])],
    )
    return (await client.ask(request, 5)).topics[0].partitions[0].offset


async def committed_up_to(partition: Partition, offset: int) -> None:
    for _ in range(1000):
        if partition.high_watermark >= offset:
            return
        await trio.sleep(0.05)
    raise AssertionError(f"the high watermark is {partition.high_watermark}")


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_lists_aborted_transactions(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        writer = await started(broker)
        writer.data(b"plain")
        writer.data(b"lost", producer=7)
        writer.data(b"kept", producer=8)
        writer.end(7, commit=False)
        writer.end(8, commit=True)
        writer.data(b"open", producer=7)
        writer.data(b"behind")
        name: str | bytes = writer.partition.topic_id if version >= 13 else "t"
        data = flat(await client.ask(fetch((name, 0, 0), isolation_level=1), version))[0]
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 7, 5)
        assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions] == [(7, 1)]
        assert committed(data) == {0: b"plain", 2: b"kept"}
        # At the last stable offset there is nothing, and nothing to leave out.
        data = flat(await client.ask(fetch((name, 0, 5), isolation_level=1), version))[0]
        assert (data.error_code, len(data.records), data.aborted_transactions) == (0, 0, [])
        data = flat(await client.ask(fetch((name, 0, 0)), version))[0]
        assert data.aborted_transactions is None
        assert [header.base_offset for _, header in iter_headers(bytes(data.records))] == list(range(7))
        data = flat(await client.ask(fetch((name, 0, 9), isolation_level=1), version))[0]
        assert data.error_code == 1


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_read_from_anywhere_is_committed(
    seed: int, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """Random transactions over many segments, read in small pieces from random offsets, restarts in between."""
    rng = random.Random(seed)
    configs = {"log_segment_bytes": "1500", "log_index_interval_bytes": "200"}
    writer: Writer | None = None
    for _ in range(2):
        async with embedded_broker(tmp_path, **configs) as broker, connected(broker) as client:
            if writer is None:
                writer = await started(broker)
            writer.partition = broker.services.partitions.get("t", 0)
            for _ in range(60):
                producer = rng.randint(1, 4)
                if rng.random() < 0.3:
                    writer.end(producer, commit=rng.random() < 0.5)
                else:
                    writer.data(rng.randbytes(rng.randint(1, 90)), rng.choice((-1, producer, producer)))
            assert writer.partition.log.segment_count > 3
            assert await latest(client, 1) == writer.stable, seed
            assert await latest(client, 0) == writer.partition.log_end_offset
            for _ in range(8):
                offset = start = rng.randint(0, writer.stable)
                found: dict[int, bytes] = {}
                while offset < writer.stable:
                    ask = fetch(("t", 0, offset), isolation_level=1, partition_max_bytes=rng.choice((1, 700, MIB)))
                    data = flat(await client.ask(ask, 12))[0]
                    assert data.last_stable_offset == writer.stable, seed
                    headers = [header for _, header in iter_headers(bytes(data.records))]
                    assert headers, (seed, offset)
                    found |= committed(data)
                    offset = headers[-1].next_offset
                    told = [(each.producer_id, each.first_offset) for each in data.aborted_transactions]
                    ends = {(who, first): end for who, first, end in writer.aborted}
                    assert [ends[each] for each in told] == sorted(ends[each] for each in told), seed
                assert found == {at: value for at, value in writer.visible.items() if start <= at < offset}, seed


async def test_an_end_wakes_a_fetch_that_waits_for_many_bytes(autojump_clock: trio.abc.Clock) -> None:
    """The marker is small; what it makes readable is not."""
    async with embedded_broker() as broker, connected(broker) as client:
        writer = await started(broker)
        began = trio.current_time()
        await client.send(fetch(("t", 0, 0), isolation_level=1, min_bytes=2000, max_wait_ms=60_000), 12)
        await trio.sleep(1)
        for _ in range(3):
            writer.data(b"v" * 1000, producer=7)
        await trio.sleep(1)
        writer.end(7, commit=True)
        data = flat(await client.receive(fetch(), 12))[0]
        assert trio.current_time() - began < 3
        assert len(committed(data)) == 3


async def test_a_fetch_of_an_old_segment_does_not_wait_for_its_end_to_grow(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(log_segment_bytes="1000") as broker, connected(broker) as client:
        writer = await started(broker)
        for _ in range(3):
            writer.data(b"v" * 600)
        began = trio.current_time()
        data = flat(await client.ask(fetch(("t", 0, 0), min_bytes=100_000, max_wait_ms=60_000), 12))[0]
        assert len(committed_or_all(data)) == 1
        assert trio.current_time() - began < 1


def committed_or_all(data: Any) -> list[int]:
    return [header.base_offset for _, header in iter_headers(bytes(data.records))]


async def test_the_last_stable_offset_is_not_below_the_log_start(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        writer = await started(broker)
        for value in (b"a", b"b", b"c"):
            writer.data(value, producer=7)
        writer.partition.log.delete_records(2, 3)
        data = flat(await client.ask(fetch(("t", 0, 2), isolation_level=1), 12))[0]
        assert (data.error_code, data.log_start_offset, data.last_stable_offset, len(data.records)) == (0, 2, 2, 0)
        assert await latest(client, 1) == 2


async def test_an_end_that_is_not_replicated_decides_nothing(autojump_clock: trio.abc.Clock) -> None:
    """Until the high watermark has passed the marker, its transaction is as good as open."""
    async with embedded_cluster(2, replica_lag_time_max_ms="600000") as cluster:
        await topic(cluster[1])
        leader = await cluster.leader("t", 0)
        broker = cluster[leader]
        async with connected(broker) as client:
            partition = broker.services.partitions.get("t", 0)
            writer = Writer(partition)
            writer.data(b"lost", producer=7)
            await committed_up_to(partition, 1)
            await cluster.cut(1, 2)
            writer.data(b"other")
            writer.end(7, commit=False)
            assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
            assert await latest(client, 1) == 0
            data = flat(await client.ask(fetch(("t", 0, 0), isolation_level=1), 12))[0]
            assert (data.last_stable_offset, len(data.records)) == (0, 0)
            cluster.heal(1, 2)
            await committed_up_to(partition, 3)
            data = flat(await client.ask(fetch(("t", 0, 0), isolation_level=1), 12))[0]
            assert (data.last_stable_offset, committed(data)) == (3, {1: b"other"})
            other = cluster[3 - leader].services.partitions.get("t", 0)
            await committed_up_to(other, 3)
            assert [tuple(each) for each in other.log.aborted_transactions(0, 3)] == [(7, 0, 2, 3)]


@pytest.mark.parametrize("damage", ["version", "below", "cut"])
async def test_an_invalid_index_is_rebuilt(damage: str, tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(tmp_path, log_segment_bytes="400") as broker:
        writer = await started(broker)
        for number in range(8):
            writer.data(b"lost" * 10, producer=7)
            writer.data(b"kept" * 10, producer=8)
            writer.end(7, commit=False)
            if number % 2:
                writer.end(8, commit=True)
    paths = sorted((tmp_path / "t-0").glob("*.txnindex"))
    assert len(paths) > 2
    for path in paths[1:]:
        good = path.read_bytes()
        bad = {"version": b"\x00\x07" + good[2:], "below": good[:18] + bytes(8) + good[26:], "cut": good + good[:20]}
        path.write_bytes(bad[damage])
    async with embedded_broker(tmp_path) as broker, connected(broker) as client:
        offset, found = 0, {}
        while offset < writer.stable:
            data = flat(await client.ask(fetch(("t", 0, offset), isolation_level=1), 12))[0]
            found |= committed(data)
            offset = committed_or_all(data)[-1] + 1
        assert found == {at: value for at, value in writer.visible.items() if at < writer.stable}
        log = broker.services.partitions.get("t", 0).log
        assert [tuple(each)[:3] for each in log.aborted_transactions(0, offset)] == writer.aborted
