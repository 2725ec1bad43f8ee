"""The head of a log: where it starts, and which segments are deleted: those before the start, too old or too many."""

from __future__ import annotations

from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.logs.roller import Roller
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.segments.retention import breached


class LogHead:
    """See the module."""

    __slots__ = ("_roller", "_state")

    def __init__(self, state: LogState, roller: Roller) -> None:
        self._state = state
        self._roller = roller

    def delete_records(self, before_offset: int, high_watermark: int) -> int:
        """Records below `before_offset` are gone (-1: all committed ones); returns the log start. Segments go with
        the next `retain`.

        Raises KafkaError OFFSET_OUT_OF_RANGE for an offset above the high watermark.
        """
        state = self._state
        if before_offset == -1:
            before_offset = high_watermark
        if not 0 <= before_offset <= high_watermark:
            message = f"Offset {before_offset} is above the high watermark {high_watermark}."
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        state.start_at(before_offset)
        return state.log_start_offset

    def retain(self, now_ms: int, high_watermark: int | None = None, at_most: int | None = None) -> int:
        """Delete segments that are below the log start, too many or too old (retention.py), `at_most` so many if that
        is given; returns how many.

        Only below the high watermark, which is the log end if it is not given; none once the log is abandoned: a loop
        over all logs may come to one that was deleted meanwhile. Not to be called while it is compacted. Raises
        `StorageError`.
        """
        state = self._state
        if state.abandoned:
            return 0
        try:
            gone = breached(
                state.segments,
                state.config,
                log_start_offset=state.log_start_offset,
                log_end_offset=state.log_end_offset,
                high_watermark=state.log_end_offset if high_watermark is None else high_watermark,
                now_ms=now_ms,
            )
        except OSError as error:
            raise state.refused("reading", error) from error
        if at_most is not None:
            gone = min(gone, at_most)
        if not gone:
            return 0
        try:
            if gone == len(state.segments):
                self._roller.roll(now_ms)
            with state.lock:
                state.start_at(state.segments[gone].base_offset)
                for segment in state.segments[:gone]:
                    # One by one from the head: a crash leaves no gap. What is left after a failure goes next time.
                    paths = segment.mark_deleted()
                    state.segments.remove(segment)
                    state.note_unsynced(dirs=(state.directory,))
                    state.keeper.remove_later(paths, now_ms + state.config.file_delete_delay_ms)
                first = state.segments[0].base_offset
                state.drop_snapshots(lambda at: at < first)
        except StorageError:
            raise
        except OSError as error:
            raise state.refused("deleting segments of", error) from error
        return gone
