"""Which partition of `__consumer_offsets` or `__transaction_state` a key lives in: every broker and tool must agree
on it.

Java's `String.hashCode` over UTF-16 units, as a signed 32-bit number, then its absolute value modulo the partition
count. The absolute value of the smallest int is taken as 0 (`org.apache.kafka.common.utils.Utils.abs`), which is not
the same as masking the sign bit.
"""

from __future__ import annotations

from functools import lru_cache

_SMALLEST = -(2**31)
_SHORT_LENGTH = 255
"""Keys up to this length are kept with their hash: those of busy clients come again and again."""


def java_string_hash(text: str) -> int:
    """`text.hashCode()` of Java: a signed 32-bit int."""
    hashed = 0
    if text.isascii():
        for unit in text.encode():
            hashed = (31 * hashed + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            hashed = (31 * hashed + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return hashed - 2**32 if hashed & 0x80000000 else hashed


def partition_for(key: str, partition_count: int) -> int:
    """The partition of a group id or transactional id. `partition_count`: of the *topic* as it exists, not as
    configured.
    """
    hashed = _short_hash(key) if len(key) <= _SHORT_LENGTH else java_string_hash(key)
    return (0 if hashed == _SMALLEST else abs(hashed)) % partition_count


@lru_cache(maxsize=2048)
def _short_hash(key: str) -> int:
    return java_string_hash(key)
