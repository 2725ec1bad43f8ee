"""The console as this process: a client, a listener, HTTP by Hypercorn on trio, until a signal or a stop."""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio
from hypercorn.config import Config

from barnabas.server.client.approach import Approach
from barnabas.server.client.client import open_client
from barnabas.server.console.app import Console, Options
from barnabas.server.console.avro.book import Book, has_package
from barnabas.server.console.avro.process import ProcessDecoder
from barnabas.server.console.avro.registry import Registry
from barnabas.server.console.desk import Desk
from barnabas.server.console.doors import ClusterDoor, Door, PasswordDoor
from barnabas.server.console.front import Bounds, Front
from barnabas.server.console.web.admission import Admission
from barnabas.server.console.web.visitors import Visitors
from barnabas.server.network.listeners import bind, is_loopback
from barnabas.server.runtime.containment import serve as contained
from barnabas.server.settings.endpoints import ListenAddress

log = logging.getLogger("barnabas.console")

BACKLOG: Final = 128
KEEP_ALIVE_S: Final = 60.0
"""How long a connection may have no request, or an unfinished head of one."""
GRACE_S: Final = 2.0
"""How long answers under way may take at the end."""
HEAD_BYTES_MAX: Final = 64 * 1024
"""Of a request's line and headers: positions of thousands of partitions stand in a link."""


class Open(Exception):
    """The listener is open to other machines, and anybody there could do everything."""


@dataclass(frozen=True, slots=True)
class Setup:
    """bootstrap, approach: of the brokers. listen: where. password: of the console; login: the mechanism by which
    visitors log in as users of the cluster; neither: everybody is in. timeout_s: of a request to the brokers.
    avro_schemas: a directory of them. registry: of schemas.
    """

    bootstrap: Sequence[str]
    approach: Approach
    listen: ListenAddress
    options: Options
    password: str | None = None
    login: str | None = None
    timeout_s: float = 10.0
    avro_schemas: Path | None = None
    registry: Registry | None = None


async def run(setup: Setup, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. ready(url): called when it does. Raises CannotListen, Open."""
    listening = bind(setup.listen, BACKLOG, -1)
    try:
        door = _door(setup)
        if door is None and not all(map(is_loopback, listening)):
            raise Open(
                f"{setup.listen} is open to other machines: have visitors log in (--password-file, --login), "
                "or let it listen on 127.0.0.1"
            )
        port = int(listening[0].getsockname()[1])
        async with (
            open_client(
                setup.bootstrap, approach=setup.approach, client_id="barnabas-console", timeout_s=setup.timeout_s
            ) as client,
            trio.open_nursery() as nursery,
        ):
            name = f"barnabas-console-{port}"
            visitors = Visitors(os.urandom, time.monotonic, name, must_log_in=door is not None)
            desk = Desk(client)
            decoder = ProcessDecoder() if has_package() else None
            book = Book(decoder, setup.avro_schemas, setup.registry)
            console = Console(desk, visitors, setup.options, _now_ms, door, book)
            if setup.login is None or setup.approach.credentials is not None:  # else it is nobody at the brokers
                following = partial(console.history.run, desk, _now_ms)
                nursery.start_soon(contained, log, "following the lag of groups", following)
            if door is not None:
                nursery.start_soon(contained, log, "ending log-ins", console.end_log_ins)
            ended = trio.Event()
            nursery.start_soon(_closing, book)
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                front = Front(Admission(console), _config(), Bounds(), setup.options.proxies.are_trusted)
                await nursery.start(_until, front, listening, ended, nursery.cancel_scope)
                log.info("the console is at %s", url_of(setup.listen, port))
                ready(url_of(setup.listen, port))
                async for number in signals:
                    log.info("stopping on %s", signal.Signals(number).name)
                    if ended.is_set():
                        nursery.cancel_scope.cancel()
                    ended.set()
    finally:
        for sock in listening:
            with suppress(OSError):
                sock.close()


async def _closing(book: Book) -> None:
    """Ends what decodes when this is cancelled."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await book.aclose()


async def _until(
    front: Front,
    listening: Sequence[socket.socket],
    ended: trio.Event,
    scope: trio.CancelScope,
    task_status: trio.TaskStatus[None],
) -> None:
    """Serve, and cancel the scope when that ends."""
    await front.serve(listening, ended, GRACE_S, task_status)
    scope.cancel()


def _config() -> Config:
    config = Config()
    config.errorlog = quiet = logging.getLogger("barnabas.console.http")
    quiet.setLevel(logging.WARNING)
    config.accesslog = None
    config.include_server_header = False
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.h11_max_incomplete_size = HEAD_BYTES_MAX
    return config


def _door(setup: Setup) -> Door | None:
    if setup.login is not None:
        return ClusterDoor(setup.bootstrap, setup.login, setup.approach.tls, timeout_s=setup.timeout_s)
    return None if setup.password is None else PasswordDoor(setup.password, os.urandom)


def _now_ms() -> int:
    return int(time.time() * 1000)


def url_of(address: ListenAddress, port: int) -> str:
    """A URL that leads there from this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "localhost"}.get(address.host, address.host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
