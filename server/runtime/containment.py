"""Containment of errors: where control passes from one owner to another, an exception of the one ends.

The loop's thread serves all clients: a round's end answers many clients, a timer serves many groups, a task's exception
would end the nursery and the broker with it. So each place that calls another owner's code on behalf of a third does it
as

    try:
        callback()
    except Exception as error:
        contain(log, "what it was", error, callback)

which logs once, releases the waiters, and continues with the rest. The places are listed in ARCHITECTURE.md
("Containment"). It costs nothing without a failure: a `try` is free, and waiters are only searched for then.

Waiters are released by whatever has a method `release_waiters` (`HasWaiters`), and is the callback, the object that it
is a method of, or what it was made with (`functools.partial`, a closure's variables). A request's context closes its
connection, as no answer will come; a collector of answers passes the call on to its context; a broker's own request
counts as unanswered.

Tasks: `serve` runs a task until it is cancelled, and restarts it after a failure; `attempt` runs a task that does one
thing.

What ends a task of the broker, and what follows:

- the reactor's: whatever a round's end raises and does not contain itself. The broker stops, without clean-shutdown
  marks, so that the next start recovers the logs;
- timers, flusher, moves, fetchers, loading, changes of ISR, verification: nothing, for each callback, log, partition
  or request is contained by itself;
- creation of internal topics, expiry, expressions, laggards, producer ids, the sweep, features, preferred leaders,
  listeners, the duties of housekeeping: any exception that was not one log's or shard's alone. `serve` runs it again;
- handlers, auto-creation, markers to a broker, look-ups, a producer id, a cleaner: any exception (`attempt`, or a
  clause of their own). The request gets an error, or what is left is retried;
- a channel to a broker: nothing, a message that cannot be sent, or whose answer cannot be used, is dropped;
- the controller's loop: a step that fails ends the term. After a pause all brokers stand for election, and the winner
  reads the tree;
- whatever uses the store: StoreFailed, BrokerIdTaken, WrongCluster. The broker stops in order.

Not contained: exceptions that are no `Exception` (cancellation, the interpreter's end), and whatever leaves data in
doubt. A log whose write failed because of a bug is taken offline (`PartitionLog.write_failure`); a shard that could not
replay what it wrote is reloaded (`barnabas.server.coordinators.results`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol, runtime_checkable

import trio

RESTART_S = 1.0
"""The pause before a failed task is restarted."""


@runtime_checkable
class HasWaiters(Protocol):
    """Something that waits for an answer, or that others wait for."""

    def release_waiters(self) -> str:
        """An operation has failed and will not be retried: release its waiters. May be called again, and without
        waiters. Returns the released clients, for the log.
        """


def contain(log: logging.Logger, what: str, error: BaseException, *concerned: object) -> None:
    """Log `error`, raised by `what`, and release the waiters of `concerned`. Never raises."""
    released = []
    for one in _concerned(concerned):
        try:
            released.append(one.release_waiters())
        except Exception as another:
            released.append(f"{type(one).__name__}, which could not be released: {another!r}")
    log.error("%s failed%s", what, f": {', '.join(dict.fromkeys(released))}" if released else "", exc_info=error)


def _concerned(candidates: tuple[object, ...]) -> Iterator[HasWaiters]:
    """Those of the candidates, and of their parts, that have waiters."""
    for one in candidates:
        if isinstance(one, HasWaiters):
            yield one
        elif isinstance(one, partial):
            yield from _concerned((one.func, *one.args, *one.keywords.values()))
        elif isinstance(owner := getattr(one, "__self__", None), HasWaiters):
            yield owner
        else:
            for cell in getattr(one, "__closure__", None) or ():
                if isinstance(cell.cell_contents, HasWaiters):
                    yield cell.cell_contents


async def attempt(log: logging.Logger, what: str, act: Callable[[], Awaitable[object]], *concerned: object) -> bool:
    """Run a task that does one thing. False: it failed, which is logged, and waiters of `concerned` are released."""
    try:
        await act()
    except Exception as error:
        contain(log, what, error, act, *concerned)
        return False
    return True


async def serve(
    log: logging.Logger,
    what: str,
    act: Callable[[], Awaitable[object]],
    *,
    fatal: type[Exception] | tuple[type[Exception], ...] = (),
    rest_s: float = RESTART_S,
) -> None:
    """Run a task until it is cancelled; restart it after a pause when it failed. Returns when `act` does. fatal:
    exceptions to pass on.
    """
    while True:
        try:
            await act()
            return
        except fatal:
            raise
        except Exception as error:
            contain(log, what, error)
        await trio.sleep(rest_s)
