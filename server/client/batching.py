"""Records into batches, without IO: partitions chosen, batches cut, sequence numbers given.

A batch is at most `BATCH_BYTES_MAX` before compression, unless one record alone is larger. Of each partition one batch
is under way at a time, so their order is kept and a retry repeats the very same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from barnabas.kproto.records import Record, build_batch
from barnabas.server.client.client import TopicPartition
from barnabas.server.client.partitioner import partition_of

BATCH_BYTES_MAX: Final = 512 * 1024
RECORDS_MAX: Final = 10_000
_OVERHEAD: Final = 24
"""About what a record takes beside its key, value and headers."""
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class ToSend(NamedTuple):
    """A record to be sent. `partition` None: by the key; `timestamp` None: now. ms."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp: int | None = None

    @property
    def size(self) -> int:
        size = len(self.key or b"") + len(self.value or b"") + _OVERHEAD
        return size + sum(len(key) + len(value or b"") for key, value in self.headers)


@dataclass(slots=True)
class Batch:
    """`indexes`: which of the records given are in it."""

    partition: TopicPartition
    indexes: list[int]
    data: bytes = b""


def placed(
    records: Sequence[ToSend],
    partitions: Mapping[str, Sequence[int]],
    rng: Random,
    led: Mapping[str, Sequence[int]] | None = None,
    bytes_max: int = BATCH_BYTES_MAX,
) -> dict[TopicPartition, deque[Batch]]:
    """Batches by partition, in the order of the records. partitions: all of each topic, from 0 on. led: those that have
    a leader, for records without a key; None: all. bytes_max: of a batch with several records.
    """
    found: dict[TopicPartition, deque[Batch]] = {}
    sizes: dict[TopicPartition, int] = {}
    sticky: dict[str, int] = {}
    for index, record in enumerate(records):
        every = partitions[record.topic]
        if record.partition is not None:
            partition = record.partition
        elif record.key is not None:
            partition = every[partition_of(record.key, len(every))]
        else:
            partition = sticky.setdefault(record.topic, rng.choice((led or partitions)[record.topic]))
        place = (record.topic, partition)
        batches = found.setdefault(place, deque())
        is_full = sizes.get(place, 0) + record.size > bytes_max
        if not batches or is_full or len(batches[-1].indexes) >= RECORDS_MAX:
            batches.append(Batch(place, []))
            sizes[place] = 0
        batches[-1].indexes.append(index)
        sizes[place] += record.size
    return found


def bytes_of(batch: Batch, records: Sequence[ToSend]) -> int:
    """What its records take, before compression."""
    return sum(records[index].size for index in batch.indexes)


def recut(batches: Iterable[Batch], records: Sequence[ToSend], bytes_max: int) -> deque[Batch]:
    """The same records of one partition in the same order, in batches of at most so many bytes."""
    found: deque[Batch] = deque()
    size = 0
    for batch in batches:
        for index in batch.indexes:
            size += records[index].size
            if not found or size > bytes_max or len(found[-1].indexes) >= RECORDS_MAX:
                found.append(Batch(batch.partition, []))
                size = records[index].size
            found[-1].indexes.append(index)
    return found


class Sequences:
    """The numbers of an idempotent producer (KIP-98): from 0 on in each partition, under one producer id."""

    def __init__(self, producer_id: int = -1, producer_epoch: int = -1) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._next: dict[TopicPartition, int] = {}

    def build(self, batch: Batch, records: Sequence[ToSend], now_ms: int, codec: int) -> bytes:
        """The batch's bytes, with the next numbers of its partition. Raises KafkaError UNSUPPORTED_COMPRESSION_TYPE."""
        first = -1
        if self.producer_id >= 0:
            first = self._next.get(batch.partition, 0)
            self._next[batch.partition] = first + len(batch.indexes) & _SEQUENCE_MASK
        return bytes(
            build_batch(
                _records(records, batch.indexes, now_ms),
                codec=codec,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=first,
            )
        )


def _records(records: Sequence[ToSend], indexes: Iterable[int], now_ms: int) -> list[Record]:
    return [
        Record(0, now_ms if each.timestamp is None else each.timestamp, each.key, each.value, each.headers)
        for each in (records[index] for index in indexes)
    ]
