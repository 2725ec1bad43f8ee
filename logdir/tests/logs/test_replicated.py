"""A follower's log: what comes from a leader is taken as it is, and given up as the leader says."""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.records import CorruptRecords, Record, build_control_batch
from barnabas.kproto.records_legacy import build_message_set
from barnabas.logdir import AbortedTxn, AppendInfo, AppendOrigin, LogConfig, LogDir, PartitionLog, UnexpectedOffset
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, TOPIC_ID, batch, open_dir, stored

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0, file_delete_delay_ms=0)


def opened(disk: MemoryDisk, config: LogConfig = SMALL) -> tuple[LogDir, PartitionLog]:
    log_dir = open_dir(disk, config=config)
    return log_dir, log_dir.open_or_create("t", 0, TOPIC_ID, config)


def replicate(log: PartitionLog, *batches: bytes | bytearray) -> AppendInfo:
    """What a fetch brought, written."""
    info = log.append(
        memoryview(bytearray(b"".join(batches))), leader_epoch=99, now_ms=NOW, origin=AppendOrigin.REPLICATION
    )
    log.write()
    return info


def checkpointed(disk: MemoryDisk, name: str) -> str:
    fd = disk.open(f"/data/{name}")
    try:
        return disk.pread(fd, 1 << 16, 0).decode()
    finally:
        disk.close(fd)


def test_batches_keep_their_offsets_epochs_and_gaps() -> None:
    _, log = opened(MemoryDisk())
    first = batch("a", "b", base_offset=0, leader_epoch=1)
    second = batch("c", base_offset=7, leader_epoch=1)
    third = batch("d", base_offset=9, leader_epoch=4)
    info = replicate(log, first, second, third)
    assert (info.base_offset, info.last_offset) == (0, 9)
    assert log.log_end_offset == 10
    assert [bytes(data) for _, data in stored(log)] == [bytes(first), bytes(second), bytes(third)]
    assert log.epochs.entries == ((1, 0), (4, 9))
    assert log.latest_epoch == 4
    assert [header.base_offset for header, _ in stored(log, 3)] == [7, 9], "an offset in a gap reads on behind it"


def test_lower_epoch_after_an_assigned_one() -> None:
    """This broker led with epoch 5, wrote nothing, and follows a leader that is still at epoch 3's records."""
    _, log = opened(MemoryDisk())
    replicate(log, batch("a", base_offset=0, leader_epoch=3))
    log.assign_leader_epoch(5)
    assert log.latest_epoch == 5
    replicate(log, batch("b", base_offset=1, leader_epoch=3))
    assert list(log.epochs.entries) == [(3, 0)]
    replicate(log, batch("c", base_offset=2, leader_epoch=6))
    assert list(log.epochs.entries) == [(3, 0), (6, 2)]


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, 70])
def test_last_batch_may_be_cut_off(cut: int) -> None:
    _, log = opened(MemoryDisk())
    whole, rest = batch("a", base_offset=0, leader_epoch=0), batch("b" * 20, base_offset=1, leader_epoch=0)
    info = replicate(log, whole, rest[:cut])
    assert (info.base_offset, info.last_offset) == (0, 0)
    assert log.log_end_offset == 1
    info = replicate(log, rest[:cut])
    assert info.last_offset < info.base_offset
    assert log.log_end_offset == 1
    replicate(log, rest)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1])
def test_messages_of_old_formats(magic: int, codec: int) -> None:
    """A leader's log may still have them; they stay as they are."""
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    records = [Record(offset, NOW + offset if magic else -1, None, b"v%d" % offset) for offset in range(3)]
    old = build_message_set(records, magic=magic, codec=codec)
    info = replicate(log, old, batch("new", base_offset=3, leader_epoch=2), old[:20])
    assert info.last_offset == 3
    assert log.log_end_offset == 4
    assert log.epochs.entries == ((2, 3),)
    found = log.read(0, 1 << 20, upper_offset=4, min_one_batch=True)
    assert found is not None
    assert found.read().startswith(old)
    broken = bytearray(build_message_set([Record(4, NOW, None, b"x")], magic=magic))
    broken[-1] ^= 1
    with pytest.raises(CorruptRecords):
        replicate(log, broken)
    with pytest.raises(UnexpectedOffset):
        replicate(log, old)
    log_dir.close()
    _, log = opened(disk)
    assert log.log_end_offset == 4
    log.truncate_to(3, NOW)
    assert log.log_end_offset == 3


def test_nothing_at_all() -> None:
    _, log = opened(MemoryDisk())
    info = replicate(log)
    assert info.last_offset < info.base_offset


