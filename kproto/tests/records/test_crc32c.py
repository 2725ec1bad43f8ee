"""CRC-32C: what the library must be able to do for us."""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.crc32c import crc32c

# RFC 3720, appendix B.4, and the check value of the CRC catalogues.
REFERENCE = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "expected"), REFERENCE)
def test_reference_values(data, expected):
    assert crc32c(data) == expected


def test_going_on_from_an_earlier_result():
    data = random.Random(7).randbytes(1000)
    for cut in (0, 1, 63, 64, 500, 999, 1000):
        assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


def test_any_buffer():
    data = bytearray(b"123456789")
    assert crc32c(data) == 0xE3069283
    assert crc32c(memoryview(data)) == 0xE3069283
    assert crc32c(memoryview(b"x123456789")[1:]) == 0xE3069283
    data.append(0)  # nothing keeps the buffer locked
