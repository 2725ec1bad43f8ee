"""The small files of a log directory as rows of plain values: indexes, snapshots, checkpoints, properties.

A row is a dictionary fit for JSON, in the order of the file. Entries are shown as they stand there, right or wrong
(that is for `verify`); the zeros behind the entries of an index in use are left out. Offsets are log offsets,
positions bytes, timestamps milliseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from barnabas.kproto import uuid_to_text
from barnabas.logdir.files import layout, txn_index
from barnabas.logdir.files.checkpoint import LEADER_EPOCH, decode_lines, decode_offsets
from barnabas.logdir.files.disk import ReadOnlyDisk, read_file
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.index import OFFSET_ENTRY, TIME_ENTRY
from barnabas.logdir.offline.directory import CHECKPOINTS
from barnabas.logdir.offline.errors import NotALog
from barnabas.logdir.segments.producers import Producers

_OFFSET = struct.Struct(">iI")
_TIME = struct.Struct(">qi")

OFFSET_INDEX: Final = "offset index"
TIME_INDEX: Final = "time index"
TXN_INDEX: Final = "transaction index"
SNAPSHOT: Final = "producer snapshot"
LEADER_EPOCHS: Final = "leader epochs"
OFFSETS: Final = "offset checkpoint"
META: Final = "meta.properties"
METADATA: Final = "partition.metadata"
LOG: Final = "log"

_SUFFIXES: Final = {
    layout.OFFSET_INDEX: OFFSET_INDEX,
    layout.TIME_INDEX: TIME_INDEX,
    layout.TXN_INDEX: TXN_INDEX,
    layout.SNAPSHOT: SNAPSHOT,
    layout.LOG: LOG,
}
_NAMES: Final = {
    LEADER_EPOCH: LEADER_EPOCHS,
    layout.META_PROPERTIES: META,
    layout.PARTITION_METADATA: METADATA,
    **dict.fromkeys(CHECKPOINTS, OFFSETS),
}


def kind_of(path: str) -> str:
    """Which of the kinds above the file is, by its name; marks like `.deleted` are looked through. Raises
    `NotALog`.
    """
    name = path.rpartition("/")[2]
    if name in _NAMES:
        return _NAMES[name]
    if name.endswith(".checkpoint"):  # a KRaft snapshot: batches
        return LOG
    if layout.parse_aside_name(name) is not None:
        return LOG
    found = layout.parse_file_name(name) or layout.parse_marked_name(name)
    if found is None:
        raise NotALog(f"{path} is no file of a log: segments, indexes and snapshots start with 20 digits")
    return _SUFFIXES[found[1]]


def rows(path: str) -> Iterator[dict[str, Any]]:
    """The rows of any file but a log. Raises `NotALog`, `CorruptFile`, `InconsistentMeta`, OSError."""
    kind = kind_of(path)
    if kind == LOG:
        raise NotALog(f"{path} holds batches")
    name = path.rpartition("/")[2]
    data = read_file(ReadOnlyDisk(), path)
    base = int(name[:20]) if name[:20].isdigit() else 0
    if kind == OFFSET_INDEX:
        return _offset_rows(data, base)
    if kind == TIME_INDEX:
        return _time_rows(data, base)
    if kind == TXN_INDEX:
        return (entry._asdict() for entry in txn_index.decode(data, 0))
    if kind == SNAPSHOT:
        return _snapshot_rows(data, path)
    if kind == LEADER_EPOCHS:
        return _epoch_rows(data, path)
    if kind == OFFSETS:
        return _checkpoint_rows(data, path)
    if kind == META:
        fields = layout.decode_properties(data.decode("latin-1"))
        return iter([{"key": key, "value": value} for key, value in fields.items()])
    return iter([{"topic_id": uuid_to_text(layout.decode_partition_metadata(data, path))}])


def _used(data: bytes, entry: int) -> bytes:
    """The whole entries, up to the zeros that end the file."""
    used = -(-len(data.rstrip(b"\0")) // entry) * entry
    return data[: min(used, len(data) // entry * entry)]


def _offset_rows(data: bytes, base: int) -> Iterator[dict[str, Any]]:
    for relative, position in _OFFSET.iter_unpack(_used(data, OFFSET_ENTRY)):
        yield {"offset": base + relative, "position": position}


def _time_rows(data: bytes, base: int) -> Iterator[dict[str, Any]]:
    for timestamp, relative in _TIME.iter_unpack(_used(data, TIME_ENTRY)):
        yield {"timestamp": timestamp, "offset": base + relative}


def _snapshot_rows(data: bytes, path: str) -> Iterator[dict[str, Any]]:
    producers = Producers()
    producers.load(data, path)
    for producer_id, producer in producers.entries.items():
        last = producer.batches[-1] if producer.batches else None
        yield {
            "producer_id": producer_id,
            "producer_epoch": producer.epoch,
            "coordinator_epoch": producer.coordinator_epoch,
            "current_txn_first_offset": producer.txn_start if producer.txn_start >= 0 else None,
            "last_timestamp": producer.timestamp,
            "first_sequence": last.first_sequence if last else None,
            "last_sequence": last.last_sequence if last else None,
            "last_offset": last.last_offset if last else None,
            "offset_delta": last.offset_delta if last else None,
        }


def _epoch_rows(data: bytes, path: str) -> Iterator[dict[str, Any]]:
    for entry in decode_lines(data, path):
        try:
            epoch, start = map(int, entry)
        except ValueError:
            raise CorruptFile(f"{path} has an entry that is not an epoch and an offset") from None
        yield {"epoch": epoch, "start_offset": start}


def _checkpoint_rows(data: bytes, path: str) -> Iterator[dict[str, Any]]:
    for (topic, partition), offset in decode_offsets(data, path).items():
        yield {"topic": topic, "partition": partition, "offset": offset}
