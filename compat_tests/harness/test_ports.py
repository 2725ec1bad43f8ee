"""Ports that nobody else gets: no other call, no other process, no connection that goes out."""

from __future__ import annotations

import socket
import subprocess
import sys

from compat_tests.harness import ports
from compat_tests.harness.jars import PROJECT_ROOT
from compat_tests.harness.ports import free_ports


def test_no_port_is_returned_twice() -> None:
    found = free_ports(200)
    assert not set(found) & set(free_ports(200))
    assert len(set(found)) == 200


def test_no_connection_that_goes_out_can_have_one() -> None:
    assert set(ports._candidates((32_768, 60_999))) == {*range(10_000, 32_768), *range(61_000, 65_536)}
    assert min(ports._candidates((1024, 40_000))) == 40_001


def test_a_system_that_keeps_none_back() -> None:
    assert len(set(ports._candidates((1024, 65_535)))) > 50_000


def test_another_process_chooses_others() -> None:
    """It is offered those that are claimed here, and no others."""
    mine = free_ports(3)
    code = f"""
from compat_tests.harness import ports
ports._candidates = lambda _: iter({mine!r})
try:
    ports.free_ports(1)
except AssertionError:
    print("none")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "none\n"


def test_a_port_with_a_listener_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert ports._claimed(port)
        assert not ports._is_free(port)
