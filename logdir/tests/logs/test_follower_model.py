"""Random lives of a follower's log: batches of one leader after another, truncations, new starts, crashes.

After whatever happened the log is a stretch of what the present leader has, nothing that was flushed is lost, and the
leader epochs are those of the batches.
"""

from __future__ import annotations

import random

import pytest

from barnabas.kproto.records import read_header
from barnabas.logdir import AppendOrigin, LogConfig
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import TOPIC_ID, Clock, batch, open_dir, stored


class Follower:
    """`history`: the batches of the present leader that this follower has or had, from its log start on."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.name = f"seed {seed}"
        self.disk = MemoryDisk()
        self.clock = Clock()
        self.config = LogConfig(
            segment_bytes=rng.choice((300, 1000, 5000)),
            index_interval_bytes=rng.choice((0, 200)),
            segment_index_bytes=rng.choice((60, 1000)),
            file_delete_delay_ms=rng.choice((0, 100)),
            retention_ms=-1,
        )
        self.history: list[bytes] = []
        self.end = 0
        self.epoch = 0
        self.flushed = 0
        self.revived = False
        self.open()
        self.log.flush()  # the partition itself is there for good

    def open(self) -> None:
        self.log_dir = open_dir(self.disk, config=self.config, clock=self.clock, max_open_files=4)
        self.log = self.log_dir.open_or_create("t", 0, TOPIC_ID, self.config)

    def replicate(self) -> None:
        """A fetch: some batches, perhaps the beginning of another one."""
        rng = self.rng
        self.clock.now_ms += rng.randint(0, 10)
        batches = []
        for _ in range(rng.randint(1, 5)):
            values = [b"v" * rng.randint(0, 60) for _ in range(rng.randint(1, 3))]
            # Gaps as compaction leaves them: not where an epoch begins.
            gap = rng.choice((0, 0, 2)) if self.history and self.epoch == self.log.latest_epoch else 0
            producer = (rng.randint(1, 2), 0, rng.randint(0, 100)) if rng.random() < 0.5 else None
            data = bytes(
                batch(
                    *values,
                    base_offset=self.end + gap,
                    leader_epoch=self.epoch,
                    producer=producer,
                    timestamp=self.clock.now_ms,
                )
            )
            batches.append(data)
            self.end = read_header(data).next_offset
            if rng.random() < 0.1:
                self.epoch += 1
        cut = b""
        if rng.random() < 0.3:
            cut = bytes(batch("cut off", base_offset=self.end, leader_epoch=self.epoch))[: rng.randint(1, 60)]
        self.log.append(
            memoryview(bytearray(b"".join(batches) + cut)),
            leader_epoch=99,
            now_ms=self.clock.now_ms,
            origin=AppendOrigin.REPLICATION,
        )
        self.log.write()
        self.history += batches
        assert self.log.log_end_offset == self.end, self.name

    def another_leader(self) -> None:
        """It parts from the one before somewhere; its epochs there may be lower than those that were cut off."""
        if self.end == self.log.log_start_offset:
            return
        self.cut(self.rng.randint(self.log.log_start_offset, self.end))
        last = read_header(self.history[-1]).partition_leader_epoch if self.history else -1
        self.epoch = last + self.rng.randint(1, 3)

    def cut(self, offset: int) -> None:
        self.log.truncate_to(offset, self.clock.now_ms)
        self.history = [data for data in self.history if read_header(data).next_offset <= offset]
        self.end = self.log.log_end_offset
        assert self.end <= offset, self.name
        assert self.end >= (read_header(self.history[-1]).next_offset if self.history else 0), self.name
        self.flushed = min(self.flushed, self.end)

    def restart(self) -> None:
        self.end = self.log.log_end_offset + self.rng.choice((-3, 0, 5, 500))
        self.end = max(self.end, 0)
        self.log.truncate_fully(self.end, self.clock.now_ms)
        self.history = []
        self.flushed = min(self.flushed, self.end) if self.end < self.flushed else self.end
        self.epoch += self.rng.randint(0, 2)

    def delete_records(self) -> None:
        start = self.log.log_start_offset
        self.log.delete_records(self.rng.randint(start, self.end), self.end)
        self.log.retain(self.clock.now_ms, self.end)
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.log_starts())
        self.clock.now_ms += 50
        self.log_dir.removals.remove(self.log_dir.removals.take(self.clock.now_ms))

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    def checkpoint(self) -> None:
        self.log_dir.checkpoints.write(self.log_dir.checkpoints.recovery_points())

    def reopen(self) -> None:
        before = stored(self.log)
        self.log_dir.close()
        self.open()
        assert stored(self.log) == before, self.name
        self.came_back()

    def crash(self) -> None:
        start = self.log.log_start_offset
        self.disk.crash(self.rng)
        self.open()
        self.revived = self.revived or self.log.log_start_offset < start
        self.came_back()

    def came_back(self) -> None:
        end = self.log.log_end_offset
        last = max((read_header(data).next_offset for data in self.history), default=0)
        assert end >= min(self.flushed, last), f"{self.name}: {end} < {self.flushed}"
        self.history = [data for data in self.history if read_header(data).next_offset <= end]
        self.end = end
        self.flushed = min(self.flushed, end)
        self.epoch = max(self.epoch, self.log.latest_epoch)

    def check(self) -> None:
        log = self.log
        start = log.log_start_offset
        found = [data for _, data in stored(log)]
        assert found == [data for data in self.history if read_header(data).last_offset >= start], self.name
        for data in found:
            header = read_header(data)
            at = max(header.base_offset, start)
            if self.revived and (not log.epochs.entries or at < log.epochs.entries[0][1]):
                continue  # a crash brought back what was deleted, but not its epoch
            assert log.epochs.epoch_for(at) == header.partition_leader_epoch, f"{self.name}: {log.epochs.entries}, {at}"
        if found and (log.epochs.entries or not self.revived):
            assert log.latest_epoch == read_header(found[-1]).partition_leader_epoch, self.name
        assert log.recovery_point <= log.log_end_offset == log.next_offset, self.name


OPERATIONS = (
    (Follower.replicate, 20),
    (Follower.another_leader, 3),
    (Follower.restart, 1),
    (Follower.delete_records, 1),
    (Follower.flush, 3),
    (Follower.checkpoint, 2),
    (Follower.reopen, 1),
    (Follower.crash, 2),
)


@pytest.mark.parametrize("seed", range(30))
def test_a_followers_log(seed: int) -> None:
    follower = Follower(seed)
    operations, weights = zip(*OPERATIONS, strict=True)
    for operation in follower.rng.choices(operations, weights, k=60):
        operation(follower)
        follower.check()
