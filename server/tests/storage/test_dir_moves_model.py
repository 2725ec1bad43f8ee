"""Random moves against random use: whatever happens to a partition while it is copied, the copy that takes its place
holds the same batches. A failure names its seed.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.kproto.records import Record, build_batch, iter_headers
from barnabas.logdir import AppendOrigin, LogConfig, LogDirs, PartitionLog
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.replication import Image, PartitionImage
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.partitions.partition import Partition
from barnabas.server.partitions.registry import Partitions
from barnabas.server.runtime.offload import inline
from barnabas.server.storage import dir_moves as moves

NOW = 1_763_700_000_000
CONFIG = LogConfig(segment_bytes=600, file_delete_delay_ms=0)
STEPS = 60


class World:
    """One broker, a partition of it, and an administrator who moves it to and fro."""

    def __init__(self, seed: int, disk: MemoryDisk) -> None:
        self.rng = Random(seed)
        self.disk = disk
        self.epoch = 0
        self.partitions: Partitions
        self.partition: Partition
        self.mover: moves.Moves
        self.start()

    def start(self) -> None:
        dirs = LogDirs(["/a", "/b"], disk=self.disk, wall_ms=lambda: NOW, random=lambda: 0.0)
        dirs.open()
        dirs.check_identity(cluster_id="c", node_id=1)
        dirs.load(lambda topic: CONFIG)
        self.dirs = dirs
        self.partitions = Partitions(1, dirs, lambda config: CONFIG, Image, now=lambda: 0.0, wall_ms=lambda: NOW)
        config = BrokerConfig.from_values({"log.dirs": "/a,/b"})
        self.mover = moves.Moves(self.partitions, inline, lambda: config)
        self.partition = self.lead()

    def lead(self) -> Partition:
        self.epoch += 1
        image = PartitionImage(0, 1, self.epoch, self.epoch, (1,), (1,))
        return self.partitions.become_leader("t", bytes(16), image, {})

    # -- what may happen

    def append(self) -> None:
        batch = build_batch(
            [Record(0, NOW, b"k", b"%d" % self.rng.randrange(10**6)) for _ in range(self.rng.randint(1, 4))]
        )
        self.partition.append(batch, origin=AppendOrigin.CLIENT, now_ms=NOW)
        self.partition.write()

    def truncate(self) -> None:
        log = self.partition.log
        self.partition.truncate_to(self.rng.randint(log.log_start_offset, log.log_end_offset))

    def begin_anew(self) -> None:
        self.partition.restart_at(self.partition.log_end_offset + self.rng.randint(0, 5))

    def delete_records(self) -> None:
        log = self.partition.log
        log.delete_records(
            self.rng.randint(log.log_start_offset, self.partition.high_watermark), self.partition.high_watermark
        )
        log.retain(NOW)

    def new_epoch(self) -> None:
        self.lead()

    def move(self) -> None:
        self.partitions.move(self.partition, self.rng.choice(self.dirs.dirs))

    async def copy(self) -> None:
        copy = self.partition.future
        if copy is not None and not self.mover._is_whole(self.partition, copy):
            await self.mover._copy_piece(self.partition, copy, at_once=self.rng.random() < 0.5)

    def restart(self) -> None:
        """A copy whose disk is away for a while misses what is cut from the log."""
        copy, away = self.partition.future, self.rng.random() < 0.5
        if copy is not None and away:
            self.partition.future = None
            for _ in range(3):
                self.rng.choice((self.append, self.truncate, self.new_epoch, self.delete_records))()
        self.dirs.close({("t", 0): self.partition.high_watermark})
        self.start()
        if self.partition.future is not None:
            self.mover._cut_to_common(self.partition.log, self.partition.future)

    async def finish(self) -> None:
        copy = self.partition.future
        if copy is None:
            return
        self.mover._cut_to_common(self.partition.log, copy)
        while not self.mover._is_whole(self.partition, copy):
            await self.mover._copy_piece(self.partition, copy, at_once=True)
        before, start = batches(self.partition.log), self.partition.log_start_offset
        promoted = self.partitions.promote(self.partition)
        assert promoted is not None
        await self.mover._finish(self.partition, promoted)
        assert batches(self.partition.log) == before
        assert self.partition.log_start_offset >= start


def batches(log: PartitionLog) -> list[Any]:
    """All batches, with the parts that a move must keep."""
    found: list[Any] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, upper_offset=log.log_end_offset, min_one_batch=True)
        if piece is None:
            break
        data = piece.read()
        for position, header in iter_headers(data):
            if header.last_offset >= offset:
                found.append(data[position : position + header.size])
                offset = header.next_offset
    return found


@pytest.mark.parametrize("seeds", [range(start, start + 20) for start in range(0, 60, 20)], ids=str)
async def test_a_copy_becomes_what_the_log_is(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "PIECE_BYTES", 300)
    for seed in seeds:
        world = World(seed, MemoryDisk())
        acts = [world.append] * 6 + [world.copy] * 6 + [world.move, world.move]
        acts += [world.truncate, world.delete_records, world.begin_anew, world.new_epoch, world.restart, world.finish]
        for step in range(STEPS):
            act = world.rng.choice(acts)
            try:
                done = act()
                if done is not None:
                    await done
                copy, log = world.partition.future, world.partition.log
                if copy is not None:
                    assert copy.log_end_offset <= log.log_end_offset
            except BaseException:
                print(f"seed {seed}, step {step}: {act.__name__}")
                raise
        await world.finish()
