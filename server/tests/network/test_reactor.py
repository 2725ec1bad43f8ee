"""The reactor with a whole broker behind it, over real loopback sockets: peers that are slow, rude, half there, gone.

Nothing here sleeps: a test goes on when what it waits for has happened. In each, `witness` stands for the other
clients, who must not notice anything.
"""

from __future__ import annotations

import gc
import random
import struct
import weakref
from typing import Any

import pytest
import trio

from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    MetadataRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.network.connection import OUT_BYTES_MAX, Connection
from barnabas.server.network.reactor import _IN
from barnabas.server.network.readiness import HALF_CLOSED, READABLE, WRITABLE
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic
from barnabas.server.tests.network.tcp_rig import (
    HEADERS,
    MIB,
    SECONDS,
    SMALL,
    SMALL_BUFFERS,
    closed_by_broker,
    dialled,
    fill,
    fine,
    no_error_is_logged,  # noqa: F401  # around each test
    reactor,
    reset,
    sockets,  # noqa: F401
    until,
)

# -- bytes in ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1_000, 65_537, 300_000])
async def test_a_large_frame_in_pieces(piece: int) -> None:
    async with embedded_broker() as broker, dialled(broker) as client, dialled(broker) as witness:
        await topic(broker)
        value = random.Random(piece).randbytes(900_000)
        frame = request_frame(9, 5, "test", request(batch(value)))
        with trio.fail_after(SECONDS):
            for at in range(0, len(frame), piece):
                await client.stream.send_all(frame[at : at + piece])
                if at % (10 * piece) == 0:
                    await fine(witness)
            answer = only(await client.receive(request(None), 9))
            assert (answer.error_code, answer.base_offset) == (0, 0)
            assert values(flat(await client.ask(fetch(("t", 0, 0)), 12))[0]) == [value]


async def test_frames_arrive_byte_by_byte_on_many_connections() -> None:
    async with embedded_broker() as broker:

        async def dribble(client_id: str) -> None:
            async with dialled(broker) as client:
                frame = request_frame(3, 1, client_id, HEADERS)
                for at in range(len(frame)):
                    await client.stream.send_all(frame[at : at + 1])
                    await trio.lowlevel.checkpoint()
                assert (await client.receive(HEADERS, 3)).error_code == 0

        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                for number in range(20):
                    nursery.start_soon(dribble, f"dribbler {number}")


async def test_many_frames_in_one_piece_are_answered_in_order() -> None:
    async with embedded_broker() as broker, dialled(broker) as client:
        await topic(broker)
        ask: list[tuple[Any, int]] = []
        for number in range(500):
            ask.append(
                [(HEADERS, 3), (MetadataRequest(topics=[]), 12), (request(batch(b"%d" % number)), 9)][number % 3]
            )
        data = b"".join(request_frame(version, at, "test", each) for at, (each, version) in enumerate(ask))
        offsets = []
        with trio.fail_after(SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.stream.send_all, data)
                for at, (each, version) in enumerate(ask):
                    frame = await client.receive_frame()
                    assert int.from_bytes(frame[:4], "big") == at
                    client._frames.insert(0, frame)
                    response = await client.receive(each, version)
                    if version == 9:
                        offsets.append(only(response).base_offset)
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS greeting
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhi", 8, 18, 3, 1),  # ends in the middle of its header
        struct.pack(">ihhih", 10, 999, 0, 1, -1),  # no such API
        struct.pack(">ihhih", 10, 3, 99, 1, -1),  # no such version
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),  # two milliards of topics
    ],
)
async def test_garbage_closes_the_connection_that_sent_it(garbage: bytes) -> None:
    async with embedded_broker() as broker, dialled(broker) as witness, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            await fine(client)
            await client.stream.send_all(garbage)
            assert await closed_by_broker(client)
            await fine(witness)
            assert len(reactor(broker).connections) == 1


async def test_a_promised_frame_costs_nothing_before_it_comes() -> None:
    """A hundred clients promise 100 MB each; what is held is what was sent."""
    async with embedded_broker() as broker, dialled(broker) as witness, trio.open_nursery() as nursery:
        with trio.fail_after(SECONDS):
            for _ in range(100):
                client = await nursery.start(keep_open, broker)
                await client.stream.send_all(struct.pack(">i", 100_000_000) + b"x")
            await until(lambda: sum(each.backlog_bytes for each in reactor(broker).connections) == 500)
            held = [len(each._buffer or b"") for each in reactor(broker).connections]
            assert max(held) <= 256 * 1024
            await fine(witness)
        nursery.cancel_scope.cancel()


