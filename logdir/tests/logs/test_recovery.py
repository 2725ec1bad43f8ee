"""Opening after a crash: torn files, leftovers, lost indexes."""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.records import build_control_batch, iter_headers
from barnabas.kproto.records_legacy import build_message_set
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, LogDirError, PartitionLog
from barnabas.logdir.files.disk import write_file
from barnabas.logdir.files.layout import file_name
from barnabas.logdir.files.memory_disk import File, MemoryDisk
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, Clock, batch, open_dir, put, stored

HOUR_MS = 3_600_000
CONFIG = LogConfig(segment_bytes=350, index_interval_bytes=100)


def log_files(disk: MemoryDisk) -> dict[str, bytes]:
    return {
        name: bytes(node.data) for name, node in disk._directory(f"{PATH}/t-0").names.items() if isinstance(node, File)
    }


def written(disk: MemoryDisk, batches: int = 12) -> tuple[LogDir, PartitionLog]:
    log_dir = open_dir(disk, config=CONFIG)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    for number in range(batches):
        put(log, "x" * 70, "y", producer=(5, 0, 2 * number), timestamp=NOW + number, leader_epoch=number // 5)
    return log_dir, log


def killed(disk: MemoryDisk, config: LogConfig = CONFIG) -> LogDir:
    """As after kill -9: nothing is lost that was written, nothing was tidied up."""
    disk.open_files = {}
    disk.locked = set()
    return open_dir(disk, config=config)


def test_everything_is_found_again_after_a_kill() -> None:
    disk = MemoryDisk()
    _, log = written(disk)
    before = (stored(log), log.segment_bases, log.epochs.entries, log.producers.entries[5].last_sequence)
    log_dir = killed(disk)
    assert not log_dir.was_clean
    log = log_dir.logs["t", 0]
    assert (stored(log), log.segment_bases, log.epochs.entries, log.producers.entries[5].last_sequence) == before
    assert log.recovery_point == 0
    put(log, "z", producer=(5, 0, 24))
    for target in range(12):
        assert log.offset_for_timestamp(NOW + target) == (NOW + target, 2 * target, target // 5)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_killed_process_left_unsynced_is_safe_after_a_clean_stop(seed: int) -> None:
    """The next process does not know which of the files it finds are on the disk."""
    disk = MemoryDisk()
    _, log = written(disk)
    before = stored(log)
    killed(disk).close()
    killed(disk)  # was clean, and takes the mark away
    disk.crash(random.Random(seed))
    log = open_dir(disk, config=CONFIG).logs["t", 0]
    assert (stored(log), log.topic_id) == (before, TOPIC_ID)


@pytest.mark.parametrize("damage", ["cut", "zeros", "flip"])
def test_torn_at_every_byte(damage: str) -> None:
    """Whatever byte of a segment a crash leaves as the last good one, the whole batches before it are there, and
    appending goes on.
    """
    disk = MemoryDisk()
    log_dir = open_dir(disk, config=LogConfig())
    log = log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    for number in range(5):
        put(log, "v" * 10 * number, producer=(5, 0, number), leader_epoch=number)
    path = f"{PATH}/t-0/{file_name(0, '.log')}"
    data = bytes(disk.node(path).data)
    ends = [position + header.size for position, header in iter_headers(data)]
    for cut in range(len(data)):
        content = {
            "cut": data[:cut],
            "zeros": data[:cut] + bytes(len(data) - cut),
            "flip": data[:cut] + bytes([data[cut] ^ 0x40]) + data[cut + 1 :],
        }[damage]
        disk.node(path).data = bytearray(content)
        log = killed(disk, LogConfig()).logs["t", 0]
        whole = sum(end <= cut for end in ends)
        if damage == "flip" and (at := cut - ([0, *ends][whole])) < 61 and (at < 8 or 12 <= at < 16):
            continue  # base offset and leader epoch are outside of the checksum
        expected = data[: ([0, *ends])[whole]]
        if damage == "zeros" and not any(data[cut : ends[whole]]):
            continue  # nothing was lost
        assert b"".join(piece for _, piece in stored(log)) == expected, cut
        assert log.log_end_offset == whole
        assert log.size == len(expected)
        assert log.producer_count == (1 if whole else 0)
        assert put(log, "next", leader_epoch=9) == whole
        assert len(stored(log)) == whole + 1
        disk.node(path).data = bytearray(data)


def test_corruption_in_the_middle_sets_later_segments_aside() -> None:
    disk = MemoryDisk()
    _, log = written(disk)
    bases = log.segment_bases
    assert len(bases) >= 4
    victim = disk.node(f"{PATH}/t-0/{file_name(bases[1], '.log')}")
    first_size = next(iter_headers(bytes(victim.data)))[1].size
    victim.data[first_size + 70] ^= 1
    log = killed(disk).logs["t", 0]
    assert log.segment_bases == bases[:2]
    assert log.log_end_offset == bases[1] + 2
    assert log.producers.entries[5].last_sequence == bases[1] + 1
    names = log_files(disk)
    left = [name for name in names if name.startswith(f"{bases[2]:020d}.") and not name.endswith(".snapshot")]
    assert left == [f"{bases[2]:020d}.log.{NOW}.aside"]
    assert all(int(name.split(".")[0]) <= log.log_end_offset for name in names if name.endswith(".snapshot"))


def without_a_middle_segment(disk: MemoryDisk) -> tuple[list[int], dict[str, bytes]]:
    """A log whose third segment is gone: the bases there were, and the files that are left."""
    _, log = written(disk)
    bases = log.segment_bases
    assert len(bases) >= 5
    disk.remove(f"{PATH}/t-0/{file_name(bases[2], '.log')}")
    return bases, log_files(disk)


def test_what_lies_behind_a_gap_is_set_aside_in_a_replica(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    bases, before = without_a_middle_segment(disk)
    log = killed(disk).logs["t", 0]
    assert log.segment_bases == bases[:2]
    assert log.log_end_offset == bases[2]
    after = log_files(disk)
    for base in bases[3:]:
        name = file_name(base, ".log")
        assert name not in after
        assert after[f"{name}.{NOW}.aside"] == before[name], "nothing of it is lost"
        assert f"{PATH}/t-0/{name}.{NOW}.aside" in caplog.text
        assert file_name(base, ".index") not in after
    put(log, "goes on", leader_epoch=9)
    assert killed(disk).logs["t", 0].log_end_offset == bases[2] + 1


def test_a_broker_alone_keeps_what_lies_behind_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    bases, before = without_a_middle_segment(disk)
    disk.open_files, disk.locked = {}, set()
    log = open_dir(disk, config=CONFIG, only_copies=True).logs["t", 0]
    assert log.segment_bases == [base for base in bases if base != bases[2]]
    assert log.log_end_offset == 24
    assert all(log_files(disk)[name] == data for name, data in before.items() if name.endswith(".log"))
    assert [header.base_offset for header, _ in stored(log)] == [*range(0, bases[2], 2), *range(bases[3], 24, 2)]
    assert f"what there was from offset {bases[2]} on is lost" in caplog.text


def test_a_broker_alone_keeps_what_lies_behind_damage() -> None:
    disk = MemoryDisk()
    _, log = written(disk)
    bases = log.segment_bases
    victim = disk.node(f"{PATH}/t-0/{file_name(bases[1], '.log')}")
    victim.data[next(iter(iter_headers(bytes(victim.data))))[1].size + 70] ^= 1
    disk.open_files, disk.locked = {}, set()
    log = open_dir(disk, config=CONFIG, only_copies=True).logs["t", 0]
    assert log.segment_bases == bases
    assert [header.base_offset for header, _ in stored(log)] == [*range(0, bases[1] + 2, 2), *range(bases[2], 24, 2)]
    assert log.producers.entries[5].last_sequence == 23


def test_what_was_set_aside_goes_with_time() -> None:
    disk = MemoryDisk()
    bases, _ = without_a_middle_segment(disk)
    killed(disk)
    clock = Clock(NOW + HOUR_MS)
    for config, later_ms, stays in (
        (LogConfig(retention_ms=HOUR_MS), HOUR_MS, True),
        (LogConfig(retention_ms=-1), 1000 * HOUR_MS, True),
        (LogConfig(retention_ms=HOUR_MS, cleanup_policy=frozenset({"compact"})), 1000 * HOUR_MS, True),
        (LogConfig(retention_ms=HOUR_MS), HOUR_MS + 1, False),
    ):
        disk.open_files, disk.locked = {}, set()
        clock.now_ms = NOW + later_ms
        open_dir(disk, config=config, clock=clock)
        assert (f"{file_name(bases[3], '.log')}.{NOW}.aside" in log_files(disk)) == stays


def test_a_file_without_records_is_not_set_aside() -> None:
    disk = MemoryDisk()
    bases, _ = without_a_middle_segment(disk)
    disk.node(f"{PATH}/t-0/{file_name(bases[-1], '.log')}").data[:] = bytes(100)
    killed(disk)
    assert not any(name.startswith(f"{bases[-1]:020d}.log") for name in log_files(disk))


def test_only_segments_from_the_recovery_point_on_are_read() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    bases = log.segment_bases
    read: list[str] = []
    disk.open_files, disk.locked = {}, set()
    disk.on_call = lambda name, path: read.append(path) if name == "pread" and path.endswith(".log") else None
    log = open_dir(disk, config=CONFIG).logs["t", 0]
    assert {int(path[-24:-4]) for path in read} == {bases[-1]}
    assert log.recovery_point == log.log_end_offset == 24


def test_a_clean_start_reads_no_more_than_the_end() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    bases = log.segment_bases
    log_dir.close()
    read: list[str] = []
    disk.on_call = lambda name, path: read.append(path) if name == "pread" and path.endswith(".log") else None
    open_dir(disk, config=CONFIG)
    assert {int(path[-24:-4]) for path in read} <= {bases[-1]}
    assert len(read) <= 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd size", "garbage", "zeros"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_indexes_are_made_anew(suffix: str, damage: str, clean: bool) -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    bases = log.segment_bases
    expected = stored(log)
    log_dir.close()
    if not clean:
        disk.remove(f"{PATH}/.kafka_cleanshutdown")
    for base in bases:
        path = f"{PATH}/t-0/{file_name(base, suffix)}"
        if damage == "missing":
            disk.remove(path)
        else:
            node = disk.node(path)
            node.data = {
                "odd size": node.data + b"x",
                "garbage": bytearray(b"\x7f" * 20 * len(node.data) + b"\x01" * 24),
                "zeros": node.data + bytes(24 * 100),
            }[damage]
    log = killed(disk).logs["t", 0]
    assert log.segment_bases == bases
    for offset in range(24):
        assert stored(log, offset)[0][0].base_offset == offset // 2 * 2
        assert log.offset_for_timestamp(NOW + offset // 2) == (NOW + offset // 2, offset // 2 * 2, offset // 10)
    assert stored(log) == expected


def test_leftovers_of_deletion_and_compaction() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    bases = log.segment_bases
    log_dir.close()
    home = f"{PATH}/t-0/"
    swapped = file_name(bases[1], ".log")
    # A compaction that was interrupted while swapping: one segment in place of numbers 1 and 2.
    merged = bytes(disk.node(home + swapped).data) + bytes(disk.node(home + file_name(bases[2], ".log")).data)
    for name, data in (
        (swapped + ".swap", merged),
        (file_name(bases[1], ".index") + ".swap", b""),
        (file_name(bases[1], ".timeindex") + ".swap", b""),
        (file_name(7777, ".log") + ".deleted", b"x"),
        (file_name(bases[3], ".log") + ".cleaned", b"x"),
        (file_name(9999, ".index"), b""),
    ):
        fd = disk.open(home + name, create=True)
        disk.pwritev(fd, [data], 0)
        disk.close(fd)
    log = killed(disk).logs["t", 0]
    assert log.segment_bases == [bases[0], bases[1], *bases[3:]]
    assert [header.base_offset for header, _ in stored(log)] == list(range(0, 24, 2))
    assert log.producers.entries[5].last_sequence == 23
    names = log_files(disk)
    assert not any(
        name.endswith((".swap", ".deleted", ".cleaned")) or name.startswith(f"{9999:020d}") for name in names
    )


def test_a_swap_beside_an_unfinished_cleaning_is_not_believed() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    bases = log.segment_bases
    log_dir.close()
    home = f"{PATH}/t-0/"
    for name in (file_name(bases[1], ".log") + ".swap", file_name(bases[0], ".log") + ".cleaned"):
        disk.close(disk.open(home + name, create=True))
    log = killed(disk).logs["t", 0]
    assert log.segment_bases == bases
    assert not any(name.endswith((".swap", ".cleaned")) for name in log_files(disk))


def test_bad_snapshots_are_replaced_by_older_ones_or_the_log() -> None:
    disk = MemoryDisk()
    written(disk)
    for name in log_files(disk):
        if name.endswith(".snapshot"):
            disk.node(f"{PATH}/t-0/{name}").data[-1] ^= 1
    log = killed(disk).logs["t", 0]
    assert log.producers.entries[5].last_sequence == 23


def test_lost_leader_epochs_are_read_from_the_log() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    entries = log.epochs.entries
    log_dir.close()
    disk.node(f"{PATH}/t-0/leader-epoch-checkpoint").data = bytearray(b"0\n7\n")
    assert killed(disk).logs["t", 0].epochs.entries == entries


def test_a_log_that_ends_below_its_start_begins_anew() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    log.delete_records(22, 24)
    log_dir.checkpoints.write(log_dir.checkpoints.log_starts())
    for base in log.segment_bases[1:]:
        disk.remove(f"{PATH}/t-0/{file_name(base, '.log')}")
    log = killed(disk).logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset, log.segment_bases) == (22, 22, [22])
    assert put(log, "x") == 22


def test_the_log_start_survives_in_its_checkpoint() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    log.delete_records(3, 24)
    log_dir.checkpoints.write(log_dir.checkpoints.log_starts())
    assert killed(disk).logs["t", 0].log_start_offset == 3


def test_messages_of_old_formats_are_kept_and_served() -> None:
    disk = MemoryDisk()
    log_dir = open_dir(disk)
    log_dir.open_or_create("t", 0, TOPIC_ID, LogConfig())
    log_dir.close()
    from barnabas.kproto.records import Record

    old = build_message_set([Record(offset, NOW + offset, b"k", b"v" * 50) for offset in range(4)], magic=1)
    path = f"{PATH}/t-0/{file_name(0, '.log')}"
    disk.node(path).data = bytearray(bytes(old) + bytes(batch("new", base_offset=4)))
    disk.remove(f"{PATH}/.kafka_cleanshutdown")
    for _ in range(2):  # recovered, then believed
        log_dir = killed(disk)
        log = log_dir.logs["t", 0]
        assert (log.log_start_offset, log.log_end_offset) == (0, 5)
        found = log.read(2, 1 << 20, upper_offset=5, min_one_batch=True)
        assert found is not None
        assert found.position == len(old) // 2
        assert log.offset_for_timestamp(NOW + 3) == (NOW + 3, 3, -1)
        log_dir.close()
    disk.node(path).data[-200] ^= 1  # in the third message
    disk.remove(f"{PATH}/.kafka_cleanshutdown")
    assert killed(disk).logs["t", 0].log_end_offset < 4


def test_a_clean_log_with_a_torn_end_is_recovered_all_the_same() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    last = log.segment_bases[-1]
    log_dir.close()
    node = disk.node(f"{PATH}/t-0/{file_name(last, '.log')}")
    node.data = node.data[:-3]
    log = killed(disk).logs["t", 0]
    assert log.log_end_offset == 22
    assert put(log, "x") == 22
    assert len(stored(log)) == 12


def test_corruption_that_a_clean_start_meets_is_reported_not_cut() -> None:
    disk = MemoryDisk()
    log_dir, log = written(disk)
    bases = log.segment_bases
    log_dir.close()
    for name in log_files(disk):
        if name.endswith(".snapshot") and int(name[:20]) > bases[-2]:
            disk.remove(f"{PATH}/t-0/{name}")
    victim = file_name(bases[-2], ".log")
    disk.node(f"{PATH}/t-0/{victim}").data[8:12] = b"\0\0\0\x05"
    size = len(log_files(disk)[victim])
    with pytest.raises(LogDirError, match="t-0"):
        killed(disk)
    assert len(log_files(disk)[victim]) == size


def test_crash_while_loading_after_a_clean_stop_is_a_crash() -> None:
    disk = MemoryDisk()
    log_dir, _ = written(disk)
    log_dir.close()
    assert killed(disk).was_clean
    assert not killed(disk).was_clean


@pytest.mark.parametrize("seed", range(30))
def test_recovery_itself_may_crash(seed: int) -> None:
    """At any call to the disk; the next start still finds everything that was flushed."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    log_dir, log = written(disk, 8)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    flushed = stored(log)
    put(log, "unsafe")
    disk.crash(rng)
    countdown = rng.randint(1, 40)

    def count(name: str, path: str) -> None:
        nonlocal countdown
        countdown -= 1
        if countdown == 0:
            raise OSError(5, "power cut")

    disk.on_call = count
    try:
        open_dir(disk, config=CONFIG)
    except OSError:
        pass
    disk.on_call = None
    disk.crash(rng)
    log = open_dir(disk, config=CONFIG).logs["t", 0]
    assert stored(log)[: len(flushed)] == flushed, seed


def test_a_snapshot_from_before_a_gap_is_not_believed() -> None:
    """Retention took the segment with a transaction's end, and a crash the snapshots made since, but not an old one:
    the transaction must not be open for ever.
    """
    disk = MemoryDisk()
    log_dir = open_dir(disk, config=CONFIG)
    log = log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    put(log, "open", producer=(8, 0, 0), transactional=True)
    log.roll(NOW)
    name = f"{PATH}/t-0/{file_name(1, '.snapshot')}"
    old = bytes(disk.node(name).data)
    put(log, "open", producer=(8, 0, 1), transactional=True)
    marker = build_control_batch(producer_id=8, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=NOW)
    log.append(marker, leader_epoch=0, now_ms=NOW, origin=AppendOrigin.COORDINATOR)
    log.roll(NOW)
    put(log, "later")
    log.delete_records(3, 4)
    log.retain(NOW)
    assert (log.segment_bases, log.first_unstable_offset) == ([3], None)
    write_file(disk, name, old, sync=False)
    disk.remove(f"{PATH}/t-0/{file_name(3, '.snapshot')}")
    log = killed(disk).logs["t", 0]
    assert (log.log_start_offset, log.log_end_offset, log.first_unstable_offset) == (3, 4, None)


def test_producers_are_known_after_a_recovery_and_a_stop_without_a_record() -> None:
    """The clean start believes snapshots, so the stop before it has to leave one."""
    disk = MemoryDisk()
    log_dir = open_dir(disk, config=CONFIG)
    put(log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG), "x", producer=(8, 0, 0), transactional=True)
    log_dir = killed(disk)
    log_dir.logs["t", 0].flush()
    log_dir.close()
    log_dir = killed(disk)
    log = log_dir.logs["t", 0]
    assert log_dir.was_clean
    assert log.producers.entries[8].last_sequence == 0
    assert log.first_unstable_offset == 0


@pytest.mark.parametrize("seed", range(80, 90))
def test_a_topic_id_for_an_old_log_is_there_or_not(seed: int) -> None:
    """Whatever a crash leaves of it, the next start can read it."""
    disk = MemoryDisk()
    log_dir = open_dir(disk, config=CONFIG)
    log = log_dir.open_or_create("t", 0, None, CONFIG)
    put(log, "x")
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    log_dir.open_or_create("t", 0, TOPIC_ID, CONFIG)
    disk.crash(random.Random(seed))
    log = open_dir(disk, config=CONFIG).logs["t", 0]
    assert (log.log_end_offset, log.topic_id in (None, TOPIC_ID)) == (1, True)
