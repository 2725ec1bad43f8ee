"""The metadata store of the brokers of one machine, as this process: `barnabas store`.

A process of its own, and not part of the supervisor (`supervisor.py`) or of a broker:

- it fails alone, on a full disk say, and is started again alone: meanwhile brokers serve as they do while ZooKeeper is
  away, their sessions continue, and no acknowledged record is touched;
- the supervisor takes no bytes from anybody and writes nothing, so that there is little for it to fail on;
- brokers that something else starts (systemd, containers with a shared volume) can have it without a supervisor.

In its directory: the journal and snapshot of the embedded store (`replication/store/journal.py`), `.lock`, and, unless
told otherwise, `socket`. A directory that is made has mode 0700, and the socket 0600.

It ends on SIGTERM and SIGINT, at once: sessions stay as they are for the next run. When the process that started it is
gone (`with_parent`), it ends as soon as the brokers have closed their sessions, as they stop for the same reason.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import trio

from barnabas.replication import DirectoryFiles, EmbeddedStore, StoreError
from barnabas.replication.store.socket_server import StoreServer
from barnabas.server.network import unix_socket
from barnabas.server.runtime.wording import causes, crash, in_words

log = logging.getLogger("barnabas.store")

SOCKET: Final = "socket"
READY: Final = "ready"
LEAVE_S: Final = 15.0
"""How long brokers may take to close their sessions, once the process that started everything is gone."""


class DirectoryTaken(Exception):
    """Another process has the directory."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """directory: of the journal; socket: None for the one in it. ends_sessions: nobody who had a session in the last
    run is alive. with_parent: standard input ends with the process that started this one.
    """

    directory: str
    socket: str | None = None
    ends_sessions: bool = False
    with_parent: bool = False

    @property
    def socket_path(self) -> str:
        return self.socket or os.path.join(self.directory, SOCKET)


def run(options: StoreOptions, ready: Callable[[], None]) -> int:
    """Serve until a signal; the exit code. If it ends by itself, the last line of its log, at FATAL, says why."""
    try:
        trio.run(_run, options, ready)
    except Exception as error:
        said = []
        for cause in causes(error):
            if isinstance(cause, StoreError | DirectoryTaken | OSError):
                said.append(in_words(cause))
            else:
                log.error("stopping: internal error", exc_info=cause)
                said.append(f"crashed: {crash(cause)}")
        log.critical("%s", "; ".join(said))
        return 1
    return 0


async def _run(options: StoreOptions, ready: Callable[[], None]) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        lock = _take(options.directory)
        try:
            store = EmbeddedStore.open(
                DirectoryFiles(options.directory), run_io=trio.to_thread.run_sync, keeps_sessions=True
            )
            server = StoreServer(store, new_id=lambda: secrets.randbits(63) or 1, now=trio.current_time)
            if options.ends_sessions:
                server.end_all()
            try:
                listener = unix_socket.listen(options.socket_path)
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.run, listener)
                    gc.collect()
                    gc.freeze()
                    log.info("serving brokers at %s: %d nodes", options.socket_path, len(store.tree))
                    ready()
                    if options.with_parent:
                        nursery.start_soon(_leave_with_parent, server, nursery.cancel_scope)
                    async for number in signals:
                        log.info("stopping on %s", signal.Signals(number).name)
                        break
                    nursery.cancel_scope.cancel()
            finally:
                with trio.CancelScope(shield=True):
                    await store.aclose()
        finally:
            os.close(lock)


def _take(directory: str) -> int:
    """Make the directory if it is absent, and lock it for as long as the descriptor is open. Raises DirectoryTaken,
    OSError.
    """
    os.makedirs(directory, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(directory, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DirectoryTaken(f"{directory} is used by another metadata store") from None
    return lock


async def _leave_with_parent(server: StoreServer, everything: trio.CancelScope) -> None:
    async with trio.lowlevel.FdStream(os.dup(0)) as standard_input:
        while await standard_input.receive_some():
            pass
    log.warning("stopping: the process that started the store is gone; %d sessions are left", server.sessions)
    with trio.move_on_after(LEAVE_S):
        await server.until_sessionless()
    everything.cancel()