async def keep_open(broker: Broker, task_status: Any) -> None:
    async with dialled(broker) as client:
        task_status.started(client)
        await trio.sleep_forever()


# -- answers out ------------------------------------------------------------------------------------------------------


async def test_a_slow_reader_gets_a_large_answer_whole() -> None:
    """4.5 MB from the page cache through a socket that takes some kilobytes at a time, with others served meanwhile."""
    async with (
        embedded_broker(**SMALL_BUFFERS) as broker,
        dialled(broker) as witness,
        dialled(broker, receive_buffer_bytes=SMALL) as slow,
    ):
        await topic(broker)
        with trio.fail_after(SECONDS):
            sent = await fill(witness, 5)
            await slow.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
            connection = reactor(broker).connections[-1]
            await until(lambda: connection.out_bytes > MIB)
            stalled_at = 0
            while connection.out_bytes != stalled_at:  # until the kernel's buffers are full, and nobody reads
                stalled_at = connection.out_bytes
                for _ in range(5):
                    await fine(witness)
            assert stalled_at > MIB
            assert _watched(broker, connection) & WRITABLE
            levels = set()
            received = bytearray()
            while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
                received += await slow.stream.receive_some(50_000)
                levels.add(connection.out_bytes)
                if len(levels) % 10 == 0:
                    await fine(witness)
            assert len(levels) > 20, "it went out in one go: the socket was not slow"
            slow._frames.append(bytes(received[4:]))
            response = await slow.receive(fetch(("t", 0, 0)), 12)
            assert values(flat(response)[0]) == sent
            await fine(slow)
            assert _watched(broker, connection) == _IN


def _watched(broker: Broker, connection: Connection) -> int:
    (link,) = [link for link in reactor(broker)._links.values() if link.connection is connection]
    return link.mask


async def test_a_client_that_never_reads_is_given_no_more() -> None:
    """It asks for 300 kB 100 times over. What the broker holds for it is bounded, whatever it asks for."""
    async with (
        embedded_broker(**SMALL_BUFFERS) as broker,
        dialled(broker) as witness,
        dialled(broker, receive_buffer_bytes=SMALL) as greedy,
    ):
        await topic(broker)
        with trio.fail_after(SECONDS):
            (value,) = await fill(witness, 1, 300_000)
            for _ in range(50):
                await greedy.send(fetch(("t", 0, 0)), 12)
            connection = reactor(broker).connections[-1]
            await until(lambda: connection.blocked)
            for _ in range(50):  # what was received with the first may be kept
                await greedy.send(fetch(("t", 0, 0)), 12)
            await until(lambda: not _watched(broker, connection) & READABLE)
            await fine(witness)
            assert connection.out_bytes <= OUT_BYTES_MAX + len(value) + 1000
            # Then it reads after all, and gets everything.
            for _ in range(100):
                assert values(flat(await greedy.receive(fetch(("t", 0, 0)), 12))[0]) == [value]


async def test_a_deleted_segment_is_still_sent_in_answers_that_refer_to_it() -> None:
    async with (
        embedded_broker(**SMALL_BUFFERS) as broker,
        dialled(broker) as witness,
        dialled(broker, receive_buffer_bytes=SMALL) as slow,
    ):
        await topic(broker)
        with trio.fail_after(SECONDS):
            sent = await fill(witness, 5)
            await slow.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
            connection = reactor(broker).connections[-1]
            await until(lambda: connection.out_bytes > MIB)
            await broker.services.topics.delete_topics(["t"], timeout_ms=60_000)
            await until(lambda: len(broker.services.partitions) == 0)
            assert values(flat(await slow.receive(fetch(("t", 0, 0)), 12))[0]) == sent


# -- ends -------------------------------------------------------------------------------------------------------------


async def test_a_reset_in_the_middle_of_an_answer() -> None:
    async with embedded_broker(**SMALL_BUFFERS) as broker, dialled(broker) as witness:
        await topic(broker)
        with trio.fail_after(SECONDS):
            await fill(witness, 5)
            for _ in range(10):
                async with dialled(broker, receive_buffer_bytes=SMALL) as rude:
                    await rude.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
                    await until(lambda: any(each.out_bytes > MIB for each in reactor(broker).connections))
                    await rude.stream.receive_some(1000)
                    reset(rude)
                await until(lambda: len(reactor(broker).connections) == 1)
                await fine(witness)
        assert reactor(broker)._dirty == {}


