"""`verify` says nothing of what is sound, and names each kind of damage; `stats` and `decode` beside it."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.records import Record, build_batch, build_control_batch
from barnabas.kproto.stored import (
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    encode_versioned,
)
from barnabas.logdir.files.checkpoint import (
    HIGH_WATERMARK,
    LEADER_EPOCH,
    LOG_START,
    RECOVERY_POINT,
    encode_lines,
    encode_offsets,
)
from barnabas.logdir.files.layout import CLEAN_SHUTDOWN, META_PROPERTIES, PARTITION_METADATA, encode_partition_metadata
from barnabas.logdir.offline import NotALog, open_log
from barnabas.logdir.offline.decode import OFFSETS, TRANSACTIONS, decode_control, decode_record
from barnabas.logdir.offline.files import kind_of, rows
from barnabas.logdir.offline.problems import KINDS
from barnabas.logdir.offline.stats import EXACT, Distinct, Stats, log_stats
from barnabas.logdir.offline.verify import size_to_verify, verify
from barnabas.logdir.tests.kit import NOW, TOPIC_ID
from barnabas.logdir.tests.offline.offline_kit import copy, make_dir

Damage = Callable[["Place"], None]


class Place:
    """A directory to be damaged, and handles for that. Segments are numbered."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.home = path / "t-0"

    def file(self, suffix: str, number: int = 1) -> Path:
        """The file of a segment, the last one for -1."""
        log = sorted(self.home.glob("*.log"))[number]
        return log.with_suffix(suffix)

    def patch(self, suffix: str, at: int, data: bytes, number: int = 1) -> None:
        file = self.file(suffix, number)
        whole = bytearray(file.read_bytes())
        if at < 0:
            at += len(whole)
        whole[at : at + len(data)] = data
        file.write_bytes(whole)

    def batch(self, index: int, number: int = 1) -> tuple[int, bytearray]:
        """(position, bytes) of a batch."""
        found = list(open_log(self.file(".log", number)).batches())[index]
        return found.position, bytearray(found.data())

    def patch_batch(self, index: int, at: int, data: bytes, *, number: int = 1) -> None:
        """Change a batch behind its back: with a right checksum."""
        position, batch = self.batch(index, number)
        batch[at : at + len(data)] = data
        batch[17:21] = struct.pack(">I", crc32c(bytes(batch[21:])))
        self.patch(".log", position, bytes(batch), number)

    def append(self, suffix: str, data: bytes, number: int = -1) -> None:
        file = self.file(suffix, number)
        file.write_bytes(file.read_bytes() + data)

    def checkpoint(self, name: str, offset: int) -> None:
        (self.path / name).write_bytes(encode_offsets({("t", 0): offset}))

    def txn_index(self) -> Path:
        return sorted(self.home.glob("*.txnindex"))[0]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clean") / "logs"
    make_dir(path)
    return path


def found(path: Path) -> list[tuple[str, str, bool]]:
    """(kind, file name, warning) of every problem."""
    problems = list(verify(str(path)))
    for problem in problems:
        assert problem.kind in KINDS
        assert str(problem).startswith("warning: " if problem.warning else "problem: ")
        assert "\n" not in str(problem)
        assert problem.as_dict()["path"] == problem.path
    return [(problem.kind, Path(problem.path).name, problem.warning) for problem in problems]


@pytest.mark.parametrize("leave_open", [True, False])
@pytest.mark.parametrize("stopped", [True, False])
def test_sound_directories(tmp_path: Path, stopped: bool, leave_open: bool) -> None:
    make_dir(tmp_path / "logs", clean=stopped, leave_open=leave_open, rounds=20)
    assert found(tmp_path / "logs") == []
    assert found(tmp_path / "logs" / "t-0") == []
    for file in [*(tmp_path / "logs" / "t-0").iterdir(), tmp_path / "logs" / META_PROPERTIES]:
        assert found(file) == [], file
    done: list[int] = []
    list(verify(str(tmp_path / "logs"), done.append))
    assert sum(done) == size_to_verify(str(tmp_path / "logs")) > 4000


def _text(name: str, text: str) -> Damage:
    return lambda place: (place.home / name).write_text(text) and None


def _drop_txn_entry(place: Place) -> None:
    file = place.txn_index()
    file.write_bytes(file.read_bytes()[34:])


