"""CRC-32C: reference values, and the plain Python version against the C extension."""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.crc32c import crc32c, crc32c_lanes

# RFC 3720, appendix B.4, and the check value of the CRC catalogues.
REFERENCE = [
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize("function", [crc32c, crc32c_lanes])
@pytest.mark.parametrize(("data", "expected"), REFERENCE)
def test_reference_values(function, data, expected):
    assert function(data) == expected


@pytest.mark.parametrize("seed", range(3))
def test_lanes_equal_the_extension(seed):
    rng = random.Random(seed)
    lengths = [*range(200), *(rng.randrange(200, 5000) for _ in range(100)), 65536, 65537]
    for length in lengths:
        data = rng.randbytes(length)
        assert crc32c_lanes(data) == crc32c(data), (seed, length)


@pytest.mark.parametrize("function", [crc32c, crc32c_lanes])
def test_going_on_from_an_earlier_result(function):
    data = random.Random(7).randbytes(1000)
    for cut in (0, 1, 63, 64, 500, 999, 1000):
        assert function(data[cut:], function(data[:cut])) == crc32c(data)


@pytest.mark.parametrize("function", [crc32c, crc32c_lanes])
def test_any_buffer(function):
    data = bytearray(b"123456789")
    assert function(data) == 0xE3069283
    assert function(memoryview(data)) == 0xE3069283
    assert function(memoryview(b"x123456789")[1:]) == 0xE3069283
    data.append(0)  # nothing keeps the buffer locked
