"""Periodic work: flushes, retention, checkpoints, expired producers, files to be removed.

Each duty is a task that sleeps on trio's clock and reads its interval again every round, so a changed setting counts
from the next round on. What blocks (fdatasync, checkpoint files, making and unlinking files) goes through
`offload`; renaming old
segments and counting does not, with a checkpoint of trio's between two logs.

| duty | how often |
| --- | --- |
| retention by time, size, log start | `log.retention.check.interval.ms` |
| files of new logs | when they are created |
| flush of complete segments, and recovery points behind them | when they are rolled |
| flush by `flush.messages` | when so many records are not synced; answers wait for it |
| flush by `flush.ms` | `log.flush.scheduler.interval.ms`, or the smallest `flush.ms` |
| recovery points | `log.flush.offset.checkpoint.interval.ms` |
| log start offsets | `log.flush.start.offset.checkpoint.interval.ms` |
| high watermarks | `replica.high.watermark.checkpoint.interval.ms` |
| producers that wrote nothing for `producer.id.expiration.ms` | `producer.id.expiration.check.interval.ms` |
| unused fetch sessions | every minute |
| removal of `.deleted` files and `-delete` directories | when `file.delete.delay.ms` is over |

Every log directory has its own checkpoints and removals. A disk that fails is reported by the directory itself, which
is skipped from then on. Any other error of a log is logged, and the other logs are processed all the same. Compaction,
and the retention of compacted logs, is done by cleaner.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.logdir import Checkpoint, Checkpoints, LogDir, LogDirs, PartitionLog, StorageError
from barnabas.server.runtime.containment import attempt, contain, serve
from barnabas.server.runtime.wakeup import Wakeup
from barnabas.server.storage.cleaner import Cleaner
from barnabas.server.storage.flushing import Flusher
from barnabas.server.storage.retention import retain

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.partition import Partition
    from barnabas.server.partitions.registry import Partitions
    from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.housekeeping")

NEVER_MS = 2**63 - 1
"""`flush.ms` of a topic that leaves flushing to the operating system."""
LOOKED_AT_AT_ONCE = 1000
"""Partitions of which something is looked at between two rounds of the loop: some 0.3 us each."""
RETAINED_AT_ONCE = 20
"""Those whose segments are looked through: some 10 us each."""
EXPIRED_AT_ONCE = 20
REMOVAL_S = 1.0
LOOK_S = 5.0
"""How late a removal may be noticed that was requested while waiting for an earlier one."""
ROLL_S = 1.0
"""Segments that roll within this time share one checkpoint of recovery points."""
MADE_AT_ONCE = 16
"""New logs whose files are made by one call in a thread: up to 5 ms each."""
MAKE_AGAIN_S = 1.0
"""How long to wait where the process lacked something to make them."""
SESSIONS_S = 60.0
FLUSH_MAX_S = 5.0
"""Without any `flush.ms` set, how often to check whether that has changed."""


class Housekeeping:
    """All duties of one broker on its log directories; `run` serves until cancelled. `wall_ms()`: milliseconds since
    the epoch.
    """

    def __init__(
        self,
        partitions: Partitions,
        current_config: Callable[[], BrokerConfig],
        wall_ms: Callable[[], int],
        offload: Offload,
        dirs: LogDirs,
        cleaner: Cleaner | None,
        close_idle_sessions: Callable[[], None],
    ) -> None:
        self._partitions = partitions
        self._current_config = current_config
        self._wall_ms = wall_ms
        self._offload = offload
        self._dirs = dirs
        self._cleaner = cleaner
        self._close_idle_sessions = close_idle_sessions
        self._rolled: dict[PartitionLog, None] = {}  # in the order in which they rolled
        self._roll_seen = Wakeup()
        self._created = Wakeup()
        self._flushed_at: dict[PartitionLog, float] = {}
        self._high_watermarks: dict[Partition, tuple[int, PartitionLog]] = {}  # as they were last checkpointed
        self._are_written = True

    async def run(self) -> None:
        """Do everything that is due, until cancelled."""
        self._dirs.set_on_rolled(self._note_rolled)
        self._dirs.set_on_created(self._created.set)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, log, "making files of new logs", self._make_new)
            nursery.start_soon(serve, log, "flushing for answers", self._flush_for_answers)
            nursery.start_soon(serve, log, "flushing complete segments", self._flush_rolled)
            nursery.start_soon(serve, log, "removing files", self._remove)
            nursery.start_soon(serve, log, "closing fetch sessions", self._close_sessions)
            await trio.sleep(self._current_config().get_int("log.initial.task.delay.ms") / 1000)
            for key, duty in (
                ("log.retention.check.interval.ms", self.retain),
                ("log.flush.offset.checkpoint.interval.ms", self.checkpoint_recovery_points),
                ("log.flush.start.offset.checkpoint.interval.ms", self.checkpoint_log_starts),
                ("replica.high.watermark.checkpoint.interval.ms", self.checkpoint_high_watermarks),
                ("producer.id.expiration.check.interval.ms", self.expire_producers),
            ):
                nursery.start_soon(self._repeat, key, duty)
            nursery.start_soon(serve, log, "flushing by time", self._flush_in_time)

    async def _repeat(self, key: str, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            await attempt(log, f"the duty of {key}", duty)
            await trio.sleep(self._current_config().get_int(key) / 1000)

    # -- duties ------------------------------------------------------------------------------------------------------

    async def retain(self) -> None:
        """Delete segments that are too old, too many, or below the log start offset."""
        async for partition in self._all(RETAINED_AT_ONCE):
            if self._cleaner is None or not self._cleaner.keeps(partition.log):
                await retain(partition, self._wall_ms())

    async def checkpoint_recovery_points(self) -> None:
        await self._write(Checkpoints.recovery_points)

    async def checkpoint_log_starts(self) -> None:
        await self._write(Checkpoints.log_starts)

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermarks, if any has moved since they were written: with thousands of partitions at rest
        that is a look at each, and nothing else.
        """
        moved: dict[tuple[str, int], int] = {}
        async for each in self._all(LOOKED_AT_AT_ONCE):
            offset = each.high_watermark
            if self._high_watermarks.get(each) != (offset, each.log):  # a log that moved has another checkpoint
                self._high_watermarks[each] = offset, each.log
                moved[each.topic, each.index] = offset
                each.log.high_watermark_reached(offset)
        if len(self._high_watermarks) > len(self._partitions):
            kept = dict.fromkeys(self._partitions)
            self._high_watermarks = {each: at for each, at in self._high_watermarks.items() if each in kept}
        elif not moved and self._are_written:
            return
        self._are_written = await self._write(lambda checkpoints: checkpoints.high_watermarks(moved))

    async def _write(self, take: Callable[[Checkpoints], Checkpoint]) -> bool:
        """Write a checkpoint of each directory that says something new; whether all say it now."""
        went_well = True
        for log_dir in self._dirs.online:
            try:
                checkpoint = take(log_dir.checkpoints)
                if log_dir.checkpoints.is_written(checkpoint):
                    continue
                await self._offload(log_dir.checkpoints.write, checkpoint)
            except StorageError as error:
                log.error("%s", error)
                went_well = False
            except Exception as error:
                contain(log, f"writing a checkpoint of {log_dir.path}", error)
                went_well = False
        return went_well

    async def _all(self, at_once: int) -> AsyncIterator[Partition]:
        """All partitions, with a round of the loop after each `at_once`. Some may be deleted meanwhile."""
        for number, partition in enumerate(self._partitions, 1):
            yield partition
            if number % at_once == 0:
                await trio.lowlevel.checkpoint()

    async def expire_producers(self) -> None:
        """Expire the state of producers that were inactive for long."""
        async for partition in self._all(EXPIRED_AT_ONCE):
            try:
                partition.log.expire_producers(
                    self._wall_ms(), self._current_config().get_int("producer.id.expiration.ms")
                )
            except Exception as error:
                contain(log, f"expiring producers of {partition.topic}-{partition.index}", error)

    async def _close_sessions(self) -> None:
        while True:
            await trio.sleep(SESSIONS_S)
            self._close_idle_sessions()

    # -- new logs ----------------------------------------------------------------------------------------------------

    async def _make_new(self) -> None:
        """Make the files of new logs, which nobody waits for: a partition is led and followed without them."""
        self._created.set()  # those from before this task
        while True:
            await self._created.wait()
            for log_dir in self._dirs.online:
                await attempt(log, f"making files of new logs in {log_dir.path}", partial(self._make_new_in, log_dir))

    async def _make_new_in(self, log_dir: LogDir) -> None:
        new_logs = log_dir.new_logs
        while taken := new_logs.take(MADE_AT_ONCE):
            try:
                failed = await self._offload(new_logs.make, taken)
            except StorageError as error:
                log.error("%s", error)
                return
            # A name that is too long for the file system stays so: those who write to the log get that error.
            again = [each for each, error in failed if error.errno != errno.ENAMETOOLONG]
            if failed:
                log.warning("the files of %d new logs could not be made, retrying: %s", len(failed), failed[0][1])
                await trio.sleep(MAKE_AGAIN_S)
                if log_dir.failure is None:
                    new_logs.add(again)

    # -- flushes (those of `flush.messages` are done by flushing.py) ---------------------------------------------------

    async def _flush_for_answers(self) -> None:
        flusher = Flusher(self._offload)
        with self._partitions.flushing_by(flusher):
            await flusher.run()

    def _note_rolled(self, rolled: PartitionLog) -> None:
        self._rolled[rolled] = None
        self._roll_seen.set()

    async def _flush_rolled(self) -> None:
        """Flush a complete segment soon, and write the recovery point after it immediately: under a load that fills a
        segment in seconds, the next round of checkpoints would leave many to be read by a recovery.
        """
        while True:
            await self._roll_seen.wait()
            rolled, self._rolled = self._rolled, {}
            for each in rolled:
                await self._flush(each)
            await self.checkpoint_recovery_points()
            await trio.sleep(ROLL_S)

    async def _flush_in_time(self) -> None:
        while True:
            now = trio.current_time()
            wait_s = FLUSH_MAX_S
            async for partition in self._all(LOOKED_AT_AT_ONCE):
                flush_ms = partition.log.config.flush_ms
                if flush_ms == NEVER_MS:
                    continue
                wait_s = min(wait_s, flush_ms / 1000)
                if not partition.log.needs_flush:
                    self._flushed_at[partition.log] = now
                elif now - self._flushed_at.setdefault(partition.log, now) >= flush_ms / 1000:
                    await self._flush(partition.log)
            if self._flushed_at:
                kept = {partition.log for partition in self._partitions}
                self._flushed_at = {each: at for each, at in self._flushed_at.items() if each in kept}
            scheduler_ms = self._current_config().get_int("log.flush.scheduler.interval.ms")
            await trio.sleep(max(min(wait_s, scheduler_ms / 1000), 0.001))

    async def _flush(self, each: PartitionLog) -> None:
        try:
            await self._offload(each.flush)
            self._flushed_at[each] = trio.current_time()
        except StorageError as error:
            log.error("%s", error)
        except Exception as error:
            contain(log, f"flushing {each.directory}", error)

    # -- removal -----------------------------------------------------------------------------------------------------

    async def _remove(self) -> None:
        while True:
            for log_dir in self._dirs.online:
                removals = log_dir.removals
                due = removals.take(self._wall_ms())
                if due:
                    remove = partial(self._offload, removals.remove, due)
                    await attempt(log, f"removing files in {log_dir.path}", remove)
            next_ms = min((at for each in self._dirs.online if (at := each.removals.next_ms) is not None), default=None)
            wait_s = LOOK_S if next_ms is None else (next_ms - self._wall_ms()) / 1000
            await trio.sleep(min(max(wait_s, REMOVAL_S), LOOK_S))
