"""A run of batches: what a busy producer has sent one behind the other is checked and staged in one go.

`append` looks at everything that a batch may be. The next batch of a producer that just continues differs from its last
one in little: `append_run` takes such batches as long as there are any, with the same checks, and leaves the first
other one to `append`, which refuses or appends it.

Taken are plain batches of clients: format 2, without codec, transaction and control records, laid out like those before
(`Familiar`), the next of their producer, behind no roll of the segment.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kproto.crc32c import crc32c
from barnabas.logdir.logs.appender import AppendRules, pack_assigned, unpack_header
from barnabas.logdir.logs.roll_limits import RollLimits
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.writer import Writer
from barnabas.logdir.segments.producers import NO_SEQUENCE, Written


class RunAppender:
    """See the module."""

    __slots__ = ("_limits", "_rules", "_state", "_writer")

    def __init__(self, state: LogState, limits: RollLimits, writer: Writer, rules: AppendRules) -> None:
        self._state = state
        self._limits = limits
        self._writer = writer
        self._rules = rules

    def append_run(self, batches: Iterable[memoryview], *, leader_epoch: int, now_ms: int) -> list[int]:
        """Stage as many of `batches` as are plain, as `append` would. Returns their last offsets; nothing happened to
        the first one that is not among them. Every one has a whole header.

        Raises nothing: a log that refuses, or rewrites, takes none.
        """
        state = self._state
        rules = self._rules
        writer = self._writer
        limits = self._limits
        position = writer.position
        if (
            state.failure is not None
            or rules.rewrite
            or leader_epoch != state.leader_epoch
            or not position
            or now_ms > limits.clock
        ):
            return []
        offset = first = state.next_offset
        size_max = min(rules.max_message_bytes, rules.segment_bytes)
        timestamp_max = min(now_ms + rules.after_max_ms, limits.timestamp)
        knows = rules.familiar.knows if rules.validate else None
        run_id = run_epoch = next_sequence = NO_SEQUENCE
        lasts: list[int] = []
        written: list[Written] = []
        for view in batches:
            (
                base,
                length,
                _,
                magic,
                crc,
                attributes,
                delta,
                first_time,
                timestamp,
                producer_id,
                epoch,
                sequence,
                count,
            ) = unpack_header(view, 0)
            if not lasts:
                run_id, run_epoch = producer_id, epoch
                if producer_id >= 0:
                    next_sequence = state.producers.next_sequence(producer_id, epoch)
                    if next_sequence == NO_SEQUENCE:
                        break
            size = len(view)
            last = offset + delta
            if (
                length + 12 != size
                or magic != 2
                or attributes
                or base
                or count <= 0
                or delta != count - 1
                or size > size_max
                or timestamp > timestamp_max
                or position + size > limits.size
                or last > limits.offset
                or producer_id != run_id
                or epoch != run_epoch
                or (run_id >= 0 and sequence != next_sequence)
                or crc32c(view[21:]) != crc
                or (knows is not None and not knows(view, count, first_time, timestamp))
            ):
                break
            if run_id >= 0:
                last_sequence = sequence + delta & 0x7FFFFFFF
                next_sequence = last_sequence + 1 & 0x7FFFFFFF
                written.append(Written(sequence, last_sequence, last, delta, timestamp))
            pack_assigned(view, 0, offset, size - 12, leader_epoch)
            writer.staged.append(view)
            writer.batches.append((last, size, timestamp))
            lasts.append(last)
            position += size
            offset = last + 1
        if written:
            state.producers.go_on(run_id, written, first)
        writer.position = position
        state.next_offset = offset
        return lasts
