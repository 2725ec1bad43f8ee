"""Log directories that are set aside and put back, on a real disk: hard links are what they are about."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from barnabas.kproto import KafkaError
from barnabas.logdir import LogConfig, LogDir
from barnabas.logdir.dirs import snapshot
from barnabas.logdir.files.layout import CLEAN_SHUTDOWN
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, Clock, batch, open_dir, put

CONFIG = LogConfig(segment_bytes=600, retention_ms=1000, index_interval_bytes=100)
SEEDS = int(os.environ.get("BARNABAS_SNAPSHOT_SEEDS", "30"))


def opened(path: Path, clock: Clock | None = None) -> LogDir:
    return open_dir(None, str(path), CONFIG, clock)


def what_is_in(log_dir: LogDir) -> dict[Any, Any]:
    found = {}
    for key, log in log_dir.logs.items():
        files = sorted(Path(log.directory).glob("*.log"))
        found[key] = {
            "start": log.log_start_offset,
            "end": log.log_end_offset,
            "high watermark": log_dir.high_watermark(*key),
            "bases": log.segment_bases,
            "bytes": b"".join(file.read_bytes() for file in files)[: log.size],
            "producers": log.producers.encode(),
            # A start forgets an epoch in which nothing is written: its leader assigns the next one.
            "epochs": [(epoch, start) for epoch, start in log.epochs.entries if start < log.log_end_offset],
            "topic id": log.topic_id,
            "times": [log.offset_for_timestamp(NOW + each) for each in range(0, 60, 7)],
        }
    return found


def high_watermarks(log_dir: LogDir) -> dict[tuple[str, int], int]:
    return {key: log.log_end_offset for key, log in log_dir.logs.items()}


def take(log_dir: LogDir, into: Path) -> dict[Any, Any]:
    """Of a directory that is open, and goes on; what is in it."""
    log_dir.save(high_watermarks(log_dir))
    snapshot.take(log_dir.path, str(into))
    log_dir.checkpoints.high_watermarks(high_watermarks(log_dir))
    return what_is_in(log_dir)


def put_back(tmp_path: Path, number: int = 0, chosen: int | str = "") -> LogDir:
    made = str(tmp_path / f"snapshot{chosen}")
    snapshot.check(made)
    snapshot.put_back(made, str(tmp_path / "data"), str(tmp_path / f"attic{number}"))
    return opened(tmp_path / "data")


def act(rng: random.Random, log_dir: LogDir, clock: Clock, sequences: dict[Any, int]) -> None:
    """Do something to a log."""
    key = "t", rng.randrange(4)
    log = log_dir.open_or_create(*key, TOPIC_ID, CONFIG)
    clock.now_ms += rng.randrange(3)
    match rng.choice("ppppppqqqerdsm"):
        case "p":
            put(log, *[rng.randbytes(rng.randrange(60))] * rng.randrange(1, 4), timestamp=clock.now_ms)
        case "q":  # an idempotent producer
            producer = key, rng.randrange(3)
            sequence = sequences.get(producer, 0)
            try:
                put(log, "x", "y", timestamp=clock.now_ms, producer=(producer[1], 0, sequence))
            except KafkaError:
                return  # the sequences are of another past
            sequences[producer] = sequence + 2
        case "e":
            log.assign_leader_epoch(log.latest_epoch + 1)
            put(log, "x", timestamp=clock.now_ms, leader_epoch=log.latest_epoch)
        case "r":
            log.roll(clock.now_ms)
        case "d":
            log.delete_records(rng.randint(log.log_start_offset, log.log_end_offset), log.log_end_offset)
        case "s":
            log.retain(clock.now_ms + 900, log.log_end_offset)
        case "m":
            log_dir.delete(*key)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_afterwards_it_is_as_it_was(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, clock = random.Random(seed), Clock()
    monkeypatch.setattr(snapshot, "SMALL_BYTES", rng.choice([0, 100, 300, 64 * 1024]))
    log_dir = opened(tmp_path / "data", clock)
    sequences: dict[Any, int] = {}
    before: list[dict[Any, Any]] = []
    for number in range(5):
        for _ in range(rng.randrange(30)):
            act(rng, log_dir, clock, dict(sequences) if number else sequences)
        before.append(take(log_dir, tmp_path / f"snapshot{number}"))
        for _ in range(rng.randrange(30)):
            act(rng, log_dir, clock, dict(sequences))
        if rng.random() < 0.5:
            log_dir.close(high_watermarks(log_dir))
        else:
            log_dir.go_offline()
        chosen = rng.randrange(number + 1)
        log_dir = put_back(tmp_path, number, chosen)
        assert log_dir.was_clean
        now = what_is_in(log_dir)
        assert now.keys() == before[chosen].keys()
        for key, was in before[chosen].items():
            for what, value in was.items():
                assert now[key][what] == value, f"seed {seed}: {what} of {key}"
    log_dir.close()


def test_one_that_goes_on_is_as_one_that_was_stopped(tmp_path: Path) -> None:
    """Saving leaves what closing leaves, but the mark, and the logs can be used."""
    log_dir = opened(tmp_path / "data")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(20):
        put(log, "x" * 50, timestamp=NOW + number, producer=(7, 0, number))
    take(log_dir, tmp_path / "snapshot")
    assert not (tmp_path / "data" / CLEAN_SHUTDOWN).exists()
    put(log, "y", timestamp=NOW + 20, producer=(7, 0, 20))
    log_dir.close(high_watermarks(log_dir))
    again = opened(tmp_path / "data")
    assert again.logs["t", 0].log_end_offset == 21
    assert again.logs["t", 0].producer_count == 1
    again.close()


def test_nothing_on_its_way_out_is_taken_and_what_is_new_is_set_aside(tmp_path: Path) -> None:
    log_dir = opened(tmp_path / "data")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(40):
        put(log, "x" * 50, timestamp=NOW + number)
    log.delete_records(10, log.log_end_offset)
    log.retain(NOW, log.log_end_offset)
    log_dir.open_or_create("u", 0, TOPIC_ID, CONFIG).make_files()
    log_dir.delete("u", 0)
    assert [path.name for path in (tmp_path / "data" / "t-0").glob("*.deleted")] != []
    take(log_dir, tmp_path / "snapshot")
    log_dir.open_or_create("v", 0, TOPIC_ID, CONFIG).make_files()
    log_dir.go_offline()
    put_back(tmp_path).close()
    assert [path.name for path in (tmp_path / "data").iterdir() if path.is_dir()] == ["t-0"]
    assert list((tmp_path / "data" / "t-0").glob("*.deleted")) == []


def test_what_is_large_is_shared_and_may_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SMALL_BYTES", 400)
    log_dir = opened(tmp_path / "data")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    file = tmp_path / "data" / "t-0" / f"{0:020}.log"
    put(log, "x" * 500, timestamp=NOW)
    before = [take(log_dir, tmp_path / "snapshot0")]
    shared = file.stat().st_ino
    for turn in range(3):  # alone, it has what is in use: that is cut
        put(log, "y" * 500, timestamp=NOW + 10)
        log_dir.go_offline()
        log_dir = put_back(tmp_path, turn, 0)
        assert what_is_in(log_dir) == before[0]
        assert (file.stat().st_ino, file.stat().st_nlink) == (shared, 2)
        log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    for number in (1, 2):
        put(log, "x" * 500, timestamp=NOW + number)
        before.append(take(log_dir, tmp_path / f"snapshot{number}"))
    assert file.stat().st_nlink == 4
    for turn, chosen in enumerate((2, 0, 1, 2, 0, 2), 3):  # others may need what follows: it is copied
        put(log, "y" * 500, timestamp=NOW + 10)
        log_dir.go_offline()
        log_dir = put_back(tmp_path, turn, chosen)
        assert what_is_in(log_dir) == before[chosen]
        log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    log_dir.close()


def test_of_a_replica_nothing_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be cut at its end, and other records follow there."""
    monkeypatch.setattr(snapshot, "SMALL_BYTES", 400)
    log_dir = opened(tmp_path / "data")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    put(log, "x" * 500, timestamp=NOW)
    put(log, "y" * 500, timestamp=NOW)
    log_dir.save(high_watermarks(log_dir))
    snapshot.take(log_dir.path, str(tmp_path / "snapshot"), shares=False)
    before = what_is_in(log_dir)
    for turn in range(2):
        log.truncate_to(1, NOW)
        put(log, "z" * 500, timestamp=NOW)
        log_dir.go_offline()
        snapshot.check(str(tmp_path / "snapshot"))
        places = (str(tmp_path / each) for each in ("snapshot", "data", f"attic{turn}"))
        snapshot.put_back(*places, shares=False)
        log_dir = opened(tmp_path / "data")
        assert what_is_in(log_dir) == before
        log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    log_dir.close()


