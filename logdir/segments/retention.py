"""Which segments have had their time.

Segments go from the head, whole, and only up to the high watermark. In turn: those below the log start offset
(records deleted on request); then, with `cleanup.policy=delete`, as many as keep the log at or above
`retention.bytes`; then those whose largest timestamp is older than `retention.ms`: without any timestamp, or where
damage does not let it be found, when the file was written. The newest segment can be among them (the log rolls first),
unless it is empty.

Sizes are bytes, times milliseconds; -1 for a limit means none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.files.config import LogConfig

log = logging.getLogger("barnabas.logdir")


class SegmentFacts(Protocol):
    """What is asked about a segment; the timestamp may cost a read, so it is asked for last."""

    base_offset: int
    size: int

    def retention_timestamp(self) -> int: ...

    def written_ms(self) -> int: ...


def breached(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """How many of `segments`, from the first on, are to be deleted."""
    count = len(segments)
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    deletable = 0
    while deletable < count and ends[deletable] <= high_watermark:
        deletable += 1
    if deletable == count and (count == 0 or segments[-1].size == 0):
        deletable = max(count - 1, 0)

    gone = 0
    while gone < min(deletable, count - 1) and ends[gone] <= log_start_offset:
        gone += 1
    if not config.delete:
        return gone
    if config.retention_bytes >= 0:
        surplus = sum(segment.size for segment in segments[gone:]) - config.retention_bytes
        while gone < deletable and surplus - segments[gone].size >= 0:
            surplus -= segments[gone].size
            gone += 1
    if config.retention_ms >= 0:
        while gone < deletable and now_ms - _timestamp(segments[gone]) > config.retention_ms:
            gone += 1
    return gone


def _timestamp(segment: SegmentFacts) -> int:
    try:
        return segment.retention_timestamp()
    except CorruptRecords as error:
        log.warning("%r is damaged; for retention it is as old as its file: %s", segment, error.message)
        return segment.written_ms()
