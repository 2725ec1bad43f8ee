"""`barnabas log dump`: what stands in logs, and in the small files beside them, as text or as JSON lines.

A line is a batch, a record or a row; each JSON object says so in its `type`. Keys and values are text where they are
UTF-8, else `{"base64": ...}` in JSON and Python's notation in text. Times are milliseconds in JSON, UTC in text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

from barnabas.kproto.errors import KafkaError
from barnabas.logdir import LogDirError
from barnabas.logdir.offline import Batch, LogReader, LogRecord, SegmentReader, is_log_dir, open_log, open_log_dir
from barnabas.logdir.offline.decode import TOPICS, decode_control, decode_record, show_bytes
from barnabas.logdir.offline.files import LOG, kind_of, rows
from barnabas.server.cli.output import OutputFailed

TIME_TYPES = ("create time", "append time")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """`decode`: "auto" (by the topic's name), "none", or how. Bounds as in `barnabas.logdir.offline`; `limit` counts
    records, or batches where no records are shown.
    """

    records: bool = False
    keys: bool = False
    values: bool = False
    decode: str = "auto"
    as_json: bool = False
    start_offset: int | None = None
    end_offset: int | None = None
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    committed: bool = False
    limit: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Offsets or timestamps are limited."""
        bounds = (self.start_offset, self.end_offset, self.min_timestamp_ms, self.max_timestamp_ms)
        return any(bound is not None for bound in bounds)


class _Enough(Exception):
    """As much was shown as was asked for."""


class Dump:
    """`failed`: something could not be read; `complain` got a sentence about it."""

    def __init__(
        self, options: DumpOptions, out: TextIO, complain: Callable[[str], None], progress: Callable[[int], None]
    ) -> None:
        self.failed = False
        self._options = options
        self._out = out
        self._complain = complain
        self._progress = progress
        self._left = options.limit
        self._written = 0

    def path(self, path: str, is_dir: bool) -> None:
        """Show one path. Raises `NotALog` if it is nothing that can be shown, OSError."""
        self._written = 0
        try:
            if is_log_dir(path):
                logs = open_log_dir(path).partitions
                if not logs:
                    self._complain(f"{path} has no partitions")
                for log in logs:
                    self._log(log)
                if logs and self._has_nothing:
                    self._complain(f"{path}: nothing is within these bounds")
            elif is_dir or kind_of(path) == LOG:
                log = open_log(path)
                self._log(log)
                if self._has_nothing:
                    self._say_extent(log)
            else:
                self._file(path)
        except _Enough:
            pass

    def _fail(self, text: str) -> None:
        self.failed = True
        self._complain(text)

    # ---- logs

    def _log(self, log: LogReader) -> None:
        options = self._options
        how = TOPICS.get(log.topic or "") if options.decode == "auto" else options.decode
        show = _Shower(log, options, None if how == "none" else how)
        is_wanted: Callable[[Batch], bool] | None = None
        if options.committed:
            try:
                is_wanted = log.committed_filter()
            except (KafkaError, LogDirError, OSError) as error:
                self._fail(f"{log.path}: which transactions were aborted is not known: {_text(error)}")
                return
        for segment in log.segments:
            if _is_outside(segment, options):
                self._progress(segment.size)
            else:
                self._segment(segment, show, is_wanted)

    @property
    def _has_nothing(self) -> bool:
        """Nothing of this path was within the bounds."""
        return self._options.is_bounded and not self._written and not self.failed

    def _say_extent(self, log: LogReader) -> None:
        """Where the log is, of which nothing was within the bounds."""
        try:
            start, end = log.start_offset, log.end_offset()
        except (KafkaError, LogDirError) as error:
            self._fail(_text(error))
            return
        extent = f"begins at offset {start} and ends before {end}" if start < end else f"is empty, at offset {end}"
        self._complain(f"{log.path}: nothing is within these bounds; the log {extent}")

    def _segment(self, segment: SegmentReader, show: _Shower, is_wanted: Callable[[Batch], bool] | None) -> None:
        options = self._options
        if not options.as_json:
            self._out.write(f"{segment.path}: starts at offset {segment.base_offset}, {segment.size} bytes\n")
        done = 0
        try:
            for batch in segment.batches(
                start_offset=options.start_offset,
                end_offset=options.end_offset,
                min_timestamp_ms=options.min_timestamp_ms,
                max_timestamp_ms=options.max_timestamp_ms,
                whole=True,
                check_crcs=False,
            ):
                self._progress(batch.position + batch.size - done)
                done = batch.position + batch.size
                if is_wanted is None or is_wanted(batch):
                    self._batch(batch, show)
            if not options.is_bounded and done < segment.size:
                self._complain(f"{segment.path}, position {done}: {segment.size - done} bytes are no whole batch")
        except (KafkaError, LogDirError) as error:
            self._fail(_text(error))
        except (BrokenPipeError, OutputFailed):  # of what we write to
            raise
        except OSError as error:
            self._fail(f"{segment.path}: {error.strerror or error}")
        self._progress(segment.size - done)

    def _batch(self, batch: Batch, show: _Shower) -> None:
        options = self._options
        self._write(show.batch(batch))
        if not options.records:
            self._count()
            return
        try:
            for record in batch.records():
                if show.has(record):
                    self._write(show.record(record))
                    self._count()
        except KafkaError as error:
            self._fail(_text(error))

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                raise _Enough

    # ---- other files

    def _file(self, path: str) -> None:
        kind = kind_of(path)
        if not self._options.as_json:
            self._out.write(f"{path}: {kind}\n")
        try:
            for row in rows(path):
                if self._options.as_json:
                    self._write(json.dumps({"type": kind, "path": path, **row}))
                else:
                    self._write("  " + "  ".join(f"{name.replace('_', ' ')} {_shown(row[name])}" for name in row))
        except LogDirError as error:
            self._fail(str(error))

    def _write(self, line: str) -> None:
        self._written += 1
        self._out.write(line)
        self._out.write("\n")


def _text(error: Exception) -> str:
    return (error.message if isinstance(error, KafkaError) else None) or str(error)


def _is_outside(segment: SegmentReader, options: DumpOptions) -> bool:
    start, end = options.start_offset, options.end_offset
    if end is not None and segment.base_offset >= end:
        return True
    return start is not None and segment.next_base_offset is not None and segment.next_base_offset <= start


class _Shower:
    """Lines for the batches and records of one log. `how`: its records are decoded so; None for not at all."""

    def __init__(self, log: LogReader, options: DumpOptions, how: str | None) -> None:
        self._where = {"topic": log.topic, "partition": log.partition}
        self._options = options
        self._how = how
        low, high = options.start_offset, options.end_offset
        oldest, newest = options.min_timestamp_ms, options.max_timestamp_ms
        infinity = 1 << 63
        self._offsets = (-infinity if low is None else low, infinity if high is None else high)
        self._times = (-infinity if oldest is None else oldest, infinity if newest is None else newest)

    def has(self, record: LogRecord) -> bool:
        """Whether the record, one of a batch within the bounds, is within them itself."""
        return self._offsets[0] <= record.offset < self._offsets[1] and (
            self._times[0] <= record.timestamp <= self._times[1]
        )

    def batch(self, batch: Batch) -> str:
        right = batch.computed_crc() == batch.crc
        if self._options.as_json:
            return json.dumps(
                {
                    "type": "batch",
                    **self._where,
                    "path": batch.path,
                    "position": batch.position,
                    "size": batch.size,
                    "base_offset": batch.base_offset,
                    "last_offset": batch.last_offset,
                    "record_count": batch.record_count,
                    "magic": batch.magic,
                    "codec": batch.codec_name,
                    "timestamp_type": ("CreateTime", "LogAppendTime")[batch.timestamp_type],
                    "max_timestamp": batch.max_timestamp,
                    "leader_epoch": batch.leader_epoch,
                    "producer_id": batch.producer_id,
                    "producer_epoch": batch.producer_epoch,
                    "base_sequence": batch.base_sequence,
                    "last_sequence": batch.last_sequence,
                    "is_transactional": batch.is_transactional,
                    "is_control": batch.is_control,
                    "delete_horizon_ms": batch.delete_horizon_ms,
                    "crc": batch.crc,
                    "crc_is_right": right,
                }
            )
        count = f"{batch.record_count} records" if batch.record_count >= 0 else "compressed message"
        parts = [
            f"offsets {batch.base_offset} to {batch.last_offset}: {count}, {batch.size} bytes at {batch.position}, "
            f"{TIME_TYPES[batch.timestamp_type]} {time_text(batch.max_timestamp)}, codec {batch.codec_name}, "
            f"format {batch.magic}",
        ]
        if batch.leader_epoch >= 0:
            parts.append(f"leader epoch {batch.leader_epoch}")
        if batch.producer_id >= 0:
            parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch}")
        if batch.base_sequence >= 0:
            parts.append(f"sequences {batch.base_sequence} to {batch.last_sequence}")
        if batch.is_transactional:
            parts.append("transactional")
        if batch.is_control:
            parts.append("control")
        if batch.delete_horizon_ms is not None:
            parts.append(f"delete horizon {time_text(batch.delete_horizon_ms)}")
        parts.append(f"crc {batch.crc:#010x}" + ("" if right else f" is WRONG, should be {batch.computed_crc():#010x}"))
        return ", ".join(parts)

    def record(self, record: LogRecord) -> str:
        return self._record_json(record) if self._options.as_json else self._record_text(record)

    def _decoded(self, record: LogRecord) -> dict[str, Any] | None:
        if record.batch.is_control:
            return decode_control(record.key, record.value)
        return decode_record(self._how, record.key, record.value) if self._how is not None else None

    def _record_json(self, record: LogRecord) -> str:
        options = self._options
        shown: dict[str, Any] = {
            "type": "record",
            **self._where,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key_size": -1 if record.key is None else len(record.key),
            "value_size": -1 if record.value is None else len(record.value),
            "headers": [{"key": key, "value": show_bytes(value)} for key, value in record.headers],
        }
        if record.batch.base_sequence >= 0:
            shown["sequence"] = record.batch.base_sequence + record.offset - record.batch.base_offset & 0x7FFFFFFF
        if options.keys:
            shown["key"] = show_bytes(record.key)
        if options.values:
            shown["value"] = show_bytes(record.value)
        decoded = self._decoded(record)
        if decoded is not None:
            shown["decoded"] = decoded
        return json.dumps(shown)

    def _record_text(self, record: LogRecord) -> str:
        options = self._options
        parts = [f"  {record.offset}  {time_text(record.timestamp)}"]
        decoded = self._decoded(record)
        if decoded is not None:
            kind = str(decoded.pop("kind"))
            parts += [kind, *(f"{name} {_shown(value)}" for name, value in decoded.items())]
            return "  ".join(parts)
        parts.append(f"key {_length(record.key)}")
        parts.append(f"value {_length(record.value)}")
        if record.headers:
            headers = (f"{key}={_bytes_text(value)}" if options.values else key for key, value in record.headers)
            parts.append(f"headers [{', '.join(headers)}]")
        if options.keys and record.key is not None:
            parts.append(f"key: {_bytes_text(record.key)}")
        if options.values and record.value is not None:
            parts.append(f"value: {_bytes_text(record.value)}")
        return "  ".join(parts)


def _length(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"


def _bytes_text(data: bytes | None) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return text if text.isprintable() else repr(text)


def _shown(value: Any) -> str:
    """A value inside of a decoded record, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_shown(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if value is None:
        return "null"
    text = str(value)
    return text if text.isprintable() else repr(text)


def time_text(timestamp_ms: int) -> str:
    """UTC with milliseconds; the number itself where it is none or no date."""
    if timestamp_ms < 0:
        return str(timestamp_ms)
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"
