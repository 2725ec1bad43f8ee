"""Flushes that answers wait for: those of `flush.messages`.

When a log holds that many records that are not synced, Apache Kafka syncs it inside of the append, and the answer comes
after. Here the loop continues meanwhile: the partition holds back its high watermark and the answers for what it has
appended (`Partition`), a thread syncs, and `Partition.flushed` releases what is safe. What is appended meanwhile
waits for the same or for the next flush, so that with `flush.messages=1`, where every acknowledged record is on the
disk, one sync serves many requests.

A partition has one flush under way at most; those of different ones run side by side.

A flush that fails for lack of descriptors or memory is reported to waiting requests, and retried after `RETRY_S`; its
records are held back until then.
"""

from __future__ import annotations

import errno
import logging

import trio

from barnabas.logdir import StorageError
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import contain
from barnabas.server.runtime.offload import Offload
from barnabas.server.runtime.wakeup import Wakeup

log = logging.getLogger("barnabas.housekeeping")

RETRY_S = 1.0


class Flusher:
    """`run` serves until cancelled; called with a partition it flushes that soon."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._due: list[Partition] = []
        self._seen = Wakeup()

    def __call__(self, partition: Partition) -> None:
        self._due.append(partition)
        self._seen.set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await self._seen.wait()
                due, self._due = self._due, []
                for partition in due:
                    nursery.start_soon(self._flush, partition)

    async def _flush(self, partition: Partition) -> None:
        error = None
        try:
            await self._offload(partition.log.flush)
        except StorageError as caught:
            log.error("%s", caught)
            error = caught
        except Exception as caught:
            contain(log, f"flushing {partition}", caught)
            error = StorageError(f"flushing {partition.log.directory}", OSError(errno.EIO, str(caught)))
        try:
            partition.flushed(error)
        except Exception as caught:
            contain(log, f"answering requests that waited for a flush of {partition}", caught)
        if error is not None and error.is_ours:
            await trio.sleep(RETRY_S)
            partition.flush_again()
