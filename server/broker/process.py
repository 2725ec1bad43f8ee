"""A broker as this process: runs one until a signal, with as many open files as the system allows."""

from __future__ import annotations

import gc
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.logdir import LogDirError, StorageError
from barnabas.replication import BrokerIdTaken, StoreError, TopicRequest, WrongCluster
from barnabas.server.apis import load_rest
from barnabas.server.broker.broker import Broker, BrokerFailed
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.network.listeners import CannotListen
from barnabas.server.runtime import descriptors, patterns, program, twins
from barnabas.server.runtime.containment import attempt
from barnabas.server.runtime.heap import TRIM_INTERVAL_S, Balloon, give_back, keep_freed_pages
from barnabas.server.runtime.wording import causes, crash, in_words, system_says

if TYPE_CHECKING:
    from barnabas.server.broker.lives import Lives
    from barnabas.server.control.controlled import Controlled
    from barnabas.server.control.listener import ControlListener
    from barnabas.server.runtime.virtual_clock import VirtualClock
    from barnabas.server.settings.endpoints import ListenAddress

log = logging.getLogger("barnabas.broker")

_REASONS = (LogDirError, StorageError, StoreError, WrongCluster, BrokerIdTaken, BrokerFailed, CannotListen)
"""Failures whose message says everything."""

SWITCH_S = 0.0001
"""How long the loop waits for the interpreter while a thread runs Python (`barnabas.server.requests.produce.held`),
after each system call. The default, 5 ms, would be a second for a round of 64 clients; with 0.5 ms a thousand requests
a second were more than the loop could take while a thread encoded the metadata of 10,000 topics.
"""


LOAD_REST_S = 1.0
"""After the start."""


class Addresses(NamedTuple):
    """Of a broker that serves: `host:port` for clients, the URLs of its metrics and of its control channel, if any."""

    bootstrap: str
    metrics: str | None = None
    control: str | None = None


Ready = Callable[[Addresses], None]


def run(
    config: BrokerConfig,
    ready: Ready,
    topics: Sequence[TopicRequest] = (),
    *,
    control: ListenAddress | None = None,
    clock_ahead_s: float = 0.0,
    console_ready: Callable[[str], None] = lambda url: None,
) -> int:
    """Run a broker as this process until SIGTERM or SIGINT; its exit code. `ready` is called when it serves and, if it
    is alone, has `topics`; in a cluster these may come later (`barnabas.server.broker.first_topics`). control: where a
    test suite may control it; clock_ahead_s: how far its clock is ahead then. console_ready: called with the URL of the
    console beside it, if there is one.

    If it ends by itself, the last line of its log, the only one at FATAL, says why.
    """
    descriptors.raise_limit()
    patterns.say_if_unsupported()
    twins.say_which()
    keep_freed_pages()
    sys.setswitchinterval(SWITCH_S)
    try:
        clock = None if control is None else _virtual_clock(clock_ahead_s)
        trio.run(_run_until_signal, config, ready, topics, control, clock, console_ready, clock=clock)
    except Exception as error:
        _say_why(error)
        return 1
    return 0


def _say_why(error: Exception) -> None:
    """One line at FATAL. A bug's traceback goes before it, as a record of its own."""
    said = []
    for cause in causes(error):
        if isinstance(cause, _REASONS) or (isinstance(cause, OSError) and cause.filename is not None):
            said.append(in_words(cause))
        else:
            log.error("stopping: internal error", exc_info=cause)
            said.append(f"crashed: {crash(cause)}")
    log.critical("%s", "; ".join(said))


def _virtual_clock(ahead_s: float) -> VirtualClock:
    from barnabas.server.runtime.virtual_clock import VirtualClock

    clock = VirtualClock()
    clock.ahead_of_wall_s = ahead_s
    return clock


async def _load_rest() -> None:
    """In a thread, when the first clients have been answered."""
    await trio.sleep(LOAD_REST_S)
    await trio.to_thread.run_sync(load_rest, abandon_on_cancel=True)


async def _give_back(clock: VirtualClock | None) -> None:
    balloon = Balloon()
    while True:
        before = time.process_time()
        await trio.sleep(TRIM_INTERVAL_S)
        if clock is not None and clock.is_advancing:
            continue  # no minute has passed
        used = time.process_time() - before
        give_back(used)
        for _ in balloon.adapt(used):
            await trio.lowlevel.checkpoint()


def _made(config: BrokerConfig, clock: VirtualClock | None) -> Broker | Lives:
    if clock is None:
        return Broker(config)
    from barnabas.server.broker.lives import Lives

    return Lives(config, clock)


def _controlled(broker: Lives) -> Controlled:
    from barnabas.server.control.controlled import Controlled

    return Controlled(broker, program.version())


def _listener(address: ListenAddress | None) -> ControlListener | None:
    """Raises CannotListen."""
    if address is None:
        return None
    from barnabas.server.control.listener import ControlListener

    return ControlListener(address)


async def _run_until_signal(
    config: BrokerConfig,
    ready: Ready,
    topics: Sequence[TopicRequest],
    control: ListenAddress | None,
    clock: VirtualClock | None,
    console_ready: Callable[[str], None],
) -> None:
    listener = _listener(control)
    broker = _made(config, clock)
    failure: str | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def wait_for_signal() -> None:
                again = False
                async for number in signals:
                    log.info("stopping%s on %s", " immediately" if again else "", signal.Signals(number).name)
                    nursery.start_soon(partial(broker.stop, now=again))
                    again = True

            nursery.start_soon(wait_for_signal)
            nursery.start_soon(_give_back, clock)
            await nursery.start(broker.run)
            # Objects of the start live as long as the process: keep them out of garbage collections.
            gc.collect()
            gc.freeze()
            gc.set_threshold(20_000, 50, 50)  # a collection of the young looks at so many: 5 ms
            if broker.is_open and topics:
                from barnabas.server.broker.first_topics import make_topics

                make = partial(attempt, log, "creating the first topics", partial(make_topics, broker, topics))
                if config.is_clustered:
                    nursery.start_soon(make)
                else:
                    await make()
            if broker.is_open:
                if listener is not None and not isinstance(broker, Broker):
                    serving = partial(listener.run, partial(_controlled, broker))
                    nursery.start_soon(attempt, log, "serving the control channel", serving)
                url = None if listener is None else listener.url
                try:
                    ready(Addresses(broker.bootstrap, broker.metrics_address, url))
                except BrokenPipeError:
                    log.info("stopping: standard output was closed")
                    await broker.stop()
                except OSError as error:
                    failure = f"standard output cannot be written: {system_says(error)}"
                    await broker.stop()
            if broker.is_open and config.get_optional_str("console.listener") is not None:
                from barnabas.server.broker.console_process import run_beside

                beside = partial(run_beside, config, broker.endpoints, console_ready)
                nursery.start_soon(attempt, log, "running the console", beside)
            if clock is None:
                nursery.start_soon(attempt, log, "loading what administrators ask", _load_rest)
            await broker.stopped()
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise BrokerFailed(failure)
