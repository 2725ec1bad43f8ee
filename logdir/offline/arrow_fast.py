"""Records as Arrow record batches, in the columns of Spark's Kafka source.

    key, value      binary
    topic           string
    partition       int32
    offset          int64
    timestamp       timestamp in microseconds, UTC; Kafka's milliseconds
    timestampType   int32: 0 the producer's time, 1 the broker's, -1 none (message format 0, whose timestamp is -1 ms)
    headers         list of struct(key string, value binary); null where a record has none

Keys and values are gathered by Arrow itself: the bytes of all records, as they stand in their batches, are taken for
one array of binaries in which keys and values lie between fillings, and `take` copies those that are wanted.

Header keys that are not UTF-8 have U+FFFD in the place of what is wrong, as in Java. Positions and sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from barnabas.logdir.offline.columns import Columns, read_columns, read_headers

if TYPE_CHECKING:
    import numpy.typing as npt

    from barnabas.logdir.offline.batch import Batch

    Array = npt.NDArray[np.int64]

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}
COLUMNS: Final = tuple(TYPES)

GROUP_BYTES: Final = 2 << 20
"""Records are made from so many bytes of batches at a time: enough to make a numpy call's own cost small, little
enough to stay in the processor's cache.
"""
MILLIS_MAX: Final = (1 << 63) // 1000 - 1
"""Timestamps farther away from 1970 have no microseconds in 64 bits: 290,000 years."""


def arrow_schema(columns: Sequence[str] = COLUMNS) -> Any:
    """The `pyarrow.Schema` of these columns, in this order. Raises ValueError for one that is not there."""
    for name in columns:
        if name not in TYPES:
            raise ValueError(f"there is no column {name!r}; columns are {', '.join(COLUMNS)}")
    return pa.schema([(name, TYPES[name]) for name in columns])


def iter_record_batches(
    batches: Iterable[Batch],
    *,
    topic: str,
    partition: int,
    columns: Sequence[str] = COLUMNS,
    start_offset: int | None = None,
    end_offset: int | None = None,
    min_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    rows: int = 65536,
    group_bytes: int = GROUP_BYTES,
) -> Iterator[Any]:
    """The records of `batches`, checked ones, as `pyarrow.RecordBatch`es of at most `rows` rows, none of them empty.

    Of the records those are left out whose offset is below `start_offset` or not below `end_offset`, or whose
    timestamp lies outside `min_timestamp_ms` to `max_timestamp_ms` (both included). `group_bytes`: about how many
    bytes of batches are read at a time.

    Raises `CorruptRecords`, `KafkaError` UNSUPPORTED_COMPRESSION_TYPE, OSError, and OverflowError for a timestamp that
    Arrow cannot hold.
    """
    schema = arrow_schema(columns)
    bounds = (start_offset, end_offset, min_timestamp_ms, max_timestamp_ms)
    for group in _groups(batches, group_bytes):
        for columns_read in read_columns(group):
            found = _select(columns_read, *bounds)
            for first in range(0, found.offset.size, rows):
                part = found if found.offset.size <= rows else found.keep(slice(first, first + rows))
                arrays = [_COLUMN[name](part, topic, partition) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _groups(batches: Iterable[Batch], group_bytes: int) -> Iterator[list[Batch]]:
    group: list[Batch] = []
    size = 0
    for batch in batches:
        # Compressed data is taken for four times as large.
        size += batch.size << 2 if batch.codec else batch.size
        group.append(batch)
        if size >= group_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group


def _select(
    found: Columns,
    start_offset: int | None,
    end_offset: int | None,
    min_timestamp_ms: int | None,
    max_timestamp_ms: int | None,
) -> Columns:
    conditions = []
    if start_offset is not None:
        conditions.append(found.offset >= start_offset)
    if end_offset is not None:
        conditions.append(found.offset < end_offset)
    if min_timestamp_ms is not None:
        conditions.append(found.timestamp >= min_timestamp_ms)
    if max_timestamp_ms is not None:
        conditions.append(found.timestamp <= max_timestamp_ms)
    if not conditions:
        return found
    wanted = np.logical_and.reduce(conditions)
    return found if wanted.all() else found.keep(wanted)


# ---- the columns


def _binary(data: bytes, at: Array, size: Array, kind: Any) -> Any:
    """An array of `kind` of the pieces of `data` at `at` of `size` bytes, rising, null where the size is -1."""
    count = at.size
    if not count:
        return pa.array([], kind)
    edges = np.empty(2 * count, np.int32)
    edges[::2] = at
    np.add(at, np.maximum(size, 0), out=edges[1::2], casting="unsafe")
    pieces = pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    places = np.arange(0, 2 * count, 2, dtype=np.int32)
    null = size < 0
    return pieces.take(pa.array(places, mask=null) if null.any() else pa.array(places))


def _key(found: Columns, topic: str, partition: int) -> Any:
    return _binary(found.data, found.key_at, found.key_size, pa.binary())


def _value(found: Columns, topic: str, partition: int) -> Any:
    return _binary(found.data, found.value_at, found.value_size, pa.binary())


def _topic(found: Columns, topic: str, partition: int) -> Any:
    name = topic.encode()
    count = found.offset.size
    edges = np.arange(0, (count + 1) * len(name), len(name), dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(name * count)])


def _partition(found: Columns, topic: str, partition: int) -> Any:
    return pa.array(np.full(found.offset.size, partition, np.int32))


def _offset(found: Columns, topic: str, partition: int) -> Any:
    return pa.array(found.offset)


def _timestamp(found: Columns, topic: str, partition: int) -> Any:
    times = found.timestamp
    if times.size and (times.max() > MILLIS_MAX or times.min() < -MILLIS_MAX):
        worst = max(times.tolist(), key=abs)
        raise OverflowError(f"{topic}-{partition} has a record with timestamp {worst} ms, too far from 1970 for Arrow")
    return pa.Array.from_buffers(TIMESTAMP, times.size, [None, pa.py_buffer(times * 1000)])


def _timestamp_type(found: Columns, topic: str, partition: int) -> Any:
    return pa.array(found.timestamp_type.astype(np.int32))


def _headers(found: Columns, topic: str, partition: int) -> Any:
    headers = read_headers(found)
    keys = _binary(found.data, headers.key_at, headers.key_size, pa.binary())
    values = _binary(found.data, headers.value_at, headers.value_size, pa.binary())
    pairs = pa.StructArray.from_arrays([_text(keys), values], fields=list(HEADER))
    edges = np.zeros(found.offset.size + 1, np.int32)
    np.cumsum(headers.counts, out=edges[1:])
    none = pa.array(headers.counts == 0)
    return pa.ListArray.from_arrays(pa.array(edges), pairs, type=TYPES["headers"], mask=none)


def _text(keys: Any) -> Any:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


_COLUMN: Final = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
