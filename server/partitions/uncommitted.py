"""How many bytes of a replicated partition become readable when its high watermark rises, for waiting fetches."""

from __future__ import annotations

from collections.abc import Iterator

ENTRIES_MAX = 1024


class Uncommitted:
    """What was written and is above the high watermark, as (end offset, bytes), in order."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, end_offset: int, size: int) -> None:
        """`size` bytes were written up to `end_offset`. While the high watermark does not move for long, the last entry
        covers all that follow.
        """
        entries = self._entries
        if len(entries) >= ENTRIES_MAX:
            size += entries.pop()[1]
        entries.append((end_offset, size))

    def take(self, high_watermark: int) -> int:
        """Advance the high watermark; returns the bytes that are newly below it."""
        entries = self._entries
        readable = passed = 0
        for end, size in entries:
            if end > high_watermark:
                break
            readable += size
            passed += 1
        del entries[:passed]
        return readable

    def clear(self) -> None:
        self._entries.clear()
