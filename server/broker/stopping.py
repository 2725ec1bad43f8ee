"""The end of a broker: requests in progress, and the logs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

import trio

from barnabas.logdir import LogDirs, StorageError
from barnabas.server.network.reactor import Reactor
from barnabas.server.partitions.registry import Partitions
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.broker")

STOP_S = 3.0
"""How long requests in progress may continue when the broker stops."""
FAILED_STOP_S = 0.1
"""The same when it stops after a failure."""
ANSWERS_S = 0.01
"""How often to check whether all answers were sent."""


async def finish_requests(reactor: Reactor, partitions: Partitions, *, seconds: float) -> None:
    """Stop accepting. Requests that wait for other members, or for records, are answered immediately (Apache Kafka
    closes these connections); those in progress may finish for that many seconds.
    """
    reactor.remove_listeners()
    reactor.stop_reading()
    partitions.end()
    deadline = trio.current_time() + seconds
    while True:
        await trio.sleep(ANSWERS_S)  # answers just made are sent
        if not reactor.drop_idle() or trio.current_time() >= deadline:
            return


async def close_logs(dirs: LogDirs, partitions: Partitions, offload: Offload, *, failed: bool) -> None:
    """Flush, checkpoint, mark the clean stop. Raises `StorageError`, unless the broker stops because of another
    failure (`failed`), which must be the one reported.
    """
    with trio.CancelScope(shield=True):
        try:
            await offload(partial(dirs.close, high_watermarks(partitions)))
        except StorageError:  # logged
            if not failed:
                raise


async def save_logs(dirs: LogDirs, partitions: Partitions, offload: Offload) -> None:
    """After a crash: flush and checkpoint what was written, as far as possible; without the mark of a clean stop, so
    that the next start recovers the logs.
    """
    with trio.CancelScope(shield=True):
        try:
            await offload(partial(dirs.close, high_watermarks(partitions), mark=False))
        except Exception as error:
            contain(log, "flushing the logs at the stop", error)


def high_watermarks(partitions: Partitions) -> Mapping[tuple[str, int], int]:
    """For the checkpoints, by topic and partition."""
    return {(each.topic, each.index): each.high_watermark for each in partitions}
