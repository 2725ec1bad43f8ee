"""`flush.messages`: what is acknowledged is on the disk, and the loop goes on meanwhile."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.logdir import AppendOrigin, StorageError
from barnabas.replication import PartitionImage
from barnabas.server.broker.broker import Broker
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.offload import inline
from barnabas.server.storage.flushing import RETRY_S
from barnabas.server.testing import connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic

FLUSH_S = 0.4


class SlowThread:
    """Where flushes go: each takes FLUSH_S of virtual time and is counted; everything else is done at once."""

    def __init__(self) -> None:
        self.flushes = 0
        self.error: StorageError | None = None

    async def __call__(self, fn: Callable[..., Any], *args: Any) -> Any:
        name = getattr(fn, "__name__", "")
        if name not in ("flush", "_flush"):
            return await inline(fn, *args)
        self.flushes += 1
        if name == "_flush":
            await trio.sleep(FLUSH_S)
            return fn(*args)
        log = fn.__self__  # type: ignore[attr-defined]
        under_way = log.begin_flush()  # covers what is there now
        await trio.sleep(FLUSH_S)
        if self.error is not None:
            raise self.error
        under_way.sync_files()
        under_way.put_in_place()
        under_way.sync_dirs()
        log.end_flush(under_way)


async def started(broker: Broker) -> Partition:
    await topic(broker)
    return broker.services.partitions.get("t", 0)


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_answer_comes_after_the_flush(acks: int, autojump_clock: trio.abc.Clock) -> None:
    thread = SlowThread()
    async with (
        embedded_broker(None, thread, log_flush_interval_messages="1") as broker,
        connected(broker) as first,
        connected(broker) as second,
        connected(broker) as reader,
    ):
        partition = await started(broker)
        thread.flushes = 0
        began = trio.current_time()
        ask = request(batch(b"a"), acks=acks)
        await first.send(ask, 9)
        await trio.sleep(FLUSH_S / 2)
        # Written but not safe: not acknowledged, and consumers do not see it.
        assert (partition.log_end_offset, partition.high_watermark, partition.log.recovery_point) == (1, 0, 0)
        await second.send(request(batch(b"b"), acks=acks), 9)
        data = flat(await reader.ask(fetch(("t", 0, 0)), 12))[0]
        assert (data.high_watermark, len(data.records)) == (0, 0)
        assert only(await first.receive(ask, 9)).base_offset == 0
        assert trio.current_time() - began == pytest.approx(FLUSH_S)
        assert (partition.high_watermark, partition.log.recovery_point) == (1, 1)
        # The second came too late for the first flush.
        assert only(await second.receive(ask, 9)).base_offset == 1
        assert trio.current_time() - began == pytest.approx(2 * FLUSH_S)
        assert (partition.high_watermark, partition.log.recovery_point, thread.flushes) == (2, 2, 2)
        assert values(flat(await reader.ask(fetch(("t", 0, 0)), 12))[0]) == [b"a", b"b"]


async def test_only_every_so_many_records(autojump_clock: trio.abc.Clock) -> None:
    """The request that reaches the count waits, and those that come during the flush; no other."""
    thread = SlowThread()
    async with embedded_broker(None, thread, log_flush_interval_messages="3") as broker, connected(broker) as client:
        partition = await started(broker)
        for _ in range(6):
            began = trio.current_time()
            await client.ask(request(batch(b"x")), 9)
            full = partition.log_end_offset % 3 == 0
            assert trio.current_time() - began == pytest.approx(FLUSH_S if full else 0)
        assert partition.log.recovery_point == partition.high_watermark == 6


async def test_a_consumer_waits_for_what_is_safe(autojump_clock: trio.abc.Clock) -> None:
    async with (
        embedded_broker(None, SlowThread(), log_flush_interval_messages="1") as broker,
        connected(broker) as client,
        connected(broker) as reader,
    ):
        await started(broker)
        began = trio.current_time()
        await reader.send(fetch(("t", 0, 0), max_wait_ms=30_000), 12)
        await client.ask(request(batch(b"a")), 9)
        data = flat(await reader.receive(fetch(), 12))[0]
        assert values(data) == [b"a"]
        assert trio.current_time() - began == pytest.approx(FLUSH_S)


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_failed_flush_is_answered_with_an_error(acks: int, autojump_clock: trio.abc.Clock) -> None:
    thread = SlowThread()
    async with (
        embedded_broker(None, thread, log_flush_interval_messages="1") as broker,
        connected(broker) as client,
    ):
        partition = await started(broker)
        thread.error = StorageError("flushing", OSError(errno.EIO, "said the test"))
        answer = only(await client.ask(request(batch(b"a"), acks=acks), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (partition.high_watermark, partition.held_at) == (0, 0)
        thread.error = None
        assert only(await client.ask(request(batch(b"b"), acks=acks), 9)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("another_flush", [False, True])
async def test_a_flush_without_descriptors_is_answered_with_an_error_and_retried(
    acks: int, another_flush: bool, autojump_clock: trio.abc.Clock
) -> None:
    thread = SlowThread()
    async with (
        embedded_broker(None, thread, log_flush_interval_messages="1") as broker,
        connected(broker) as client,
    ):
        partition = await started(broker)
        thread.error = StorageError("flushing", OSError(errno.EMFILE, "said the test"))
        answer = only(await client.ask(request(batch(b"a"), acks=acks), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (partition.high_watermark, partition.held_at, partition.write_error) == (0, 0, None)
        thread.error = None
        if another_flush:
            partition.log.flush()  # a segment was rolled, say
        await trio.sleep(RETRY_S + FLUSH_S + 0.1)
        assert (partition.high_watermark, partition.held_at) == (1, None)
        assert only(await client.ask(request(batch(b"b"), acks=acks), 9)).base_offset == 1


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_directory_that_fails_behind_the_write(
    acks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    """Written, but not synced: a request that would wait for the flush does not wait without end."""
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with embedded_broker(None, SlowThread(), log_flush_interval_messages="1", log_dirs=directories) as broker:
        await topic(broker, "in-the-first")
        await started(broker)
        partitions = broker.services.partitions
        home = partitions.log_dirs.home("t", 0)
        assert home is not None
        write = Partition.write_quietly

        def fails_behind(self: Partition) -> int:
            added = write(self)
            home.storage_failed(StorageError("reading", OSError(errno.EIO, "said the test")))
            partitions.dir_failed(home)
            return added

        monkeypatch.setattr(Partition, "write_quietly", fails_behind)
        async with connected(broker) as client:
            with trio.fail_after(10):
                answer = only(await client.ask(request(batch(b"a"), acks=acks), 9))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_replicas_flush_before_they_acknowledge(autojump_clock: trio.abc.Clock) -> None:
    thread = SlowThread()
    async with embedded_cluster(2, offload=thread, log_flush_interval_messages="1") as cluster:
        await topic(cluster[1])
        leader = await cluster.leader("t", 0)
        async with connected(cluster[leader]) as client:
            answer = only(await client.ask(request(batch(b"a"), acks=-1), 9))
            assert answer.error_code == 0
        for broker_id in (1, 2):
            log = cluster[broker_id].services.partitions.get("t", 0).log
            assert (log.log_end_offset, log.recovery_point) == (1, 1), broker_id


@pytest.mark.parametrize("others", [(), (7,)])
async def test_a_new_leader_counts_what_it_has_flushed(others: tuple[int, ...], autojump_clock: trio.abc.Clock) -> None:
    """What it appended as a follower, and could still lose, is not committed by its becoming leader."""
    async with embedded_broker(None, SlowThread(), log_flush_interval_messages="1") as broker:
        partition = await started(broker)
        me = partition.leader_id
        partition.resign()
        partition.log.append(bytearray(batch(b"a")), leader_epoch=0, now_ms=0, origin=AppendOrigin.REPLICATION)
        partition.log.write()
        image = PartitionImage(0, me, partition.leader_epoch + 1, 1, replicas=(me, *others), isr=(me,))
        partition.lead(image)
        assert (partition.log_end_offset, partition.high_watermark) == (1, 0)
        await trio.sleep(FLUSH_S * 1.5)
        assert (partition.log.recovery_point, partition.high_watermark) == (1, 1)
