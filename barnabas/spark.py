"""Spark reads log directories directly, without a broker: the data source `barnabas-log`.

    from barnabas.spark import BarnabasLogDataSource, register

    register(spark)      # = spark.dataSource.register(BarnabasLogDataSource), and filters are pushed down
    day = spark.read.format("barnabas-log").option("subscribe", "orders").load("/copy/of/kafka-logs")

A path is a log directory, several, or one partition's directory: in use or a copy, Barnabas' or Apache Kafka's. Columns
and types are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType and, with
`includeHeaders`, headers. `option("columns", "value,offset")` or `schema("value binary, offset long")` reads fewer:
the Python data source API does not pass on which columns a query uses, so all declared ones are read.

| option | meaning (names and texts as in Spark's Kafka source where it has them) |
| --- | --- |
| subscribe (or topic), subscribePattern, assign | which topics; none of them: all but Apache Kafka's internal ones |
| partitions | numbers, `0,2,5-7`, of those topics |
| startingOffsets, endingOffsets | `earliest`, `latest`, or JSON for each partition, -2 earliest, -1 latest |
| startingTimestamp, endingTimestamp | ms; from, and up to, the first record with that time or a later one |
| startingOffsetsByTimestamp, endingOffsetsByTimestamp | the same, as JSON for each partition |
| startingOffsetsByTimestampStrategy | `error` (default) or `latest`: if no record is that late |
| includeHeaders | `false` (default) or `true` |
| isolation (or kafka.isolation.level) | `read_uncommitted` (default, as there) or `read_committed` |
| failOnDataLoss | `true` (default): missing or damaged data ends the query; `false`: it is left out with a warning |
| highWatermark | `ignore` (default) or `checkpoint`, see below |
| columns | names, separated by commas |
| maxPartitionBytes | split segments larger than this (default 128m) at places that their index names |
| minPartitionBytes | let one task read neighbouring small segments of a partition, up to this (default 0: never) |

**What is committed.** By default a log ends where its last whole batch ends. With replicas, the last moments before
that may not be committed, and a fail-over could replace them. `highWatermark=checkpoint` stops at the high watermark
that the broker noted last, up to 5 s (`replica.high.watermark.checkpoint.interval.ms`) ago; take it if you go on from
the last offset next time. Control records are never shown.

**Pushdown.** Filters on topic and partition choose directories, on offset and timestamp segments and, through the
indexes, places in them; others are left to Spark. An upper bound of time ends nothing, as records need not be in the
order of time: give endingTimestamp too. Spark pushes filters to Python sources if
`spark.sql.python.filterPushdown.enabled` is true (`register` sets it); without it they work and save nothing.

**Copies** may be made while the broker writes (`cp -r`, `rsync -a`): what is half written is left out. Copy the
`*-checkpoint` files above the partitions too, as one of them knows which records were deleted (DeleteRecords).

The executors need Barnabas with its extra `spark` installed, and the directory under the same path. Segments that a
broker deletes or compacts meanwhile are looked up again. Not done: streaming; columns chosen by the query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from barnabas.spark_options import (
    EARLIEST,
    HIGHEST,
    LATEST,
    LOWEST,
    TYPES,
    Bound,
    Narrowing,
    Options,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

    from barnabas.logdir.offline import LogReader, SegmentReader

__all__ = ["BarnabasLogDataSource", "register"]

log = logging.getLogger("barnabas.spark")

INTERNAL: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
TRIES: Final = 5
"""How often a log is looked up again because its segments were replaced meanwhile."""


def register(spark: SparkSession) -> None:
    """Make `barnabas-log` known to the session, and let Spark push filters down to it."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(BarnabasLogDataSource)


class BarnabasLogDataSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "barnabas-log"

    def schema(self) -> StructType:
        return Options(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        for column in schema.fields:
            if TYPES.get(column.name) != column.dataType:
                raise ValueError(
                    f"barnabas-log has no column {column.name} of type {column.dataType.simpleString()}; it has "
                    + ", ".join(f"{name} {kind.simpleString()}" for name, kind in TYPES.items())
                )
        return LogReaderOfSpark(Options(self.options), schema)


# ---- what to read


@dataclass(frozen=True)
class Range:
    """Records of one partition, from `start` up to `end`: looked up by offsets where they are read, so that segments
    may be replaced meanwhile. `size`: about how many bytes.
    """

    directory: str
    topic: str
    partition: int
    start: int
    end: int
    size: int


class Ranges(InputPartition):
    """What one task reads, one range after the other."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)


def plan(options: Options, narrowing: Narrowing) -> list[Ranges]:
    """The tasks of a query. Raises ValueError for what does not fit the directories, `KafkaError` and OSError for what
    cannot be read.
    """
    logs = _chosen(options, _found(options.paths))
    for bound in (options.start, options.end):
        if bound.each is not None and bound.each.keys() != logs.keys():
            raise ValueError(
                f"{bound.key} must name every partition that is read and no other "
                f"({EARLIEST} earliest, {LATEST} latest); it differs in {_names(bound.each.keys() ^ logs.keys())}"
            )
    ranges: list[Range] = []
    for (topic, partition), reader in logs.items():
        if not narrowing.hold(topic, partition):
            continue
        start, end = _limits(options, reader, (topic, partition))
        start, end = max(start, narrowing.start), min(end, narrowing.end)
        if start < end and narrowing.oldest <= narrowing.newest:
            ranges += _pieces(reader, topic, partition, start, end, narrowing.oldest, options.max_bytes)
    return _gathered(ranges, options.min_bytes)


def _found(paths: Sequence[str]) -> dict[TopicPartition, LogReader]:
    """The logs in these directories."""
    offline = _offline()
    found: dict[TopicPartition, LogReader] = {}
    for path in paths:
        try:
            readers: Sequence[LogReader] = offline.open_log_dir(path).partitions
        except offline.NotALog as error:
            try:
                readers = (offline.open_log(path),)
            except offline.NotALog:
                raise ValueError(f"{error}, and it is no partition's directory either") from None
        for reader in readers:
            if reader.topic is None or reader.partition is None:
                raise ValueError(f"{reader.path} holds a log, but its name is not <topic>-<partition>: rename the copy")
            place = (reader.topic, reader.partition)
            if place in found:
                raise ValueError(f"{_names([place])} is both in {found[place].path} and in {reader.path}: give one")
            found[place] = reader
    return dict(sorted(found.items()))


def _chosen(options: Options, found: dict[TopicPartition, LogReader]) -> dict[TopicPartition, LogReader]:
    topics = {topic for topic, _ in found}
    wanted: set[TopicPartition] = set()
    if options.assigned is not None:
        wanted = {(topic, partition) for topic, numbers in options.assigned.items() for partition in numbers}
        chosen = topics & options.assigned.keys()
    elif options.topics is not None:
        chosen = set(options.topics)
        if not chosen <= topics:
            raise ValueError(
                f"{', '.join(options.paths)} has no topic {', '.join(sorted(chosen - topics))}; "
                f"it has {', '.join(sorted(topics)) or 'none'}"
            )
        wanted = {(topic, partition) for topic in chosen for partition in options.partitions or ()}
    elif options.pattern is not None:
        chosen = {topic for topic in topics - set(INTERNAL) if options.pattern.fullmatch(topic)}
    else:
        chosen = topics if len(found) == 1 else topics - set(INTERNAL)
    if not wanted <= found.keys():
        raise ValueError(f"{', '.join(options.paths)} has no partition {_names(wanted - found.keys())}")
    numbers = options.partitions
    return {
        place: reader
        for place, reader in found.items()
        if place[0] in chosen
        and (numbers is None or place[1] in numbers)
        and (options.assigned is None or place in wanted)
    }


def _limits(options: Options, reader: LogReader, place: TopicPartition) -> tuple[int, int]:
    """From which offset up to which, filters aside."""
    first, last = reader.start_offset, reader.end_offset()
    if options.high_watermark:
        high_watermark = reader.high_watermark
        if high_watermark is None:
            raise ValueError(
                f"highWatermark is 'checkpoint', but the directory above {reader.path} has no "
                f"replication-offset-checkpoint that names {_names([place])}; 'ignore' reads all that is there"
            )
        last = min(last, high_watermark)
    if options.committed:
        last = min(last, reader.last_stable_offset())
    last = max(first, last)
    start = _offset(options, reader, options.start, place, first, last)
    end = _offset(options, reader, options.end, place, first, last)
    lost = f"start at {start}" if not first <= start <= last else f"end at {end}" if not first <= end <= last else ""
    if lost and options.strict:
        raise ValueError(
            f"{_names([place])} in {reader.path} has the offsets {first} to {last}, but the query is to {lost}: data "
            "was deleted, or is not there yet; failOnDataLoss=false reads what there is"
        )
    return max(start, first), min(end, last)


def _offset(options: Options, reader: LogReader, bound: Bound, place: TopicPartition, first: int, last: int) -> int:
    wanted = bound.all if bound.each is None else bound.each[place]
    if not bound.is_time:
        return {EARLIEST: first, LATEST: last}.get(wanted, wanted)
    found = reader.offset_for_time(wanted)
    if found is None and bound is options.start and options.late_is_error:
        raise ValueError(
            f"{bound.key} is {wanted}, but {_names([place])} has no record as late as that; "
            "startingOffsetsByTimestampStrategy=latest reads nothing there"
        )
    return last if found is None else min(found, last)


def _pieces(
    reader: LogReader, topic: str, partition: int, start: int, end: int, oldest: int, max_bytes: int
) -> Iterator[Range]:
    """The parts of segments that lie in [start, end) and may hold records of `oldest` or later."""
    for segment in reader.segments:
        first = max(start, segment.base_offset)
        stop = end if segment.next_base_offset is None else min(end, segment.next_base_offset)
        if first >= stop:
            continue
        if oldest > LOWEST:
            batches = segment.batches(start_offset=first, end_offset=stop, min_timestamp_ms=oldest, check_crcs=False)
            found = next(batches, None)
            if found is None:
                continue
            if found.magic == 2:  # else its base offset may be its last one
                first = max(first, found.base_offset)
        at = 0
        whole = 0
        for last_offset, position in segment.index_entries():
            after = last_offset + 1
            if after <= first:
                at = position
            elif after < stop:
                whole = position
                if position - at >= max_bytes:
                    yield Range(reader.path, topic, partition, first, after, position - at)
                    first, at = after, position
            else:
                break
        ends_with_file = segment.next_base_offset is not None and stop == segment.next_base_offset
        size = (segment.size if ends_with_file or not whole else whole) - at
        yield Range(reader.path, topic, partition, first, stop, max(size, 0))


def _gathered(ranges: Sequence[Range], min_bytes: int) -> list[Ranges]:
    """One task for each range; small neighbours of one partition together, as long as they have `min_bytes` at most."""
    tasks: list[list[Range]] = []
    for one in ranges:
        last = tasks[-1] if tasks else None
        if (
            last is not None
            and (last[0].topic, last[0].partition) == (one.topic, one.partition)
            and sum(each.size for each in last) + one.size <= min_bytes
        ):
            last.append(one)
        else:
            tasks.append([one])
    return [Ranges(task) for task in tasks]


def _names(places: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(places))


# ---- reading it


class _PushFilters:
    """The reader's `pushFilters`. Where filters are not pushed down, as is Spark's default, Spark refuses a reader that
    has this method of its own, by a look at `__func__`. A query must not fail for want of a setting that only makes it
    faster, so what stands there is what a reader without the method has.
    """

    def __init__(self, narrowing: Narrowing) -> None:
        self.narrowing = narrowing
        self.__func__ = DataSourceReader.pushFilters

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Take note of filters; those that Spark must look at itself."""
        return [one for one in filters if not self.narrowing.take(one)]


class LogReaderOfSpark(DataSourceReader):
    """One scan: planned by the driver, sent to the tasks with what filters said."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.narrowing = Narrowing()

    @property
    def pushFilters(self) -> _PushFilters:
        return _PushFilters(self.narrowing)

    def partitions(self) -> Sequence[InputPartition]:
        return plan(self.options, self.narrowing) or [Ranges(())]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        assert isinstance(partition, Ranges)
        return self._read(partition.ranges)

    def _read(self, ranges: Sequence[Range]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(self.schema, timezone="UTC")
        for one in ranges:
            for batch in self._read_range(one):
                # The last column is ours.
                yield pyarrow.RecordBatch.from_arrays(batch.columns[:-1], schema=schema)

    def _read_range(self, one: Range) -> Iterator[pyarrow.RecordBatch]:
        """The rows with one column more, their offsets: where to go on when the log has changed under our eyes."""
        offline = _offline()
        start = one.start
        for tries_left in reversed(range(TRIES)):
            reader = offline.open_log(one.directory, topic=one.topic, partition=one.partition)
            self._check(one, start, reader)
            try:
                for segment in reader.segments:
                    if segment.base_offset >= one.end:
                        break
                    if segment.next_base_offset is not None and segment.next_base_offset <= start:
                        continue
                    for batch in self._read_segment(segment, one, start):
                        yield batch
                        start = batch.column(batch.num_columns - 1)[-1].as_py() + 1
                return
            except offline.SegmentGone:
                if not tries_left:
                    raise

    def _check(self, one: Range, start: int, reader: LogReader) -> None:
        first, last = reader.start_offset, reader.end_offset()
        if first > start or last < one.end:
            text = f"{one.topic}-{one.partition} in {one.directory} now has the offsets {first} to {last}"
            if self.options.strict:
                raise ValueError(
                    f"{text}, but {start} to {one.end} were to be read: data was deleted since the query began; "
                    "failOnDataLoss=false reads what there is"
                )
            log.warning("%s: of %d to %d the rest is left out", text, start, one.end)

    def _read_segment(self, segment: SegmentReader, one: Range, start: int) -> Iterator[pyarrow.RecordBatch]:
        if self.options.strict:
            yield from self._arrow(segment, one, start, one.end, check_crcs=True)
            return
        from barnabas.kproto.records import CorruptRecords

        try:
            for batch in self._arrow(segment, one, start, one.end, check_crcs=True):
                yield batch
                start = batch.column(batch.num_columns - 1)[-1].as_py() + 1
            return
        except CorruptRecords as error:
            log.warning("%s", error.message)
        for good, end in _good_parts(segment, start, one.end):
            yield from self._arrow(segment, one, good, end, check_crcs=False)

    def _arrow(
        self, segment: SegmentReader, one: Range, start: int, end: int, *, check_crcs: bool
    ) -> Iterator[pyarrow.RecordBatch]:
        narrowing = self.narrowing
        return segment.to_arrow(
            start_offset=start,
            end_offset=end,
            min_timestamp_ms=None if narrowing.oldest == LOWEST else narrowing.oldest,
            max_timestamp_ms=None if narrowing.newest == HIGHEST else narrowing.newest,
            isolation="read_committed" if self.options.committed else "read_uncommitted",
            columns=[*self.schema.names, "offset"],
            topic=one.topic,
            partition=one.partition,
            check_crcs=check_crcs,
        )


def _good_parts(segment: SegmentReader, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of offsets in [start, end) whose batches have the right checksum, up to where there is no batch at
    all; says what is left out.
    """
    from barnabas.kproto.records import CorruptRecords

    seen = start
    try:
        for batch in segment.batches(start_offset=start, end_offset=end, whole=True, check_crcs=False):
            seen = batch.last_offset + 1
            try:
                batch.check()
            except CorruptRecords as error:
                log.warning("left out: %s", error.message)
                if batch.base_offset > start:
                    yield start, batch.base_offset
                start = seen
    except CorruptRecords as error:
        log.warning("left out from here to the end of the segment: %s", error.message)
        end = seen
    if start < end:
        yield start, end


def _offline() -> Any:
    """`barnabas.logdir.offline`, imported where it is used: not for a look at the schema."""
    from barnabas.logdir import offline

    return offline
