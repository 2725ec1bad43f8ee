"""CRC-32C (Castagnoli), the checksum of v2 record batches and of producer snapshots.

`crc32c(data, crc=0) -> int` takes any bytes-like object, writable memoryviews included, and returns an unsigned
32-bit integer; pass an earlier result as `crc` to continue with more data. About 10 GB/s. Reference values: RFC 3720,
appendix B.4.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