def _invent_txn_entry(place: Place) -> None:
    file = place.txn_index()
    data = file.read_bytes()
    base = int(file.stem)
    file.write_bytes(struct.pack(">hqqqq", 0, 77, base, base, base + 1) + data)


def _late_txn_start(place: Place) -> None:
    file = place.txn_index()
    data = bytearray(file.read_bytes())
    (start,) = struct.unpack_from(">q", data, 10)
    struct.pack_into(">q", data, 10, start + 1)
    file.write_bytes(data)


def _swap_batches(place: Place) -> None:
    first, one = place.batch(1)
    _, other = place.batch(2)
    place.patch(".log", first, bytes(other + one))


def _snapshot(place: Place, change: Callable[[bytearray], None]) -> None:
    file = sorted(place.home.glob("*.snapshot"))[1]
    data = bytearray(file.read_bytes())
    change(data)
    file.write_bytes(data)


def _future_snapshot(place: Place) -> None:
    """One that knows offsets of its own future."""

    def change(data: bytearray) -> None:
        struct.pack_into(">q", data, 10 + 14, 100_000)
        struct.pack_into(">I", data, 2, crc32c(bytes(data[6:])))

    _snapshot(place, change)


def _directory(place: Place) -> None:
    (place.home / LEADER_EPOCH).unlink()
    (place.home / LEADER_EPOCH).mkdir()


def _other_topic_id(place: Place) -> None:
    other = place.path / "t-1"
    copy(place.home, other)
    (other / PARTITION_METADATA).write_bytes(encode_partition_metadata(TOPIC_ID[::-1]))


