"""What was appended and is not written yet, and writing it: one pwritev for all that a round of requests has staged.

Records that the broker itself has decided share a batch, `growing`, until they are written or a batch of another kind
comes: then it is sealed, and staged like the others.

If the disk refuses, what is below `log_end_offset` is written and nothing of the rest is left: not its offsets, not its
producer state. That may be what earlier calls of `append` have staged; the stager must be notified before the
offsets are assigned again (`barnabas.server.partitions.partition`). After an error of the disk, a full one among them,
the log refuses to append (`LogState.failure`); when the process lacked something (`StorageError.is_ours`) the next
attempt starts again.

Sizes and positions are bytes.
"""

from __future__ import annotations

import errno

from barnabas.kproto.records import CorruptRecords
from barnabas.kproto.records_plain import PlainBatch
from barnabas.logdir.files import layout
from barnabas.logdir.files.disk import IOV_MAX, write_fully
from barnabas.logdir.files.errors import StorageError
from barnabas.logdir.files.open_files import LogFile
from barnabas.logdir.files.txn_index import AbortedTxn
from barnabas.logdir.logs.roll_limits import RollLimits
from barnabas.logdir.logs.state import LogState
from barnabas.logdir.logs.tail_repair import TailRepair
from barnabas.logdir.segments.segment import SAVE_EVERY, Segment


class Writer:
    """See the module. An appender adds to the fields directly, as a call per batch would cost: `staged` and
    `batches` (last offset, size, largest timestamp) have one entry for each, `aborted` those for the transaction index;
    position: the active segment's size with what is staged, and with what is growing. pwritev: the disk's.
    """

    __slots__ = ("_limits", "_repair", "_state", "aborted", "batches", "growing", "position", "pwritev", "staged")

    def __init__(self, state: LogState, repair: TailRepair, limits: RollLimits) -> None:
        self._state = state
        self._repair = repair
        self._limits = limits
        self.pwritev = state.disk.pwritev
        self.staged: list[memoryview] = []
        self.batches: list[tuple[int, int, int]] = []
        self.aborted: tuple[AbortedTxn, ...] = ()  # of most logs always
        self.growing: PlainBatch | None = None
        self.position = state.active.size

    def seal(self) -> None:
        """Stage the batch that was growing, if there is one: what comes next is another batch."""
        batch, self.growing = self.growing, None
        if batch is not None:
            self.staged.append(memoryview(batch.sealed()))
            self.batches.append((batch.base_offset + batch.count - 1, batch.size, batch.timestamp_ms))

    def write(self) -> None:
        """Write all that is staged; without anything staged it does nothing. Raises `StorageError` (see the module)."""
        if self.growing is not None:
            self.seal()
        staged = self.staged
        if not staged:
            return
        state = self._state
        repair = self._repair
        active = state.active
        start = active.size
        total = self.position - start
        txn_index = None
        try:
            if repair.is_needed:
                repair.run()
            file = active.ready(state.log_end_offset)
            if self.aborted:
                txn_index = self._ready_txn_index()
            repair.is_needed = True
            written = self.pwritev(file.fd, staged, start) if len(staged) <= IOV_MAX else 0
            if written != total:
                self._write_rest(file.fd, written)
            repair.is_needed = False
        except (OSError, CorruptRecords) as error:
            raise self.undo(error) from error
        config = state.config
        indexes_want = active.wrote(self.batches, config.index_interval_bytes, config.segment_index_bytes)
        self.staged = []
        self.batches = []
        state.log_end_offset = end = state.next_offset
        state.producers.commit(end)
        if txn_index is not None:
            self._write_aborted(txn_index)
        if indexes_want:
            self._tend_indexes(active)

    def _write_rest(self, fd: int, written: int) -> None:
        """The disk took less than all, as it does when it fills up."""
        rest: list[memoryview] = []
        for view in self.staged:
            if written >= len(view):
                written -= len(view)
            else:
                rest.append(view[written:])
                written = 0
        write_fully(self._state.disk, fd, rest, self.position - sum(len(view) for view in rest))

    def undo(self, error: OSError | CorruptRecords) -> StorageError:
        """Nothing staged was written: forget it. Returns what to raise."""
        state = self._state
        if isinstance(error, CorruptRecords):
            error = OSError(errno.EIO, error.message)
        failed = StorageError(f"appending to {state.active.path()}", error)
        self.forget()
        if self._repair.is_needed and state.unmade is None:
            try:
                self._repair.run()
            except OSError as second:
                # It is tried again before the next write. If the disk has failed, recovery will check it.
                if failed.is_ours:
                    failed = StorageError(f"cutting {state.active.path()} back after a failed write", second)
        if not failed.is_ours:
            state.fail(failed)
        return failed

    def forget(self) -> None:
        """Nothing that is staged will be written: its offsets, epochs and producer state are taken back."""
        state = self._state
        self.staged = []
        self.batches = []
        self.growing = None
        self.aborted = ()
        self.position = state.active.size
        end = state.next_offset = state.log_end_offset
        state.producers.rollback(end)
        state.epochs.truncate_from_end(end)
        state.leader_epoch = state.epochs.latest
        self._limits.reset(self.position)

    def _ready_txn_index(self) -> LogFile:
        """Whatever may be lacking is to be found out before the batches are written that need the entries. Raises
        OSError, `CorruptRecords`.
        """
        state = self._state
        active = state.active
        with state.lock:
            if not state.aborted_of(active):
                state.note_unsynced(dirs=(state.directory,))  # there will be a new file
            return LogFile(state.disk, active.path(layout.TXN_INDEX), create=True)

    def _write_aborted(self, file: LogFile) -> None:
        entries, self.aborted = self.aborted, ()
        state = self._state
        active = state.active
        try:
            with state.lock:
                for entry in entries:
                    active.append_aborted(file, entry)
        except OSError as error:
            # The batches are written; without the entry consumers would take aborted records for committed ones. So
            # this ends the log whatever the error is.
            failed = StorageError(f"writing {active.path(layout.TXN_INDEX)}", error)
            state.fail(failed)
            raise failed from error

    def _tend_indexes(self, active: Segment) -> None:
        if active.index_is_full(self._state.config.segment_index_bytes):
            self._limits.size = -1
        if active.unsaved >= SAVE_EVERY:
            try:
                with self._state.lock:
                    active.save_indexes()
            except OSError:
                pass  # stays in memory; flush and roll try again and report
