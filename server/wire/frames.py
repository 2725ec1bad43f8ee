"""Bytes of one direction, cut into frames.

Unlike `barnabas.kproto.frame.FrameSplitter` this one takes empty frames (tokens of SASL may be), and gives back what
came when it is not Kafka's protocol after all: a TLS handshake, HTTP. Such a direction is opaque from then on.
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto.frame import LENGTH

FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
"""Longer ones are taken for another protocol: TLS begins with 0x1603, HTTP with letters."""


class Frames:
    """`is_opaque`: this is not Kafka's protocol."""

    def __init__(self, max_bytes: int = FRAME_BYTES_MAX) -> None:
        self._max_bytes = max_bytes
        self._pending = bytearray()
        self.is_opaque = False

    def feed(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The frames that are complete now, without their lengths; and bytes to be passed on as they are, if this is
        not Kafka's protocol.
        """
        if self.is_opaque:
            return [], data
        self._pending += data
        frames = []
        position = 0
        while len(self._pending) - position >= 4:
            (size,) = LENGTH.unpack_from(self._pending, position)
            if not 0 <= size <= self._max_bytes:
                self.is_opaque = True
                break
            end = position + 4 + size
            if end > len(self._pending):
                break
            frames.append(bytes(memoryview(self._pending)[position + 4 : end]))
            position = end
        del self._pending[:position]
        rest = b""
        if self.is_opaque:
            rest, self._pending = bytes(self._pending), bytearray()
        return frames, rest

    @property
    def pending_bytes(self) -> int:
        """What has come of a frame that is not complete."""
        return len(self._pending)


def framed(frame: bytes) -> bytes:
    """With its length before it."""
    return LENGTH.pack(len(frame)) + frame


def kind_of(data: bytes) -> str:
    """What bytes that are not Kafka's protocol look like."""
    if data[:2] == b"\x16\x03":
        return "TLS: tap a listener without it, or give --command-config for the broker's side"
    if data[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP"):
        return "HTTP"
    return "not Kafka's protocol"
