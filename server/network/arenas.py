"""Receive buffers of the reactor, and of what carries TLS for it. Bytes stay as they are until the round ends."""

from __future__ import annotations

from typing import Final

ARENA_BYTES: Final = 1024 * 1024
RECV_BYTES: Final = 256 * 1024
RECV_BYTES_MIN: Final = 64 * 1024


class Arenas:
    """Normally a single megabyte; a round of many big reads takes more for the moment. scratch: room for bytes that are
    needed for the moment only.
    """

    def __init__(self) -> None:
        self._first = memoryview(bytearray(ARENA_BYTES))
        self._current = self._first
        self._used = 0
        self.scratch = memoryview(bytearray(RECV_BYTES))

    def space(self) -> memoryview:
        """Room to receive into: between `RECV_BYTES_MIN` and `RECV_BYTES`."""
        if ARENA_BYTES - self._used < RECV_BYTES_MIN:
            self._current = memoryview(bytearray(ARENA_BYTES))
            self._used = 0
        return self._current[self._used : self._used + RECV_BYTES]

    def take(self, size: int) -> None:
        """Keep the first `size` bytes of that space until the round ends."""
        self._used += size

    def reset(self) -> None:
        """The round has ended."""
        self._current = self._first
        self._used = 0
