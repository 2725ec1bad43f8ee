"""What is sent: bytes and slices of files in any order and size, to a client that takes a little at a time.

Small slices are read, large ones go by sendfile; how many of them is counted, and what a client holds that does not
receive.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
import trio

from barnabas.kproto import Part
from barnabas.logdir import Disk, FileSlice, LogFile
from barnabas.server.network import sending
from barnabas.server.testing import embedded_broker
from barnabas.server.tests.network.tcp_rig import (
    MIB,
    SECONDS,
    SMALL,
    SMALL_BUFFERS,
    dialled,
    fine,
    reactor,
    sockets,  # noqa: F401  # around each test
    until,
)

READ_BYTES_MAX = sending.READ_BYTES_MAX


@pytest.fixture
def sendfiles(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes that sendfile was asked for."""
    asked: list[int] = []
    sendfile = os.sendfile

    def noted(to: int, fd: int, position: int, size: int) -> int:
        asked.append(size)
        return sendfile(to, fd, position, size)

    monkeypatch.setattr(os, "sendfile", noted)
    return asked


def log_file(path: Path, data: bytes) -> LogFile:
    path.write_bytes(data)
    return LogFile(Disk(), str(path))


@pytest.mark.parametrize("seed", range(6))
async def test_everything_arrives_in_order(seed: int, tmp_path: Path, sendfiles: list[int]) -> None:
    rng = Random(seed)
    data = rng.randbytes(MIB)
    file = log_file(tmp_path / "log", data)
    sizes = [1, 100, 1000, READ_BYTES_MAX - 1, READ_BYTES_MAX, READ_BYTES_MAX + 1, 3 * READ_BYTES_MAX, 300_000]
    parts: list[Part] = []
    expected = bytearray()
    large = 0
    for _ in range(60):
        size = rng.choice(sizes)
        position = rng.randrange(MIB - size)
        if rng.random() < 0.5:
            parts.append(rng.choice([bytes, bytearray, memoryview])(data[position : position + size]))
        else:
            parts.append(FileSlice(file, position, size))
            large += size > READ_BYTES_MAX
        expected += data[position : position + size]
    async with embedded_broker(**SMALL_BUFFERS) as broker, dialled(broker, receive_buffer_bytes=SMALL) as client:
        with trio.fail_after(SECONDS):
            await fine(client)
            (connection,) = reactor(broker).connections
            received = bytearray()
            for part in parts:
                connection._queue([part])
                connection.wake()
                if rng.random() < 0.2:
                    await trio.lowlevel.checkpoint()
            while len(received) < len(expected):
                received += await client.stream.receive_some(rng.choice([500, 50_000]))
            assert received == expected, seed
            await until(lambda: not connection.out_bytes)
            await fine(client)
    assert large <= len(sendfiles)
    # What is left of a large slice goes by sendfile, too, until it is small.
    assert min(sendfiles, default=MIB) > READ_BYTES_MAX


async def test_a_client_that_does_not_receive_holds_little(tmp_path: Path) -> None:
    """Of many small slices that wait for it, few are read."""
    file = log_file(tmp_path / "log", bytes(MIB))
    async with embedded_broker(**SMALL_BUFFERS) as broker, dialled(broker, receive_buffer_bytes=SMALL) as client:
        with trio.fail_after(SECONDS):
            await fine(client)
            (connection,) = reactor(broker).connections
            connection._queue([FileSlice(file, 1000 * i, 1000) for i in range(1000)])
            connection.wake()
            await until(lambda: connection.out_bytes < 1_000_000)
            await fine_elsewhere(broker)
            held = sum(len(part) for part in connection.out if not isinstance(part, FileSlice))
            assert 0 < held <= READ_BYTES_MAX
            left = 1_000_000
            while left:
                left -= len(await client.stream.receive_some(50_000))
            await fine(client)


async def fine_elsewhere(broker: Any) -> None:
    async with dialled(broker) as witness:
        for _ in range(5):
            await fine(witness)


@pytest.mark.parametrize("size", [1000, READ_BYTES_MAX, READ_BYTES_MAX + 1, 10 * READ_BYTES_MAX])
async def test_a_file_that_was_cut_closes_the_connection(
    size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = log_file(tmp_path / "log", bytes(size - 1))
    async with embedded_broker() as broker, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            await fine(client)
            (connection,) = reactor(broker).connections
            with caplog.at_level(logging.ERROR, "barnabas"):
                connection._queue([b"head", FileSlice(file, 0, size)])
                connection.wake()
                await until(lambda: connection.closed)
            while await client.stream.receive_some(50_000):
                pass  # what was there
            (record,) = caplog.records
            assert "shorter than the slice" in record.getMessage()
            assert record.exc_info is None
            await fine_elsewhere(broker)


async def test_small_slices_leave_with_what_precedes_them(
    tmp_path: Path, sendfiles: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One `send` for an answer with a few records in it."""
    data = bytes(range(200)) * 10
    file = log_file(tmp_path / "log", data)
    joined: list[int] = []
    join = sending._joined

    def noted(out: Any) -> Any:
        part = join(out)
        joined.append(len(part))
        return part

    async with embedded_broker() as broker, dialled(broker) as client:
        with trio.fail_after(SECONDS):
            await fine(client)
            (connection,) = reactor(broker).connections
            monkeypatch.setattr(sending, "_joined", noted)
            connection._queue([b"head", FileSlice(file, 100, 1000), b"between", FileSlice(file, 0, 500), b"tail"])
            connection.wake()
            expected = (
                b"head" + (bytes(range(200)) * 10)[100:1100] + b"between" + (bytes(range(200)) * 10)[:500] + b"tail"
            )
            received = bytearray()
            while len(received) < len(expected):
                received += await client.stream.receive_some(50_000)
            assert received == expected
            assert joined == [len(expected)]
            assert sendfiles == []
