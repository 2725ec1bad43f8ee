"""What can be asked of a log and of a single segment alike: batches, records, Arrow tables, within bounds.

Offsets count records; a start is inclusive, an end exclusive. Timestamps are milliseconds, those of the records, both
bounds inclusive. A broker does not order them: a lower bound is found by the time index, an upper one ends nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from barnabas.logdir.offline.batch import Batch, LogRecord

if TYPE_CHECKING:
    import pyarrow

    from barnabas.logdir.files.txn_index import AbortedTxn

Isolation = Literal["read_uncommitted", "read_committed"]

ARROW_ROWS = 65_536
LOWEST = -(1 << 63)
HIGHEST = 1 << 63
"""Bounds that leave nothing out."""


class Bounds(NamedTuple):
    """Which records are wanted."""

    start: int
    end: int
    oldest: int
    newest: int

    @classmethod
    def of(cls, start: int | None, end: int | None, oldest: int | None, newest: int | None) -> Bounds:
        """None is no bound."""
        return cls(
            LOWEST if start is None else start,
            HIGHEST if end is None else end,
            LOWEST if oldest is None else oldest,
            HIGHEST if newest is None else newest,
        )

    def may_hold(self, batch: Batch) -> bool:
        """What the header alone says; wrong for no batch that has a wanted record."""
        header = batch.header
        if header.last_offset < self.start:
            return False
        if header.max_timestamp < self.oldest:
            return False
        return not (header.is_log_append_time and header.max_timestamp > self.newest)

    def hold(self, offset: int, timestamp: int) -> bool:
        return self.start <= offset < self.end and self.oldest <= timestamp <= self.newest


class WholeLog(Protocol):
    """What a source needs of the log that it is part of. topic, partition: None if `directory` is not named so."""

    @property
    def directory(self) -> str: ...

    @property
    def topic(self) -> str | None: ...

    @property
    def partition(self) -> int | None: ...

    def last_stable_offset(self) -> int: ...

    def aborted_transactions(self, start_offset: int, end_offset: int) -> Sequence[AbortedTxn]: ...


class Source(ABC):
    """Batches from one place or another. Everything is read when it is asked for, a megabyte at a time."""

    __slots__ = ()

    @property
    @abstractmethod
    def log(self) -> WholeLog:
        """The log that this is, or is part of."""

    def _clip(self, bounds: Bounds) -> Bounds:
        """The bounds within those of the place itself."""
        return bounds

    @abstractmethod
    def _read(self, bounds: Bounds, *, whole: bool, check_crcs: bool) -> Iterator[Batch]:
        """The batches that may hold wanted records."""

    def batches(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        min_timestamp_ms: int | None = None,
        max_timestamp_ms: int | None = None,
        whole: bool = False,
        check_crcs: bool = True,
    ) -> Iterator[Batch]:
        """The batches that may hold records within the bounds, control batches too, in the order of the log. With
        `whole` their bytes are read along (else when asked for) and, unless `check_crcs` is False, checked.

        A batch that the end of the last segment cuts off, or zeros there, end the log. Raises `CorruptRecords` (a
        `KafkaError`; its message names file and position), `SegmentGone` when a broker removed a file meanwhile,
        OSError.
        """
        bounds = self._clip(Bounds.of(start_offset, end_offset, min_timestamp_ms, max_timestamp_ms))
        return self._read(bounds, whole=whole, check_crcs=check_crcs)

    def records(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        min_timestamp_ms: int | None = None,
        max_timestamp_ms: int | None = None,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
        check_crcs: bool = True,
    ) -> Iterator[LogRecord]:
        """The records within the bounds. `read_committed` leaves out those of aborted transactions (by the transaction
        indexes in the directory) and, for a whole log, ends where the first open transaction starts. `control`: with
        control records, whose key and value are the broker's. Raises as `batches`, and `CorruptFile` for a bad
        transaction index.
        """
        bounds = self._clip(Bounds.of(start_offset, end_offset, min_timestamp_ms, max_timestamp_ms))
        return self._records(bounds, isolation, control, check_crcs)

    def _records(self, bounds: Bounds, isolation: Isolation, control: bool, check_crcs: bool) -> Iterator[LogRecord]:
        start, end, oldest, newest = bounds
        for batch in self._data_batches(bounds, isolation, control, check_crcs):
            for record in batch.records():
                if start <= record.offset < end and oldest <= record.timestamp <= newest:
                    yield record

    def to_arrow(
        self,
        *,
        start_offset: int | None = None,
        end_offset: int | None = None,
        min_timestamp_ms: int | None = None,
        max_timestamp_ms: int | None = None,
        isolation: Isolation = "read_uncommitted",
        control: bool = False,
        columns: Sequence[str] | None = None,
        include_headers: bool = True,
        topic: str | None = None,
        partition: int | None = None,
        rows: int = ARROW_ROWS,
        check_crcs: bool = True,
    ) -> Iterator[pyarrow.RecordBatch]:
        """The same records as Arrow record batches of at most `rows` rows, with the columns of Spark's Kafka source
        (`arrow_fast.py`), or those of `columns` in that order. `topic`, `partition`: what to write there if the
        directory's name does not say. Needs the extra `arrow`. Raises as `records`, ValueError for another column and
        for a topic that is not known, ModuleNotFoundError.
        """
        try:
            from barnabas.logdir.offline.arrow_fast import COLUMNS, iter_record_batches
        except ModuleNotFoundError as error:
            text = f"{error}: to_arrow needs what `pip install '.[arrow]'` brings, in a clone of Barnabas"
            raise ModuleNotFoundError(text, name=error.name) from None

        names = columns if columns is not None else COLUMNS if include_headers else COLUMNS[:-1]
        topic = self.log.topic if topic is None else topic
        partition = self.log.partition if partition is None else partition
        if topic is None or partition is None:
            if "topic" in names or "partition" in names:
                raise ValueError(f"{self.log.directory} is not named <topic>-<partition>: say topic and partition")
            topic, partition = "", -1
        bounds = self._clip(Bounds.of(start_offset, end_offset, min_timestamp_ms, max_timestamp_ms))
        return iter_record_batches(
            self._data_batches(bounds, isolation, control, check_crcs),
            topic=topic,
            partition=partition,
            columns=names,
            start_offset=None if bounds.start == LOWEST else bounds.start,
            end_offset=end_offset,
            min_timestamp_ms=min_timestamp_ms,
            max_timestamp_ms=max_timestamp_ms,
            rows=rows,
        )

    def _data_batches(self, bounds: Bounds, isolation: Isolation, control: bool, check_crcs: bool) -> Iterator[Batch]:
        committed = isolation == "read_committed"
        if not committed and isolation != "read_uncommitted":
            raise ValueError(f"isolation is {isolation!r}, not 'read_uncommitted' or 'read_committed'")
        is_aborted: Callable[[Batch], bool] | None = None
        if committed:
            this: object = self
            if this is self.log:
                bounds = bounds._replace(end=min(bounds.end, self.log.last_stable_offset()))
            is_aborted = Aborted(self.log, bounds)
        return self._wanted(bounds, is_aborted, control, check_crcs)

    def _wanted(
        self, bounds: Bounds, is_aborted: Callable[[Batch], bool] | None, control: bool, check_crcs: bool
    ) -> Iterator[Batch]:
        for batch in self._read(bounds, whole=True, check_crcs=check_crcs):
            if batch.is_control:
                if control:
                    yield batch
            elif is_aborted is None or not batch.is_transactional or not is_aborted(batch):
                yield batch


class Aborted:
    """Says of a batch whether its transaction was aborted."""

    def __init__(self, log: WholeLog, bounds: Bounds) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for entry in log.aborted_transactions(bounds.start, bounds.end):
            self._spans.setdefault(entry.producer_id, []).append((entry.first_offset, entry.last_offset))
        for spans in self._spans.values():
            spans.sort()

    def __call__(self, batch: Batch) -> bool:
        spans = self._spans.get(batch.producer_id)
        if spans is None:
            return False
        slot = bisect_right(spans, (batch.base_offset, HIGHEST)) - 1
        return slot >= 0 and batch.base_offset <= spans[slot][1]
