"""When the active segment is full, or old enough: the numbers that each append compares.

Its age counts from the timestamp of its first batch or, without one, from when it was made. Sizes are bytes, times
milliseconds.
"""

from __future__ import annotations

from typing import Final

from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.segment import UNKNOWN

NEVER: Final = 2**63
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""An index entry has 32 bits for an offset."""


class RollLimits:
    """What a batch must not exceed to go into the active segment: size (of the segment with it), offset (its last
    one), timestamp (its largest), clock (the wall clock now, `UNKNOWN` until `count_age_from` was called).
    """

    __slots__ = ("_state", "clock", "offset", "size", "timestamp")

    def __init__(self, state: LogState, position: int) -> None:
        self._state = state
        self.reset(position)

    def reset(self, position: int) -> None:
        """There is another active segment, or another configuration. position: bytes in it, with what is staged."""
        state = self._state
        active, config = state.active, state.config
        self.size = -1 if active.index_is_full(config.segment_index_bytes) else config.segment_bytes
        self.offset = active.base_offset + MAX_RELATIVE_OFFSET
        # The age is not looked up here: opening thousands of logs must not read a batch of each. The next append does.
        self.timestamp = self.clock = UNKNOWN if position else NEVER

    def count_age_from(self, timestamp: int) -> None:
        """The first batch of the active segment has `timestamp`, -1 for none."""
        active = self._state.active
        longest = self._state.config.max_segment_ms - active.jitter_ms
        self.timestamp = timestamp + longest if timestamp >= 0 else NEVER
        self.clock = NEVER if timestamp >= 0 else active.created_ms + longest
