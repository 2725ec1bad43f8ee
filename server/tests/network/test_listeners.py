"""Listening sockets: which addresses a listener has, and what the log says of those that others can reach."""

from __future__ import annotations

import errno
import logging
import socket

import pytest

from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network import listeners
from barnabas.server.network.listeners import CannotListen, bind, bind_all
from barnabas.server.settings.endpoints import ListenAddress
from barnabas.server.testing import embedded_broker

LOCALHOST = ListenAddress("PLAINTEXT", "PLAINTEXT", "localhost", 0)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def bound(address: ListenAddress) -> list[tuple[str, int]]:
    socks = bind(address, 5, -1)
    places = [sock.getsockname()[:2] for sock in socks]
    for sock in socks:
        sock.close()
    return places


def test_localhost_is_both_loopback_addresses_on_one_port() -> None:
    places = bound(LOCALHOST)
    assert [host for host, _ in places] == ["127.0.0.1", "::1"][: 1 + has_ipv6()]
    assert len({port for _, port in places}) == 1


@pytest.mark.parametrize("missing", ["127.0.0.1", "::1"])
def test_localhost_without_one_of_its_addresses(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def without(address: tuple[str, int], **options: object) -> socket.socket:
        if address[0] == missing:
            raise OSError(errno.EADDRNOTAVAIL, "no such address")
        return create(("127.0.0.1", address[1]), backlog=5)

    monkeypatch.setattr(listeners.socket, "create_server", without)
    assert len(bound(LOCALHOST)) == 1


def test_a_port_that_is_taken_on_one_loopback_address(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server
    refusals = 3

    def taken(address: tuple[str, int], **options: object) -> socket.socket:
        nonlocal refusals
        if address[0] == "::1":
            if refusals:
                refusals -= 1
                raise OSError(errno.EADDRINUSE, "address already in use")
            address = ("127.0.0.1", 0)
        return create(address, backlog=5)

    monkeypatch.setattr(listeners.socket, "create_server", taken)
    assert len(bound(LOCALHOST)) == 2
    refusals = 1
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(CannotListen, match="another program listens there"):
        bind(ListenAddress("PLAINTEXT", "PLAINTEXT", "localhost", port), 5, -1)
    refusals = 10**6
    with pytest.raises(CannotListen, match="another program listens there"):
        bind(LOCALHOST, 5, -1)


async def test_a_broker_on_localhost_is_found_by_that_name() -> None:
    async with embedded_broker(listeners="PLAINTEXT://localhost:0") as broker:
        assert broker.bootstrap.startswith("localhost:")
        assert broker.endpoints[0].port > 0


@pytest.mark.parametrize(
    ("text", "warned"),
    [
        ("PLAINTEXT://127.0.0.1:0,LOCAL://localhost:0,OTHER://127.0.0.2:0", ""),
        ("PLAINTEXT://:0", "PLAINTEXT://:0"),
        ("PLAINTEXT://0.0.0.0:0,LOCAL://127.0.0.1:0,OTHER://0.0.0.0:0", "PLAINTEXT://0.0.0.0:0, OTHER://0.0.0.0:0"),
    ],
)
def test_listeners_that_others_can_reach_are_named_once(
    text: str, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    protocols = "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,OTHER:PLAINTEXT"
    config = BrokerConfig.from_values({"listeners": text, "listener.security.protocol.map": protocols})
    with caplog.at_level(logging.WARNING, "barnabas"):
        for sock, _ in bind_all(config):
            sock.close()
    said = f"open to other machines without access control: {warned}; any client may read, change and delete all"
    assert caplog.messages == ([said] if warned else [])
