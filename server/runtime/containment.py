"""Where control passes from one owner to another, the trouble of the one ends.

The loop's thread runs on behalf of everybody: a round's end answers many clients, a timer serves many groups, a task's
exception would end the nursery and the broker with it. So each place that calls somebody else's code in the name of a
third does it as

    try:
        callback()
    except Exception as error:
        contain(log, "what it was", error, callback)

which logs once, notifies those concerned, and continues with the rest. The places are listed in ARCHITECTURE.md
("Containment"). It costs nothing while nothing fails: a `try` is free, and who is concerned is only then looked for.

Who is concerned: whatever has a method `release_waiters` (`HasWaiters`), and is the callback, the object that it is a
method of, or what it was made with (`functools.partial`, a closure's variables). A request's context closes its
connection, for the answer will not come; a collector of answers passes it on to its context; a broker's own request is
taken as unanswered.

Tasks: `serve` runs what serves until it is cancelled, again after a rest when it failed; `attempt` is for a task that
does one thing.

What ends a task of the broker, and what then:

- the reactor's: whatever a round's end raises beside what is contained in it. The broker ends, without the marks of a
  clean stop, so that recovery looks at the logs;
- timers, flusher, moves, fetchers, loading, changes of ISR, verification: nothing, for each callback, log, partition
  or request is contained by itself;
- creation of internal topics, expiry, expressions, laggards, producer ids, the sweep, features, preferred leaders, the
  duties of housekeeping: any exception that was not one log's or shard's alone. `serve` runs it again;
- handlers, auto-creation, markers to a broker, look-ups, a producer id, a cleaner: any exception (`attempt`, or a
  clause of their own). The request gets an error, what is left is asked for again;
- a channel to a broker: nothing, a message that cannot be sent or whose answer cannot be used is left out;
- the controller's loop: a step that fails ends the term. After a rest all stand for election, and the winner reads the
  tree;
- whatever uses the store: StoreFailed, BrokerIdTaken, WrongCluster. The broker stops in order.

What is not contained: exceptions that are no `Exception` (cancellation, the interpreter's end), and whatever leaves
data in doubt. A log whose write failed by a fault of ours is taken offline (`PartitionLog.write_failure`); a shard that
could not replay what it wrote is loaded again (`barnabas.server.coordinators.results`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Protocol, runtime_checkable

import trio

RESTART_S = 1.0
"""How long a task that failed rests before it is run again."""


@runtime_checkable
class HasWaiters(Protocol):
    """Somebody who waits, or whom others wait for."""

    def release_waiters(self) -> str:
        """What you were called for, or were to call, has failed and will not be tried again: release who waits. May
        be called again, and when there is nothing to release. Returns who it is, for the log.
        """


def contain(log: logging.Logger, what: str, error: BaseException, *concerned: object) -> None:
    """Log `error`, which came out of `what`, and release those of `concerned` who wait. Never raises."""
    released = []
    for one in _concerned(concerned):
        try:
            released.append(one.release_waiters())
        except Exception as another:
            released.append(f"{type(one).__name__}, which could not be released: {another!r}")
    log.error("%s failed%s", what, f": {', '.join(dict.fromkeys(released))}" if released else "", exc_info=error)


def _concerned(candidates: tuple[object, ...]) -> Iterator[HasWaiters]:
    """Those of the candidates, and of what they are made of, who can be released."""
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
    """Run a task that does one thing. False: it failed, which is logged, and `concerned` are released."""
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
    """Run a task that serves until it is cancelled; again after a rest when it failed. It ends when `act` does. fatal:
    what is for others to deal with.
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
