"""Acknowledged writes can be read, whatever call of the disk fails, and wherever that is noticed: in the middle of a
round, by another request, by a read.

Two requests arrive in one round and share its write. The first directory holds the broker's metadata, so the broker
outlives the second.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import FetchRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch, iter_headers, iter_records
from barnabas.logdir import AppendOrigin
from barnabas.server.broker.broker import Broker
from barnabas.server.sim.cluster import SharedRounds
from barnabas.server.sim.disk import SimDisk
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import only, request, topic

E = ErrorCode
BROKEN = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
LACKING = (errno.EMFILE, errno.EINTR)


class World:
    """A broker whose topics `t` and `u` lie in the second directory; the segment of `t` is nearly full."""

    def __init__(self, broker: Broker, client: Client, sim: SimDisk, second: Path) -> None:
        self.broker = broker
        self.client = client
        self.sim = sim
        self.second = second
        self.disk = sim.disk

    def fail_once(self, call: str, part: str, code: int, also: Callable[[], None] = lambda: None) -> None:
        """The next `call` on a file whose path contains `part` fails."""

        def on_call(name: str, path: str) -> None:
            if name == call and part in path:
                self.disk.on_call = None
                also()
                raise OSError(code, "said the test", path)

        self.disk.on_call = on_call

    async def together(self, *requests: ProduceRequest | FetchRequest, version: int = 11) -> list[Any]:
        """Ask all of them in one round."""
        await self.client.stream.send_all(b"".join(request_frame(version, 1, "c", each) for each in requests))
        return [await self.client.receive(each, version) for each in requests]


@asynccontextmanager
async def running(sim: SimDisk, path: Path) -> AsyncIterator[tuple[Broker, Client]]:
    directories = f"{path / 'a'},{path / 'b'}"
    async with (
        embedded_broker(disk=sim.disk, log_dirs=directories, log_segment_bytes="1000") as broker,
        connected(broker) as client,
    ):
        yield broker, client


@asynccontextmanager
async def started(path: Path) -> AsyncIterator[World]:
    sim = SimDisk()
    async with running(sim, path) as (broker, client):
        for name in ("x", "t", "y", "u"):
            await topic(broker, name)
        for number in range(4):
            assert only(await client.ask(request(batch(b"%d" % number, 120)), 11)).error_code == 0
        home = broker.services.partitions.log_dirs.home("t", 0)
        other = broker.services.partitions.log_dirs.home("u", 0)
        assert home is not None
        assert home is other
        assert home.path == str(path / "b")
        yield World(broker, client, sim, path / "b")


def batch(name: bytes, size: int = 10) -> bytes:
    return build_batch([Record(0, 1_750_000_000_000, name, bytes(size))])


async def names(client: Client, name: str = "t") -> list[bytes]:
    """The keys of all that is stored, in order; each must stand at the next offset."""
    found: list[bytes] = []
    while True:
        answer = await client.ask(fetch(name, len(found)), 11)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == 0
        data = bytes(partition.records or b"")
        if not data:
            return found
        for position, header in iter_headers(data):
            for record in iter_records(data[position : position + header.size]):
                if record.offset >= len(found):
                    assert record.offset == len(found)
                    found.append(bytes(record.key or b""))


def fetch(name: str, offset: int) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchRequest.FetchTopic(topic=name, partitions=[partition])]
    )


async def after_a_restart(world: World, path: Path, name: str = "t") -> list[bytes]:
    sim = SimDisk()
    sim.disk.root = world.disk.root
    async with running(sim, path) as (_, client):
        return await names(client, name)


FIRST = request(batch(b"first", 100))
ROLLS = request(batch(b"second", 100))


@pytest.mark.parametrize("code", BROKEN + LACKING)
@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("learnt", [False, True], ids=["", "short"])
async def test_a_write_that_fails_in_the_roll_of_another_request(
    acks: int, code: int, learnt: bool, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """The second batch of a round needs a new segment, so the first one is written at once, which fails."""
    async with started(tmp_path) as world:
        expected = [b"0", b"1", b"2", b"3"]
        if learnt:
            assert only(await world.client.ask(request(batch(b"4", 10), acks=acks), 11)).error_code == 0
            expected.append(b"4")
        world.fail_once("pwritev", "t-0", code)
        first, second = await world.together(
            request(batch(b"first", 100), acks=acks), request(batch(b"second", 100), acks=acks)
        )
        assert [only(each).error_code for each in (first, second)] == [E.KAFKA_STORAGE_ERROR] * 2
        after = only(await world.client.ask(request(batch(b"after", 100), acks=acks), 11))
        if code in LACKING:
            assert (after.error_code, after.base_offset) == (0, len(expected))
            expected.append(b"after")
            assert await names(world.client) == expected
        else:
            assert after.error_code == E.KAFKA_STORAGE_ERROR
            assert [each.path for each in world.broker.services.partitions.log_dirs.offline] == [str(world.second)]
    assert await after_a_restart(world, tmp_path) == expected


@pytest.mark.parametrize("code", BROKEN + LACKING)
async def test_what_is_written_before_the_roll_fails_is_acknowledged(
    code: int, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    async with started(tmp_path) as world:
        world.fail_once("open", "00000005.log", code)
        first, second = await world.together(FIRST, ROLLS)
        assert [only(each).error_code for each in (first, second)] == [0, E.KAFKA_STORAGE_ERROR]
        if code in LACKING:
            assert only(await world.client.ask(ROLLS, 11)).base_offset == 5
    found = await after_a_restart(world, tmp_path)
    assert found[:5] == [b"0", b"1", b"2", b"3", b"first"]
    assert found[5:] == ([b"second"] if code in LACKING else [])


@pytest.mark.parametrize("acks", [1, -1])
async def test_no_lost_offset_is_assigned_twice(acks: int, tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """A third request of the round would get the offset of the first, whose write has failed; and when the high
    watermark passes that, the first would be answered with success.
    """
    async with started(tmp_path) as world:
        world.fail_once("pwritev", "t-0", errno.EINTR)
        asked = [request(batch(b"%d" % number, 100), acks=acks) for number in (10, 11, 12)]
        codes = [only(each).error_code for each in await world.together(*asked)]
        assert codes == [E.KAFKA_STORAGE_ERROR] * 3
        assert await names(world.client) == [b"0", b"1", b"2", b"3"]


async def test_a_duplicate_has_the_outcome_of_what_it_repeats(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    async with started(tmp_path) as world:
        records = build_batch(
            [Record(0, 1_750_000_000_000, b"p", bytes(10))], producer_id=7, producer_epoch=0, base_sequence=0
        )
        world.fail_once("pwritev", "t-0", errno.EINTR)
        codes = [only(each).error_code for each in await world.together(request(records), request(records))]
        assert codes == [E.KAFKA_STORAGE_ERROR] * 2
        codes = [only(each).error_code for each in await world.together(request(records), request(records))]
        assert codes == [0, 0]
        assert await names(world.client) == [b"0", b"1", b"2", b"3", b"p"]


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_read_of_the_same_round_that_fails(acks: int, tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    """It takes the directory offline, and with it what others have staged there."""
    async with started(tmp_path) as world:
        for number in range(20):
            assert only(await world.client.ask(request(batch(b"%d" % number), topic="u"), 11)).error_code == 0
        for segment in world.broker.services.partitions.get("u", 0).log.state.segments:
            segment.release()
        world.fail_once("pread", "u-0", errno.EIO)
        produced, read = await world.together(request(batch(b"lost?"), acks=acks), fetch("u", 0))
        assert read.responses[0].partitions[0].error_code == E.KAFKA_STORAGE_ERROR
        assert only(produced).error_code == E.KAFKA_STORAGE_ERROR
    assert await after_a_restart(world, tmp_path) == [b"0", b"1", b"2", b"3"]


async def test_a_topic_deleted_in_the_same_round(tmp_path: Path, autojump_clock: trio.abc.Clock) -> None:
    async with started(tmp_path) as world:
        partitions = world.broker.services.partitions
        partition = partitions.get("t", 0)
        answers: list[object] = []
        info = partition.append(bytearray(batch(b"lost")), origin=AppendOrigin.CLIENT, now_ms=0)
        partitions.after_write(lambda: answers.append(partition.outcome_of(info.last_offset)))
        partitions.delete("t", 0)
        partitions.write_staged()
        (error,) = answers
        assert isinstance(error, KafkaError)
        assert error.code == E.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("call", ["truncate", "sync"])
async def test_a_failed_truncation_is_repeated_before_the_next_write(
    call: str, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """A refused batch must not come back behind a shorter one that was written in its place."""
    async with started(tmp_path) as world:
        disk = world.disk
        log = world.broker.services.partitions.get("t", 0).log
        before = log.size

        def on_call(name: str, path: str) -> None:
            if name == call and "t-0" in path:
                raise OSError(errno.EINTR, "said the test", path)

        disk.on_call, disk.space, disk.full = on_call, 70, errno.EINTR
        assert only(await world.client.ask(request(batch(b"refused", 50)), 11)).error_code == E.KAFKA_STORAGE_ERROR
        disk.space = None
        assert only(await world.client.ask(request(batch(b"refused", 50)), 11)).error_code == E.KAFKA_STORAGE_ERROR
        disk.on_call = None
        assert log.failure is None
        assert log.size == before
        assert only(await world.client.ask(request(batch(b"a", 10)), 11)).error_code == 0
        assert len(disk.node(f"{log.directory}/{0:020d}.log").data) == log.size
    assert await after_a_restart(world, tmp_path) == [b"0", b"1", b"2", b"3", b"a"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EMFILE])
async def test_several_clients_of_one_round_get_each_their_own_answer(
    code: int, tmp_path: Path, autojump_clock: trio.abc.Clock
) -> None:
    """Of five that share a round the first one's records are written when the second one's need a new segment; when the
    fifth one's need another, the write fails. Without acknowledgement the closed connection says so.
    """
    async with started(tmp_path) as world:
        rounds = SharedRounds(world.broker.services.partitions)
        async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
            nursery.start_soon(rounds.run)
            clients = [await stack.enter_async_context(connected(world.broker)) for _ in range(5)]
            sent = [
                request(batch(name, size), acks=acks)
                for name, size, acks in (
                    (b"one", 20, 1),
                    (b"rolls", 500, -1),
                    (b"silent", 100, 0),
                    (b"lost", 100, 1),
                    (b"rolls again", 500, 1),
                )
            ]
            log = world.broker.services.partitions.get("t", 0).log
            before = log.log_end_offset
            writes = 0

            def on_call(name: str, path: str) -> None:
                nonlocal writes
                if name == "pwritev" and "t-0" in path and path.endswith(".log"):
                    writes += 1
                    if writes == 2:
                        raise OSError(code, "said the test", path)

            world.disk.on_call = on_call
            for client, each in zip(clients, sent, strict=True):
                await client.send(each, 11)
                await trio.testing.wait_all_tasks_blocked()
            answers = [
                None if each.acks == 0 else only(await client.receive(each, 11))
                for client, each in zip(clients, sent, strict=True)
            ]
            assert writes == 2
            codes = [None if answer is None else answer.error_code for answer in answers]
            assert codes == [0, E.KAFKA_STORAGE_ERROR, None, E.KAFKA_STORAGE_ERROR, E.KAFKA_STORAGE_ERROR]
            assert answers[0] is not None
            assert answers[0].base_offset == before
            with pytest.raises(EOFError):
                await clients[2].receive_frame()
            nursery.cancel_scope.cancel()
    assert (await after_a_restart(world, tmp_path))[:5] == [b"0", b"1", b"2", b"3", b"one"]
