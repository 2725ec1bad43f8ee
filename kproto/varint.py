"""Zigzag varints, the integers inside v2 records: small absolute values take few bytes (32 bits: 1 to 5, 64 bits: 1
to 10).

Reading is as lenient as Apache Kafka's: needless continuation bytes are fine, bits beyond the width are cut off.
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto.compression import Buffer, CorruptRecords

__all__ = ["read_varint", "read_varlong", "varint", "wrap64"]


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """(signed 32-bit value, position behind it). Raises `CorruptRecords` after five bytes without an end, IndexError
    past the end.
    """
    byte = data[position]
    if byte < 128:
        return byte >> 1 ^ -(byte & 1), position + 1
    raw = byte & 127
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= 0xFFFFFFFF
            return raw >> 1 ^ -(raw & 1), position + 1
    raise CorruptRecords("varint of more than five bytes")


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """(signed 64-bit value, position behind it). Raises `CorruptRecords` after ten bytes without an end, IndexError
    past the end.
    """
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            raw &= 0xFFFFFFFFFFFFFFFF
            return raw >> 1 ^ -(raw & 1), position
        shift += 7
        if shift > 63:
            raise CorruptRecords("varlong of more than ten bytes")


def wrap64(value: int) -> int:
    """`value` as a signed 64-bit integer overflows, the way timestamps do in Java."""
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def varint(value: int) -> bytes:
    """Zigzag encoding, for 32- and 64-bit integers alike."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    if raw < 128:
        return _ONE_BYTE[raw]
    if raw < 16384:
        return bytes((raw & 127 | 128, raw >> 7))
    out = bytearray()
    while raw > 127:
        out.append(raw & 127 | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_ONE_BYTE: Final = tuple(bytes((i,)) for i in range(128))