def test_what_is_the_same_is_not_written(tmp_path: Path) -> None:
    log_dir = opened(tmp_path / "data")
    for index in range(2):
        put(log_dir.open_or_create("t", index, TOPIC_ID, CONFIG), "x")
    take(log_dir, tmp_path / "snapshot")
    put(log_dir.logs["t", 1], "y")
    log_dir.go_offline()
    files = [tmp_path / "data" / f"t-{index}" / f"{0:020}.log" for index in range(2)]
    then = [file.stat() for file in files]
    snapshot.put_back(str(tmp_path / "snapshot"), str(tmp_path / "data"), str(tmp_path / "attic"))
    now = [file.stat() for file in files]
    assert now[0].st_ctime_ns == then[0].st_ctime_ns
    assert now[1].st_ino == then[1].st_ino
    assert now[1].st_size < then[1].st_size


def test_when_records_were_written_is_kept(tmp_path: Path) -> None:
    """It is the age of segments whose records have no timestamps."""
    log_dir = opened(tmp_path / "data")
    put(log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG), "x")
    file = tmp_path / "data" / "t-0" / f"{0:020}.log"
    os.utime(file, (1000, 2000))
    take(log_dir, tmp_path / "snapshot")
    log_dir.go_offline()
    put_back(tmp_path).close()
    assert file.stat().st_mtime == 2000