# What is done, and what is said: kind, a part of the file's name.
DAMAGE: dict[str, tuple[Damage, str, str]] = {
    "a bit in a record": (lambda p: p.patch(".log", p.batch(_plain(p))[0] + 66, b"\x55"), "crc", ".log"),
    "a length": (lambda p: p.patch(".log", p.batch(2)[0] + 8, b"\xff"), "frame", ".log"),
    "a magic": (lambda p: p.patch(".log", p.batch(2)[0] + 16, b"\x05"), "frame", ".log"),
    "a segment cut short": (lambda p: p.file(".log").write_bytes(p.file(".log").read_bytes()[:-9]), "frame", ".log"),
    "zeros in the middle": (lambda p: p.append(".log", bytes(200), 1), "frame", ".log"),
    "a torn end": (lambda p: p.append(".log", b"\0\0\0\0\0\0\0\x99\0\0\x99"), "torn-tail", ".log"),
    "zeros at the end": (lambda p: p.append(".log", bytes(300)), "torn-tail", ".log"),
    "batches in another order": (_swap_batches, "offsets", ".log"),
    "an offset of an earlier segment": (lambda p: p.patch(".log", 0, bytes(8)), "offsets", ".log"),
    "an offset of the next segment": (lambda p: p.patch(".log", p.batch(-1)[0] + 4, b"\x01"), "offsets", ".log"),
    "more records than offsets": (lambda p: p.patch_batch(0, 57, b"\0\0\1\0"), "record-count", ".log"),
    "more records than said": (lambda p: p.patch_batch(_plain(p), 57, b"\0\0\0\1"), "records", ".log"),
    "an unknown codec": (lambda p: p.patch_batch(0, 22, b"\x06"), "records", ".log"),
    "another codec": (lambda p: p.patch_batch(_plain(p), 22, b"\x04"), "records", ".log"),
    "another largest time": (lambda p: p.patch_batch(_plain(p), 35, bytes(8)), "max-timestamp", ".log"),
    "another leader epoch": (lambda p: p.patch(".log", p.batch(1)[0] + 12, b"\0\0\0\1"), "leader-epoch", ".log"),
    "a marker of no type": (lambda p: p.patch_batch(_control(p), 67, b"\xff\xff"), "control", ".log"),
    "an index's position": (lambda p: p.patch(".index", 7, b"\x07"), "index", ".index"),
    "an index's offset": (lambda p: p.patch(".index", 0, b"\0\0\0\0"), "index", ".index"),
    "an index that falls": (lambda p: p.append(".index", struct.pack(">iI", 1, 1), 1), "index", ".index"),
    "an index's length": (lambda p: p.append(".index", b"abc", 1), "index", ".index"),
    "an index behind the log": (lambda p: p.append(".index", b"\0\0\x7f\0\0\x7f\0\0"), "index-ahead", ".index"),
    "no index": (lambda p: p.file(".index").unlink(), "index-missing", ".index"),
    "a time too late": (lambda p: p.patch(".timeindex", 7, b"\xff"), "timeindex", ".timeindex"),
    "a time's offset": (lambda p: p.patch(".timeindex", 8, b"\0\0\0\0"), "timeindex", ".timeindex"),
    "no time at the end": (lambda p: p.file(".timeindex").write_bytes(p.file(".timeindex").read_bytes()[:-12]),
                           "timeindex", ".timeindex"),
    "no time index": (lambda p: p.file(".timeindex").unlink(), "index-missing", ".timeindex"),
    "an abort without entry": (_drop_txn_entry, "txnindex", ".txnindex"),
    "an entry without abort": (_invent_txn_entry, "txnindex", ".txnindex"),
    "an entry that starts late": (_late_txn_start, "txnindex", ".txnindex"),
    "half an entry": (lambda p: p.txn_index().write_bytes(p.txn_index().read_bytes() + b"x"), "txnindex", ".txnindex"),
    "a bit in a snapshot": (lambda p: _snapshot(p, lambda data: data.__setitem__(12, 9)), "snapshot", ".snapshot"),
    "a snapshot of the future": (_future_snapshot, "snapshot", ".snapshot"),
    "a snapshot behind the end": (
        lambda p: sorted(p.home.glob("*.snapshot"))[0].rename(p.home / f"{10**6:020d}.snapshot") and None,
        "snapshot-ahead", ".snapshot"),
    "an epoch behind the end": (_text(LEADER_EPOCH, "0\n1\n7 100000\n"), "checkpoint", LEADER_EPOCH),
    "epochs that fall": (_text(LEADER_EPOCH, "0\n2\n1 5\n0 9\n"), "checkpoint", LEADER_EPOCH),
    "epochs that are none": (_text(LEADER_EPOCH, "0\n1\na b\n"), "checkpoint", LEADER_EPOCH),
    "another count of epochs": (_text(LEADER_EPOCH, encode_lines(["0 0"]).decode() + "1 5\n"),
                                "checkpoint", LEADER_EPOCH),
    "a recovery point behind the end": (lambda p: p.checkpoint(RECOVERY_POINT, 10**6), "checkpoint", RECOVERY_POINT),
    "a negative log start": (lambda p: p.checkpoint(LOG_START, -5), "checkpoint", LOG_START),
    "a high watermark behind the end": (
        lambda p: p.checkpoint(HIGH_WATERMARK, 10**6), "checkpoint-ahead", HIGH_WATERMARK),
    "a checkpoint of garbage": (lambda p: (p.path / LOG_START).write_text("x") and None, "checkpoint", LOG_START),
    "a checkpoint of a stranger": (
        lambda p: (p.path / LOG_START).write_bytes(encode_offsets({("gone", 3): 1})) and None,
        "checkpoint-orphan", LOG_START),
    "a checkpoint that is a directory": (_directory, "unreadable", LEADER_EPOCH),
    "a topic id of nothing": (_text(PARTITION_METADATA, "version: 0\ntopic_id: ???"), "metadata", PARTITION_METADATA),
    "two topic ids": (_other_topic_id, "metadata", PARTITION_METADATA),
    "a version that is none": (lambda p: (p.path / META_PROPERTIES).write_text("version=x\n") and None,
                               "metadata", META_PROPERTIES),
    "a directory that is no partition": (lambda p: (p.path / "lost+found").mkdir(), "name", "lost+found"),
    "a topic with a bad name": (lambda p: copy(p.home, p.path / "a b-0") and None, "name", "a b-0"),
    "a strange file": (lambda p: (p.home / "core").touch(), "unknown-file", "core"),
    "a strange file above": (lambda p: (p.path / "core").touch(), "unknown-file", "core"),
    "a leftover": (lambda p: (p.home / f"{3:020d}.log.deleted").touch(), "leftover", ".deleted"),
    "a segment set aside": (lambda p: (p.home / f"{10**6:020d}.log.1700000000000.aside").touch(), "leftover", ".aside"),
    "an index of no segment": (lambda p: (p.home / f"{10**6:020d}.index").touch(), "index-orphan", ".index"),
}  # fmt: skip


