"""Starting the next segment: when the active one is full or old, or on request."""

from __future__ import annotations

from barnabas.kproto.records import CorruptRecords
from barnabas.logdir.logs.roll_limits import MAX_RELATIVE_OFFSET, RollLimits
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.tail_repair import TailRepair
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.segment import UNKNOWN, Segment


class Roller:
    """See the module."""

    __slots__ = ("_limits", "_repair", "_state", "_writer")

    def __init__(self, state: LogState, repair: TailRepair, limits: RollLimits, writer: Writer) -> None:
        self._state = state
        self._repair = repair
        self._limits = limits
        self._writer = writer

    def roll_if_due(
        self, size: int, max_timestamp: int, last_offset: int, now_ms: int, base_offset: int | None = None
    ) -> None:
        """Roll if a batch of `size` bytes does not go into the active segment any more. base_offset: its own, if it
        need not be the next offset. Raises `StorageError`.
        """
        state = self._state
        limits = self._limits
        writer = self._writer
        active = state.active
        if limits.clock == UNKNOWN:
            try:
                limits.count_age_from(active.first_timestamp if active.size else writer.batches[0][2])
            except (OSError, CorruptRecords) as error:
                raise writer.undo(error) from error
        if writer.position == 0:
            due = last_offset > limits.offset
        else:
            due = (
                writer.position + size > limits.size
                or max_timestamp > limits.timestamp
                or now_ms > limits.clock
                or last_offset > limits.offset
            )
        if due:
            # A gap between replicated batches is to lie inside a segment: one between segments means a loss to
            # recovery.
            far = base_offset is not None and last_offset - state.next_offset > MAX_RELATIVE_OFFSET
            self.roll(now_ms, base_offset if far else None)

    def roll(self, now_ms: int, base_offset: int | None = None) -> None:
        """Write what is staged, close the active segment and start one at `base_offset` (the log end by default).
        Raises `StorageError`.
        """
        self._writer.write()
        state = self._state
        active = state.active
        base = state.next_offset if base_offset is None else base_offset
        if base == active.base_offset:
            return  # it is empty
        try:
            with state.lock:
                if self._repair.is_needed:
                    self._repair.run()
                active.ready(state.log_end_offset)
                active.complete()  # its files are written by the flush that follows, in a thread
                state.take_snapshot(base)
                config = state.config
                self._start_segment(
                    base, now_ms, int(state.keeper.jitter() * min(config.segment_jitter_ms, config.segment_ms))
                )
        except (OSError, CorruptRecords) as error:
            raise self._writer.undo(error) from error
        state.keeper.rolled(state.known_as)

    def _start_segment(self, base_offset: int, now_ms: int, jitter_ms: int) -> None:
        active = self.new_segment(base_offset, now_ms, jitter_ms)
        active.make_files()
        self.activate(active)

    def new_segment(self, base_offset: int, now_ms: int, jitter_ms: int = 0) -> Segment:
        """An empty one, not in the log yet and without files."""
        state = self._state
        return Segment.new(
            state.disk,
            state.directory,
            base_offset,
            state.keeper.pool,
            state.lock,
            now_ms=now_ms,
            jitter_ms=jitter_ms,
        )

    def activate(self, segment: Segment) -> None:
        """The empty `segment` is the log's last from now on. The caller holds the lock."""
        state = self._state
        state.active = segment
        state.segments.append(segment)
        state.note_unsynced(dirs=(state.directory,))
        self._writer.position = 0
        self._limits.reset(0)
