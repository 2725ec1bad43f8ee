"""Which partition a record goes to, as Apache Kafka's Java producer decides it, so that both agree about a key.

A key: murmur2 (MurmurHash2, 32 bits, by Austin Appleby; seed 0x9747b28c) of its bytes, without the sign, modulo the
number of partitions. No key: one partition for a whole batch, another one for the next ("sticky", KIP-480).
"""

from __future__ import annotations

from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash, 32 bits without sign."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """Where a record with this key goes."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
