"""Retention of one partition, called by housekeeping, or by the cleaner for logs that are compacted."""

from __future__ import annotations

import logging

from barnabas.logdir import StorageError
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.housekeeping")


def retain(partition: Partition, now_ms: int) -> None:
    """Delete segments that are too old, too many, or below the log start offset; logs that, and errors."""
    try:
        gone = partition.log.retain(now_ms, partition.high_watermark)
    except StorageError as error:
        log.error("retention of %s-%d failed: %s", partition.topic, partition.index, error)
        return
    except Exception as error:
        contain(log, f"retention of {partition.topic}-{partition.index}", error)
        return
    if gone:
        log.info(
            "%s-%d: retention removed %d segments; the log starts at offset %d",
            partition.topic,
            partition.index,
            gone,
            partition.log_start_offset,
        )
