"""Limits of connections, as bare sockets meet them: who waits, who is closed, and who is spared."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from compat_tests.harness.brokers import Broker, start_barnabas, start_kafka, wait_until_open
from compat_tests.harness.jars import NO_JVM
from compat_tests.harness.ports import free_ports

pytestmark = [pytest.mark.campaign]
API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
ANSWER_S = 60.0
WAITS_S = 1.0
LISTENERS = ("CLIENTS", "OTHERS", "BROKERS")
OF_CLIENTS, OF_ALL = 3, 6


class Limited:
    """Ports by listener."""

    def __init__(self, broker: Broker, ports: dict[str, int]) -> None:
        self.broker = broker
        self._ports = ports

    def connect(self, listener: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._ports[listener]), ANSWER_S)


@pytest.fixture(scope="module")
def limited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    if request.config.getoption("--bootstrap"):
        pytest.skip("a broker whose limits are not ours to choose")
    directory = tmp_path_factory.mktemp("connections")
    *ports, controller = free_ports(len(LISTENERS) + 1)
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(LISTENERS, ports, strict=True))
    settings = [
        f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{','.join(f'{name}:PLAINTEXT' for name in LISTENERS)}",
        "inter.broker.listener.name=BROKERS",
        f"max.connections={OF_ALL}",
        f"listener.name.clients.max.connections={OF_CLIENTS}",
    ]
    if request.config.getoption("--peer") == "kafka":
        os.environ.pop(NO_JVM, None)  # whoever chooses this broker has a JVM, also for tests that start none
        settings += [
            f"listeners={listeners},CONTROLLER://127.0.0.1:{controller}",
            f"advertised.listeners={listeners}",
            f"controller.quorum.voters=1@127.0.0.1:{controller}",
        ]
        broker = start_kafka(directory, settings, wait=False)
        broker.bootstrap = f"127.0.0.1:{ports[0]}"
        wait_until_open(broker)
    else:
        broker = start_barnabas(directory, [f"listeners={listeners}", f"log.dirs={directory / 'data'}", *settings])
    yield Limited(broker, dict(zip(LISTENERS, ports, strict=True)))
    broker.stop()


def ask(sock: socket.socket) -> None:
    sock.sendall(API_VERSIONS)


def is_answered(sock: socket.socket, seconds: float = ANSWER_S) -> bool:
    """Within so long; False also where it is closed."""
    sock.settimeout(seconds)
    try:
        return bool(sock.recv(65536))
    except OSError:
        return False


def is_closed(sock: socket.socket, seconds: float = ANSWER_S) -> bool:
    sock.settimeout(seconds)
    try:
        return not sock.recv(65536)
    except TimeoutError:
        return False
    except OSError:
        return True


def opened(held: ExitStack, limited: Limited, listener: str) -> socket.socket:
    """One that is served."""
    sock = held.enter_context(limited.connect(listener))
    ask(sock)
    assert is_answered(sock)
    return sock


@pytest.mark.case("quotas", "max.connections of a listener: the next waits until another has left", "sockets")
def test_a_listener_that_is_full(limited: Limited) -> None:
    with ExitStack() as held:
        first, *_ = [opened(held, limited, "CLIENTS") for _ in range(OF_CLIENTS)]
        late = held.enter_context(limited.connect("CLIENTS"))
        ask(late)
        assert not is_answered(late, WAITS_S)
        opened(held, limited, "OTHERS")
        first.close()
        assert is_answered(late)


@pytest.mark.case("quotas", "max.connections: brokers get in, the connection idle for longest is closed", "sockets")
def test_a_broker_that_is_full(limited: Limited) -> None:
    with ExitStack() as held:
        others = [opened(held, limited, "OTHERS") for _ in range(OF_ALL)]
        late = held.enter_context(limited.connect("OTHERS"))
        ask(late)
        assert not is_answered(late, WAITS_S)
        silent = others.pop(2)
        for sock in others:
            time.sleep(0.05)  # Apache Kafka's network threads have their own order each
            ask(sock)
            assert is_answered(sock)
        between = opened(held, limited, "BROKERS")
        until = time.monotonic() + ANSWER_S
        gone = [sock for sock in (silent, *others) if is_closed(sock, 0.2)]
        while not gone and time.monotonic() < until:
            gone = [sock for sock in (silent, *others) if is_closed(sock, 0.2)]
        assert len(gone) == 1
        if limited.broker.name == "Barnabas":  # of Apache Kafka's network threads, each has its own
            assert gone == [silent]
        ask(between)
        assert is_answered(between)
        assert not is_answered(late, WAITS_S)
