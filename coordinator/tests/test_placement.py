"""Where groups live: numbers from Java."""

from __future__ import annotations

import pytest

from barnabas.coordinator import java_string_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("polygenelubricantsz", -(2**31) + 122),
        ("grün", 3185949),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_string_hash_is_that_of_java(text: str, hashed: int) -> None:
    # Over UTF-16 units: "ü" is one, the face is two.
    assert java_string_hash(text) == hashed


@pytest.mark.parametrize(
    ("key", "count", "partition"),
    [
        ("g1", 3, 2),  # seen on Apache Kafka 3.9.1
        ("tx1", 2, 1),  # seen on Apache Kafka 3.9.1
        ("polygenelubricants", 50, 0),  # the smallest int has no absolute value
        ("GroupA", 50, abs(java_string_hash("GroupA")) % 50),
    ],
)
def test_partition_of_a_key(key: str, count: int, partition: int) -> None:
    assert partition_for(key, count) == partition


def test_negative_hashes_are_not_masked() -> None:
    hashed = java_string_hash("consumers")
    negative = next(f"group-{i}" for i in range(1000) if java_string_hash(f"group-{i}") < 0)
    assert hashed != 0
    assert partition_for(negative, 50) == -java_string_hash(negative) % 50
    assert partition_for(negative, 50) != (java_string_hash(negative) & 0x7FFFFFFF) % 50


@pytest.mark.parametrize("length", [254, 255, 256, 1000])
def test_long_keys_and_those_that_come_again(length: int) -> None:
    for key in ("g" * length, "\u00e9" * length, "g" * length):
        assert partition_for(key, 50) == abs(java_string_hash(key)) % 50
