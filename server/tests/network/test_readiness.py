"""What stands in for epoll, compared with epoll; and that the reactor then does without what only Linux has."""

from __future__ import annotations

import random
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.server.network import reactor
from barnabas.server.network.readiness import FAILED, HALF_CLOSED, HUNG_UP, READABLE, WRITABLE, PolledSockets
from barnabas.server.testing import Client, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request, topic

SECONDS = 120


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def pair(stack: ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for one in (ours, theirs):
        one.setblocking(False)
        stack.enter_context(one)
    return ours, theirs


@pytest.fixture
def polled(stack: ExitStack) -> PolledSockets:
    polled = PolledSockets()
    stack.callback(polled.close)
    return polled


def test_the_numbers_are_those_of_epoll_and_poll() -> None:
    assert (select.EPOLLIN, select.EPOLLOUT, select.EPOLLERR, select.EPOLLHUP) == (READABLE, WRITABLE, FAILED, HUNG_UP)
    assert (select.POLLIN, select.POLLOUT, select.POLLERR, select.POLLHUP) == (READABLE, WRITABLE, FAILED, HUNG_UP)
    assert select.EPOLLRDHUP == HALF_CLOSED


@pytest.mark.parametrize("seed", range(20))
def test_the_events_are_those_of_epoll(stack: ExitStack, polled: PolledSockets, seed: int) -> None:
    """All but the half-close, which shows as something to be read."""
    rng = random.Random(seed)
    epoll = stack.enter_context(select.epoll())
    links: dict[int, tuple[socket.socket, socket.socket]] = {}
    for _ in range(200):
        fd = rng.choice([*links, -1])
        step = rng.randrange(6)
        mask = rng.choice([0, READABLE, WRITABLE, READABLE | HALF_CLOSED, READABLE | WRITABLE])
        if step == 0 or fd == -1:
            ours, theirs = pair(stack)
            links[ours.fileno()] = ours, theirs
            epoll.register(ours.fileno(), mask)
            polled.register(ours.fileno(), mask)
        elif step == 1:
            epoll.modify(fd, mask)
            polled.modify(fd, mask)
        elif step == 2:
            epoll.unregister(fd)
            polled.unregister(fd)
            links.pop(fd)[0].close()
        else:
            ours, theirs = links[fd]
            actions: tuple[Callable[[], Any], ...] = (
                partial(theirs.send, b"x"),
                partial(ours.recv, 9),
                partial(theirs.shutdown, socket.SHUT_WR),
                theirs.close,
            )
            try:
                rng.choice(actions)()
            except OSError:
                pass
        told = {fd: mask & ~HALF_CLOSED for fd, mask in epoll.poll(0, 256) if mask & ~HALF_CLOSED}
        assert dict(polled.poll(0, 256)) == told, f"seed {seed}"


def test_errors_are_reported_as_by_epoll(stack: ExitStack, polled: PolledSockets) -> None:
    epoll = stack.enter_context(select.epoll())
    ours, _ = pair(stack)
    steps: list[Callable[[Any], Any]] = [
        lambda sockets: sockets.modify(ours.fileno(), READABLE),
        lambda sockets: sockets.unregister(ours.fileno()),
        lambda sockets: sockets.register(ours.fileno(), READABLE),
        lambda sockets: sockets.register(ours.fileno(), READABLE),
        lambda sockets: sockets.unregister(ours.fileno()),
        lambda sockets: sockets.unregister(ours.fileno()),
    ]

    def outcome(step: Callable[[Any], Any], sockets: Any) -> object:
        try:
            return step(sockets)
        except OSError as error:
            return type(error), error.errno

    assert [outcome(step, polled) for step in steps] == [outcome(step, epoll) for step in steps]


def test_no_more_than_are_wanted(stack: ExitStack, polled: PolledSockets) -> None:
    for _ in range(5):
        ours, _ = pair(stack)
        polled.register(ours.fileno(), WRITABLE)
    assert len(polled.poll(0, 256)) == 5
    assert len(polled.poll(0, 3)) == 3


async def _settled() -> None:
    """Let other tasks come to where they wait."""
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize("how", ["ready", "registered", "modified", "unregistered"])
async def test_a_wait_ends_with_what_is_ready_and_with_a_change(
    stack: ExitStack, polled: PolledSockets, how: str
) -> None:
    (ours, theirs), (other, _) = pair(stack), pair(stack)
    polled.register(ours.fileno(), READABLE)
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(polled.wait)
            await _settled()
            match how:
                case "ready":
                    theirs.send(b"x")
                case "registered":
                    polled.register(other.fileno(), WRITABLE)
                case "modified":
                    polled.modify(ours.fileno(), WRITABLE)
                case "unregistered":
                    polled.unregister(ours.fileno())
    ready = {"ready": [(ours.fileno(), READABLE)], "unregistered": []}
    changed = [((other if how == "registered" else ours).fileno(), WRITABLE)]
    assert polled.poll(0, 256) == ready.get(how, changed)


async def test_a_wait_can_be_cancelled_and_begun_again(stack: ExitStack, polled: PolledSockets) -> None:
    ours, theirs = pair(stack)
    polled.register(ours.fileno(), READABLE)
    with trio.fail_after(SECONDS):
        for _ in range(50):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(polled.wait)
                nursery.cancel_scope.cancel()
            assert polled.poll(0, 256) == []  # nobody else polls
        theirs.send(b"x")
        await polled.wait()
    assert polled.poll(0, 256) == [(ours.fileno(), READABLE)]


async def test_a_broker_without_anything_of_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS: the names that only Linux has are not there."""
    monkeypatch.setattr(reactor, "PORTABLE", True)
    monkeypatch.setattr(reactor, "select", SimpleNamespace())
    of_linux = ("TCP_CORK", "MSG_MORE")
    portable = {name: value for name, value in vars(socket).items() if name not in of_linux}
    monkeypatch.setattr(reactor, "socket", SimpleNamespace(**portable))
    value = random.Random(1).randbytes(900_000)
    async with embedded_broker() as broker:
        await topic(broker)
        host, _, port = broker.bootstrap.rpartition(":")
        with trio.fail_after(SECONDS):
            async with await trio.open_tcp_stream(host, int(port)) as stream:
                client = Client(stream)
                for _ in range(3):
                    assert only(await client.ask(request(batch(value)), 9)).error_code == 0
                answer = await client.ask(fetch(("t", 0, 0), partition_max_bytes=1 << 26), 12)
                assert values(flat(answer)[0]) == [value] * 3