def test_what_overlaps_or_goes_backwards_is_refused() -> None:
    _, log = opened(MemoryDisk())
    replicate(log, batch("a", "b", base_offset=0, leader_epoch=0))
    with pytest.raises(UnexpectedOffset) as caught:
        replicate(log, batch("b", "c", base_offset=1, leader_epoch=0))
    assert (caught.value.first_offset, caught.value.last_offset) == (1, 2)
    with pytest.raises(UnexpectedOffset):
        replicate(log, batch("c", base_offset=5, leader_epoch=0), batch("d", base_offset=3, leader_epoch=0))
    assert log.next_offset == log.log_end_offset == 2


def test_one_bad_checksum_takes_nothing() -> None:
    _, log = opened(MemoryDisk())
    bad = batch("b", base_offset=1, leader_epoch=2, producer=(7, 0, 0))
    bad[-1] ^= 1
    with pytest.raises(CorruptRecords):
        replicate(log, batch("a", base_offset=0, leader_epoch=2, producer=(8, 0, 0)), bad)
    assert log.log_end_offset == log.next_offset == 0
    assert log.producer_count == 0
    assert log.epochs.entries == ()


def test_producer_state_without_sequence_checks() -> None:
    _, log = opened(MemoryDisk())
    replicate(log, batch("a", base_offset=0, leader_epoch=0, producer=(7, 2, 0)))
    replicate(log, batch("b", base_offset=1, leader_epoch=0, producer=(7, 2, 40)))
    assert log.producers.entries[7].last_sequence == 40, "compaction took what was between"
    replicate(log, batch("c", base_offset=2, leader_epoch=0, producer=(7, 1, 0)))
    assert log.producers.entries[7].epoch == 1
    # As leader it goes on from there.
    info = log.append(batch("d", producer=(7, 1, 1)), leader_epoch=1, now_ms=NOW)
    assert not info.duplicate
    log.write()
    again = log.append(batch("d", producer=(7, 1, 1)), leader_epoch=1, now_ms=NOW)
    assert (again.duplicate, again.base_offset) == (True, 3)


def test_aborted_transactions_are_indexed() -> None:
    _, log = opened(MemoryDisk())
    replicate(
        log,
        batch("a", base_offset=0, leader_epoch=0, producer=(7, 0, 0), transactional=True),
        batch("b", base_offset=1, leader_epoch=0),
    )
    assert log.last_stable_offset(2) == 0
    marker = build_control_batch(
        producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=3, timestamp=NOW, base_offset=2, leader_epoch=0
    )
    replicate(log, marker)
    assert log.aborted_transactions(0, 3) == [AbortedTxn(7, 0, 2, 3)]
    assert log.last_stable_offset(3) == 3
    log.truncate_to(2, NOW)
    assert log.aborted_transactions(0, 3) == []
    assert log.first_unstable_offset == 0, "the transaction is open again"
    replicate(log, marker)
    assert log.aborted_transactions(0, 3) == [AbortedTxn(7, 0, 2, 3)]


