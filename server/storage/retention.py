"""Retention of one partition, called by housekeeping, or by the cleaner for logs that are compacted."""

from __future__ import annotations

import logging

import trio

from barnabas.logdir import StorageError
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.housekeeping")

AT_ONCE = 16
"""Segments that are deleted between two rounds of the loop: each has three or four files to be renamed."""


async def retain(partition: Partition, now_ms: int) -> None:
    """Delete segments that are too old, too many, or below the log start offset; logs that, and errors."""
    total = 0
    try:
        while True:
            gone = partition.log.retain(now_ms, partition.high_watermark, AT_ONCE)
            total += gone
            if gone < AT_ONCE:
                break
            await trio.lowlevel.checkpoint()
    except StorageError as error:
        log.error("retention of %s-%d failed: %s", partition.topic, partition.index, error)
    except Exception as error:
        contain(log, f"retention of {partition.topic}-{partition.index}", error)
    if total:
        log.info(
            "%s-%d: retention removed %d segments; the log starts at offset %d",
            partition.topic,
            partition.index,
            total,
            partition.log_start_offset,
        )
