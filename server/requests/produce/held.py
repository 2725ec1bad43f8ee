"""Produce requests that take too long for a round: they are held, and continue in a task.

Batches are validated, and recompressed where the topic has another codec, when they are appended, within an allowance
that is renewed in each round of the reactor (`barnabas.kproto.allowance`, `Partitions.allowance`). A request that needs
more stops at that batch; its connection is held, so that nothing overtakes it, and a task continues with the rest:

- batches that only came too late in their round are appended in turns, one request at a time, with a round of the loop
  between;
- a batch that is too much for any round is prepared in a thread (`barnabas.logdir.prepare`), one batch at a time for
  the whole broker, and appended then. If the topic's settings have changed meanwhile it is prepared once more.

So are requests of more than `BATCHES_PER_TURN` batches: each costs some microseconds at least, and a write.

A waiting request takes no more memory than its frame; a batch that is being prepared takes up to three times what it
may decompress to (128 MiB). If the client disconnects meanwhile, what was appended stays, and the rest is dropped.
Apache Kafka does all of this in one of its request handler threads.

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
from barnabas.server.network.arenas import ARENA_BYTES
from barnabas.server.requests.context import RequestContext
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.requests")

T = TypeVar("T")

BATCHES_PER_TURN: Final = 1000


class Appending(Protocol):
    """The remaining batches of a request, numbered from 0."""

    ctx: RequestContext
    count: int
    now_ms: Callable[[], int]
    """The wall clock."""

    def append(self, number: int, allowance: Allowance) -> None:
        """Append a batch, or note why it is refused. Raises `TooMuchWork`, without any change."""

    def records(self, number: int) -> memoryview | None:
        """The batch, None if it cannot be appended."""

    def replace(self, number: int, records: memoryview | KafkaError) -> None:
        """Replace the batch by what preparing it gave."""

    def config(self, number: int) -> LogConfig | None:
        """The settings of the batch's log, None if the batch cannot be appended."""

    def pause(self) -> None:
        """What was appended so far is about to be written."""

    def finish(self) -> None:
        """All batches are appended."""


class HeldProduces:
    """The held requests; one per broker. turn: the lock of all long requests (`barnabas.server.runtime.turns`).
    allowance: of the round; renewed at its end.
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
        """Append the rest of a request later. is_stuck: the first batch is too much for any turn."""
        for number in range(appending.count):
            records = appending.records(number)
            # The arena belongs to the round. A frame that has a buffer of its own stays there.
            if records is not None and len(records.obj) <= ARENA_BYTES:  # type: ignore[arg-type]
                appending.replace(number, memoryview(bytearray(records)))
        appending.pause()
        release = appending.ctx.hold()
        self._nursery.start_soon(self._continue, appending, is_stuck, release)

    async def elsewhere(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a function of a Produce request in the thread; an `Offload`."""
        async with self._thread:
            return await self._offload(fn, *args)

    def _one_turn(self, appending: Appending, first: int) -> tuple[int, bool]:
        """Append from a batch on. Returns the number of the first one not appended, and whether it is too much for any
        turn.
        """
        end = min(first + BATCHES_PER_TURN, appending.count)
        for number in range(first, end):
            try:
                appending.append(number, self._allowance)
            except TooMuchWork as error:
                return number, not error.is_for_now
        return end, False

    async def _continue(self, appending: Appending, is_stuck: bool, release: Callable[[], None]) -> None:
        number = 0
        try:
            while number < appending.count:
                if is_stuck:
                    await self._prepare(appending, number)
                    number += 1
                async with self._turn:  # a round of the loop
                    if appending.ctx.closed:
                        return
                    before = number
                    number, is_stuck = self._one_turn(appending, number)
                    is_stuck = is_stuck or number == before  # even with a whole turn's allowance
                    if number < appending.count:
                        appending.pause()
                        self._write_staged()
            release()
            appending.finish()
            self._write_staged()
        except Exception as error:
            contain(log, f"continuing with {appending.ctx}", error, appending.ctx)

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
                # Its outcome must be known before anything else is appended.
                appending.pause()
                self._write_staged()
                return
            except TooMuchWork:
                # The settings have changed.
                await trio.lowlevel.checkpoint()


def _outcome(records: memoryview, config: LogConfig, now_ms: int) -> Any:
    try:
        return prepare(records, config, now_ms)
    except KafkaError as error:
        return error
