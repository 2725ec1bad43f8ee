"""A progress bar of one line on standard error, for work that takes longer than a moment.

Only on a terminal, only where nothing else is printed there, and not before `PATIENCE_S` seconds. Seconds are those of
the clock that is passed in; amounts are bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

PATIENCE_S = 1.0
EVERY_S = 0.2
WIDTH = 30


class Progress:
    """Call it with bytes as they are done; `clear` before anything else is printed, and at the end."""

    def __init__(self, out: TextIO, total: int, clock: Callable[[], float], *, shown: bool | None = None) -> None:
        """`shown`: None means if `out` is a terminal."""
        self._out = out
        self._total = max(total, 1)
        self._clock = clock
        self._shown = out.isatty() if shown is None else shown
        self._done = 0
        self._began = clock()
        self._next = self._began + PATIENCE_S
        self._is_there = False

    def __call__(self, size: int) -> None:
        self._done += size
        if self._shown:
            now = self._clock()
            if now >= self._next:
                self._next = now + EVERY_S
                self._draw(now)

    def _draw(self, now: float) -> None:
        share = min(self._done / self._total, 1.0)
        filled = int(share * WIDTH)
        seconds = now - self._began
        rate = self._done / seconds
        left = (self._total - self._done) / rate if rate else 0
        self._out.write(
            f"\r[{'=' * filled}{' ' * (WIDTH - filled)}] {share:4.0%}  {readable(self._done)} of "
            f"{readable(self._total)}, {readable(rate)}/s, {max(left, 0):.0f} s left\x1b[K"
        )
        self._out.flush()
        self._is_there = True

    def clear(self) -> None:
        """Take the line away; it comes back with the next bytes."""
        if self._is_there:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._is_there = False


def readable(size: float) -> str:
    """Bytes for people: `512 B`, `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
