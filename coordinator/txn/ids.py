"""The life of transactional ids, whoever asks for their changes: replay, writing, what follows a commit, time-outs, ids
that nobody uses.

A change of an id is one record, and until it is committed the id is *busy*. What follows from a committed change
(`_go_on`) is the same after a load: a decided transaction sends its markers, an open one gets its deadline. When all
partitions have their marker one more record completes the transaction; should the log refuse that one, it is tried
again until it is written, and the id stays busy. `barnabas.coordinator.txn.shard` decides who may ask for a change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Final, NamedTuple

from barnabas.coordinator.machine import FAILED_AGAIN_SECONDS, NOTHING, Deadlines, Decision, Now, Result, StepFailed
from barnabas.coordinator.txn.config import TxnConfig
from barnabas.coordinator.txn.markers import Marked, MarkersToWrite
from barnabas.coordinator.txn.states import AT_REST, DECIDED, TRANSITIONS, Event, State
from barnabas.coordinator.txn.stored import parse_txn, txn_record, value_version
from barnabas.coordinator.txn.transaction import (
    EPOCH_BUMPING,
    NO_ID,
    NO_TIMEOUT_MS,
    TopicPartition,
    Txn,
    completed,
    fenced,
    needs_next_id,
    with_fencing_epoch,
)
from barnabas.kproto import ErrorCode

log = logging.getLogger("barnabas.transactions")

_REMOVALS_PER_BATCH: Final = 1_000
"""Keeps a batch of tombstones far below `message.max.bytes`: ids have 50 bytes in practice."""
_COMPLETE_RETRY_S: Final = 1.0


class NeedProducerId(NamedTuple):
    """An effect: fetch a producer id that nobody else has. The driver calls exactly one of the two, at any later time,
    and carries on with the result: `given(producer id, now)` looks at the request anew; `refused(code, now)` if there
    is none.
    """

    given: Callable[[int, Now], Result]
    refused: Callable[[ErrorCode, Now], Result]


class Due(Enum):
    TIME_OUT = "the open transaction is out of time"
    COMPLETE = "the end of the transaction could not be written, or is still to be"


class TransactionalId:
    """One id. Hard: `logged`, what the log says, changed by `replay` alone. The rest is soft."""

    __slots__ = (
        "_committed",
        "fence_failed",
        "logged",
        "markers",
        "pending",
        "target",
        "transactional_id",
        "unmarked",
    )

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.logged: Txn | None = None
        self.pending: State | None = None
        """What a record that is being written, or markers that are on their way, will bring. The id is busy."""
        self.target: Txn | None = None
        """The value that is being written; it knows what a record does not hold (`Txn.last_epoch`)."""
        self.unmarked: set[TopicPartition] = set()
        """Partitions of a decided transaction that still need their marker."""
        self.markers: MarkersToWrite | None = None
        """What was asked for them."""
        self.fence_failed = False
        """The epoch that was to shut out the producer could not be written: it holds here all the same, and is not
        raised again by the next try, for nobody got it.
        """
        self._committed: Txn | None = None

    @property
    def is_busy(self) -> bool:
        return self.pending is not None

    @property
    def txn(self) -> Txn | None:
        """The last value that is committed: what decisions start from, and what readers are told."""
        if self.fence_failed and self._committed is not None:
            return with_fencing_epoch(self._committed)
        return self._committed

    def settle(self) -> None:
        """What the log says is committed."""
        self._committed = self.logged
        self.pending = self.target = None
        self.fence_failed = False


class TransactionalIds:
    """See the module. `coordinator_epoch`: the leader epoch of the partition."""

    def __init__(self, config: TxnConfig, coordinator_epoch: int) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self.ids: dict[str, TransactionalId] = {}
        self._deadlines: Deadlines[tuple[str, Due]] = Deadlines()
        self._is_loaded = False
        self._is_gone = False

    def set_config(self, config: TxnConfig) -> None:
        """New settings; they hold from the next decision on."""
        self.config = config

    # -- replay and life --------------------------------------------------------------------------

    def replay(self, key: bytes | memoryview, value: bytes | memoryview | None) -> None:
        """One record of the log, live or on load. Raises `barnabas.kproto.DecodeError`; nothing changed then."""
        record = parse_txn(key, value)
        if record is None:
            return
        entry = self.ids.get(record.transactional_id)
        if entry is None:
            if record.txn is None:
                return
            entry = self.ids[record.transactional_id] = TransactionalId(record.transactional_id)
        if record.txn is None and not self._is_loaded:
            del self.ids[record.transactional_id]
        elif record.txn is None or entry.target is None:
            entry.logged = record.txn
        else:
            entry.logged = entry.target

    def loaded(self, now: Now) -> Result:
        """The log was read to its end, and all of it is committed. Markers of decided transactions go out again."""
        out = Decision()
        for entry in self.ids.values():
            try:
                entry.settle()
                self._go_on(entry, now, out)
            except Exception:  # the others' markers must go out
                log.exception("transactional id %r cannot be brought back", entry.transactional_id)
        self._is_loaded = True
        return out.result()

    def unload(self) -> None:
        """The partition is led elsewhere. Replies that are held are the driver's to refuse, by `Result.failed`."""
        self._is_gone = True
        self.ids.clear()
        self._deadlines = Deadlines()

    def deadline(self) -> float | None:
        """When `expire` has something to do, in seconds of the monotonic clock."""
        return self._deadlines.next()

    def expire(self, now: Now) -> Result:
        """Do one thing that is due; call again until `deadline()` lies ahead. Raises StepFailed for one id."""
        due = self._deadlines.pop(now.seconds)
        if due is None:
            return NOTHING
        transactional_id, what = due
        out = Decision()
        entry = self.ids.get(transactional_id)
        if entry is not None:
            try:
                if what is Due.COMPLETE:
                    self._maybe_complete(entry, now, out)
                else:
                    self._time_out(entry, NO_ID, now, out)
            except Exception as error:
                self._deadlines.set(due, now.seconds + FAILED_AGAIN_SECONDS)
                raise StepFailed(due, Result(replies=out.replies)) from error
        return out.result()

    @property
    def _retry_s(self) -> float:
        return self.config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000

    # -- writing a change -------------------------------------------------------------------------

    def _write(self, entry: TransactionalId, target: Txn, out: Decision) -> None:
        """`entry` is to become `target`, which came out of the table of states. It is busy until that is committed."""
        version = value_version(self.config.transaction_version)
        out.records.append(txn_record(entry.transactional_id, target, version))
        entry.pending, entry.target = target.state, target
        out.when_committed(partial(self._committed, entry))
        out.if_failed(partial(self._not_written, entry))

    def _committed(self, entry: TransactionalId, out: Decision, now: Now) -> None:
        if self._is_gone or self.ids.get(entry.transactional_id) is not entry:
            return
        entry.settle()
        if entry.logged is None:
            del self.ids[entry.transactional_id]
        else:
            self._go_on(entry, now, out)

    def _not_written(self, entry: TransactionalId, out: Decision, code: ErrorCode, appended: bool, now: Now) -> None:
        if appended or self._is_gone:
            return
        log.info("transactional id %r: no change, for the log refuses it: %s", entry.transactional_id, code.name)
        entry.target = None
        if entry.logged is not None and entry.logged.state in DECIDED:
            # The markers are written; only this record is missing, and the id stays busy until it is there.
            self._deadlines.set((entry.transactional_id, Due.COMPLETE), now.seconds + _COMPLETE_RETRY_S)
            return
        entry.pending = None
        if entry.logged is None:
            del self.ids[entry.transactional_id]
        elif entry.logged.state is State.ONGOING and (entry.transactional_id, Due.TIME_OUT) not in self._deadlines:
            self._deadlines.set((entry.transactional_id, Due.TIME_OUT), now.seconds + self._retry_s)

    def _go_on(self, entry: TransactionalId, now: Now, out: Decision) -> None:
        """After a change is committed, or read from the log: what has to happen next."""
        txn = entry.txn
        assert txn is not None
        if txn.state in DECIDED:
            self._deadlines.cancel((entry.transactional_id, Due.TIME_OUT))
            entry.pending = TRANSITIONS[txn.state][Event.MARKED]
            entry.unmarked = set(txn.partitions)
            entry.markers = None
            if txn.partitions:
                entry.markers = MarkersToWrite(
                    entry.transactional_id,
                    txn.producer_id,
                    txn.producer_epoch,
                    txn.state is State.PREPARE_COMMIT,
                    txn.partitions,
                    self.coordinator_epoch,
                    txn.client_version,
                )
                out.effects.append(entry.markers)
            elif self._is_loaded:
                self._maybe_complete(entry, now, out)
            else:
                # One record at a time: nobody knows how many there are.
                self._deadlines.set((entry.transactional_id, Due.COMPLETE), now.seconds)
        elif txn.state is State.ONGOING and txn.timeout_ms != NO_TIMEOUT_MS:
            self._deadlines.set((entry.transactional_id, Due.TIME_OUT), _due(txn, now))

    # -- aborts by the coordinator, time-outs -----------------------------------------------------

    def _abort_open(self, entry: TransactionalId, txn: Txn, new_id: int, now: Now, out: Decision) -> None:
        """The coordinator itself ends an open transaction and shuts out its producer."""
        level = self.config.transaction_version
        base = txn
        if entry.fence_failed and level < EPOCH_BUMPING:
            # The epoch in `txn` is the fencing one already.
            base = txn._replace(producer_epoch=txn.producer_epoch - 1)
        next_id = new_id if needs_next_id(txn, level) else NO_ID
        self._write(entry, fenced(base, level, next_id, now.wall_ms), out)

        def not_fenced(_: Decision, code: ErrorCode, appended: bool, then: Now) -> None:
            if not appended and level < EPOCH_BUMPING:
                entry.fence_failed = True

        out.if_failed(not_fenced)

    def _time_out(self, entry: TransactionalId, new_id: int, now: Now, out: Decision) -> None:
        txn = entry.txn
        key = (entry.transactional_id, Due.TIME_OUT)
        if txn is None or txn.state is not State.ONGOING or txn.timeout_ms == NO_TIMEOUT_MS:
            return
        if entry.is_busy or _due(txn, now) > now.seconds:
            # When the change is committed it is armed anew; should it not come about, here.
            self._deadlines.set(key, max(_due(txn, now), now.seconds + self._retry_s if entry.is_busy else 0.0))
            return
        if new_id == NO_ID and needs_next_id(txn, self.config.transaction_version):
            self._deadlines.set(key, now.seconds + self._retry_s)
            out.effects.append(
                NeedProducerId(partial(self._time_out_with, entry), lambda code, then: NOTHING),
            )
            return
        log.info(
            "transactional id %r: producer %d, epoch %d is aborted after %d ms",
            entry.transactional_id,
            txn.producer_id,
            txn.producer_epoch,
            txn.timeout_ms,
        )
        self._abort_open(entry, txn, new_id, now, out)

    def _time_out_with(self, entry: TransactionalId, new_id: int, now: Now) -> Result:
        out = Decision()
        if not self._is_gone and self.ids.get(entry.transactional_id) is entry:
            self._time_out(entry, new_id, now, out)
        return out.result()

    # -- markers -----------------------------------------------------------------------------------

    def marked(self, marked: Marked, now: Now) -> Result:
        """Partitions need no marker any more, see `barnabas.coordinator.txn.markers`."""
        out = Decision()
        entry = self.ids.get(marked.markers.transactional_id)
        if entry is not None and entry.markers is marked.markers:
            entry.unmarked -= marked.partitions
            self._maybe_complete(entry, now, out)
        return out.result()

    def _maybe_complete(self, entry: TransactionalId, now: Now, out: Decision) -> None:
        txn = entry.txn
        if txn is not None and txn.state in DECIDED and not entry.unmarked and entry.target is None:
            self._write(entry, completed(txn, now.wall_ms), out)

    # -- ids that nobody uses ---------------------------------------------------------------------

    def remove_expired(self, now: Now) -> Iterator[Result]:
        """The periodic clean-up: tombstones for ids without a change in `transactional_id_expiration_ms`."""
        before_ms = now.wall_ms - self.config.transactional_id_expiration_ms
        batch: list[TransactionalId] = []
        for entry in list(self.ids.values()):
            txn = entry.txn
            if txn is None or entry.is_busy or txn.state not in AT_REST or txn.update_ms > before_ms:
                continue
            batch.append(entry)
            if len(batch) == _REMOVALS_PER_BATCH:
                yield self._remove(batch)
                batch = []
        if batch:
            yield self._remove(batch)

    def _remove(self, batch: list[TransactionalId]) -> Result:
        out = Decision()
        for entry in batch:
            # A batch that was yielded before may have changed this one.
            txn = entry.txn
            if txn is None or entry.is_busy or self.ids.get(entry.transactional_id) is not entry:
                continue
            entry.pending = TRANSITIONS[txn.state][Event.EXPIRED]
            out.records.append(txn_record(entry.transactional_id, None, 0))
            out.when_committed(partial(self._committed, entry))
            out.if_failed(partial(self._not_removed, entry))
        log.info("%d transactional ids that nobody used are removed", len(out.records))
        return out.result()

    def _not_removed(self, entry: TransactionalId, out: Decision, code: ErrorCode, appended: bool, now: Now) -> None:
        if not appended:
            entry.pending = None


def _due(txn: Txn, now: Now) -> float:
    """When the open transaction is out of time, in seconds of the monotonic clock."""
    return now.seconds + (txn.start_ms + txn.timeout_ms + 1 - now.wall_ms) / 1000
