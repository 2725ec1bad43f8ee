"""Memory stays bounded: many connections, promises that are not kept, clients that never read; and a start is quick
and small.
"""

from __future__ import annotations

import resource
import socket
import statistics
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from compat_tests.harness.broker_process import Server
from compat_tests.subjects.wire.raw import Wire, text

pytestmark = pytest.mark.campaign

MIB = 1024 * 1024
CONNECTIONS = 2000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    server = Server(tmp_path)
    server.start()
    yield server
    server.stop()


def open_all(stack: ExitStack, server: Server, count: int) -> list[Wire]:
    return [stack.enter_context(Wire(("127.0.0.1", server.port))) for _ in range(count)]


def answers(server: Server) -> bool:
    with Wire(("127.0.0.1", server.port)) as wire:
        return wire.works()


def test_two_thousand_connections_are_small(server: Server) -> None:
    assert answers(server)
    before = server.resident_bytes()
    with ExitStack() as stack:
        wires = open_all(stack, server, CONNECTIONS)
        for wire in wires:
            wire.request(18, 0, b"")
        for wire in wires:
            wire.answer()
        grown = server.resident_bytes() - before
        assert all(wire.works() for wire in wires[::100])
    assert grown < CONNECTIONS * 20 * 1024, f"{grown / CONNECTIONS:.0f} bytes each"


def test_promised_frames_cost_nothing_until_they_come(server: Server) -> None:
    assert answers(server)
    before = server.resident_bytes()
    with ExitStack() as stack:
        wires = open_all(stack, server, CONNECTIONS)
        for wire in wires:
            wire.raw(struct.pack(">ih", 90 * MIB, 0) + b"x" * 1000)
        assert answers(server)
        grown = server.resident_bytes() - before
    assert grown < 60 * MIB, f"{grown / MIB:.0f} MiB"


def test_a_client_that_never_reads_is_held_back(server: Server) -> None:
    assert answers(server)
    before = server.resident_bytes()
    request = struct.pack(">hhi", 18, 0, 7) + text("greedy")
    frame = struct.pack(">i", len(request)) + request
    with ExitStack() as stack:
        for wire in open_all(stack, server, 20):
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.socket.setblocking(False)
            sent = 0
            try:
                while sent < 64 * MIB:
                    sent += wire.socket.send(frame * 4000)
            except BlockingIOError:
                pass
            assert sent < 64 * MIB, "the broker reads on although nobody takes its answers"
        assert answers(server)
        grown = server.resident_bytes() - before
    assert grown < 60 * MIB, f"{grown / MIB:.0f} MiB"


def test_start_is_quick_and_small(server: Server) -> None:
    """The figures are printed and belong to the benchmark; the bounds here only catch a start that has gone wrong by
    far.
    """
    assert server.stop() == 0
    seconds = []
    for _ in range(5):
        seconds.append(server.start())
        assert answers(server)
        resident = server.resident_bytes()
        assert server.stop() == 0
    print(f"\nstart to accepting: median {statistics.median(seconds):.3f} s; resident {resident / MIB:.0f} MiB")
    assert resident < 80 * MIB
