"""The log cleaner: compacts the logs of topics with `cleanup.policy=compact`, the dirtiest first.

Each of `log.cleaner.threads` cleaners looks for the log with the largest dirty share over all directories, has it
compacted, and looks again; when no log needs it, it waits `log.cleaner.backoff.ms`. What is to be done, and putting
the results in place, is logdir's business (`barnabas.logdir.compaction.plan`, `PartitionLog.begin_compaction`); the
reading and writing happens in a process per cleaner (cleaner_process.py). Here is which log, when, how
fast, and what follows a failure:

| what happens | then |
| --- | --- |
| the log is truncated, deleted, moved, or its directory fails | the compaction is aborted, what was written removed |
| records that cannot be read, or a bug | logged once; the log is excluded until the broker restarts |
| the disk is full, or we are out of descriptors or memory | logged; retried after the next wait |
| another failure of the disk | the log directory has failed |
| the process dies | logged; retried, three times for one log |
| the broker stops | the process is killed, what was written removed |

Retention of compacted logs is done here too, after each pass, as in Apache Kafka: with `compact,delete` old
segments go, and with `compact` those below the log start. Settings count from the next log on, `log.cleaner.enable`
from the next start. The role does not matter: followers compact on their own. Checking a log costs 6 us.

Why a process: a thread that filters records keeps Python's lock for 5 ms at a time, and every wake-up of the loop waits
for that. Beside a compaction, a tick every 2 ms came late by 6 to 10 ms in the median with a thread, by 2 to 7 with a
process and by 2 to 3 with a process of lower priority (two busy cores; 1 to 2 ms without any compaction). The process
takes 0.2 s of CPU to start and 30 MB beside the map of keys, and exists only while there is work.

Facts: LogCleaner, LogCleanerManager (3.9); KIP-58, KIP-354.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

import trio

from barnabas.kproto import KafkaError
from barnabas.logdir import (
    CleanedSegment,
    CleanerCheckpoint,
    CompactionAborted,
    CompactionLimits,
    CompactionPlan,
    CompactionState,
    CompactionStats,
    LogDir,
    PartitionLog,
    StorageError,
    dirtiest,
)
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import attempt, contain
from barnabas.server.runtime.wording import in_words
from barnabas.server.storage.cleaner_process import CannotStart, Compactor, WorkerDied, WorkerFailed
from barnabas.server.storage.retention import retain

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.registry import Partitions
    from barnabas.server.runtime.offload import Offload

log = logging.getLogger("barnabas.cleaner")

DEATHS_MAX = 3
BURST_S = 0.3
"""The burst of the throttle after a pause, as in Apache Kafka."""
LOOK_AT = 50
"""Logs that are checked between two checkpoints of trio: some milliseconds."""
MIB = 1 << 20


class Throttle:
    """Lets bytes through at a rate, in turn. `rate()`: bytes a second."""

    def __init__(self, rate: Callable[[], float]) -> None:
        self._rate = rate
        self._free_at = float("-inf")

    async def take(self, size: int) -> None:
        """Count `size` bytes, and wait until they may have been used."""
        now = trio.current_time()
        self._free_at = max(self._free_at, now - BURST_S) + size / max(self._rate(), 1.0)
        if self._free_at > now:
            await trio.sleep_until(self._free_at)
        else:
            await trio.lowlevel.checkpoint()


class CleanerProgress:
    """What cleaners have done, for metrics. runs, failures: compactions of a log; bytes_read, bytes_written,
    records_read, records_kept: of those that went well; last_look_at: trio's time of the last look over all logs, None
    before the first; max_dirty_ratio: the largest share in that look; last_map_fill, last_run_s: of the last one.
    """

    def __init__(self) -> None:
        self.runs = self.failures = 0
        self.bytes_read = self.bytes_written = self.records_read = self.records_kept = 0
        self.last_look_at: float | None = None
        self.max_dirty_ratio = 0.0
        self.last_map_fill = self.last_run_s = 0.0

    def ran(self, state: CompactionState, stats: CompactionStats, seconds: float) -> None:
        """A log was compacted."""
        self.runs += 1
        self.bytes_read += state.clean_bytes + state.cleanable_bytes
        self.bytes_written += stats.bytes_written
        self.records_read += stats.records_read
        self.records_kept += stats.records_kept
        self.last_map_fill, self.last_run_s = stats.map_fill, seconds


class Cleaner:
    """See the module. `wall_ms()`: milliseconds since the epoch. `make_compactor` gives each cleaner what does its
    work. `run` serves until cancelled.
    """

    def __init__(
        self,
        partitions: Partitions,
        current_config: Callable[[], BrokerConfig],
        wall_ms: Callable[[], int],
        offload: Offload,
        make_compactor: Callable[[], Compactor],
    ) -> None:
        self._partitions = partitions
        self._current_config = current_config
        self._wall_ms = wall_ms
        self._offload = offload
        self._make_compactor = make_compactor
        self._checkpoints: dict[LogDir, CleanerCheckpoint] = {}
        self._changed: list[CleanerCheckpoint] = []
        self._busy: set[PartitionLog] = set()
        self._left_out: set[PartitionLog] = set()
        self._deaths: dict[PartitionLog, int] = {}
        self._topic_ids: dict[tuple[str, int], bytes] = {}
        self._throttle = Throttle(lambda: self._current_config().get_float("log.cleaner.io.max.bytes.per.second"))
        self._running: set[int] = set()
        self.progress = CleanerProgress()

    @property
    def uncleanable_count(self) -> int:
        """How many logs are left out until the broker restarts."""
        return len(self._left_out)

    @property
    def busy_count(self) -> int:
        """How many logs are being compacted."""
        return len(self._busy)

    def keeps(self, partition_log: PartitionLog) -> bool:
        """Whether the cleaner does the retention of this log."""
        if partition_log in self._busy:
            return True
        return self._wanted > 0 and partition_log.config.compact and partition_log not in self._left_out

    async def run(self) -> None:
        """Compact logs until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                for number in range(self._wanted):
                    if number not in self._running:
                        self._running.add(number)
                        nursery.start_soon(attempt, log, f"cleaner {number}", partial(self._serve, number))
                await self._wait()

    @property
    def _wanted(self) -> int:
        return self._current_config().get_int("log.cleaner.threads")

    async def _wait(self) -> None:
        await trio.sleep(max(self._current_config().get_int("log.cleaner.backoff.ms") / 1000, 0.001))

    async def _serve(self, number: int) -> None:
        """One cleaner, until `log.cleaner.threads` is reduced."""
        compactor = self._make_compactor()
        try:
            while number < self._wanted:
                if not await self._clean_dirtiest(compactor):
                    await compactor.rest()
                    await self._wait()
        finally:
            self._running.discard(number)
            await compactor.rest()

    # -- choosing ----------------------------------------------------------------------------------------------------

    async def _clean_dirtiest(self, compactor: Compactor) -> bool:
        """Compact the dirtiest log; False if none needs it, or to wait before the next."""
        found = await self._dirtiest()
        went_well = found is not None and await self._clean(compactor, *found)
        await self._retain()
        return went_well

    async def _dirtiest(self) -> tuple[Partition, CompactionState] | None:
        states: dict[Partition, CompactionState] = {}
        async for partition in self._free():
            try:
                state = self._state(partition)
            except StorageError as error:
                log.error("cannot check whether %s-%d needs compaction: %s", partition.topic, partition.index, error)
            except KafkaError as error:
                self._leave_out(partition, partition.log, error.message or error.code.name)
            except Exception as error:
                contain(log, f"checking whether {partition.topic}-{partition.index} needs compaction", error)
                self._left_out.add(partition.log)
            else:
                if state is not None:
                    states[partition] = state
        self.progress.last_look_at = trio.current_time()
        self.progress.max_dirty_ratio = max((state.dirty_ratio for state in states.values()), default=0.0)
        known = {partition.log for partition in self._partitions}
        self._left_out &= known
        self._topic_ids = {key: topic_id for key, topic_id in self._topic_ids.items() if self._partitions.find(*key)}
        self._deaths = {each: count for each, count in self._deaths.items() if each in known}
        changed, self._changed = self._changed, []
        for checkpoint in changed:
            await self._save(checkpoint)
        chosen = dirtiest({partition: state for partition, state in states.items() if self._is_free(partition)})
        return None if chosen is None else (chosen, states[chosen])

    async def _free(self) -> AsyncIterator[Partition]:
        """The partitions whose logs may be compacted now."""
        for number, partition in enumerate(self._partitions):
            if number % LOOK_AT == 0:
                await trio.lowlevel.checkpoint()
            if self._is_free(partition):
                yield partition

    def _is_free(self, partition: Partition) -> bool:
        each = partition.log
        return (
            each.config.compact
            and each not in self._busy
            and each not in self._left_out
            and not each.abandoned
            and each.failure is None
            and partition.future is None
        )

    def _state(self, partition: Partition) -> CompactionState | None:
        """None if its directory has failed. Raises `StorageError`, KafkaError for records that cannot be read."""
        key = partition.topic, partition.index
        home = self._partitions.log_dirs.home(*key)
        if home is None:
            return None
        each = partition.log
        checkpoint = self._checkpoint(home)
        if self._topic_ids.setdefault(key, partition.topic_id) != partition.topic_id:
            self._topic_ids[key] = partition.topic_id
            if checkpoint.drop(key) is not None:  # of a deleted topic
                self._changed.append(checkpoint)
        elif key not in checkpoint.offsets:
            self._take_along(key, checkpoint)
        state = each.compaction_state(
            checkpoint.offsets.get(key), self._wall_ms(), each.last_stable_offset(partition.high_watermark)
        )
        if state.checkpoint_invalid:
            checkpoint.put(key, state.first_dirty_offset)
            self._changed.append(checkpoint)
        return state

    def _take_along(self, key: tuple[str, int], checkpoint: CleanerCheckpoint) -> None:
        """The log may have moved here from another directory."""
        for other in self._checkpoints.values():
            offset = None if other is checkpoint else other.drop(key)
            if offset is not None:
                checkpoint.put(key, offset)
                self._changed += checkpoint, other

    def _checkpoint(self, log_dir: LogDir) -> CleanerCheckpoint:
        known = self._checkpoints.get(log_dir)
        if known is None:
            known = CleanerCheckpoint(log_dir.disk, log_dir.path)
            known.load()  # after a failure it is retried: an empty one would overwrite it
            self._checkpoints[log_dir] = known
        return known

    # -- compacting --------------------------------------------------------------------------------------------------

    def _limits(self) -> CompactionLimits:
        config = self._current_config()
        cleaners = max(config.get_int("log.cleaner.threads"), 1)
        return CompactionLimits(
            dedupe_buffer_bytes=config.get_int("log.cleaner.dedupe.buffer.size") // cleaners,
            load_factor=config.get_float("log.cleaner.io.buffer.load.factor"),
            io_buffer_bytes=config.get_int("log.cleaner.io.buffer.size") // cleaners // 2,
        )

    async def _clean(self, compactor: Compactor, partition: Partition, state: CompactionState) -> bool:
        """Compact one log; returns whether to continue with the next immediately."""
        each = partition.log
        home = self._partitions.log_dirs.home(partition.topic, partition.index)
        if home is None:
            return True
        try:
            plan = each.begin_compaction(state, self._wall_ms())
        except StorageError as error:
            log.error("compacting %s-%d failed: %s", partition.topic, partition.index, error)
            return False
        self._busy.add(each)
        began = trio.current_time()
        try:
            end_offset, stats = await compactor.compact(
                home.disk,
                plan,
                self._limits(),
                lambda size: self._spend(partition, each, size),
                lambda cleaned: self._put_in_place(each, plan, cleaned),
            )
        except Exception as error:
            return self._failed(partition, each, home, error)
        else:
            self._deaths.pop(each, None)
            checkpoint = self._checkpoint(home)
            checkpoint.put((partition.topic, partition.index), end_offset)
            checkpoint.keep_only(home.logs)
            await self._save(checkpoint)
            seconds = trio.current_time() - began
            self.progress.ran(state, stats, seconds)
            self._tell(partition, state, end_offset, stats, seconds)
            return True
        finally:
            self._busy.discard(each)
            try:
                each.end_compaction(plan)
            except StorageError as error:
                log.error("%s", error)

    async def _spend(self, partition: Partition, each: PartitionLog, size: int) -> None:
        _check(partition, each)
        await self._throttle.take(size)
        _check(partition, each)

    async def _put_in_place(self, each: PartitionLog, plan: CompactionPlan, cleaned: CleanedSegment) -> None:
        """In five steps, the blocking ones in a thread; once begun it is completed, also when the broker stops."""
        with trio.CancelScope(shield=True):
            swap = each.begin_swap(plan, cleaned, self._wall_ms())
            await self._offload(swap.prepare)
            each.replace_segments(swap)
            await self._offload(swap.complete)
            each.end_swap(swap)

    async def _save(self, checkpoint: CleanerCheckpoint) -> None:
        try:
            await self._offload(checkpoint.save)
        except (OSError, StorageError) as error:
            # If it is lost, compacted records are compacted again.
            log.error("%s", error)

    def _failed(self, partition: Partition, each: PartitionLog, home: LogDir, error: Exception) -> bool:
        name = f"{partition.topic}-{partition.index}"
        if isinstance(error, CompactionAborted) or each.abandoned:
            log.info("compacting %s aborted: %s", name, error)
            return True
        self.progress.failures += 1
        if isinstance(error, StorageError):
            log.error("compacting %s failed: %s", name, error)
        elif isinstance(error, OSError):
            failed = StorageError(f"compacting {each.directory}", error)
            if failed.is_full or failed.is_ours:
                log.error("%s; retrying later", in_words(failed))
            else:
                home.storage_failed(failed)
        elif isinstance(error, CannotStart):
            log.error("compacting %s failed: %s; retrying later", name, error)
        elif isinstance(error, WorkerDied):
            self._deaths[each] = self._deaths.get(each, 0) + 1
            if self._deaths[each] < DEATHS_MAX:
                log.error("compacting %s failed: %s; retrying later", name, error)
            else:
                self._leave_out(partition, each, f"{error}, the third time")
        elif isinstance(error, KafkaError):
            self._leave_out(partition, each, error.message or error.code.name)
        elif isinstance(error, WorkerFailed):
            self._leave_out(partition, each, str(error))
        else:
            log.error("compacting %s failed", name, exc_info=error)
            self._leave_out(partition, each, str(error))
        return False

    def _leave_out(self, partition: Partition, each: PartitionLog, why: str) -> None:
        self._deaths.pop(each, None)
        self._left_out.add(each)
        log.error("%s-%d: no more compaction until the broker restarts: %s", partition.topic, partition.index, why)

    def _tell(
        self, partition: Partition, state: CompactionState, end_offset: int, stats: CompactionStats, seconds: float
    ) -> None:
        log.info(
            "compacted %s-%d up to offset %d: %.1f MiB dirty beside %.1f MiB clean, %.1f MiB written, "
            "%d of %d records kept, in %.1f s; the map of keys was %.0f %% full",
            partition.topic,
            partition.index,
            end_offset,
            state.cleanable_bytes / MIB,
            state.clean_bytes / MIB,
            stats.bytes_written / MIB,
            stats.records_kept,
            stats.records_read,
            seconds,
            stats.map_fill * 100,
        )

    # -- retention of compacted logs ---------------------------------------------------------------------------------

    async def _retain(self) -> None:
        async for partition in self._free():
            await retain(partition, self._wall_ms())


def _check(partition: Partition, each: PartitionLog) -> None:
    """Raises CompactionAborted if the compaction is obsolete."""
    if not each.compacting:
        raise CompactionAborted("the log was truncated or deleted")
    if partition.future is not None or partition.log is not each:
        raise CompactionAborted("the log moves to another directory")
