"""What the tests of compaction share: a compacted log in memory, and one round of cleaning it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from barnabas.kproto.records import Record, build_batch, build_control_batch, iter_records
from barnabas.kproto.records_legacy import iter_any
from barnabas.logdir import AppendOrigin, LogConfig, LogDir, PartitionLog
from barnabas.logdir.compaction.plan import CompactionLimits, CompactionState
from barnabas.logdir.compaction.run import CompactionRun
from barnabas.logdir.files.disk import Disk
from barnabas.logdir.files.memory_disk import MemoryDisk
from barnabas.logdir.tests.kit import NOW, PATH, TOPIC_ID, Clock, open_dir, stored

COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=600, index_interval_bytes=100, delete_retention_ms=1000
)
LIMITS = CompactionLimits(1 << 20, 0.9, 4096)


class Compacted:
    """A log that is compacted. `checkpoint`: its first dirty offset, as the cleaner would remember it."""

    def __init__(self, config: LogConfig = COMPACT, disk: MemoryDisk | None = None, **changes: Any) -> None:
        self.disk = disk or MemoryDisk()
        self.clock = Clock()
        self.config = replace(config, **changes)
        self.checkpoint: int | None = None
        self.log_dir: LogDir
        self.log: PartitionLog
        self.open()

    def open(self) -> None:
        self.log_dir = open_dir(self.disk, config=self.config, clock=self.clock, max_open_files=4)
        self.log = self.log_dir.open_or_create("t", 0, TOPIC_ID, self.config)
        self.log.make_files()

    def put(self, *records: tuple[bytes | None, bytes | None], **options: Any) -> int:
        """One batch of (key, value)s at the present time; its base offset."""
        now_ms = options.pop("timestamp", self.clock.now_ms)
        batch = build_batch([Record(timestamp=now_ms, key=key, value=value) for key, value in records], **options)
        info = self.log.append(batch, leader_epoch=0, now_ms=self.clock.now_ms)
        self.log.write()
        return info.base_offset

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        marker = build_control_batch(
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=commit,
            coordinator_epoch=0,
            timestamp=self.clock.now_ms,
        )
        info = self.log.append(marker, leader_epoch=0, now_ms=self.clock.now_ms, origin=AppendOrigin.COORDINATOR)
        self.log.write()
        return info.base_offset

    def put_as_it_is(self, data: bytes) -> None:
        """Batches or messages with their own offsets, as a leader sends them."""
        self.log.append(
            memoryview(bytearray(data)), leader_epoch=0, now_ms=self.clock.now_ms, origin=AppendOrigin.REPLICATION
        )
        self.log.write()

    def roll(self) -> None:
        self.log.roll(self.clock.now_ms)
        self.log.flush()

    def state(self) -> CompactionState:
        return self.log.compaction_state(
            self.checkpoint, self.clock.now_ms, self.log.last_stable_offset(self.log.log_end_offset)
        )

    def clean(self, limits: CompactionLimits = LIMITS, disk: Disk | None = None) -> CompactionRun:
        """One round over all that can be cleaned."""
        state = self.state()
        plan = self.log.begin_compaction(state, self.clock.now_ms)
        try:
            run = CompactionRun(disk or self.disk, plan, limits, lambda size: None)
            for cleaned in run:
                self.log.swap_in(plan, cleaned, self.clock.now_ms)
        finally:
            self.log.end_compaction(plan)
        self.checkpoint = run.end_offset
        return run

    def kill(self) -> None:
        """The process ends as by kill -9 and is started again."""
        self.disk.open_files = {}
        self.disk.locked = set()
        self.open()

    # ---- looking

    def records(self) -> list[Record]:
        """All records of data, as a consumer of uncommitted ones sees them."""
        return [record for header, data in stored(self.log) if not header.is_control for record in iter_records(data)]

    def pairs(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.records()]

    def raw(self) -> bytes:
        """All bytes of all segments, one after the other."""
        return b"".join(bytes(self.disk.node(f"{PATH}/t-0/{base:020d}.log").data) for base in self.log.segment_bases)

    def old_records(self) -> list[Record]:
        return list(iter_any(self.raw()))

    def shapes(self) -> list[tuple[int, int, int, bool]]:
        """(base offset, last offset, records, control) of every batch."""
        return [
            (header.base_offset, header.last_offset, header.record_count, header.is_control)
            for header, _ in stored(self.log)
        ]

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.disk.list(f"{PATH}/t-0"))


def committed(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of what a consumer of committed records sees."""
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    seen = []
    for header, data in stored(log):
        bad = header.is_transactional and any(
            entry.producer_id == header.producer_id and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        )
        if not header.is_control and not bad:
            seen += [(record.offset, record.key, record.value) for record in iter_records(data)]
    return seen


def final_values(log: PartitionLog) -> dict[bytes | None, bytes]:
    """What a reader of all committed records, from the first to the last, knows."""
    values: dict[bytes | None, bytes] = {}
    for _, key, value in committed(log):
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return values


__all__ = ["COMPACT", "LIMITS", "NOW", "Compacted", "committed", "final_values"]
