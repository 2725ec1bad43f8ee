"""Batches compressed otherwise, their records as they are: `compression.type` of a topic.

The records are neither taken apart nor put together again, which would cost some microseconds for each of them, and a
hundred times their bytes in memory where they are small.
"""

from __future__ import annotations

from barnabas.kproto.compression import MAX_DECOMPRESSED_BYTES, compress
from barnabas.kproto.records import BATCH_OVERHEAD, CODEC_MASK, Buffer, read_header, records_data, seal_batch

__all__ = ["recode_batch"]


def recode_batch(
    buf: Buffer, codec: int, *, level: int | None = None, max_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytearray:
    """The one batch in `buf` in a new buffer with another codec, its records as they are. Unlike `rebuild_batch` this
    does not check them. Raises `CorruptRecords`, `TooBig`; `KafkaError` UNSUPPORTED_COMPRESSION_TYPE.
    """
    header = read_header(buf)
    plain = records_data(buf, 0, header, max_bytes)
    data = bytearray(BATCH_OVERHEAD)
    data += compress(codec, plain, level=level) if codec else plain
    seal_batch(
        data,
        header.base_offset,
        header.partition_leader_epoch,
        header.attributes & ~CODEC_MASK | codec,
        header.last_offset_delta,
        (header.base_timestamp, header.max_timestamp),
        (header.producer_id, header.producer_epoch, header.base_sequence),
        header.record_count,
    )
    return data
