"""Records read as columns against the same records read one by one: equal, whatever the batches are like."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from barnabas.kproto.records import CorruptRecords, Record, build_batch, read_header
from barnabas.kproto.records_legacy import build_message_set
from barnabas.logdir.files.disk import ReadOnlyDisk
from barnabas.logdir.offline.batch import Batch
from barnabas.logdir.offline.walk import walk

pa = pytest.importorskip("pyarrow")

from barnabas.logdir.offline import arrow_fast, columns  # noqa: E402

T0 = 1_700_000_000_000
SEEDS = range(30)


def as_batches(*parts: bytes | bytearray) -> list[Batch]:
    return [Batch(read_header(part), 0, memoryview(bytes(part)), ReadOnlyDisk(), "a.log") for part in parts]


def plain(batches: Sequence[Batch]) -> Iterator[dict[str, object]]:
    """What Spark's Kafka source would show."""
    for batch in batches:
        for record in batch.records():
            headers = [
                (key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), value)
                for key, value in record.headers
            ]
            yield {
                "key": record.key,
                "value": record.value,
                "topic": "events",
                "partition": 3,
                "offset": record.offset,
                "timestamp": record.timestamp * 1000,
                "timestampType": record.timestamp_type if batch.magic else -1,
                "headers": headers or None,
            }


def fast(batches: Sequence[Batch], **options: object) -> list[dict[str, object]]:
    rows = []
    for found in arrow_fast.iter_record_batches(batches, topic="events", partition=3, **options):  # type: ignore[arg-type]
        found.validate(full=True)
        assert found.num_rows
        columns = {name: found.column(name) for name in found.schema.names}
        if "timestamp" in columns:
            columns["timestamp"] = columns["timestamp"].cast(pa.int64())
        for row in range(found.num_rows):
            values = {name: column[row].as_py() for name, column in columns.items()}
            if values.get("headers"):
                values["headers"] = [(header["key"], header["value"]) for header in values["headers"]]
            rows.append(values)
    return rows


def some_bytes(rnd: random.Random, size: int) -> bytes | None:
    return None if rnd.random() < 0.15 else rnd.randbytes(rnd.choice((0, size, size, rnd.randrange(size + 1))))


def some_records(rnd: random.Random) -> list[Record]:
    """Of one length, of all lengths, with few or many headers: chosen once for a batch."""
    count = rnd.choice((1, 3, 30, 100, 300))
    uniform, size = rnd.random() < 0.4, rnd.choice((1, 20, 100, 20_000 if count < 30 else 100))
    many = rnd.random() < 0.3
    records, offset = [], 0
    for number in range(count):
        key, value = (b"key %6d" % number, bytes(size)) if uniform else (some_bytes(rnd, 30), some_bytes(rnd, size))
        names = rnd.choices(("a", "schlüssel", "", "\udcff"), k=rnd.randrange(4)) if many else ()
        headers = tuple((name, some_bytes(rnd, 5)) for name in names)
        offset += rnd.choice((1, 1, 1, 200)) if many else 1
        records.append(Record(offset, T0 + rnd.choice((0, number, -number, number * 10**9)), key, value, headers))
    return records


