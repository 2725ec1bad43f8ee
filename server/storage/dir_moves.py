"""Moves of partitions from one log directory of this broker to another (KIP-113).

The target directory has an empty copy (`Partition.future`, a `-future` directory). It is filled from the log that is
served, piece by piece: read in a thread, appended on the loop as a follower appends what it fetched. When it is
complete it is synced and marked; the last records, those that came meanwhile, are copied without a checkpoint, and in
the same step the copy replaces the log. Then, in a thread, the copy's last records, its checkpoints and its name are
synced, only then the original is removed, and when that is synced, too, the mark. So at any moment, through any crash,
one whole log exists, and the next start knows which (`LogDirs`).

What is truncated from the log is truncated from the copy (`Partition`); a copy that was found at the start is first
truncated to what both have in common, by leader epochs. What retention removes at its start meanwhile need not be
copied. A move ends, too, when its partition is deleted or goes offline, or when another target is requested
(`Partitions.move`). A full target disk pauses it.

Throttle: `replica.alter.log.dirs.io.max.bytes.per.second`, over all moves. As many at a time as
`num.replica.alter.log.dirs.threads` says, the others wait. Source: `ReplicaAlterLogDirsThread.scala`,
`LogManager.scala` (3.9). Unlike there the copy is synced before it is served.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.logdir import AppendOrigin, PartitionLog, Promoted, StorageError, UnexpectedOffset
from barnabas.replication import ReplicationThrottle
from barnabas.server.runtime.offload import Offload

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.partitions.partition import Partition
    from barnabas.server.partitions.registry import Partitions

log = logging.getLogger("barnabas.moves")

PIECE_BYTES = 256 * 1024
"""Read in one go."""
REST_S = 5.0
"""The pause of a move that cannot continue, because of a full disk for instance. Seconds."""
LOOK_S = 0.1
"""How often a throttled move checks whether it may continue. Seconds."""


class Moves:
    """See the module. `run` must be running for moves to make progress."""

    def __init__(self, partitions: Partitions, offload: Offload, current_config: Callable[[], BrokerConfig]) -> None:
        self._partitions = partitions
        self._offload = offload
        self._current_config = current_config
        self._throttle = ReplicationThrottle()
        self._known: set[Partition] = set()
        self._due, self._taken = trio.open_memory_channel["Partition"](math.inf)

    def resume(self, partition: Partition) -> None:
        """Part of `barnabas.server.partitions.registry.LogDirMoves`."""
        if partition not in self._known:
            self._known.add(partition)
            self._due.send_nowait(partition)

    async def run(self) -> None:
        """Carry out moves until cancelled."""
        at_once = self._current_config().get_optional_int("num.replica.alter.log.dirs.threads")
        async with trio.open_nursery() as nursery:
            for _ in range(max(at_once or len(self._partitions.log_dirs.dirs), 1)):
                nursery.start_soon(self._work, nursery)

    async def _work(self, nursery: trio.Nursery) -> None:
        async for partition in self._taken:
            copy = partition.future
            try:
                await self._move(partition)
            except StorageError as error:
                log.warning(
                    "stopped the move of %s-%d to another log directory: %s", partition.topic, partition.index, error
                )
            except Exception:
                log.exception("moving %s-%d failed", partition.topic, partition.index)
            self._known.discard(partition)
            if partition.future is copy is not None:
                nursery.start_soon(self._go_on_later, partition)
            elif partition.future is not None:  # its target changed meanwhile
                self.resume(partition)

    async def _go_on_later(self, partition: Partition) -> None:
        await trio.sleep(REST_S)
        if partition.future is not None:
            self.resume(partition)

    # -- one move ----------------------------------------------------------------------------------------------------

    async def _move(self, partition: Partition) -> None:
        """Copy everything, and put the copy in place; or until the move is cancelled."""
        copy = partition.future
        if copy is None:
            return
        began = trio.current_time()
        synced = at_tail = False
        truncations = -1
        while partition.future is copy:
            if partition.truncations != truncations:  # `Partition` may not have been able to truncate the copy as well
                self._cut_to_common(partition.log, copy)
                copy.end_cut()
                truncations = partition.truncations
            if self._is_whole(partition, copy):
                if synced:
                    promoted = self._partitions.promote(partition)
                    if promoted is not None:
                        await self._finish(partition, promoted)
                        log.info(
                            "moved %s-%d to %s in %.1f s",
                            partition.topic,
                            partition.index,
                            promoted.target.path,
                            trio.current_time() - began,
                        )
                        return
                    await trio.sleep(LOOK_S)  # its answers wait for a flush of the original
                else:
                    await self._offload(copy.flush)
                    if partition.future is copy:
                        mark_whole = self._partitions.log_dirs.mark_whole
                        await self._offload(mark_whole, partition.topic, partition.index)
                    synced = True
                continue
            if not at_tail:
                await self._until_allowed()
            at_tail = await self._copy_piece(partition, copy, at_once=at_tail and synced)
            if not (at_tail and synced):
                await trio.lowlevel.checkpoint()

    @staticmethod
    def _is_whole(partition: Partition, copy: PartitionLog) -> bool:
        return copy.log_end_offset == partition.log.log_end_offset

    async def _copy_piece(self, partition: Partition, copy: PartitionLog, *, at_once: bool) -> bool:
        """Copy some of what is missing; returns whether that was all. at_once: without a checkpoint."""
        original, now_ms = partition.log, self._partitions.wall_ms()
        start, end = original.log_start_offset, original.log_end_offset
        if copy.log_end_offset < start:
            copy.truncate_fully(start, now_ms)
            return False
        copy.delete_records(start, copy.log_end_offset)
        truncations = partition.truncations
        piece = partition.read(copy.log_end_offset, PIECE_BYTES, upper_offset=end, min_one_batch=True)
        if piece is None:
            copy.skip_to(end, now_ms)  # compaction has left nothing before the end
            return True
        try:
            data = piece.read() if at_once else await self._offload(piece.read)
        except EOFError:
            return False  # it was truncated meanwhile
        except OSError as error:
            failed = StorageError(f"reading {original.directory}", error)
            if not failed.is_ours and not original.abandoned:
                self._partitions.storage_failed(partition, failed)
            raise failed from error
        if partition.future is copy and partition.truncations == truncations and not copy.abandoned:
            self._append(copy, memoryview(data), now_ms)
            self._throttle.record(len(data), trio.current_time())
        return copy.log_end_offset >= end

    @staticmethod
    def _append(copy: PartitionLog, data: memoryview, now_ms: int) -> None:
        try:
            copy.append(data, leader_epoch=-1, now_ms=now_ms, origin=AppendOrigin.REPLICATION)
        except UnexpectedOffset as error:
            # The original starts inside this batch (DeleteRecords), and batches are copied whole.
            if error.first_offset > copy.log_start_offset:
                copy.truncate_to(error.first_offset, now_ms)
            else:
                copy.truncate_fully(error.first_offset, now_ms)
            copy.append(data, leader_epoch=-1, now_ms=now_ms, origin=AppendOrigin.REPLICATION)
        copy.write()

    async def _until_allowed(self) -> None:
        """Wait while the throttle is exceeded."""
        throttle = self._throttle
        while True:
            config = self._current_config()
            throttle.rate = config.get_int("replica.alter.log.dirs.io.max.bytes.per.second")
            throttle.samples = config.get_int("alter.log.dirs.replication.quota.window.num")
            throttle.sample_s = float(config.get_int("alter.log.dirs.replication.quota.window.size.seconds"))
            if not throttle.exceeded(trio.current_time()):
                return
            await trio.sleep(LOOK_S)

    def _cut_to_common(self, original: PartitionLog, copy: PartitionLog) -> None:
        """Truncate the copy to what both logs have in common: the original may have been truncated, and have grown."""
        now_ms = self._partitions.wall_ms()
        while copy.log_end_offset > copy.log_start_offset:
            epoch, end = original.end_offset_for_epoch(copy.latest_epoch)
            if epoch < 0:
                break
            end = min(end, copy.end_offset_for_epoch(epoch)[1])
            if epoch == copy.latest_epoch:
                copy.truncate_to(min(end, original.log_end_offset), now_ms)
                return
            if end <= copy.log_start_offset:
                break
            copy.truncate_to(end, now_ms)
        if copy.log_end_offset != original.log_start_offset:
            copy.truncate_fully(original.log_start_offset, now_ms)

    async def _finish(self, partition: Partition, promoted: Promoted) -> None:
        """The copy is served: make it durable, then remove the original. Raises StorageError: both stay."""
        target = promoted.target
        with trio.CancelScope(shield=True):  # a stop must not leave both
            try:
                await self._offload(promoted.log.flush)
                await self._offload(target.sync_names)
            except StorageError:
                log.error(
                    "moving %s-%d failed: keeping the original, because the copy is not on disk",
                    partition.topic,
                    partition.index,
                )
                raise
            try:
                for checkpoint in (
                    target.checkpoints.recovery_points(),
                    target.checkpoints.log_starts(),
                    target.checkpoints.high_watermarks({promoted.key: partition.high_watermark}),
                ):
                    await self._offload(target.checkpoints.write, checkpoint)
            except StorageError as error:
                log.warning("moved %s-%d, but: %s", partition.topic, partition.index, error)
            promoted.finish()
            await self._offload(promoted.settle)
