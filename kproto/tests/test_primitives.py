"""Varints, topic ids."""

import random

import pytest

from barnabas.kproto import ZERO_UUID, DecodeError, EncodeError, uuid_from_text, uuid_to_text
from barnabas.kproto.primitives import read_string_length, read_uvarint, string_length, uvarint


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**28, "8080808001"),
        (2**31 - 1, "ffffffff07"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_uvarints(value: int, data: str) -> None:
    raw = bytes.fromhex(data)
    assert uvarint(value) == raw
    assert read_uvarint(raw, 0) == (value, len(raw))
    assert read_uvarint(b"\xff" + raw + b"\xff", 1) == (value, 1 + len(raw))
    for length in range(len(raw)):
        with pytest.raises(IndexError):
            read_uvarint(raw[:length], 0)


def test_uvarints_beyond_32_bits() -> None:
    for bad in ("ffffffff10", "ffffffff7f", "808080808000", "ffffffffff01"):
        with pytest.raises(DecodeError):
            read_uvarint(bytes.fromhex(bad), 0)
    with pytest.raises(EncodeError):
        uvarint(2**32)


def test_string_lengths() -> None:
    assert read_string_length(string_length(32768), 0) == (32768, 3)
    with pytest.raises(EncodeError):
        string_length(32769)
    with pytest.raises(DecodeError):
        read_string_length(uvarint(32769), 0)


def test_uuids_as_text() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_from_text("5DhbiGy7QOiaWg31HDs8Ig").hex() == "e4385b886cbb40e89a5a0df51c3b3c22"
    rng = random.Random(1)
    for _ in range(1000):
        uuid = rng.randbytes(16)
        assert uuid_from_text(uuid_to_text(uuid)) == uuid
    for bad in ("", "A" * 21, "A" * 23, "A" * 20 + "==", "A" * 21 + "+", "A" * 21 + "é", "A" * 21 + "\n"):
        with pytest.raises(ValueError, match="22"):
            uuid_from_text(bad)
    with pytest.raises(ValueError, match="16 bytes"):
        uuid_to_text(b"short")
