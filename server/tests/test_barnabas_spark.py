"""What a Spark query reads of which files: options, filters, tasks. Without Spark; compat_tests/clients/spark runs
queries.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.logdir.files.index import OffsetIndex, TimeIndex

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql import datasource as ds

import barnabas.spark
from barnabas.spark_options import LOWEST, Narrowing, Options

T0 = 1_700_000_000_000
BATCH, SEGMENT = 10, 50
"""Records in a batch, and in a segment; one a second."""


def write_log(directory: Path, records: int, *, first: int = 0, indexes: bool = True) -> None:
    """A partition as a broker leaves it, from offset `first` on; an index entry for every second batch."""
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    for base in range(first, records, SEGMENT):
        data = bytearray()
        offsets, times = OffsetIndex(base), TimeIndex(base)
        for start in range(base, min(base + SEGMENT, records), BATCH):
            end = min(start + BATCH, records)
            if (start - base) // BATCH % 2:
                offsets.add(end - 1, len(data))
                times.add(T0 + (end - 1) * 1000, end - 1)
            rows = [Record(i, T0 + i * 1000, b"k", b"value %03d" % i) for i in range(start, end)]
            data += build_batch(rows, base_offset=start)
        stem = f"{directory}/{base:020d}"
        Path(f"{stem}.log").write_bytes(data)
        if indexes:
            Path(f"{stem}.index").write_bytes(offsets.encode())
            Path(f"{stem}.timeindex").write_bytes(times.encode())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """orders-0 with 200 records, orders-1 with 60, other-0 with 5, and what is not to be read."""
    write_log(tmp_path / "orders-0", 200)
    write_log(tmp_path / "orders-1", 60)
    write_log(tmp_path / "other-0", 5)
    write_log(tmp_path / "__consumer_offsets-7", 5)
    write_log(tmp_path / ("gone-0." + "a" * 32 + "-delete"), 5)
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n2\norders 0 120\norders 1 60\n")
    return tmp_path


def reader_of(path: Path, *filters: ds.Filter, left: Sequence[ds.Filter] = (), **options: object) -> Any:
    """A reader as Spark makes it: planned in one process, unpickled in another."""
    given = {"path": str(path)} | {key.replace("_", "."): str(value) for key, value in options.items()}
    source = barnabas.spark.BarnabasLogDataSource(given)
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(list(filters))) == list(left)
    return pickle.loads(pickle.dumps(reader))


def tasks(path: Path, *filters: ds.Filter, left: Sequence[ds.Filter] = (), **options: object) -> list[list[str]]:
    """The ranges of each task."""
    found = reader_of(path, *filters, left=left, **options).partitions()
    return [[f"{one.topic}-{one.partition}:{one.start}-{one.end}" for one in task.ranges] for task in found]


def ranges(path: Path, *filters: ds.Filter, left: Sequence[ds.Filter] = (), **options: object) -> list[str]:
    return [one for task in tasks(path, *filters, left=left, **options) for one in task]


def offsets(path: Path, *filters: ds.Filter, left: Sequence[ds.Filter] = (), **options: object) -> list[int]:
    """Of the rows that come, of topic other or orders-1 alone."""
    reader = reader_of(path, *filters, left=left, **options)
    found = []
    for task in reader.partitions():
        for batch in reader.read(pickle.loads(pickle.dumps(task))):
            found += batch.column("offset").to_pylist()
    return found


def column(*path: str) -> Callable[..., Any]:
    return lambda kind, *value: kind(path, *value)


offset, topic, partition, timestamp = (column(name) for name in ("offset", "topic", "partition", "timestamp"))


def time(ms: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=round(ms * 1000))


# ---- which logs


def test_one_task_for_each_segment(home: Path) -> None:
    orders = ["orders-0:0-50", "orders-0:50-100", "orders-0:100-150", "orders-0:150-200"]
    assert tasks(home) == [[one] for one in [*orders, "orders-1:0-50", "orders-1:50-60", "other-0:0-5"]]
    assert tasks(home / "orders-0") == [[one] for one in orders]
    assert ranges(home / "__consumer_offsets-7") == ["__consumer_offsets-7:0-5"]
    assert ranges(home, topic="other") == ["other-0:0-5"]
    assert ranges(home, subscribePattern="o.*r") == ["other-0:0-5"]
    assert ranges(home, subscribe="__consumer_offsets, other") == ["__consumer_offsets-7:0-5", "other-0:0-5"]
    assert ranges(home, assign='{"orders": [1], "other": [0]}')[:1] == ["orders-1:0-50"]
    assert len(ranges(home, subscribe="orders", partitions="1-1")) == 2
    assert ranges(home, partitions="7") == []


def test_several_directories(home: Path, tmp_path: Path) -> None:
    write_log(home / "second" / "more-3", 5)
    paths = json.dumps([f"file://{home}/other-0", f"{home}/second"])
    source = barnabas.spark.BarnabasLogDataSource({"paths": paths})
    assert len(source.reader(source.schema()).partitions()) == 2
    source = barnabas.spark.BarnabasLogDataSource({"paths": json.dumps([f"{home}/other-0", f"{home}"])})
    reader = source.reader(source.schema())
    with pytest.raises(ValueError, match=r"other-0 is both in .* and in .*: give one"):
        reader.partitions()


def test_small_segments_together_and_large_ones_split(home: Path) -> None:
    assert tasks(home / "orders-0", minPartitionBytes="1k")[0] == ["orders-0:0-50"]
    two = tasks(home / "orders-0", minPartitionBytes="3000")
    assert two == [["orders-0:0-50", "orders-0:50-100"], ["orders-0:100-150", "orders-0:150-200"]]
    assert len(tasks(home, topic="orders", minPartitionBytes="1g")) == 2
    pieces = ranges(home / "orders-1", maxPartitionBytes="200")
    assert pieces == ["orders-1:0-20", "orders-1:20-40", "orders-1:40-50", "orders-1:50-60"]
    assert offsets(home / "orders-1", maxPartitionBytes="200") == list(range(60))
    assert ranges(home / "orders-1", offset(ds.GreaterThan, 24), maxPartitionBytes="200")[0] == "orders-1:25-40"


# ---- where from and where to


def test_offsets(home: Path) -> None:
    each = {"orders": {"0": 60, "1": -2}}
    ends = {"orders": {"0": 110, "1": -1}}
    found = ranges(home, topic="orders", startingOffsets=json.dumps(each), endingOffsets=json.dumps(ends))
    assert found == ["orders-0:60-100", "orders-0:100-110", "orders-1:0-50", "orders-1:50-60"]
    assert len(ranges(home, startingOffsets="earliest", endingOffsets="Latest")) == 7


def test_times(home: Path) -> None:
    assert offsets(home / "orders-1", startingTimestamp=T0 + 54_001, endingTimestamp=T0 + 58_000) == [55, 56, 57]
    by_time = json.dumps({"orders": {"1": T0 + 57_000}})
    assert offsets(home / "orders-1", startingOffsetsByTimestamp=by_time) == [57, 58, 59]
    assert offsets(home / "orders-1", startingTimestamp=by_time, endingTimestamp=T0 * 2) == [57, 58, 59]
    late = {"startingTimestamp": T0 + 60_000}
    with pytest.raises(ValueError, match="startingTimestamp is 1700000060000, but orders-1 has no record as late"):
        ranges(home / "orders-1", **late)
    assert ranges(home / "orders-1", **late, startingOffsetsByTimestampStrategy="latest") == []


def test_high_watermark_and_transactions(home: Path) -> None:
    assert ranges(home, topic="orders", partitions="0", highWatermark="checkpoint")[-1] == "orders-0:100-120"
    with pytest.raises(ValueError, match="no replication-offset-checkpoint that names other-0"):
        ranges(home, topic="other", highWatermark="checkpoint")
    log = home / "other-0" / "00000000000000000000.log"
    marker = {"producer_id": 9, "producer_epoch": 0, "coordinator_epoch": 0, "timestamp": T0}
    data = build_batch([Record(0, T0, b"a", b"a")], base_offset=5, producer_id=9, producer_epoch=0, transactional=True)
    data += build_control_batch(**marker, commit=True, base_offset=6)
    data += build_batch([Record(0, T0, b"b", b"b")], base_offset=7, producer_id=9, producer_epoch=0, transactional=True)
    log.write_bytes(log.read_bytes() + data)
    assert offsets(home / "other-0") == [0, 1, 2, 3, 4, 5, 7]
    assert offsets(home / "other-0", kafka_isolation_level="read_committed") == [0, 1, 2, 3, 4, 5]


# ---- filters


def test_filters_on_topic_and_partition_choose_logs(home: Path) -> None:
    assert ranges(home, topic(ds.EqualTo, "other")) == ["other-0:0-5"]
    assert ranges(home, topic(ds.In, ("other", "x")), ds.IsNotNull(("topic",))) == ["other-0:0-5"]
    assert ranges(home, ds.Not(topic(ds.StringStartsWith, "ord"))) == ["other-0:0-5"]
    found = ranges(home, ds.Not(partition(ds.In, (0,))), partition(ds.LessThanOrEqual, 1), topic(ds.EqualTo, "orders"))
    assert found == ["orders-1:0-50", "orders-1:50-60"]
    assert ranges(home, topic(ds.EqualTo, "nobody")) == []


def test_filters_on_offset_leave_segments_out_and_cut(home: Path) -> None:
    found = ranges(home / "orders-0", offset(ds.GreaterThan, 98), offset(ds.LessThanOrEqual, 150))
    assert found == ["orders-0:99-100", "orders-0:100-150", "orders-0:150-151"]
    assert offsets(home / "orders-0", offset(ds.EqualTo, 77)) == [77]
    several = offset(ds.In, (60, 62, 3))
    assert ranges(home / "orders-0", several, left=[several]) == ["orders-0:3-50", "orders-0:50-63"]
    assert ranges(home / "orders-0", offset(ds.GreaterThanOrEqual, 200)) == []
    assert ranges(home / "orders-0", offset(ds.GreaterThan, 9), offset(ds.LessThan, 10)) == []


@pytest.mark.parametrize("indexes", [True, False])
def test_filters_on_time_leave_segments_out_and_seek(tmp_path: Path, indexes: bool) -> None:
    write_log(tmp_path / "orders-0", 200, indexes=indexes)
    at_120 = time(T0 + 120_000)
    found = ranges(tmp_path, timestamp(ds.GreaterThanOrEqual, at_120))
    assert found == ["orders-0:120-150", "orders-0:150-200"]
    assert offsets(tmp_path, timestamp(ds.GreaterThan, at_120))[0] == 121
    assert offsets(tmp_path, timestamp(ds.LessThan, at_120)) == list(range(120))
    assert offsets(tmp_path, timestamp(ds.LessThanOrEqual, at_120), offset(ds.GreaterThan, 117)) == [118, 119, 120]
    # Between two milliseconds, and a value without a time zone, which is UTC.
    odd = time(T0 + 120_000.5)
    assert offsets(tmp_path, timestamp(ds.GreaterThanOrEqual, odd), timestamp(ds.LessThan, time(T0 + 122_000.5))) == [
        121,
        122,
    ]
    assert offsets(tmp_path, timestamp(ds.EqualTo, odd)) == []
    assert offsets(tmp_path, timestamp(ds.EqualTo, at_120.replace(tzinfo=None))) == [120]


def test_other_filters_are_left_to_spark(home: Path) -> None:
    others = [
        ds.EqualTo(("key",), b"k"),
        ds.IsNotNull(("value",)),
        ds.IsNull(("offset",)),
        ds.Not(offset(ds.EqualTo, 3)),
        ds.EqualTo(("headers", "key"), "a"),
        topic(ds.EqualTo, None),
        offset(ds.In, ()),
        timestamp(ds.EqualTo, "yesterday"),
    ]
    assert len(ranges(home / "orders-1", *others, left=others)) == 2
    narrowing = Narrowing()
    assert narrowing.take(ds.EqualTo(("OFFSET",), 3))
    assert (narrowing.start, narrowing.end, narrowing.oldest) == (3, 4, LOWEST)


def test_a_session_without_pushdown_is_not_refused(home: Path) -> None:
    """Spark looks whether the method is overridden, and ends the query if the setting is off."""
    source = barnabas.spark.BarnabasLogDataSource({"path": str(home)})
    reader = source.reader(source.schema())
    assert getattr(reader.pushFilters, "__func__", None) is ds.DataSourceReader.pushFilters


# ---- what goes wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscibe": "x"}, "barnabas-log has no option subscibe; options are path, "),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "give one of subscribe, subscribePattern, assign"),
        ({"subscribe": "a,orders"}, "has no topic a; it has __consumer_offsets, orders, other"),
        ({"assign": '{"orders":[1,4]}'}, "has no partition orders-4"),
        ({"subscribe": "orders", "partitions": "0-2"}, "has no partition orders-2"),
        ({"partitions": "-1"}, "partitions is '-1', allowed are numbers such as 0,2,5-7"),
        ({"assign": '{"orders":1}'}, "assign is .* allowed is JSON such as"),
        ({"subscribePattern": "("}, "subscribePattern is '\\(', which is no regular expression"),
        ({"startingOffsets": "latest"}, "startingOffsets is 'latest', allowed are earliest and JSON"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "endingOffsets has -2 \\(earliest\\), which a batch query"),
        ({"startingOffsets": '{"orders":{"0":1}}'}, "must name every partition .* differs in orders-1, other-0"),
        ({"startingOffsets": '{"orders":[1]}'}, "startingOffsets is .* allowed is JSON such as"),
        ({"startingTimestamp": "today"}, "startingTimestamp is 'today', allowed are milliseconds since 1970"),
        ({"includeHeaders": "yes"}, "includeHeaders is 'yes', allowed are false and true"),
        ({"columns": "key,valeu"}, "columns is 'key,valeu', allowed are key, value, "),
        ({"maxPartitionBytes": "lots"}, "maxPartitionBytes is 'lots', allowed are bytes from 1 on"),
    ],
)
def test_bad_options(home: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ranges(home, **options)


def test_no_log_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="and it is no partition's directory either"):
        ranges(tmp_path)
    with pytest.raises(FileNotFoundError):
        ranges(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="needs a path"):
        Options({})


def test_columns(home: Path) -> None:
    fields = barnabas.spark.BarnabasLogDataSource({"path": "x", "columns": "Offset, timestamptype"}).schema()
    assert fields.names == ["offset", "timestampType"]
    source = barnabas.spark.BarnabasLogDataSource({"path": str(home / "other-0")})
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert source.schema().names == names
    reader = source.reader(fields)
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.schema.names == ["offset", "timestampType"]
    wrong = ds.StructType().add("offset", "string")
    with pytest.raises(ValueError, match="no column offset of type string; it has key binary, value binary"):
        source.reader(wrong)


def test_data_that_is_gone(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    (home / "log-start-offset-checkpoint").write_text("0\n1\norders 0 110\n")
    assert ranges(home / "orders-0")[0] == "orders-0:110-150"
    early = {"startingOffsets": '{"orders":{"0":70}}'}
    with pytest.raises(ValueError, match="has the offsets 110 to 200, but the query is to start at 70: data was"):
        ranges(home / "orders-0", **early)
    assert ranges(home / "orders-0", **early, failOnDataLoss="false")[0] == "orders-0:110-150"
    far = {"endingOffsets": '{"orders":{"0":300}}'}
    with pytest.raises(ValueError, match="is to end at 300"):
        ranges(home / "orders-0", **far)

    # Between planning and reading: retention.
    strict, lenient = (reader_of(home / "orders-0", failOnDataLoss=value) for value in ("true", "false"))
    planned = strict.partitions()
    (home / "orders-0" / f"{100:020d}.log").unlink()
    (home / "log-start-offset-checkpoint").write_text("0\n1\norders 0 150\n")
    with pytest.raises(ValueError, match=r"now has the offsets 150 to 200, but 110 to 150 were to be read"):
        list(strict.read(planned[0]))
    assert list(lenient.read(planned[0])) == []
    assert "of 110 to 150 the rest is left out" in caplog.text
    assert next(strict.read(planned[1])).num_rows == 50


def test_segments_replaced_while_they_are_read(home: Path) -> None:
    """As compaction does it: the task looks the log up again and goes on behind the last row."""
    reader = reader_of(home / "orders-0", minPartitionBytes="1g")
    (task,) = reader.partitions()
    found = []
    for batch in reader.read(task):
        found += batch.column("offset").to_pylist()
        for base in (50, 100) if len(found) < 150 else ():
            log = home / "orders-0" / f"{base:020d}.log"
            copy = log.with_suffix(".swap")
            copy.write_bytes(log.read_bytes())
            copy.rename(log)
    assert found == list(range(200))


def test_damaged_data(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = home / "orders-0" / f"{50:020d}.log"
    data = bytearray(log.read_bytes())
    step = len(data) // 5
    data[step + 70] ^= 1
    log.write_bytes(data)
    with pytest.raises(Exception, match=r"position .* wrong checksum of the batch with offsets 60 to 69"):
        offsets(home / "orders-0")
    good = [*range(60), *range(70, 200)]
    assert offsets(home / "orders-0", failOnDataLoss="false") == good
    assert "left out" in caplog.text
    log.write_bytes(data[: 3 * step + 20])
    with pytest.raises(Exception, match="the file ends inside a batch"):
        offsets(home / "orders-0", offset(ds.GreaterThan, 70))
    assert offsets(home / "orders-0", failOnDataLoss="false") == [*range(60), *range(70, 80), *range(100, 200)]


def test_a_log_in_use_ends_with_its_last_whole_batch(home: Path) -> None:
    log = home / "other-0" / f"{0:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + build_batch([Record(0, T0, b"k", b"v" * 100)], base_offset=5)[:90])
    assert offsets(home / "other-0") == [0, 1, 2, 3, 4]
    log.write_bytes(whole + bytes(5000))
    assert ranges(home / "other-0") == ["other-0:0-5"]
