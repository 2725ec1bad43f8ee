"""Produce requests that take longer than others should wait for: they are held, and go on beside everything else.

Batches are looked through, and compressed otherwise where the topic wants that, when they are appended, within an
allowance that is new in each round of the reactor (`barnabas.kproto.allowance`, `Partitions.allowance`). A request that
needs more stops at that batch; its connection is held, so that nothing overtakes it, and a task goes on with the rest:

- what only came too late in its round is done in turns, one request at a time, with a round of the loop between;
- what is too much for any round is prepared in a thread (`barnabas.logdir.prepare`), one batch at a time for the whole
  broker, and appended then. If the topic's settings have changed meanwhile it is prepared once more.

So are requests of more than `BATCHES_PER_TURN` batches: each costs some microseconds at least, and a write.

What waits takes no more memory than it has arrived with; a batch that is being prepared takes up to three times what it
may decompress to (128 MiB). Who goes away meanwhile is forgotten: what was appended stays, the rest is not. Apache
Kafka does all of this in one of its request handler threads.

The thread shares the interpreter with the loop, which gets it back after each switch interval
(`barnabas.server.broker.process` makes that short); the libraries that decompress and compress work without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import trio

from barnabas.kproto.allowance import Allowance, TooMuchWork
from barnabas.kproto.errors import KafkaError
from barnabas.logdir import LogConfig, prepare
from barnabas.server.network.reactor import ARENA_BYTES
from barnabas.server.requests.context import RequestContext
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.requests")

T = TypeVar("T")

BATCHES_PER_TURN: Final = 1000


class Appending(Protocol):
    """The batches of a request that are left, one after the other; they are numbered from 0."""

    ctx: RequestContext
    count: int
    now_ms: Callable[[], int]
    """The wall clock."""

    def append(self, number: int, allowance: Allowance) -> None:
        """Append a batch, or note why it is refused. Raises `TooMuchWork`, and then nothing has happened."""

    def records(self, number: int) -> memoryview | None:
        """The batch, None if it was none that could be appended."""

    def replace(self, number: int, records: memoryview | KafkaError) -> None:
        """What became of the batch when it was prepared."""

    def config(self, number: int) -> LogConfig | None:
        """The settings of the log that the batch is for, None if it cannot be appended at all."""

    def pause(self) -> None:
        """What was appended so far, before this was made as well, is about to be written."""

    def finish(self) -> None:
        """All is appended."""


class HeldProduces:
    """Who may use the thread; one per broker. turn: whose turn it is, of all long requests
    (`barnabas.server.runtime.turns`). allowance: of the round; renewed at its end.
    """

    def __init__(
        self,
        offload: Offload,
        nursery: trio.Nursery,
        turn: trio.Lock,
        allowance: Allowance,
        write_staged: Callable[[], None],
    ) -> None:
        self._offload = offload
        self._nursery = nursery
        self._allowance = allowance
        self._write_staged = write_staged
        self._turn = turn
        self._thread = trio.Lock()

    def hold(self, appending: Appending, is_stuck: bool) -> None:
        """Append later what is left of a request. is_stuck: the first batch is too much for any turn."""
        for number in range(appending.count):
            records = appending.records(number)
            # The arena belongs to the round. A frame that has a buffer of its own stays there.
            if records is not None and len(records.obj) <= ARENA_BYTES:  # type: ignore[arg-type]
                appending.replace(number, memoryview(bytearray(records)))
        appending.pause()
        release = appending.ctx.hold()
        self._nursery.start_soon(self._go_on, appending, is_stuck, release)

    async def elsewhere(self, fn: Callable[..., T], *args: Any) -> T:
        """Call something that belongs to a Produce request in the thread; an `Offload`."""
        async with self._thread:
            return await self._offload(fn, *args)

    def _one_turn(self, appending: Appending, first: int) -> tuple[int, bool]:
        """Append from a batch on. Returns the number of the first one that was not, and whether it is too much for any
        turn.
        """
        end = min(first + BATCHES_PER_TURN, appending.count)
        for number in range(first, end):
            try:
                appending.append(number, self._allowance)
            except TooMuchWork as error:
                return number, not error.is_for_now
        return end, False

    async def _go_on(self, appending: Appending, is_stuck: bool, release: Callable[[], None]) -> None:
        number = 0
        try:
            while number < appending.count:
                if is_stuck:
                    await self._prepare(appending, number)
                    number += 1
                async with self._turn:  # goes round the loop
                    if appending.ctx.closed:
                        return
                    before = number
                    number, is_stuck = self._one_turn(appending, number)
                    is_stuck = is_stuck or number == before  # with all of a turn's allowance
                    if number < appending.count:
                        appending.pause()
                        self._write_staged()
            release()
            appending.finish()
            self._write_staged()
        except Exception as error:
            contain(log, f"going on with {appending.ctx}", error, appending.ctx)

    async def _prepare(self, appending: Appending, number: int) -> None:
        """Prepare and append one batch."""
        allowance = Allowance()
        while True:
            config = appending.config(number)
            records = appending.records(number)
            if config is not None and records is not None:
                async with self._thread:
                    if appending.ctx.closed:
                        return
                    outcome = await self._offload(partial(_outcome, records, config, appending.now_ms()))
                appending.replace(number, outcome)
                allowance = Allowance(prepared_for=config)
            try:
                appending.append(number, allowance)
                # What became of it must be known before anything else is appended.
                appending.pause()
                self._write_staged()
                return
            except TooMuchWork:
                # The settings are others by now.
                await trio.lowlevel.checkpoint()


def _outcome(records: memoryview, config: LogConfig, now_ms: int) -> Any:
    try:
        return prepare(records, config, now_ms)
    except KafkaError as error:
        return error