def test_where_files_cannot_be_shared_they_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(snapshot, "SMALL_BYTES", 100)
    log_dir = opened(tmp_path / "data")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(20):
        put(log, "x" * 50, timestamp=NOW + number)
    before = take(log_dir, tmp_path / "snapshot")
    assert before["t", 0]["bases"] != [0]
    log_dir.go_offline()
    again = put_back(tmp_path)
    assert what_is_in(again) == before
    again.close()


def test_what_was_cut_or_is_not_whole_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SMALL_BYTES", 400)
    log_dir = opened(tmp_path / "data")
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(20):
        put(log, "x" * 50, timestamp=NOW + number)
    take(log_dir, tmp_path / "snapshot")
    with pytest.raises(FileExistsError):
        snapshot.take(str(tmp_path / "data"), str(tmp_path / "snapshot"))
    log.truncate_to(3, NOW)
    with pytest.raises(snapshot.SnapshotDamaged, match=r"t-0/0+\.log has [0-9]+ bytes, and had [0-9]+ when"):
        snapshot.check(str(tmp_path / "snapshot"))
    (tmp_path / "snapshot" / snapshot.LIST).unlink()
    with pytest.raises(FileNotFoundError):
        snapshot.check(str(tmp_path / "snapshot"))
    log_dir.close()


def test_batches_are_copied_as_they_are(tmp_path: Path) -> None:
    """Of more than fits into memory at once, too."""
    log_dir = open_dir(None, str(tmp_path / "data"), LogConfig(segment_bytes=1 << 30, max_message_bytes=1 << 23))
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig(segment_bytes=1 << 30, max_message_bytes=1 << 23))
    data = batch(random.Random(1).randbytes(3 << 20))
    log.append(data, leader_epoch=0, now_ms=NOW)
    log.write()
    before = take(log_dir, tmp_path / "snapshot")
    log_dir.go_offline()
    snapshot.put_back(str(tmp_path / "snapshot"), str(tmp_path / "data"), str(tmp_path / "attic"))
    again = open_dir(None, str(tmp_path / "data"))
    assert what_is_in(again) == before
    again.close()
