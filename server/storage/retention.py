"""Retention of one partition, for whoever's turn it is: housekeeping, or the cleaner for logs that are compacted."""

from __future__ import annotations

import logging

from barnabas.logdir import StorageError
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import contain

log = logging.getLogger("barnabas.housekeeping")


def retain(partition: Partition, now_ms: int) -> None:
    """Give up segments that are too old, too many, or below the log start; says so, also what goes wrong."""
    try:
        gone = partition.log.retain(now_ms, partition.high_watermark)
    except StorageError as error:
        log.error("retention of %s-%d: %s", partition.topic, partition.index, error)
        return
    except Exception as error:
        contain(log, f"retention of {partition.topic}-{partition.index}", error)
        return
    if gone:
        log.info(
            "%s-%d gave up %d segments; it starts at offset %d now",
            partition.topic,
            partition.index,
            gone,
            partition.log_start_offset,
        )
