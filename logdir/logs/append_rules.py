"""What of a topic's configuration an appender compares for each batch. All logs of one configuration share it."""

from __future__ import annotations

import functools
from typing import Final

from barnabas.logdir.files.config import LONG_MAX, LogConfig
from barnabas.logdir.logs.roll_limits import NEVER
from barnabas.logdir.segments.incoming import must_rewrite, must_validate

_KEPT_MAX: Final = 1000
JOINED_BYTES_MAX: Final = 64 * 1024
"""The broker's own records share a batch up to this size: one that is much larger would hold up its readers, and saves
nothing.
"""


class AppendRules:
    """rewrite: batches may be stored otherwise than they come; validate: the records of each are checked;
    after_max_ms: how far a timestamp may lie ahead of the wall clock; joined_bytes_max: the largest batch that own
    records are added to; log_append_time: batches get the broker's time. Sizes are bytes. Not to be changed.
    """

    __slots__ = (
        "after_max_ms",
        "joined_bytes_max",
        "log_append_time",
        "max_message_bytes",
        "rewrite",
        "segment_bytes",
        "validate",
    )

    def __init__(self, config: LogConfig) -> None:
        self.rewrite = must_rewrite(config)
        self.validate = must_validate(config)
        after = config.message_timestamp_after_max_ms
        self.after_max_ms = NEVER if after == LONG_MAX or config.log_append_time else after
        self.log_append_time = config.log_append_time
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.joined_bytes_max = min(JOINED_BYTES_MAX, config.max_message_bytes, config.segment_bytes)


@functools.lru_cache(_KEPT_MAX)
def rules_of(config: LogConfig) -> AppendRules:
    """The rules of a configuration, the same object for equal ones."""
    return AppendRules(config)
