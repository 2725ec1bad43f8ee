"""What all codecs have in common: their numbers, the errors for data that cannot be right, how the plain bytes are put
together. The face is `barnabas.kproto.compression`.
"""

from __future__ import annotations

import io
from typing import Any, Final

from barnabas.kproto.errors import ErrorCode, KafkaError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""The names used by `compression.type`, by number."""

MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024
"""What one batch may grow to unless the caller says otherwise. Producers bound a batch before compression
(`batch.size`, `max.request.size`).
"""

UNLIMITED: Final = 1 << 62

STEP_BYTES_MAX: Final = 4 * 1024 * 1024
"""So much is unpacked or copied at a time."""

Buffer = bytes | bytearray | memoryview


class CorruptRecords(KafkaError):
    """Stored or received records that cannot be what they claim to be: cut off, wrong checksum, undecodable. Error
    CORRUPT_MESSAGE.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class TooBig(CorruptRecords):
    """There may be nothing wrong with the data but that they pass the bounds they were given."""


def too_big(codec: int, max_bytes: int) -> TooBig:
    """To be raised."""
    return TooBig(f"{CODEC_NAMES[codec]} data decompresses to more than {max_bytes} bytes")


def too_many(codec: int) -> TooBig:
    """To be raised."""
    return TooBig(f"{CODEC_NAMES[codec]} data in more pieces than are allowed")


def joined(parts: list[bytes]) -> bytes:
    """The parts as one, copied in steps."""
    if len(parts) == 1:
        return parts[0]
    if sum(map(len, parts)) < 2 * STEP_BYTES_MAX:
        return b"".join(parts)
    # `join` would hold the interpreter while it copies 128 MiB. This copies part by part, and gives away what it has.
    whole = io.BytesIO()
    for part in parts:
        whole.write(part)
    return whole.getvalue()


def cramjam_library() -> Any:
    """Imported on first use (`sys.modules` is the cache). Raises `KafkaError` UNSUPPORTED_COMPRESSION_TYPE."""
    try:
        import cramjam
    except ImportError as exc:
        raise missing_library("cramjam") from exc
    return cramjam


def missing_library(package: str) -> KafkaError:
    """To be raised."""
    return KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"the Python package {package} is not installed")
