"""Single fields of a batch, read where it lies: for those who need one of them and not the whole header.

Nothing is checked. The caller knows that the header is there: `BATCH_OVERHEAD` bytes for a batch of format 2, and
`LOG_OVERHEAD` for the size of any entry. `barnabas.kproto.records.read_header` reads, and checks, all of them.
Source: "Record Batch" in Apache Kafka's documentation.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from barnabas.kproto.records import ATTRIBUTES_OFFSET, LOG_OVERHEAD, MAGIC_OFFSET, Buffer

ATTRIBUTES_LOW_BYTE: Final = ATTRIBUTES_OFFSET + 1
"""Where the codec and the bits `LOG_APPEND_TIME`, `TRANSACTIONAL`, `CONTROL` are."""

_INT64: Final = Struct(">q").unpack_from
_INT32: Final = Struct(">i").unpack_from
_PRODUCER: Final = Struct(">qhi").unpack_from
_LENGTH_AT: Final = 8
_LAST_OFFSET_DELTA_AT: Final = 23
_PRODUCER_AT: Final = 43


def entry_bytes(buf: Buffer, at: int = 0) -> int:
    """Size of the batch or message at `at`, of any format, by its length field; whatever that says."""
    length: int = _INT32(buf, at + _LENGTH_AT)[0]
    return LOG_OVERHEAD + length


def end_offset(buf: Buffer, at: int = 0) -> int:
    """The offset behind the batch or message at `at`, of any format. A message of an older one that holds others has
    the offset of the last of them.
    """
    offset: int = _INT64(buf, at)[0]
    if buf[at + MAGIC_OFFSET] == 2:
        offset += _INT32(buf, at + _LAST_OFFSET_DELTA_AT)[0]
    return offset + 1


def producer_of(buf: Buffer, at: int = 0) -> tuple[int, int, int]:
    """Producer id, epoch and first sequence of the batch of format 2 at `at`; -1 each without idempotence."""
    producer_id, epoch, first_sequence = _PRODUCER(buf, at + _PRODUCER_AT)
    return producer_id, epoch, first_sequence
