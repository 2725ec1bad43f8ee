"""Cutting records off a log's end, or all of them: what a new leader does not have.

First the log is read to find out where it will end (`cutting.find_cut`): nothing has changed if that fails. Then it is
cut in memory, at once and whole. Then its files follow, step by step (tail_repair.py). It is synced, lest a crash bring
the old records back behind new ones.
"""

from __future__ import annotations

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.logs.compacted import Compaction
from barnabas.logdir.logs.roll_limits import RollLimits
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.tail_repair import TailRepair
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.cutting import Cut, find_cut
from barnabas.logdir.segments.producers import Producers
from barnabas.logdir.segments.replay import rebuild_producers


class Truncation:
    """See the module."""

    __slots__ = ("_compaction", "_limits", "_repair", "_roller", "_state", "_writer")

    def __init__(
        self,
        state: LogState,
        repair: TailRepair,
        limits: RollLimits,
        writer: Writer,
        roller: Roller,
        compaction: Compaction | None,
    ) -> None:
        """compaction: None if the log has never been compacted since it was opened."""
        self._state = state
        self._repair = repair
        self._limits = limits
        self._writer = writer
        self._roller = roller
        self._compaction = compaction

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """Drop the records from `offset` on; a batch that holds `offset` goes whole. False if there were none.

        Producer state is rebuilt from the newest snapshot. Raises `StorageError`; unless the disk has failed, call it
        again then.
        """
        state = self._state
        assert offset >= 0
        self._writer.write()
        if state.unmade is None:
            self._repair.finish()
        if self._compaction is not None:
            self._compaction.stop_for_truncation(offset)
        if offset >= state.log_end_offset:
            state.epochs.truncate_from_end(state.log_end_offset)
            state.leader_epoch = state.epochs.latest
            return False
        if offset < state.segments[0].base_offset:
            self.truncate_fully(offset, now_ms)
            return True
        keep = state.segment_at(offset) + 1
        active = state.segments[keep - 1]
        producers = Producers()
        try:
            with state.lock:
                aborted = len(state.aborted_of(active))
                end, position, newest = find_cut(active, offset)
                rebuild_producers(state.disk, state.directory, state.segments, state.snapshots, producers, end)
        except (OSError, CorruptRecords) as error:
            raise state.refused("truncating", error) from error
        with state.lock:
            doomed = state.segments[keep:]
            del state.segments[keep:]
            state.active = active
            active.cut(offset, end, position, newest)
            fell = self._ends_at(end)
            state.epochs.truncate_from_end(end)
            if end < state.log_start_offset:
                state.log_start_offset = end
                fell = True
            state.producers = producers
            state.leader_epoch = state.epochs.latest
            left = len(active.aborted())
            due_ms = now_ms + state.config.file_delete_delay_ms
            self._repair.begin(Cut(doomed, due_ms, False, end, left if left < aborted else None, fell))
        self._repair.finish()
        return True

    def truncate_fully(self, offset: int, now_ms: int) -> None:
        """Drop everything; the log starts, and ends, at `offset`. Raises `StorageError` as `truncate_to`."""
        state = self._state
        self._writer.forget()
        self._repair.finish()
        if self._compaction is not None:
            self._compaction.stop_for_truncation(0)
        with state.lock:
            doomed = state.segments[:]
            del state.segments[:]
            self._roller.activate(self._roller.new_segment(offset, now_ms))
            fell = self._ends_at(offset) or offset < state.log_start_offset
            state.log_start_offset = offset
            state.epochs.clear()
            state.producers.clear()
            state.leader_epoch = state.epochs.latest
            self._repair.begin(Cut(doomed, now_ms + state.config.file_delete_delay_ms, True, -1, None, fell))
        self._repair.finish()

    def skip_to(self, offset: int, now_ms: int) -> None:
        """There are no records up to `offset`, behind the log's end: it ends there now. Raises `StorageError`."""
        state = self._state
        if state.active.size == 0 and len(state.segments) == 1:
            self.truncate_fully(offset, now_ms)
            return
        self._roller.roll(now_ms, offset)
        state.log_end_offset = state.next_offset = offset

    def _ends_at(self, offset: int) -> bool:
        """The log is shorter now; its active segment is set. True if its checkpoint on the disk says that more than
        this is safe.
        """
        state = self._state
        writer = self._writer
        fell = state.recovery_point > offset
        state.log_end_offset = state.next_offset = offset
        writer.position = state.active.size
        state.generation += 1
        if state.truncated_to is None or offset < state.truncated_to:
            state.truncated_to = offset  # what comes there now was never cleaned
        state.recovery_point = min(state.recovery_point, offset)
        self._limits.reset(writer.position)
        return fell