def some_batch(rnd: random.Random) -> bytearray:
    base = rnd.choice((0, 5_000_000_000))
    records = [record._replace(offset=base + record.offset) for record in some_records(rnd)]
    append_time = rnd.choice((None, None, T0 + 77))
    return build_batch(
        records, base_offset=base, codec=rnd.randrange(5), keep_offsets=True, log_append_time_ms=append_time
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_columns_are_the_records(seed: int) -> None:
    rnd = random.Random(seed)
    batches = as_batches(*(some_batch(rnd) for _ in range(rnd.randrange(1, 5))))
    options = {"rows": rnd.choice((7, 1000)), "group_bytes": rnd.choice((1, 10_000, 1 << 22))}
    assert fast(batches, **options) == list(plain(batches))


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_records_are_read_alike_or_refused_alike(seed: int) -> None:
    """Records that changed without their checksum: nothing is made up, nothing crashes."""
    rnd = random.Random(seed)
    for _ in range(10):
        data = build_batch(some_records(rnd)[:40])
        for _ in range(rnd.randrange(1, 3)):
            data[rnd.randrange(61, len(data))] = rnd.choice((0, 1, 2, 127, 128, 255, rnd.randrange(256)))
        batches = as_batches(data)
        try:
            expected: list[dict[str, object]] | None = list(plain(batches))
        except CorruptRecords:
            expected = None
        found: list[dict[str, object]] | None = None
        with contextlib.suppress(CorruptRecords):
            found = fast(batches)
        assert found == expected


@pytest.mark.parametrize("change", [(57, 2), (57, 255), (60, 9), (60, 11)], ids=["many", "negative", "fewer", "more"])
def test_another_count_than_there_are(change: tuple[int, int]) -> None:
    data = build_batch([Record(i, T0, b"k", b"v") for i in range(10)])
    at, value = change
    data[at] = value
    with pytest.raises(CorruptRecords, match="position 0"):
        fast(as_batches(data))


def test_bounds_columns_and_shells() -> None:
    records = [Record(i, T0 + (i * 7) % 50, b"k%d" % i, b"v", (("h", None),) * (i % 3)) for i in range(100)]
    parts = [build_batch(records[i : i + 10], base_offset=i) for i in range(0, 100, 10)]
    shell = build_batch([], base_offset=100, last_offset_delta=9)
    batches = as_batches(*parts, shell)
    every = list(plain(batches))
    assert fast(batches, start_offset=15, end_offset=72) == every[15:72]
    inside = [row for row in every if T0 + 10 <= row["timestamp"] / 1000 <= T0 + 20]  # type: ignore[operator]
    assert fast(batches, min_timestamp_ms=T0 + 10, max_timestamp_ms=T0 + 20) == inside
    assert fast(batches, start_offset=100) == []
    some = fast(batches, columns=("offset", "key"), start_offset=98)
    assert some == [{"offset": 98, "key": b"k98"}, {"offset": 99, "key": b"k99"}]
    assert arrow_fast.arrow_schema(("offset", "key")).names == ["offset", "key"]
    with pytest.raises(ValueError, match="no column 'keys'"):
        fast(batches, columns=("keys",))


@pytest.mark.parametrize("codec", [0, 1])
def test_old_formats(tmp_path: Path, codec: int) -> None:
    old = [Record(i, -1, b"k", b"v%d" % i) for i in range(3)]
    newer = [Record(i + 3, T0 + i, None, b"v%d" % i) for i in range(3)]
    data = build_message_set(old, magic=0, codec=codec) + build_message_set(newer, magic=1, codec=codec)
    data += build_batch([Record(6, T0, b"k", None)], base_offset=6)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    disk = ReadOnlyDisk()
    fd = disk.open(str(path))
    batches = list(walk(disk, fd, str(path), 0, len(data), whole=True))
    disk.close(fd)
    rows = fast(batches)
    assert rows == list(plain(batches))
    assert [(row["offset"], row["timestampType"]) for row in rows] == [
        (0, -1),
        (1, -1),
        (2, -1),
        (3, 0),
        (4, 0),
        (5, 0),
        (6, 0),
    ]


def test_what_grows_a_thousandfold_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "PIECE_BYTES", 100_000)
    parts = [build_batch([Record(i, T0, None, bytes(90_000))], base_offset=i, codec=4) for i in range(5)]
    batches = as_batches(*parts)
    found = list(arrow_fast.iter_record_batches(batches, topic="events", partition=3))
    assert [len(batch) for batch in found] == [2, 2, 1]
    # The same for what is read record by record: here because of the damage in the last one.
    data = build_batch([Record(i, T0, b"k", b"v") for i in range(10)], base_offset=5)
    data[60] = 11
    rows = arrow_fast.iter_record_batches([*batches, *as_batches(data)], topic="events", partition=3)
    assert [len(next(rows)) for _ in range(2)] == [2, 2]
    with pytest.raises(CorruptRecords, match="position 0"):
        next(rows)


def test_a_timestamp_too_far_away() -> None:
    with pytest.raises(OverflowError, match="events-3 has a record with timestamp 9223372036854775807 ms"):
        fast(as_batches(build_batch([Record(0, (1 << 63) - 1, b"k", b"v")])))
