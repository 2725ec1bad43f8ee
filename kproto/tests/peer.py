"""kafka-python's codecs and record builders, the independent implementation that the record tests compare with.

Its import calls something that Python 3.11 deprecates, which the suite would turn into an error. For lz4 in format v0
it wants the xxhash package; our own few lines stand in, which the tests of lz4 frames compare with the checksums
that the lz4 library writes.
"""

from __future__ import annotations

import warnings
from types import SimpleNamespace

from barnabas.kproto.lz4.frames import xxh32

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords

if codec.xxhash is None:
    codec.xxhash = SimpleNamespace(
        xxh32=lambda data: SimpleNamespace(digest=lambda: xxh32(bytes(data)).to_bytes(4, "big"))
    )

__all__ = [
    "DefaultRecordBatch",
    "DefaultRecordBatchBuilder",
    "LegacyRecordBatch",
    "LegacyRecordBatchBuilder",
    "MemoryRecords",
    "codec",
]
