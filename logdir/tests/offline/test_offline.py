"""Reading logs without a broker: what comes out, within which bounds, and what is left alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from barnabas import logdir
from barnabas.kproto.records import CorruptRecords, Record, build_batch, parse_control_record
from barnabas.kproto.records_legacy import build_message_set
from barnabas.logdir import LogConfig
from barnabas.logdir.files.checkpoint import LOG_START, encode_offsets
from barnabas.logdir.files.disk import Disk, ReadOnlyDisk
from barnabas.logdir.offline import LogRecord, NotALog, SegmentGone, is_log_dir, open_log, open_log_dir
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, open_dir, put
from barnabas.logdir.tests.offline.offline_kit import copy, make_dir

ROOT = Path(__file__).resolve().parents[3]
INDEXES = (".index", ".timeindex")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """A directory that is not changed by the tests, and what it holds."""
    path = tmp_path_factory.mktemp("made") / "logs"
    return path, make_dir(path)


def plain(record: LogRecord) -> Record:
    return Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


def markers(written: list[Record]) -> set[int]:
    return {record.offset for record in written if record.value == b"\0\0\0\0\0\x03"}


def test_every_record_comes_out_as_it_was_written(made: tuple[Path, list[Record]]) -> None:
    path, written = made
    log = logdir.open_log(path / "t-0")
    assert (log.topic, log.partition, log.topic_id) == ("t", 0, TOPIC_ID)
    assert len(log.segments) > 3
    assert log.size == sum(file.stat().st_size for file in (path / "t-0").glob("*.log"))
    found = list(log.records(control=True))
    assert [plain(record) for record in found] == written
    assert log.end_offset() == len(written) == log.high_watermark
    assert {record.offset for record in found if record.batch.is_control} == markers(written)
    assert [record.offset for record in log.records()] == [
        r.offset for r in written if r.offset not in markers(written)
    ]
    batch = found[2].batch
    assert (batch.codec_name, batch.magic, batch.timestamp_type, batch.leader_epoch) == ("gzip", 2, 0, 0)
    assert {record.batch.leader_epoch for record in found} == {0, 1, 2}
    assert {record.batch.producer_id for record in found} == {-1, 1, 2}


def test_bounds_give_what_a_filter_gives(made: tuple[Path, list[Record]]) -> None:
    path, written = made
    log = open_log(path / "t-0")
    rng = random.Random(7)
    for _ in range(25):
        low = rng.randrange(-3, len(written) + 3)
        high = low + rng.randrange(40)
        wanted = [record for record in written if low <= record.offset < high]
        assert [plain(r) for r in log.records(start_offset=low, end_offset=high, control=True)] == wanted
        oldest = NOW + rng.randrange(-400, 4200)
        newest = oldest + rng.randrange(500)
        wanted = [record for record in written if oldest <= record.timestamp <= newest]
        found = log.records(min_timestamp_ms=oldest, max_timestamp_ms=newest, control=True)
        assert [plain(record) for record in found] == wanted
        first = next((r.offset for r in written if r.timestamp >= oldest and r.offset not in markers(written)), None)
        assert log.offset_for_time(oldest) == first
        wanted = [record for record in written if record.timestamp >= oldest and record.offset >= low]
        found = log.records(min_timestamp_ms=oldest, start_offset=low, control=True)
        assert [plain(record) for record in found] == wanted


def test_indexes_are_used_and_not_believed(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, written = made
    # Used: what lies before the entry is not read.
    home = copy(path, tmp_path / "cut") / "t-0"
    segment = open_log(home).segments[2]
    entry = segment.index_entries()[-1]
    with open(segment.path, "r+b") as file:
        file.write(b"\xff" * (entry.position - 1))
    found = segment.records(start_offset=entry.last_offset + 1, control=True)
    assert [plain(r) for r in found] == written[entry.last_offset + 1 : segment.next_base_offset]
    # Not believed.
    for number, spoil in enumerate(
        (
            lambda data: None,
            lambda data: b"",
            lambda data: data + b"\0" * 4000,
            lambda data: data[:-3],
            lambda data: os.urandom(len(data)),
            lambda data: data[: len(data) // 2] + b"\x7f" * (len(data) - len(data) // 2),
            lambda data: b"\0" * len(data),
        )
    ):
        home = copy(path, tmp_path / str(number)) / "t-0"
        for suffix in INDEXES:
            for file in home.glob(f"*{suffix}"):
                spoiled = spoil(file.read_bytes())
                file.unlink()
                if spoiled is not None:
                    file.write_bytes(spoiled)
        log = open_log(home)
        for offset in range(0, len(written), 19):
            found = log.records(start_offset=offset, end_offset=offset + 5, control=True)
            assert [plain(record) for record in found] == written[offset : offset + 5], number
        for time in range(NOW, NOW + 4000, 900):
            found = log.records(min_timestamp_ms=time, control=True)
            assert [plain(r) for r in found] == [r for r in written if r.timestamp >= time], number
        assert log.end_offset() == len(written)
        assert max(s.largest_timestamp() for s in log.segments) == max(r.timestamp for r in written)


def test_committed_records_only(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, written = made
    log = open_log(path / "t-0")
    # The model: a transaction's data waits for its marker.
    waiting: dict[int, list[int]] = {1: [], 2: []}
    dropped: set[int] = set()
    for record in log.records(control=True):
        if record.batch.is_control:
            if parse_control_record(Record(key=record.key, value=record.value))[0] == 0:
                dropped.update(waiting[record.batch.producer_id])
            waiting[record.batch.producer_id].clear()
        elif record.batch.is_transactional:
            waiting[record.batch.producer_id].append(record.offset)
    stable = min([len(written), *(offsets[0] for offsets in waiting.values() if offsets)])
    assert dropped
    assert log.last_stable_offset() == stable < len(written)
    wanted = [r.offset for r in written if r.offset < stable and r.offset not in dropped | markers(written)]
    assert [record.offset for record in log.records(isolation="read_committed")] == wanted
    keep = log.committed_filter()
    batches = [batch for batch in log.batches() if keep(batch)]
    assert [record.offset for batch in batches for record in batch.records()] == wanted
    # One file alone still knows what was aborted, and takes the end from whoever asks.
    found = []
    for segment in log.segments:
        alone = open_log(segment.path)
        assert len(alone.segments) == 1
        assert not alone.is_whole
        found += [record.offset for record in alone.records(isolation="read_committed", end_offset=stable)]
    assert found == wanted
    # Without snapshots the log is read from its start.
    home = copy(path, tmp_path / "copy") / "t-0"
    for file in home.glob("*.snapshot"):
        file.unlink()
    assert open_log(home).last_stable_offset() == stable
    with pytest.raises(ValueError, match="read_uncommitted"):
        list(log.records(isolation="serializable"))  # type: ignore[arg-type]  # what a user may well write


def test_nothing_is_written_and_a_read_only_copy_will_do(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, written = made
    home = copy(path, tmp_path / "copy")

    def state() -> dict[str, tuple[int, int, int]]:
        return {
            str(file): (file.stat().st_size, file.stat().st_mtime_ns, file.stat().st_mode)
            for file in sorted(home.rglob("*"))
        }

    for file in (home / "t-0").iterdir():
        file.chmod(0o444)
    before = state()
    (log,) = open_log_dir(home).partitions
    assert len(list(log.records(isolation="read_committed", min_timestamp_ms=NOW))) > 10
    assert len(list(log.records(control=True))) == len(written)
    assert state() == before


def test_the_disk_that_only_reads_refuses_everything_else(tmp_path: Path) -> None:
    disk = ReadOnlyDisk()
    reading = {"open", "pread", "size", "list", "close", "identity"}
    calls = {name for name in dir(Disk) if not name.startswith("_")} - reading
    assert calls >= {"pwritev", "truncate", "rename", "remove", "remove_dir", "make_dir", "sync", "lock"}
    for name in calls:
        with pytest.raises(OSError, match="reading only"):
            getattr(disk, name)(str(tmp_path / "x"))
    with pytest.raises(OSError, match="reading only"):
        disk.open(str(tmp_path / "x"), create=True)


def test_a_log_in_use(tmp_path: Path) -> None:
    log_dir = open_dir(None, str(tmp_path))
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    put(log, "a", "b")
    reader = open_log(tmp_path / "t-0")
    put(log, "c")
    assert [record.value for record in reader.records()] == [b"a", b"b"]
    assert reader.end_offset() == 2
    assert [record.value for record in open_log(tmp_path / "t-0").records()] == [b"a", b"b", b"c"]
    # Space reserved for later, and a batch that is just being written.
    file = tmp_path / "t-0" / f"{0:020d}.log"
    whole = file.read_bytes()
    tails = (bytes(5), bytes(60), bytes(100_000), *(whole[:cut] for cut in (5, 11, 16, 26, 40, 60, 61, 70)))
    for tail in tails:
        file.write_bytes(whole + tail)
        reader = open_log(tmp_path / "t-0")
        assert [record.offset for record in reader.records()] == [0, 1, 2]
        assert reader.end_offset() == 3
    log_dir.unlock()


def test_what_cannot_be_read_says_where(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, _ = made
    home = copy(path, tmp_path / "copy") / "t-0"
    files = sorted(home.glob("*.log"))
    whole = files[1].read_bytes()
    batches = list(open_log(files[1]).batches())
    third = batches[2]

    def spoiled(data: bytes) -> str:
        files[1].write_bytes(data)
        with pytest.raises(CorruptRecords) as caught:
            list(open_log(home).records())
        assert str(files[1]) in str(caught.value)
        return str(caught.value)

    data = bytearray(whole)
    data[third.position + 70] ^= 1
    assert f"position {third.position}: wrong checksum" in spoiled(data)
    assert len(list(open_log(home).batches(whole=True, check_crcs=False))) == len(
        list(open_log(path / "t-0").batches())
    )
    data = bytearray(whole)
    data[third.position + 16] = 9
    assert f"position {third.position}: unknown magic 9" in spoiled(data)
    data = bytearray(whole)
    data[third.position + 8 : third.position + 12] = b"\xff\xff\xff\xff"
    assert "impossible batch length -1" in spoiled(data)
    # Only the last segment may end inside a batch.
    assert "ends inside a batch" in spoiled(whole[:-5])
    assert "zeros instead of a batch" in spoiled(whole + bytes(100))


def test_a_segment_that_goes_away(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, written = made
    home = copy(path, tmp_path / "copy") / "t-0"
    files = sorted(home.glob("*.log"))
    reader = open_log(home)
    records = reader.records(control=True)
    assert plain(next(records)) == written[0]
    files[0].rename(tmp_path / "gone")  # it is open
    files[1].rename(tmp_path / "gone too")
    with pytest.raises(SegmentGone, match="is gone"):
        list(records)
    files[1].write_bytes((tmp_path / "gone too").read_bytes())
    with pytest.raises(SegmentGone, match="replaced"):
        list(reader.records(start_offset=reader.segments[1].base_offset))
    os.truncate(files[2], 100)
    with pytest.raises(SegmentGone, match="cut"):
        list(reader.records(start_offset=reader.segments[2].base_offset))


def test_message_sets_of_old_formats(tmp_path: Path) -> None:
    home = tmp_path / "old-3"
    home.mkdir()
    records = [Record(number, NOW + number, b"k%d" % number, b"v") for number in range(12)]
    data = build_message_set(records[:3], magic=0)
    data += build_message_set(records[3:6], magic=0, codec=1)
    data += build_message_set(records[6:8], magic=1)
    data += build_message_set(records[8:11], magic=1, codec=2)
    data += build_batch(records[11:], base_offset=11)
    (home / f"{0:020d}.log").write_bytes(data)
    log = open_log(home)
    assert (log.topic, log.partition, log.topic_id) == ("old", 3, None)
    wanted = [record._replace(timestamp=-1) if record.offset < 6 else record for record in records]
    assert [plain(record) for record in log.records()] == wanted
    assert [batch.magic for batch in log.batches()] == [0, 0, 0, 0, 1, 1, 1, 2]
    for low in range(13):
        for high in range(low, 13):
            found = [record.offset for record in log.records(start_offset=low, end_offset=high)]
            assert found == list(range(low, min(high, 12))), (low, high)
    assert [record.offset for record in log.records(min_timestamp_ms=NOW + 9)] == [9, 10, 11]
    assert log.end_offset() == 12
    broken = bytearray(data)
    broken[20] ^= 1
    (home / f"{0:020d}.log").write_bytes(broken)
    with pytest.raises(CorruptRecords, match="wrong checksum of the message at offset 0"):
        list(open_log(home).records())


def test_records_below_the_log_start_are_left_out(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, written = made
    home = copy(path, tmp_path / "copy")
    (home / LOG_START).write_bytes(encode_offsets({("t", 0): 7}))
    log = open_log(home / "t-0")
    assert log.start_offset == 7
    assert next(log.records(control=True)).offset == 7
    assert [plain(record) for record in log.segments[0].records(end_offset=3, control=True)] == written[:3]


def test_a_whole_directory(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    path, written = made
    home = copy(path, tmp_path / "copy")
    for name in ("a-1-2", "t-1.00000000000000000000000000000000-delete", "t-2.0123-future"):
        (home / name).mkdir()
        (home / name / f"{5:020d}.log").touch()
    (home / "not a partition").mkdir()
    found = open_log_dir(home)
    assert [(log.topic, log.partition) for log in found.partitions] == [("a-1", 2), ("t", 0)]
    assert found.topics == ("a-1", "t")
    assert found.meta is not None
    assert found.meta.node_id == 1
    assert found.checkpoints["replication-offset-checkpoint"] == {("t", 0): len(written)}
    assert found.partition("a-1", 2).end_offset() == 5
    assert found.size == found.partition("t", 0).size
    with pytest.raises(KeyError):
        found.partition("t", 1)
    assert is_log_dir(str(home))
    assert not is_log_dir(str(home / "t-0"))


def test_paths_that_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for name, opener in (("empty", open_log), ("file", open_log), ("empty", open_log_dir), ("file", open_log_dir)):
        with pytest.raises(NotALog):
            opener(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_log(tmp_path / "not there")


def test_files_under_other_names(made: tuple[Path, list[Record]], tmp_path: Path) -> None:
    """What compaction or deletion left, a KRaft snapshot, a copy without its directory's name."""
    path, written = made
    first = sorted((path / "t-0").glob("*.log"))[1]
    for name in (f"{first.name}.deleted", f"{first.name}.swap", "00000000000000000009-0000000001.checkpoint"):
        file = tmp_path / name
        file.write_bytes(first.read_bytes())
        log = open_log(file)
        assert log.topic is None
        assert log.segments[0].base_offset == int(first.stem)
        found = [plain(record) for record in log.records(control=True)]
        assert found == written[int(first.stem) :][: len(found)]
    assert open_log(file, topic="x", partition=4).topic == "x"


def test_splits_cover_a_segment_once(made: tuple[Path, list[Record]]) -> None:
    path, _ = made
    for segment in open_log(path / "t-0").segments:
        edges = [0, *(entry.position for entry in segment.index_entries()), segment.size]
        found = []
        for start, end in pairwise(edges):
            found += [batch.position for batch in segment.batches_between(start, end)]
        assert found == [batch.position for batch in segment.batches()]


def test_reading_needs_neither_a_broker_nor_arrow() -> None:
    """Spark starts many Python processes that import this."""
    code = (
        "import sys; from barnabas.logdir import offline; "
        "print(sorted({'trio', 'barnabas.server', 'numpy', 'pyarrow', 'kazoo'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_arrow_it_is_said_how_to_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra is not installed: `import numpy` fails."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.delitem(sys.modules, "barnabas.logdir.offline.arrow_fast", raising=False)
    monkeypatch.delitem(sys.modules, "barnabas.logdir.offline.columns", raising=False)
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").touch()
    with pytest.raises(ModuleNotFoundError, match=r"numpy.*pip install '\.\[arrow\]'") as failed:
        list(open_log(directory).to_arrow())
    assert failed.value.name == "numpy"
