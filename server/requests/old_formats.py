"""Records for clients older than Kafka 0.11, which know message sets (formats 0 and 1) and no batches: up-conversion of
what they produce (Produce 0-2), down-conversion of what they fetch (Fetch 0-3). The formats:
`barnabas.kproto.records_legacy`.

Both are done in steps of a millisecond or so with a checkpoint between, so a conversion (30 to 60 ms per megabyte)
does not block the loop, and both are bounded: a batch may decompress to `BATCH_BYTES_MAX`, and one fetch response
is worth `RESPONSE_BYTES_MAX` of reading or answering, beyond which partitions stay empty this time. Their order is
shuffled by the request's correlation id below version 3, so that the first ones do not starve the others; from
version 3 on the order is the client's.

Limits of a fetch (`max_bytes` per partition) are hard below version 3: messages that fit, and if not even one does,
its beginning, from which clients of that time learn that they must ask for more. A first stored batch that fits
counts as fitting even if its converted form is larger. From version 3 on there is always one message for the first
partition that has any.

Where this differs from Apache Kafka 3.9: it answers nothing at all when a stored batch is larger than the hard
limit (we convert it and give what fits), it fills its answers up with the beginning of a message that does not exist
(we give what there is), and a consumer that meets control batches at the end of a log gets such a beginning alone,
which it takes for a message that is too large (we send nothing until there is a whole one).

What a log has in formats 0 and 1 passes unchanged where the client knows the format, and is converted like batches
where it does not.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import trio

from barnabas.kproto import KafkaError
from barnabas.kproto.records import LOG_OVERHEAD, MAGIC_OFFSET
from barnabas.kproto.records_legacy import STEP, down_converting, up_converting
from barnabas.kproto.records_peek import end_offset, entry_bytes
from barnabas.logdir import FileSlice, LogConfig
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.offload import Offload

BATCH_BYTES_MAX: Final = 16 * 1024 * 1024
"""What one batch may decompress to while it is converted."""
RESPONSE_BYTES_MAX: Final = 1024 * 1024
"""What one fetch response may cost, in bytes read from the log or answered, whichever is more."""

T = TypeVar("T")


# ---- producers


async def up_converted(sent: bytes, config: LogConfig, elsewhere: Offload) -> bytearray | memoryview | None:
    """The records of a partition in Produce 0-2, ready to be appended: a converted batch with the topic's codec
    (bytearray), or, from clients that send new batches in old requests, that batch (memoryview). None when no
    whole message came, which is a success without an append. Raises as `barnabas.kproto.records_legacy.up_convert`.

    elsewhere: runs the compression off the loop, if the topic has a codec of its own: that is one long step, at the
    topic's level.
    """
    if len(sent) > MAGIC_OFFSET and sent[MAGIC_OFFSET] == 2:
        return _batch_as_sent(sent)
    steps = up_converting(
        sent,
        codec=config.codec,
        level=config.compression_level,
        max_message_bytes=config.max_message_bytes,
        topic_append_time=config.log_append_time,
        max_bytes=BATCH_BYTES_MAX,
    )
    return await (elsewhere(_at_once, steps) if config.codec else _in_steps(steps))


def _batch_as_sent(sent: bytes) -> memoryview | None:
    """The first batch without an incomplete second one; a complete second one stays, to be refused."""
    end = _entry_bytes(sent, 0)
    if end > len(sent):
        return None
    if end + LOG_OVERHEAD > len(sent) or end + _entry_bytes(sent, end) > len(sent):
        sent = sent[:end]
    return memoryview(bytearray(sent))


def _entry_bytes(data: bytes, position: int) -> int:
    """Size of the batch or message at `position`, by its length field."""
    return max(entry_bytes(data, position), LOG_OVERHEAD)


def _at_once(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value


async def _in_steps(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
        await trio.lowlevel.checkpoint()


# ---- consumers


class Budget:
    """What a response may still cost, in bytes."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = RESPONSE_BYTES_MAX


def fair_order(items: Sequence[T], correlation_id: int) -> Iterable[T]:
    """All items, starting at another one for another request."""
    start = (correlation_id * 2654435761 >> 8) % len(items) if items else 0
    return (*items[start:], *items[:start])


async def down_converted(
    partition: Partition,
    stored: FileSlice,
    *,
    magic: int,
    offset: int,
    max_bytes: int,
    one_at_least: bool,
    budget: Budget,
) -> bytes:
    """The messages from `offset` on, made of the whole batches in `stored` (there is one at least) and, if those hold
    nothing for such a client, of what follows.

    At most `max_bytes`, but for the first message if `one_at_least` or if its batch fits as it is stored. Raises
    KafkaError UNSUPPORTED_COMPRESSION_TYPE for zstd, CORRUPT_MESSAGE for damaged data, if either is what comes first.
    """
    while True:
        data = stored.read()
        one_at_least = one_at_least or _entry_bytes(data, 0) <= max_bytes
        pieces = down_converting(data, magic, first_offset=offset, max_bytes=BATCH_BYTES_MAX)
        records = await _collect(pieces, max_bytes, min(max_bytes, budget.left), one_at_least)
        budget.left -= max(len(data), len(records))
        if records or budget.left <= 0:
            return records
        following = _following(partition, data, budget.left)
        if following is None:
            return b""
        offset, stored = following


async def _collect(pieces: Iterator[bytes], max_bytes: int, wanted_bytes: int, one_at_least: bool) -> bytes:
    found: list[bytes] = []
    size = 0
    try:
        for number, piece in enumerate(pieces, 1):
            if piece:
                if size + len(piece) > wanted_bytes:
                    if not found:
                        found.append(piece if one_at_least else piece[:max_bytes])
                    break
                found.append(piece)
                size += len(piece)
            if not piece or number % STEP == 0:
                await trio.lowlevel.checkpoint()
    except KafkaError:
        if not found:
            raise
    return b"".join(found)


def _following(partition: Partition, data: bytes, max_bytes: int) -> tuple[int, Any] | None:
    """Offset and bytes of the batches behind those in `data`."""
    end = last = 0
    while end + LOG_OVERHEAD <= len(data) and end + _entry_bytes(data, end) <= len(data):
        last = end
        end += _entry_bytes(data, end)
    if not end:
        return None
    offset = end_offset(data, last)
    stored = partition.read(offset, max_bytes, upper_offset=partition.high_watermark, min_one_batch=True)
    return None if stored is None else (offset, stored)
