"""The processes of a cluster on one machine: starts them, starts again what has ended by itself, stops them in order.

Start: the store and all brokers at once, as brokers wait for the store. When all are ready the cluster is announced.
If one ends before that, everything is stopped: what keeps it from starting, a port in use say, is to be read at once.

Later, what has ended is started again after a pause (`restarts.py`). What does not last is given up in the end; a
cluster without its store or without any broker ends.

Stop, on SIGTERM or SIGINT: one broker after the other hands its partitions over and stops, the controller last, so that
there are no elections of controllers on the way. The last one has nobody to hand over to, and is not asked to. Then the
store. A second signal: all at once, and nothing is handed over. Whatever does not stop is killed.

Everything ends with this process, also when it is killed (`children.py`).
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio

from barnabas.replication import StoreError, read_controller
from barnabas.replication.store.socket_store import socket_store
from barnabas.server.machine.children import Child, in_words
from barnabas.server.machine.restarts import Restarts
from barnabas.server.network import unix_socket

log = logging.getLogger("barnabas.cluster")

START_S: Final = 120.0
"""How long a start may take until all are ready."""
STOP_S: Final = 90.0
"""How long one broker may take to stop: a controlled shutdown has 60 s (`server/cluster/client.py`), and then it
flushes."""
ASK_S: Final = 2.0
"""How long the store may take to say who is controller."""
AGAIN_S: Final = 0.2
"""Between two signals that are to be two."""


class ClusterFailed(Exception):
    """The cluster did not start, or could not go on. code: of the exit."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Supervisor:
    """store, brokers: not started, brokers by their ids. socket: where the store listens. announce: called when all are
    ready, and may wait.
    """

    def __init__(
        self, store: Child, brokers: Mapping[int, Child], socket: str, announce: Callable[[], Awaitable[None]]
    ) -> None:
        self._store = store
        self._brokers = dict(brokers)
        self._socket = socket
        self._announce = announce
        self._stop_wanted = trio.Event()
        self._hurry = trio.Event()
        self._is_stopping = False
        self._has_started = False
        self._given_up: set[str] = set()
        self._ended: dict[str, trio.Event] = {}
        self._pauses: dict[str, trio.CancelScope] = {}
        self._failure: ClusterFailed | None = None

    async def run(self) -> None:
        """Until a signal, and the stop after it. Raises ClusterFailed."""
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, signals)
                for child in (self._store, *self._brokers.values()):
                    self._ended[child.name] = trio.Event()
                    nursery.start_soon(self._keep, child)
                nursery.start_soon(self._begin)
                await self._stop_wanted.wait()
                await self._stop()
                nursery.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _begin(self) -> None:
        with trio.move_on_after(START_S) as late:
            for child in (self._store, *self._brokers.values()):
                await child.ready()
        if late.cancelled_caught:
            slow = ", ".join(c.name for c in (self._store, *self._brokers.values()) if not c.is_ready)
            self._fail(ClusterFailed(f"not ready within {START_S:g} s: {slow}"))
            return
        self._has_started = True
        try:
            await self._announce()
        except BrokenPipeError:
            log.info("stopping: standard output was closed")
            self._stop_wanted.set()
        except ClusterFailed as failed:
            self._fail(failed)

    async def _obey(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            if not self._stop_wanted.is_set():
                log.info("stopping on %s", signal.Signals(number).name)
                self._stop_wanted.set()
            else:
                log.info("stopping at once on %s", signal.Signals(number).name)
                self._hurry.set()

    def _fail(self, failure: ClusterFailed) -> None:
        if self._failure is None and not self._is_stopping:
            self._failure = failure
            self._hurry.set()
            self._stop_wanted.set()

    # -- lives -------------------------------------------------------------------------------------------------------

    async def _keep(self, child: Child) -> None:
        """One process through its lives."""
        restarts = Restarts()
        while not self._is_stopping:
            begun = trio.current_time()
            try:
                code = await child.live()
            except OSError as error:
                self._fail(ClusterFailed(f"{child.name} cannot be started: {error.strerror or error}"))
                break
            if self._is_stopping:
                break
            if not self._has_started:
                self._fail(ClusterFailed(f"{child.name} did not start ({in_words(code)})", code if code > 0 else 1))
                break
            pause_s = restarts.ended(trio.current_time() - begun, was_ready=child.was_ready)
            if pause_s is None:
                log.error("%s has ended (%s) again and again: it is not started any more", child.name, in_words(code))
                self._give_up(child)
                break
            log.warning("%s has ended (%s): started again in %g s", child.name, in_words(code), pause_s)
            with trio.CancelScope() as self._pauses[child.name]:
                await trio.sleep(pause_s)
        self._ended[child.name].set()

    def _give_up(self, child: Child) -> None:
        self._given_up.add(child.name)
        if child is self._store:
            self._fail(ClusterFailed("there is no metadata store any more"))
        elif self._given_up.issuperset(broker.name for broker in self._brokers.values()):
            self._fail(ClusterFailed("there is no broker any more"))

    # -- the end -----------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        self._is_stopping = True
        for pause in self._pauses.values():
            pause.cancel()
        order = await self._order()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hurry_up)
            for child in order[:-1]:
                await self._end(child, signal.SIGTERM)
            for child in order[-1:]:
                nursery.start_soon(self._twice, child)
                await self._end(child, None)
            nursery.cancel_scope.cancel()
        await self._end(self._store, signal.SIGTERM)

    async def _order(self) -> list[Child]:
        """The brokers that run, in the order of their stop."""
        running = [child for child in self._brokers.values() if child.is_running]
        if len(running) > 1 and not self._hurry.is_set():
            controller = self._brokers.get(await self._controller() or -1)
            if controller in running:
                assert controller is not None
                running.remove(controller)
                running.append(controller)
        return running

    async def _controller(self) -> int | None:
        """Its id, if the store says one in time."""
        found = None
        with trio.move_on_after(ASK_S):
            try:
                connect = partial(unix_socket.connect, self._socket)
                async with socket_store(connect, timeout_ms=int(ASK_S * 1000), name="the supervisor") as store:
                    found = await read_controller(store)
            except (StoreError, OSError) as error:
                log.warning("who is controller is not known: %s", error)
        return found

    async def _end(self, child: Child, number: signal.Signals | None) -> None:
        """Have a process end; return when it has."""
        if number is not None:
            child.signal(number)
        with trio.move_on_after(STOP_S):
            await self._ended[child.name].wait()
            return
        log.error("%s has not stopped within %g s, and is killed", child.name, STOP_S)
        child.signal(signal.SIGKILL)
        await self._ended[child.name].wait()

    async def _hurry_up(self) -> None:
        await self._hurry.wait()
        for child in self._brokers.values():
            child.signal(signal.SIGTERM)
        await trio.sleep(AGAIN_S)
        for child in self._brokers.values():
            child.signal(signal.SIGTERM)

    async def _twice(self, child: Child) -> None:
        """Two signals: stop, and hand nothing over."""
        child.signal(signal.SIGTERM)
        await trio.sleep(AGAIN_S)
        child.signal(signal.SIGTERM)
