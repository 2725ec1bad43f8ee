"""Where TLS records begin and end in a stream of ciphertext, without decrypting it.

OpenSSL keeps the beginning of a record until the rest arrives. So only with the bounds of records it is known how much
ciphertext must still come before a given amount of plaintext can be there.
"""

from __future__ import annotations

import struct
from typing import Final

HEADER_BYTES: Final = 5
PLAINTEXT_BYTES_MAX: Final = 16 * 1024
"""Of one record (RFC 8446, 5.1)."""
OVERHEAD_BYTES_MIN: Final = HEADER_BYTES + 16
"""What a record has beside its plaintext: a tag at least (ChaCha20 in TLS 1.2; each other suite has more)."""

_BODY_BYTES = struct.Struct(">H").unpack_from


class RecordBounds:
    """Follows one direction of a connection, from its first byte on."""

    __slots__ = ("_body_bytes", "_header", "_left_bytes")

    def __init__(self) -> None:
        self._left_bytes = 0  # of the record that has begun
        self._body_bytes = 0  # of the record that has begun, as far as is known
        self._header = b""  # the beginning of a header

    def add(self, ciphertext: memoryview) -> None:
        """What arrived."""
        at, end = self._left_bytes, len(ciphertext)
        if self._header:
            at = HEADER_BYTES - len(self._header)
            self._header += bytes(ciphertext[:at])
            if len(self._header) < HEADER_BYTES:
                return
            self._body_bytes = _BODY_BYTES(self._header, 3)[0]
            self._header = b""
            at += self._body_bytes
        last_header = end - HEADER_BYTES
        if at <= last_header:
            while at <= last_header:
                (body_bytes,) = _BODY_BYTES(ciphertext, at + 3)
                at += HEADER_BYTES + body_bytes
            self._body_bytes = body_bytes
        if at < end:
            self._header = bytes(ciphertext[at:])
            self._body_bytes = 0
            at = end
        self._left_bytes = at - end

    def bytes_before(self, plaintext_bytes: int) -> int:
        """How many bytes must come, at least, before `plaintext_bytes` (> 0) more can be read."""
        left_bytes = self._left_bytes
        if left_bytes or self._header:
            # Its whole body may be plaintext that is wanted.
            return left_bytes + max(0, plaintext_bytes - self._body_bytes)
        return plaintext_bytes + OVERHEAD_BYTES_MIN * -(-plaintext_bytes // PLAINTEXT_BYTES_MAX)
