"""One batch of a log file and its records, as the offline readers give them.

Formats 0 and 1 have no batches: there each message counts as one, a compressed one ("wrapper") with all that is inside.
Timestamps are milliseconds since 1970, -1 where there is none; positions and sizes are bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.records import BatchHeader, CorruptRecords, Headers, iter_records
from barnabas.kproto.records_legacy import iter_legacy
from barnabas.logdir.files.disk import Disk

CREATE_TIME, LOG_APPEND_TIME = 0, 1
_new_tuple = tuple.__new__  # half the time of a NamedTuple's own constructor
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class LogRecord(NamedTuple):
    """One record. `timestamp_type`: 0 the producer's time, 1 the broker's. `headers`: (key, value) pairs."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    batch: Batch


class Batch:
    """A batch in its file. Formats 0 and 1 have -1 for fields that they lack; the `base_offset` of a compressed message
    of theirs is its last offset, and its `record_count` -1, as only its content has it.
    """

    __slots__ = ("_data", "_disk", "_path", "header", "position")

    def __init__(self, header: BatchHeader, position: int, data: memoryview | None, disk: Disk, path: str) -> None:
        self.header = header
        self.position = position
        self._data = data
        self._disk = disk
        self._path = path

    def __repr__(self) -> str:
        return f"Batch({self._path!r}, position={self.position}, offsets {self.base_offset} to {self.last_offset})"

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self.header.size

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def base_timestamp(self) -> int:
        """Of the first record when it was written; what compaction put there if `delete_horizon_ms` is set."""
        return self.header.base_timestamp

    @property
    def max_timestamp(self) -> int:
        return self.header.max_timestamp

    @property
    def timestamp_type(self) -> int:
        return LOG_APPEND_TIME if self.header.is_log_append_time else CREATE_TIME

    @property
    def magic(self) -> int:
        """The message format: 0, 1 or 2."""
        return self.header.magic

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; others are unknown."""
        return self.header.codec

    @property
    def codec_name(self) -> str:
        codec = self.header.codec
        return CODECS[codec] if codec < len(CODECS) else f"unknown ({codec})"

    @property
    def crc(self) -> int:
        """As it stands in the file: CRC-32C, CRC-32 in formats 0 and 1."""
        return self.header.crc

    @property
    def leader_epoch(self) -> int:
        return self.header.partition_leader_epoch

    @property
    def producer_id(self) -> int:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self.header.base_sequence

    @property
    def last_sequence(self) -> int:
        return self.header.last_sequence

    @property
    def record_count(self) -> int:
        return self.header.record_count

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.header.delete_horizon_ms

    def data(self) -> memoryview:
        """All bytes of the batch. Raises OSError, `CorruptRecords` when the file has become shorter."""
        data = self._data
        if data is None:
            data = memoryview(self._read())
            if len(data) < self.size:
                raise CorruptRecords(f"{self._path}, position {self.position}: the file ends inside the batch")
            self._data = data
        return data

    def _read(self) -> bytes:
        fd = self._disk.open(self._path)
        try:
            return self._disk.pread(fd, self.size, self.position)
        finally:
            self._disk.close(fd)

    def computed_crc(self) -> int:
        """What the checksum should be. Raises as `data` does."""
        data = self.data()
        return crc32c(data[21:]) if self.header.magic == 2 else zlib.crc32(data[16:])

    def check(self) -> None:
        """Raises `CorruptRecords` when the checksum is wrong."""
        if self.computed_crc() != self.header.crc:
            raise CorruptRecords(f"{self._path}, position {self.position}: wrong checksum of {self._what()}")

    def _what(self) -> str:
        if self.magic < 2:
            return f"the message at offset {self.base_offset}"
        return f"the batch with offsets {self.base_offset} to {self.last_offset}"

    def records(self) -> Iterator[LogRecord]:
        """All of its records, decompressed, control records too. The checksum of format 2 is not looked at. Raises
        `CorruptRecords` (with file and position), OSError.
        """
        kind = self.timestamp_type
        data = self.data()
        try:
            for offset, timestamp, key, value, headers in iter_records(data) if self.magic == 2 else iter_legacy(data):
                record: LogRecord = _new_tuple(LogRecord, (offset, timestamp, kind, key, value, headers, self))
                yield record
        except CorruptRecords as error:
            raise CorruptRecords(f"{self._path}, position {self.position}: {error.message}") from None
