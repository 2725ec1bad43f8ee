"""A broker as this process: runs one until a signal, with as many open files as the system lets it have."""

from __future__ import annotations

import gc
import logging
import resource
import signal
from collections.abc import Callable
from functools import partial

import trio

from logdir import LogDirError
from replication import BrokerIdTaken, StoreError, WrongCluster
from server.app import Broker, BrokerFailed
from server.config import BrokerConfig
from server.heap import TRIM_INTERVAL_S, give_back_holes, keep_freed_pages

log = logging.getLogger("barnabas.broker")


def run(config: BrokerConfig, ready: Callable[[str], None]) -> int:
    """Run a broker as this process until SIGTERM or SIGINT; its exit code. `ready(bootstrap)` is called when it
    serves.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        # Each connection and each open segment takes a descriptor.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    keep_freed_pages()
    code = 0
    try:
        trio.run(_run_until_signal, config, ready)
    except* (LogDirError, StoreError, WrongCluster, BrokerIdTaken, BrokerFailed, OSError) as group:
        for error in _leaves(group):
            log.critical("%s", error)
        code = 1
    return code


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return leaves


async def _give_back_holes() -> None:
    while True:
        await trio.sleep(TRIM_INTERVAL_S)
        give_back_holes()


async def _run_until_signal(config: BrokerConfig, ready: Callable[[str], None]) -> None:
    broker = Broker(config)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def wait_for_signal() -> None:
                again = False
                async for number in signals:
                    log.info("stopping%s on %s", " at once" if again else "", signal.Signals(number).name)
                    nursery.start_soon(partial(broker.stop, now=again))
                    again = True

            nursery.start_soon(wait_for_signal)
            nursery.start_soon(_give_back_holes)
            await nursery.start(broker.run)
            # What start-up made lives as long as the process: the collector need not look at it again and again.
            gc.collect()
            gc.freeze()
            gc.set_threshold(50_000, 20, 50)
            if broker.is_open:
                ready(broker.bootstrap)
            await broker.stopped()
            nursery.cancel_scope.cancel()