def _plain(place: Place) -> int:
    """The number of an uncompressed batch of several records."""
    batches = list(open_log(place.file(".log")).batches())
    return next(number for number, batch in enumerate(batches) if not batch.codec and batch.record_count > 1)


def _control(place: Place) -> int:
    return next(number for number, batch in enumerate(open_log(place.file(".log")).batches()) if batch.is_control)


WARNINGS = {
    *("index-missing", "index-orphan", "unknown-file", "leftover", "checkpoint-orphan"),
    *("torn-tail", "index-ahead", "snapshot-ahead", "checkpoint-ahead"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_each_kind_of_damage_has_its_name(what: str, clean: Path, tmp_path: Path) -> None:
    damage, kind, name = DAMAGE[what]
    place = Place(copy(clean, tmp_path / "logs"))
    (place.path / CLEAN_SHUTDOWN).unlink()
    damage(place)
    problems = found(place.path)
    assert any(one == kind and name in file for one, file, _ in problems), problems
    assert all(warning == (one in WARNINGS) for one, _, warning in problems), problems
    # Nothing else is said than what follows from it.
    follows = {
        "frame": {"index", "timeindex", "txnindex", "frame"},
        "offsets": {"offsets", "index", "timeindex", "txnindex", "index-ahead", "leader-epoch"},
        "name": {"name", "metadata"},
        "max-timestamp": {"max-timestamp", "timeindex"},
        "control": {"control", "txnindex"},
    }
    assert {one for one, _, _ in problems} <= follows.get(kind, {kind}), problems


@pytest.mark.parametrize("what", ["a torn end", "zeros at the end", "an index behind the log"])
def test_after_a_clean_stop_there_is_no_excuse(what: str, clean: Path, tmp_path: Path) -> None:
    place = Place(copy(clean, tmp_path / "logs"))
    DAMAGE[what][0](place)
    assert [(kind, warning) for kind, _, warning in found(place.path)] == [(DAMAGE[what][1], False)]
    assert [(kind, warning) for kind, _, warning in found(place.home)] == [(DAMAGE[what][1], False)]


def test_every_kind_is_tested() -> None:
    assert {kind for _, kind, _ in DAMAGE.values()} == set(KINDS) - {"gone"}


def test_files_that_go_while_they_are_looked_at(clean: Path, tmp_path: Path) -> None:
    """A broker deletes a segment, its snapshot, the whole partition."""
    home = copy(clean, tmp_path / "logs") / "t-0"
    doomed = [sorted(home.glob("*.log"))[2], sorted(home.glob("*.snapshot"))[2]]

    def remove(size: int) -> None:
        for file in doomed:
            file.unlink(missing_ok=True)

    problems = list(verify(str(home), remove))
    assert {(problem.kind, problem.path, problem.warning) for problem in problems} == {
        ("gone", str(file), True) for file in doomed
    }


def test_a_log_that_grows_has_indexes_ahead(clean: Path, tmp_path: Path) -> None:
    place = Place(copy(clean, tmp_path / "logs"))
    last = place.file(".log", -1)
    place.append(".index", b"\0\0\x7f\0\0\x7f\0\0")

    def grow(size: int) -> None:
        with last.open("ab") as file:
            file.write(bytes(7))

    assert [problem.kind for problem in verify(str(place.home))] == ["index-ahead"]
    assert [problem.kind for problem in verify(str(place.home), grow)] == []
    assert [problem.kind for problem in verify(str(place.home))] == ["torn-tail", "index-ahead"]
    assert [problem.kind for problem in verify(str(place.home), grow)] == []


def test_one_bad_batch_does_not_hide_the_next(clean: Path, tmp_path: Path) -> None:
    place = Place(copy(clean, tmp_path / "logs"))
    for index in (1, 3):
        place.patch(".log", place.batch(index)[0] + 22, b"\x40")
    place.patch(".log", place.batch(0, 3)[0] + 22, b"\x40", 3)
    problems = [problem for problem in verify(str(place.path)) if problem.kind == "crc"]
    assert [problem.position for problem in problems] == [place.batch(1)[0], place.batch(3)[0], 0]


def test_indexes_in_use_end_in_zeros(clean: Path, tmp_path: Path) -> None:
    """Apache Kafka makes those of the last segment 10 MiB long in advance."""
    place = Place(copy(clean, tmp_path / "logs"))
    place.append(".index", bytes(80_000))
    place.append(".timeindex", bytes(120_000))
    assert found(place.path) == []
    assert list(rows(str(place.file(".index", -1)))) == list(rows(str(clean / "t-0" / place.file(".index", -1).name)))


def test_one_index_entry_for_batches_that_came_together(clean: Path, tmp_path: Path) -> None:
    """Before 4.0 Apache Kafka's followers and cleaner wrote such: the first position, the last offset."""
    place = Place(copy(clean, tmp_path / "logs"))
    base = int(place.file(".log").stem)
    batches = list(open_log(place.file(".log")).batches())
    place.file(".index").write_bytes(struct.pack(">iI", batches[3].last_offset - base, batches[1].position))
    assert found(place.path) == []
    place.file(".index").write_bytes(struct.pack(">iI", batches[3].last_offset - base + 100, batches[1].position))
    assert [kind for kind, _, _ in found(place.path)] == ["index"]


def test_gaps_and_empty_batches_are_no_problem(tmp_path: Path) -> None:
    """What compaction leaves."""
    home = tmp_path / "c-0"
    home.mkdir()
    data = build_batch([Record(2, NOW, b"a", b"1"), Record(7, NOW + 5, b"b", b"2")], keep_offsets=True, base_offset=1)
    data += build_batch([], base_offset=8, last_offset_delta=3, producer_id=4, producer_epoch=0, base_sequence=9)
    data += build_batch([Record(30, NOW - 9, b"a", None)], keep_offsets=True, base_offset=20, codec=3)
    (home / f"{0:020d}.log").write_bytes(data)
    assert [kind for kind, _, _ in found(home)] == ["index-missing"] * 2
    stats = log_stats(open_log(home))
    assert (stats.records, stats.empty_batches, stats.tombstones, stats.end_offset) == (3, 1, 1, 31)


def test_paths_that_cannot_be_verified(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    (tmp_path / f"{0:020d}.index").touch()
    for path in (tmp_path / "x", tmp_path / f"{0:020d}.index"):
        with pytest.raises(NotALog):
            list(verify(str(path)))
    with pytest.raises(NotALog):
        kind_of("/somewhere/x")


# ---- statistics


def test_statistics(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(clean / "t-0")
    done: list[int] = []
    stats = log_stats(log, progress=done.append)
    records = list(log.records(control=True))
    data = [record for record in records if not record.batch.is_control]
    assert sum(done) == stats.bytes == log.size
    assert stats.records == len(records)
    assert stats.data_records == len(data)
    assert stats.control_records == len(records) - len(data)
    assert stats.transactional_records == sum(record.batch.is_transactional for record in data)
    assert stats.tombstones == sum(record.value is None for record in data)
    assert stats.keyed_records == sum(record.key is not None for record in data)
    assert stats.keys.count == len({record.key for record in data} - {None})
    assert stats.producers.count == 2
    assert stats.value_bytes == sum(len(record.value or b"") for record in data)
    assert (stats.oldest_ms, stats.newest_ms) == (min(r.timestamp for r in records), max(r.timestamp for r in records))
    assert stats.batches == len(list(log.batches())) == sum(stats.codecs.values())
    assert set(stats.codecs) == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert stats.compression_ratio is not None
    assert stats.compression_ratio > 0.8
    quick = log_stats(log, full=False)
    assert (quick.records, quick.batches, quick.bytes) == (stats.records, stats.batches, stats.bytes)
    assert "tombstones" not in quick.as_dict()
    total = Stats(partitions=0)
    total.add(stats)
    total.add(stats)
    assert (total.partitions, total.records, total.keys.count) == (2, 2 * stats.records, stats.keys.count)
    # Without numpy, the slow way.
    monkeypatch.setitem(sys.modules, "barnabas.logdir.offline.columns", None)
    assert log_stats(log).as_dict() == stats.as_dict()


def test_distinct_keys_are_exact_while_there_are_few_and_near_then() -> None:
    few, many = Distinct(), Distinct()
    for number in range(EXACT):
        few.add(b"%d" % (number // 2))
    assert (few.count, few.is_exact) == (EXACT // 2, True)
    for number in range(60_000):
        many.add(b"user-%d" % (number % 40_000))
    assert not many.is_exact
    assert abs(many.count - 40_000) < 40_000 * 0.05
    few.merge(many)
    assert abs(few.count - 42_048) < 42_048 * 0.05


# ---- decoded records


def test_committed_offsets_and_groups() -> None:
    key = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    value = encode_versioned(OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=NOW), 3)
    assert decode_record(OFFSETS, key, value) == {
        "kind": "offset_commit",
        "key": {"group": "g", "topic": "t", "partition": 3},
        "value": {"version": 3, "offset": 9, "leader_epoch": 2, "metadata": "m", "commit_timestamp": NOW},
    }
    assert decode_record(OFFSETS, key, None)["value"] is None
    member = GroupMetadataValue.MemberMetadata(
        member_id="m1",
        client_id="c",
        client_host="/h",
        session_timeout=1,
        subscription=encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 0),
        assignment=b"\xff\xff\xff",
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m1", members=[member])
    shown = decode_record(OFFSETS, encode_versioned(GroupMetadataKey(group="g"), 2), encode_versioned(group, 3))
    assert shown["kind"] == "group_metadata"
    assert shown["value"]["members"][0]["subscription"] == {"topics": ["t"], "user_data": None}
    assert shown["value"]["members"][0]["assignment"] == {"base64": "////"}


def test_transactions() -> None:
    key = encode_versioned(TransactionLogKey(transactional_id="x"), 0)
    value = TransactionLogValue(
        producer_id=7,
        transaction_status=4,
        transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[1, 2])],
    )
    shown = decode_record(TRANSACTIONS, key, encode_versioned(value, 0))
    assert shown["kind"] == "transaction"
    assert shown["key"] == {"transactional_id": "x"}
    assert shown["value"]["transaction_status"] == "CompleteCommit"
    assert shown["value"]["transaction_partitions"] == [{"topic": "t", "partition_ids": [1, 2]}]


@pytest.mark.parametrize("how", [OFFSETS, TRANSACTIONS])
def test_records_that_are_not_what_they_should_be(how: str) -> None:
    good = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=3), 1)
    for key in (None, b"", b"\0", b"\0\x63abc", b"\xff\xff", *(good[:cut] for cut in range(len(good)))):
        for value in (None, b"", b"\0\x01", b"\xff\xff\xff", bytes([0, 3, *range(40)])):
            assert decode_record(how, key, value)["kind"]
    assert "error" in decode_record(OFFSETS, good, b"\0\x63")


def test_control_records() -> None:
    def control(buf: bytearray) -> dict[str, object]:
        from barnabas.kproto.records import iter_records

        (record,) = iter_records(buf)
        return decode_control(record.key, record.value)

    marker = build_control_batch(producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=5, timestamp=NOW)
    assert control(marker) == {"kind": "commit", "coordinator_epoch": 5}
    change = bytes.fromhex("0000 0000 0001 0200 0000 0100 0200 0000 0100 00")
    assert decode_control(b"\0\0\0\x02", change) == {
        "kind": "leader_change",
        "value": {
            "version": 0,
            "leader_id": 1,
            "voters": [{"voter_id": 1}],
            "granting_voters": [{"voter_id": 1}],
        },
    }
    assert decode_control(b"\0\0\0\x63", b"")["kind"] == "unknown"
    assert "error" in decode_control(b"", b"")
    assert "error" in decode_control(b"\0\0\0\x02", b"\0")


def test_small_files_as_rows(clean: Path) -> None:
    home = clean / "t-0"
    assert list(rows(str(clean / META_PROPERTIES))) == [
        {"key": "version", "value": "0"},
        {"key": "broker.id", "value": "1"},
        {"key": "cluster.id", "value": "test"},
    ]
    assert [row["epoch"] for row in rows(str(home / LEADER_EPOCH))] == [0, 1, 2]
    assert list(rows(str(clean / HIGH_WATERMARK))) == [
        {"topic": "t", "partition": 0, "offset": open_log(home).end_offset()}
    ]
    assert {row["producer_id"] for row in rows(str(sorted(home.glob("*.snapshot"))[-1]))} == {1, 2}
    (first, *_) = rows(str(sorted(home.glob("*.txnindex"))[0]))
    assert set(first) == {"producer_id", "first_offset", "last_offset", "last_stable_offset"}
    assert next(rows(str(home / PARTITION_METADATA)))["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