async def test_a_reset_while_the_request_waits() -> None:
    """A long poll of a crashed client is let go at once: its timer and its place in the partition's list."""
    async with embedded_broker() as broker, dialled(broker) as witness, dialled(broker) as client:
        await topic(broker)
        partition = broker.services.partitions.get("t", 0)
        with trio.fail_after(SECONDS):
            await client.send(fetch(("t", 0, 0), max_wait_ms=2**31 - 1), 12)
            await until(lambda: partition._waiters)
            reset(client)
            await until(lambda: not partition._waiters)
            assert len(reactor(broker).connections) == 1
            assert only(await witness.ask(request(batch(b"a")), 9)).error_code == 0


async def test_a_half_closed_client_gets_its_answers() -> None:
    """`printf … | nc -N`: it sends, says that it will send no more, and reads. Answers at once, from a task, from a
    wait; then the broker closes as well.
    """
    async with embedded_broker() as broker, dialled(broker) as witness, dialled(broker) as client:
        await topic(broker)
        create = CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
        )
        poll = fetch(("t", 0, 0), max_wait_ms=600_000)
        with trio.fail_after(SECONDS):
            for each, version in [(HEADERS, 3), (create, 7), (poll, 12), (HEADERS, 3)]:
                await client.send(each, version)
            await client.stream.send_eof()  # type: ignore[attr-defined]
            assert (await client.receive(HEADERS, 3)).error_code == 0
            assert (await client.receive(create, 7)).topics[0].error_code == 0
            waiters = broker.services.partitions.get("t", 0)._waiters
            await until(lambda: waiters)
            assert only(await witness.ask(request(batch(b"a")), 9)).error_code == 0
            assert values(flat(await client.receive(poll, 12))[0]) == [b"a"]
            assert (await client.receive(HEADERS, 3)).error_code == 0
            assert await closed_by_broker(client)
        assert len(reactor(broker).connections) == 1


async def test_a_half_closed_slow_client_gets_a_large_answer() -> None:
    async with (
        embedded_broker(**SMALL_BUFFERS) as broker,
        dialled(broker) as witness,
        dialled(broker, receive_buffer_bytes=SMALL) as slow,
    ):
        await topic(broker)
        with trio.fail_after(SECONDS):
            sent = await fill(witness, 5)
            await slow.send(fetch(("t", 0, 0), partition_max_bytes=50 * MIB), 12)
            await slow.stream.send_eof()  # type: ignore[attr-defined]
            connection = reactor(broker).connections[-1]
            await until(lambda: _watched(broker, connection) & ~HALF_CLOSED == WRITABLE)
            assert values(flat(await slow.receive(fetch(("t", 0, 0)), 12))[0]) == sent
            assert await closed_by_broker(slow)


async def test_a_client_that_disconnects_while_waiting_is_released() -> None:
    """A full close looks like a half-close until something is sent: the answer finds out."""
    async with embedded_broker() as broker, dialled(broker) as witness:
        await topic(broker)
        waiters = broker.services.partitions.get("t", 0)._waiters
        with trio.fail_after(SECONDS):
            async with dialled(broker) as client:
                await client.send(fetch(("t", 0, 0), max_wait_ms=600_000), 12)
                await until(lambda: waiters)
            await fine(witness)
            assert only(await witness.ask(request(batch(b"a")), 9)).error_code == 0
            await until(lambda: len(reactor(broker).connections) == 1)
            assert not waiters


async def test_what_was_learnt_goes_with_the_connection() -> None:
    """At once, not when the collector comes by."""
    async with embedded_broker() as broker:
        await topic(broker)
        gc.collect()
        gc.disable()
        try:
            async with dialled(broker) as client:
                for _ in range(2):
                    assert only(await client.ask(request(batch(b"v")), 9)).error_code == 0
                    await client.ask(fetch(("t", 0, 0)), 12)
                (link,) = reactor(broker)._links.values()
                assert len(link.connection.fast_paths) == 2
                connection = weakref.ref(link.connection)
                del link
            with trio.fail_after(SECONDS):
                await until(lambda: connection() is None)
        finally:
            gc.enable()
