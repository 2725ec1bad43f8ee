"""Client batches that need no full check of their records, as one look at them shows that they are good.

By what they look like: `Familiar`. Where `barnabas-native` is installed, by the compiled scan (docs/native.md), which
looks at every record in less time: `Scanned`. Either knows batches without codec only, and of topics whose records are
under no further rules; whatever is not known, good or bad, is left to `barnabas.logdir.segments.incoming.validate`.
"""

from __future__ import annotations

from typing import Final, Protocol

from barnabas.kproto import compiled
from barnabas.kproto.records import BATCH_OVERHEAD
from barnabas.kproto.records_uniform import UniformLayout
from barnabas.logdir.files.config import LONG_MAX, LogConfig

FAMILIAR_MAX: Final = 8
FAMILIAR_RECORDS_MAX: Final = 80
"""Layouts of one log, and the records of their batches together: each costs 400 bytes."""
SCANNED_MAX: Final = 2048
"""Records and headers of a batch that are looked at without an `Allowance`: 20 us."""


class Glance(Protocol):
    """One for each log. `reset` when the topic's settings change."""

    def reset(self, config: LogConfig) -> None: ...

    def knows(self, view: memoryview, count: int, base_timestamp: int, max_timestamp: int) -> bool:
        """Whether an uncompressed batch, `view`, can be taken as it is. `count` and the timestamps, in milliseconds,
        are its header's; the max timestamp is within bounds.
        """

    def learn(self, view: memoryview, count: int) -> None:
        """An uncompressed batch that was not known has passed the full check."""


def glance(config: LogConfig) -> Glance:
    """The better way of those that there are."""
    return Familiar(config) if compiled.scan is None else Scanned(config)


def has_further_rules(config: LogConfig) -> bool:
    """Whether records need more than to be whole, in order, and not too late."""
    return config.compact or config.message_timestamp_before_max_ms != LONG_MAX


class Familiar:
    """Knows batches that are laid out like one that passed the full check.

    A layout is learnt when two batches that were checked in a row have the same size, so that records of mixed sizes
    cost nothing. A log has a few, of different sizes: its producers are several, or send as many records as they have.
    Where batches of one size have no layout, or another each time, learning pauses, for twice as long each time.
    """

    __slots__ = ("_in_vain", "_layouts", "_pause", "_records", "_usable", "_wanted")

    def __init__(self, config: LogConfig) -> None:
        self.reset(config)

    def reset(self, config: LogConfig) -> None:
        self._usable = not has_further_rules(config)
        self._layouts: dict[int, UniformLayout] = {}
        self._records = 0
        self._wanted = 0
        self._in_vain = 0
        self._pause = 0

    def knows(self, view: memoryview, count: int, base_timestamp: int, max_timestamp: int) -> bool:
        """Part of `Glance`."""
        layout = self._layouts.get(len(view))
        if layout is None or count != layout.count:
            return False
        deltas = layout.deltas(view[BATCH_OVERHEAD:])
        # A base timestamp near the ends of an int64 is left to those who look closer.
        return deltas is not None and base_timestamp + deltas[1] == max_timestamp and base_timestamp >= 0

    def learn(self, view: memoryview, count: int) -> None:
        """Part of `Glance`."""
        size = len(view)
        if not self._usable:
            return
        if size != self._wanted:
            self._wanted = size
        elif self._pause:
            self._pause -= 1
        else:
            self._wanted = 0
            self._note(size, UniformLayout.learn(view[BATCH_OVERHEAD:], count))

    def _note(self, size: int, layout: UniformLayout | None) -> None:
        layouts = self._layouts
        before = layouts.pop(size, None)
        if before is not None:
            self._records -= before.count
        if layout is None or before is not None:
            self._pause = 1 << self._in_vain
            self._in_vain = min(self._in_vain + 1, 10)
        else:
            self._in_vain = 0
        if layout is not None:
            while layouts and (self._records + layout.count > FAMILIAR_RECORDS_MAX or len(layouts) == FAMILIAR_MAX):
                self._records -= layouts.pop(next(iter(layouts))).count
            layouts[size] = layout
            self._records += layout.count


class Scanned:
    """Knows every good batch of up to `SCANNED_MAX` records, of whatever sizes they are."""

    __slots__ = ("_scan",)

    def __init__(self, config: LogConfig) -> None:
        self.reset(config)

    def reset(self, config: LogConfig) -> None:
        self._scan = None if has_further_rules(config) else compiled.scan

    def knows(self, view: memoryview, count: int, base_timestamp: int, max_timestamp: int) -> bool:
        """Part of `Glance`."""
        scan = self._scan
        if scan is None or count > SCANNED_MAX:
            return False
        found = scan(view[BATCH_OVERHEAD:].tobytes(), count, count, SCANNED_MAX - count)
        if found is None:
            return False
        _, is_consecutive, _, high, _ = found
        # A base timestamp near the ends of an int64 is left to those who look closer.
        return is_consecutive and base_timestamp + high == max_timestamp and base_timestamp >= 0

    def learn(self, view: memoryview, count: int) -> None:
        """Part of `Glance`: there is nothing to learn."""
