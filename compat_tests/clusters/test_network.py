"""The network that can be cut: what is cut is silent, what is not goes on, what is healed is as before."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from compat_tests.clusters.network import Network, unavailable

pytestmark = pytest.mark.campaign

PORT = 4711
LISTEN = f"""
import socket
with socket.create_server(("0.0.0.0", {PORT})) as server:
    print("listening", flush=True)
    while True:
        server.accept()[0].close()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))"
SILENT_S = 0.5
"""Who has not answered by then, does not; who answers may take longer."""


@pytest.fixture
def network() -> Iterator[Network]:
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    network = Network(["a", "b", "c"])
    servers = []
    try:
        for name in ("a", "b", "c"):
            command = [*network.prefix(name), sys.executable, "-c", LISTEN]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            servers.append(server)
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
        yield network
    finally:
        for server in servers:
            server.kill()
            server.wait()
            assert server.stdout is not None
            server.stdout.close()
        network.close()


def test_cut_and_heal(network: Network) -> None:
    def reaches(source: str, target: str, within_s: float = 60) -> bool:
        command = [*network.prefix(source), sys.executable, "-c", CONNECT]
        command += [network.address(target), str(PORT), str(within_s)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    pairs = [("a", "b"), ("b", "a"), ("a", "c"), ("b", "c")]
    assert [reaches(*pair) for pair in pairs] == [True] * 4
    network.cut("a", ["b"])
    assert [reaches(*pair, SILENT_S) for pair in pairs[:2]] == [False] * 2
    assert [reaches(*pair) for pair in pairs[2:]] == [True] * 2
    socket.create_connection((network.address("a"), PORT), timeout=60).close()
    network.heal()
    assert [reaches(*pair) for pair in pairs] == [True] * 4
    network.cut_one_way("b", "c")
    assert not reaches("c", "b", SILENT_S)
    assert reaches("b", "a")
