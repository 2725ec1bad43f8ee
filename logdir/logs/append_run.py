"""A run of batches: what a busy producer has sent one behind the other is checked and staged in one go.

`append` looks at everything that a batch may be. Of a producer that just goes on, the next batch differs from the last
one in little: `append_run` takes such batches as long as there are any, with all the same checks, and leaves the first
other one to `append`, which refuses it, or does what is to be done.

Taken are plain batches of clients: format 2, without codec, transaction and control records, laid out like those before
(`Familiar`), the next of their producer, behind no roll of the segment.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kproto.crc32c import crc32c
from barnabas.logdir.logs.appender import LogAppender, pack_assigned, unpack_header
from barnabas.logdir.segments.producers import NO_SEQUENCE, Written


class RunAppender(LogAppender):
    """A `LogAppender` that takes runs."""

    __slots__ = ()

    def append_run(self, batches: Iterable[memoryview], *, leader_epoch: int, now_ms: int) -> list[int]:
        """Stage as many of `batches` as are plain, as `append` would. Returns their last offsets; nothing happened to
        the first one that is not among them. Every one has a whole header.

        Raises nothing: a log that refuses, or rewrites, takes none.
        """
        position = self._position
        if (
            self.failure is not None
            or self._rewrite
            or leader_epoch != self._epoch
            or not position
            or now_ms > self._roll_clock
        ):
            return []
        offset = first = self.next_offset
        size_max = min(self._max_message_bytes, self._segment_bytes)
        timestamp_max = min(now_ms + self._after_max_ms, self._roll_timestamp)
        knows = self._familiar.knows if self._validate else None
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
                    next_sequence = self._producers.next_sequence(producer_id, epoch)
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
                or position + size > self._roll_size
                or last > self._roll_offset
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
            self._staged.append(view)
            self._staged_batches.append((last, size, timestamp))
            lasts.append(last)
            position += size
            offset = last + 1
        if written:
            self._producers.go_on(run_id, written, first)
        self._position = position
        self.next_offset = offset
        return lasts
