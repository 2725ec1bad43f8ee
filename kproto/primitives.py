"""The pieces messages are made of: unsigned varints, short integer arrays, topic ids as text.

All integers are big-endian. An unsigned varint has 7 bits a byte, lowest group first, and at most 5 bytes. Compact
strings, bytes and arrays carry their length + 1 as such a varint, 0 being null. The generated codecs read and write
the one-byte case themselves and come here for the others. Signed varints belong to records and are in
`barnabas.kproto.records`.
"""

import codecs
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, TypeAlias

from barnabas.kproto.errors import DecodeError, EncodeError

__all__ = [
    "BAD_UTF8",
    "MAX_STRING",
    "ZERO_UUID",
    "Buffer",
    "read_uvarint",
    "uuid_from_text",
    "uuid_to_text",
    "uvarint",
]

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID: Final = bytes(16)
"""The topic id that means "none"."""

MAX_STRING: Final = 0x7FFF
"""Longest string in bytes of UTF-8, in flexible versions too."""

BAD_UTF8: Final = "kproto.replace"
"""How strings are decoded, as the `errors` of `bytes.decode`: see `_replaced`."""

# Arrays of up to 16 integers are read and written by a ready-made Struct: table[count]. Replica lists are nearly
# always that short.
SHORT_ARRAY: Final = 17


def _table(code: str) -> tuple[Struct, ...]:
    return tuple(Struct(f">{count}{code}") for count in range(SHORT_ARRAY))


def unpack_table(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """`table[count](buf, offset)` for arrays of a struct format code, count < SHORT_ARRAY."""
    return tuple(struct.unpack_from for struct in _table(code))


def pack_table(code: str) -> tuple[Callable[..., bytes], ...]:
    """`table[count](*values)` for arrays of a struct format code, count < SHORT_ARRAY."""
    return tuple(struct.pack for struct in _table(code))


def read_uvarint(buf: Buffer, offset: int) -> tuple[int, int]:
    """(value, next offset) of the varint at `offset`. More than 32 bits raise DecodeError, the end of the buffer
    IndexError.
    """
    value = buf[offset]
    offset += 1
    if value < 0x80:
        return value, offset
    value &= 0x7F
    shift = 7
    while True:
        byte = buf[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise DecodeError("varint of more than 32 bits")
            return value, offset
        shift += 7
        if shift == 35:
            raise DecodeError("varint of more than 5 bytes")


def read_string_length(buf: Buffer, offset: int) -> tuple[int, int]:
    """As `read_uvarint`, for the length + 1 of a compact string: refuses what is longer than a string may be."""
    value, offset = read_uvarint(buf, offset)
    if value > MAX_STRING + 1:
        raise DecodeError(f"string of {value - 1} bytes")
    return value, offset


# Java replaces a surrogate written in UTF-8 by one U+FFFD, Python would by two or three.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    """What a string is from its first byte on that is no UTF-8: what is malformed becomes U+FFFD, piece by piece as
    Java does it. U+FFFD has three bytes, so such a string may be longer when it is written again; beyond `MAX_STRING`
    it could not be, so that is a DecodeError: what was decoded can be encoded.

    Called once for a string, as it answers for all the rest of it; good strings cost nothing.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    piece, start = error.object, error.start
    rest = _SURROGATE.sub(b"\xef\xbf\xbd", piece[start:]).decode("utf-8", "replace")
    size = start + len(rest.encode())
    if size > MAX_STRING:
        raise DecodeError(f"string of {len(piece)} bytes is no UTF-8, and would be {size} bytes with U+FFFD in it")
    return rest, len(piece)


codecs.register_error(BAD_UTF8, _replaced)


def uvarint(value: int) -> bytes:
    """The varint of `value` (0 ... 2**32 - 1)."""
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value > 0xFFFFFFFF:
        raise EncodeError(f"{value} does not fit a varint of 32 bits")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(value: int) -> bytes:
    """The varint of a compact string's length + 1; EncodeError when the string is too long."""
    if value > MAX_STRING + 1:
        raise EncodeError(f"string of {value - 1} bytes, at most {MAX_STRING} fit")
    return uvarint(value)


def uuid_to_text(uuid: bytes) -> str:
    """The 22 characters Kafka prints for a topic id (16 bytes): URL-safe base64 without padding."""
    if len(uuid) != 16:
        raise ValueError(f"a uuid has 16 bytes, not {len(uuid)}")
    return urlsafe_b64encode(uuid).decode("ascii")[:22]


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes behind the 22 characters. ValueError if they are none."""
    if len(text) != 22 or not text.isascii() or not text.replace("-", "a").replace("_", "a").isalnum():
        raise ValueError(f"{text!r} is no uuid of 22 base64 characters")
    return urlsafe_b64decode(text + "==")
