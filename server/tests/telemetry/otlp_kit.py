"""MetricsData as clients write it: protobuf by hand, for tests."""

from __future__ import annotations

import struct

Labels = dict[str, str]


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def part(number: int, content: bytes | str) -> bytes:
    """A field of bytes."""
    data = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    """A field with a varint."""
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<q", value)


def attribute(field: int, key: str, value: str) -> bytes:
    return part(field, part(1, key) + part(2, part(1, value)))


def point(value: float, **labels: str) -> bytes:
    """A NumberDataPoint."""
    written = fixed(6, value) if isinstance(value, int) else double(4, value)
    times = fixed(2, 1_700_000_000_000_000_000) + fixed(3, 1_700_000_060_000_000_000)
    return part(1, times + written + b"".join(attribute(7, key, text) for key, text in labels.items()))


def gauge(name: str, *points: bytes) -> bytes:
    return part(2, part(1, name) + part(5, b"".join(points)))


def counter(name: str, *points: bytes, temporality: int = 1, monotonic: bool = True) -> bytes:
    """A Sum; of differences, unless `temporality` is 2."""
    return part(2, part(1, name) + part(7, b"".join(points) + number(2, temporality) + number(3, int(monotonic))))


def metrics_data(*metrics: bytes, **resource: str) -> bytes:
    """One resource with one scope."""
    attributes = b"".join(attribute(1, key, value) for key, value in resource.items())
    return part(1, part(1, attributes) + part(2, part(1, part(1, "scope")) + b"".join(metrics)))