def filled(log: PartitionLog) -> None:
    """Offsets 0 to 39 in pairs, a new epoch every ten, several segments; producer 7 writes all."""
    for base in range(0, 40, 2):
        replicate(
            log,
            batch("x" * 20, "y" * 20, base_offset=base, leader_epoch=base // 10, producer=(7, 0, base)),
        )
    assert log.segment_count > 5


@pytest.mark.parametrize("offset", [0, 1, 2, 9, 10, 11, 20, 33, 38, 39])
def test_truncation_takes_everything_with_it(offset: int) -> None:
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    filled(log)
    assert log.truncate_to(offset, NOW) is True
    end = offset - offset % 2  # a batch goes whole
    assert (log.log_end_offset, log.next_offset) == (end, end)
    assert [header.base_offset for header, _ in stored(log)] == list(range(0, end, 2))
    assert log.epochs.entries == tuple((start // 10, start) for start in range(0, end, 10))
    entry = log.producers.entries.get(7)
    assert (entry.last_sequence if entry else -1) == end - 1
    for at in range(end):
        found = log.read(at, 1 << 20, upper_offset=end, min_one_batch=True)
        assert found is not None
        assert found.read()[:8] == (at - at % 2).to_bytes(8, "big")
    # Other records take their place.
    replicate(log, batch("new", base_offset=end, leader_epoch=50, producer=(8, 0, 0)))
    assert log.latest_epoch == 50
    log_dir.close()
    _, log = opened(disk)
    assert log.log_end_offset == end + 1
    assert log.latest_epoch == 50
    assert log.producers.entries[8].last_sequence == 0


def test_truncation_at_the_end_drops_an_epoch_without_records() -> None:
    _, log = opened(MemoryDisk())
    filled(log)
    log.assign_leader_epoch(9)
    assert log.truncate_to(40, NOW) is False
    assert log.latest_epoch == 3
    replicate(log, batch("z", base_offset=40, leader_epoch=4))
    assert log.epochs.entries[-1] == (4, 40)


def test_checkpoint_falls_with_the_recovery_point_only() -> None:
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    filled(log)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    assert "t 0 40" in checkpointed(disk, "recovery-point-offset-checkpoint")
    replicate(log, batch("z", base_offset=40, leader_epoch=4))
    log.truncate_to(40, NOW)
    assert "t 0 40" in checkpointed(disk, "recovery-point-offset-checkpoint")
    log.truncate_to(22, NOW)
    assert "t 0 22" in checkpointed(disk, "recovery-point-offset-checkpoint")
    assert log.recovery_point == 22


@pytest.mark.parametrize("seed", range(20))
def test_crash_after_truncation(seed: int) -> None:
    """The records that were cut off do not come back behind, or among, those that took their place."""
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    filled(log)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    # Epoch 2 began at 20. The new leader never had it; of epoch 1 it has more than we.
    log.truncate_to(20, NOW)
    for base in range(20, 30, 2):
        replicate(log, batch("other", "other", base_offset=base, leader_epoch=1))
    disk.crash(random.Random(seed))
    _, log = opened(disk)
    bases = [header.base_offset for header, _ in stored(log)]
    assert bases == list(range(0, log.log_end_offset, 2)), f"seed {seed}"
    assert log.log_end_offset >= 20, f"seed {seed}"
    assert all(header.partition_leader_epoch == min(header.base_offset // 10, 1) for header, _ in stored(log)), (
        f"seed {seed}"
    )
    assert log.epochs.entries == ((0, 0), (1, 10)), f"seed {seed}"


@pytest.mark.parametrize("offset", [0, 15, 40, 1000])
def test_restart(offset: int) -> None:
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    filled(log)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    log.truncate_fully(offset, NOW)
    assert (log.log_start_offset, log.log_end_offset, log.next_offset) == (offset, offset, offset)
    assert log.epochs.entries == ()
    assert log.producer_count == 0
    assert log.segment_count == 1
    replicate(log, batch("new", base_offset=offset, leader_epoch=9))
    assert [header.base_offset for header, _ in stored(log)] == [offset]
    log_dir.removals.remove(log_dir.removals.take(NOW))
    log.flush()
    disk.crash(random.Random(offset))
    _, log = opened(disk)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset + 1)
    assert log.epochs.entries == ((9, offset),)


@pytest.mark.parametrize("seed", range(20))
def test_crash_after_restart(seed: int) -> None:
    """Old records, or new ones, never both."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    filled(log)
    log.flush()
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    offset = rng.choice((11, 40, 100))
    log.truncate_fully(offset, NOW)
    for base in range(offset, offset + 8, 2):
        replicate(log, batch("new", "new", base_offset=base, leader_epoch=9))
    if rng.random() < 0.5:
        log_dir.removals.remove(log_dir.removals.take(NOW))
    disk.crash(rng)
    _, log = opened(disk)
    start, end = log.log_start_offset, log.log_end_offset
    batches = [header for header, _ in stored(log)]
    assert [header.base_offset for header in batches] == list(range(start, end, 2)), f"seed {seed}"
    assert start == offset, f"seed {seed}: {start}"
    assert all(header.partition_leader_epoch == 9 for header in batches), f"seed {seed}"
    assert log.epochs.entries == (((9, offset),) if batches else ()), f"seed {seed}"


def test_log_start_that_fell_is_not_raised_by_an_old_checkpoint() -> None:
    """The leader's first batch begins below its log start, and so does our new log."""
    disk = MemoryDisk()
    log_dir, log = opened(disk)
    filled(log)
    log.delete_records(31, 40)
    log.truncate_fully(31, NOW)
    log_dir.checkpoints.write(log_dir.checkpoints.recovery_points())
    log.truncate_fully(35, NOW)
    replicate(log, batch("a", "b", base_offset=35, leader_epoch=9))
    log.delete_records(36, 37)
    log_dir.checkpoints.write(log_dir.checkpoints.log_starts())
    assert "t 0 36" in checkpointed(disk, "log-start-offset-checkpoint")
    log.truncate_fully(30, NOW)
    replicate(log, batch("a", "b", base_offset=30, leader_epoch=9))
    log.flush()
    disk.crash(random.Random(1))
    _, log = opened(disk)
    assert (log.log_start_offset, log.log_end_offset) == (30, 32)


def test_log_start_moved_by_the_leader() -> None:
    log_dir, log = opened(MemoryDisk())
    filled(log)
    assert log.delete_records(25, 40) == 25
    assert log.log_start_offset == 25
    assert log.epochs.entries == ((2, 25), (3, 30))
    before = log.segment_count
    log.retain(NOW, 40)
    assert log.segment_count < before
    assert log.first_base_offset <= 25
    assert stored(log)[0][0].base_offset == 24
    log_dir.removals.remove(log_dir.removals.take(NOW))
    assert log.truncate_to(10, NOW) is True
    assert (log.log_start_offset, log.log_end_offset) == (10, 10), "below its first segment it starts anew"
