"""What a partition knows of its idempotent and transactional producers (KIP-98), and the snapshots of it.

Per producer id: the epoch, the last five batches (a producer has at most five in flight), the epoch of the
coordinator that ended its last transaction, and where its open transaction starts. From that:

- a batch equal in epoch, first and last sequence to one of the five is a duplicate: success with the old offset,
  nothing is written;
- a lower epoch is fenced (INVALID_PRODUCER_EPOCH); a higher one must start at sequence 0; within an epoch sequences
  continue without a gap, from 2**31-1 to 0 (OUT_OF_ORDER_SEQUENCE_NUMBER);
- an unknown producer may start anywhere, as its state may have expired;
- while a transaction is open, batches outside of it are refused (INVALID_TXN_STATE);
- its end marker needs a coordinator epoch not below the last (TRANSACTION_COORDINATOR_FENCED), and an epoch not below
  the producer's (INVALID_PRODUCER_EPOCH), with transaction.version 2 a higher one: there each end bumps it, so an equal
  one is a late marker, unless the transaction is over, when it is a repeated one;
- the first batch of a transaction needs a `Verification`: that the transaction coordinator knows of this partition
  (KIP-890). Otherwise a late batch could open a transaction that never ends (INVALID_TXN_STATE).

Only the batches of clients are checked for sequence; replicated batches and those read back from the log only change
the state.

Entries are immutable, so a changed one can be put back: `append` keeps a journal, which `commit` forgets once the
batches are written and `rollback` plays backwards when they could not be.

`<offset>.snapshot` holds the state before `offset`, so that opening a log need not read it all. Big-endian:

    0  2  version 1
    2  4  CRC-32C of everything that follows
    6  4  count, then per producer 46 bytes:
          8 producer id, 2 epoch, 4 last sequence, 8 last offset (-1 none), 4 offset delta of the last batch, 8
          timestamp, 4 coordinator epoch, 8 first offset of the open transaction (-1 none)

Only the last of the five batches is kept. Timestamps are milliseconds, those of the batches. Facts: KIP-98, KIP-890,
KIP-1228; `ProducerAppendInfo`, `VerificationStateEntry` of Apache Kafka 4.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from barnabas.kproto.crc32c import crc32c
from barnabas.kproto.errors import ErrorCode, KafkaError
from barnabas.logdir.files.errors import CorruptFile
from barnabas.logdir.files.txn_index import AbortedTxn

WINDOW = 5
NO_SEQUENCE = -1
NO_EPOCH = -1
LAST_EPOCH = 32767
EPOCH_BUMPING = 2
"""The transaction.version from which on the end of a transaction bumps the epoch."""

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_START = 6
_new_tuple = tuple.__new__  # a NamedTuple's own constructor takes twice the time


class Written(NamedTuple):
    """One of the last batches of a producer. `timestamp` is the batch's max timestamp."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer(NamedTuple):
    """State of one producer id. `batches`: oldest first; `txn_start`: first offset of the open transaction, -1 if
    none.
    """

    epoch: int
    batches: tuple[Written, ...]
    timestamp: int
    coordinator_epoch: int = -1
    txn_start: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class Verification:
    """The coordinator is being asked, or has confirmed, that a producer's transaction has this partition in it. It is
    the permission for one first batch: the end of the transaction, or a batch of it, takes it back, so that an answer
    that comes late opens nothing.

    `lowest_sequence`: of the batches that came meanwhile; no higher one may be the first, as the others would then be
    out of order forever. `since_ms`: wall clock.
    """

    __slots__ = ("bumps_epoch", "epoch", "lowest_sequence", "since_ms")

    def __init__(self, epoch: int, sequence: int, bumps_epoch: bool, since_ms: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.bumps_epoch = bumps_epoch
        self.since_ms = since_ms

    def note(self, epoch: int, sequence: int) -> None:
        """Another batch needs it, too."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


class InTransaction(NamedTuple):
    """What an append knows of its transaction. `verification`: the one for the first batch; None: there must be an open
    transaction. `transaction_version`: of the client whose transaction a marker ends.
    """

    verification: Verification | None = None
    transaction_version: int = 0


class OwnProducer(NamedTuple):
    """The transaction that records of the broker itself are part of. in_txn: what it is checked for."""

    producer_id: int
    producer_epoch: int
    in_txn: InTransaction | None = None


class Producers:
    """The producers of one partition."""

    __slots__ = ("_journal", "completed", "entries", "open_txns", "verifying")

    def __init__(self) -> None:
        self.entries: dict[int, Producer] = {}
        self.open_txns: dict[int, int] = {}
        """First offset of every open transaction, rising, and whose it is."""
        self.completed: list[tuple[int, int]] = []
        """A heap of (first offset, marker's offset): transactions whose end may not be replicated yet."""
        self._journal: list[tuple[int, int, Producer | None, int, int]] = []
        """What `rollback` undoes: offset, producer id, its entry before, and the first offset of the transaction that
        began, and of the one that ended there; -1 for none."""
        self.verifying: dict[int, Verification] = {}
        """By producer id."""

    def __len__(self) -> int:
        return len(self.entries)

    # ---- appending

    def duplicate(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> Written | None:
        """The batch written before that this one repeats."""
        entry = self.entries.get(producer_id)
        if entry is not None and entry.epoch == epoch:
            for batch in entry.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    def append(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        delta: int,
        base_offset: int,
        timestamp: int,
        transactional: bool,
        *,
        from_client: bool,
        replicated: bool = False,
        in_txn: InTransaction | None = None,
    ) -> Written | None:
        """Apply a data batch of `delta` + 1 offsets from `base_offset` on; instead return the earlier batch that a
        client's one repeats. in_txn: what a transactional one must be checked for; None: it is let in unverified.

        Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE; the state is then as
        before.
        """
        entries = self.entries
        entry = entries.get(producer_id)
        last_sequence = first_sequence + delta & 0x7FFFFFFF if first_sequence >= 0 else NO_SEQUENCE
        if transactional and in_txn is not None and (entry is None or entry.txn_start < 0 or entry.epoch != epoch):
            if from_client:
                repeated = self.duplicate(producer_id, epoch, first_sequence, last_sequence)
                if repeated is not None:
                    return repeated
            self._check_first(producer_id, entry, first_sequence, in_txn.verification, from_client)
        batch: Written = _new_tuple(Written, (first_sequence, last_sequence, base_offset + delta, delta, timestamp))
        if entry is None:
            updated = Producer(epoch, (batch,), timestamp, -1, base_offset if transactional else -1)
            starts = transactional
        else:
            known_epoch, batches, _, coordinator_epoch, txn_start = entry
            if epoch == known_epoch:
                if from_client:
                    known_last = batches[-1].last_sequence if batches else NO_SEQUENCE
                    if first_sequence != known_last + 1 & 0x7FFFFFFF:
                        for earlier in batches:
                            if earlier.first_sequence == first_sequence and earlier.last_sequence == last_sequence:
                                return earlier
                        raise KafkaError(
                            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                            f"Producer {producer_id} sent sequence {first_sequence} after {known_last}.",
                        )
                batches = (*batches[1 - WINDOW :], batch)
            else:
                if epoch < known_epoch and not replicated:
                    raise _fenced(producer_id, epoch, known_epoch)
                if from_client and first_sequence != 0 and known_epoch != NO_EPOCH:
                    raise KafkaError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"Producer {producer_id} started epoch {epoch} at sequence {first_sequence}, not 0.",
                    )
                batches = (batch,)
            if txn_start >= 0 and not transactional and not replicated:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {producer_id} wrote outside of its transaction, which is open since offset {txn_start}.",
                )
            starts = transactional and txn_start < 0
            updated = _new_tuple(
                Producer, (epoch, batches, timestamp, coordinator_epoch, base_offset if starts else txn_start)
            )
        if starts:
            self._journal.append((base_offset, producer_id, entry, base_offset, -1))
            self.open_txns[base_offset] = producer_id
        else:
            self._journal.append((base_offset, producer_id, entry, -1, -1))
        entries[producer_id] = updated
        if transactional and self.verifying:
            self.verifying.pop(producer_id, None)
        return None

    def next_sequence(self, producer_id: int, epoch: int) -> int:
        """What a producer that just continues sends next; NO_SEQUENCE if there is more to its next batch than that."""
        entry = self.entries.get(producer_id)
        if entry is None or entry.epoch != epoch or entry.txn_start >= 0 or not entry.batches:
            return NO_SEQUENCE
        return entry.batches[-1].last_sequence + 1 & 0x7FFFFFFF

    def go_on(self, producer_id: int, written: Sequence[Written], base_offset: int) -> None:
        """Apply batches of a known producer that follow each other from `next_sequence` and `base_offset` on."""
        entry = self.entries[producer_id]
        self._journal.append((base_offset, producer_id, entry, -1, -1))
        epoch, batches, _, coordinator_epoch, txn_start = entry
        self.entries[producer_id] = _new_tuple(
            Producer, (epoch, (*batches, *written)[-WINDOW:], written[-1].timestamp, coordinator_epoch, txn_start)
        )

    def verify(
        self, producer_id: int, epoch: int, first_sequence: int, bumps_epoch: bool, now_ms: int
    ) -> Verification | None:
        """A transactional batch is about to come. What the coordinator's confirmation is for; None if its transaction
        is open here. bumps_epoch: its client has transaction.version 2. Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        entry = self.entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                raise _fenced(producer_id, epoch, entry.epoch)
            if entry.txn_start >= 0 and epoch == entry.epoch:
                return None
        verification = self.verifying.get(producer_id)
        if verification is None:
            verification = self.verifying[producer_id] = Verification(epoch, first_sequence, bumps_epoch, now_ms)
        else:
            verification.note(epoch, first_sequence)
        return verification

    def is_verifying(self, producer_id: int, verification: Verification) -> bool:
        """Whether a confirmation still counts; not if a marker came meanwhile, or a batch of the transaction."""
        return self.verifying.get(producer_id) is verification

    def refuse_verification(self, producer_id: int, epoch: int, verification: Verification) -> None:
        """The coordinator will never confirm it to a producer of that epoch. One of a later epoch may wait for it, too,
        and is not to suffer for the one that it has fenced.
        """
        if epoch >= verification.epoch and self.verifying.get(producer_id) is verification:
            del self.verifying[producer_id]

    def _check_first(
        self,
        producer_id: int,
        entry: Producer | None,
        first_sequence: int,
        verification: Verification | None,
        from_client: bool,
    ) -> None:
        """May this batch be the first of a transaction? Raises KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE.
        """
        expected = self.verifying.get(producer_id)
        if expected is None or verification is not expected:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {producer_id}: no transaction that the coordinator knows has this partition.",
            )
        if not from_client:
            return
        if expected.bumps_epoch and first_sequence != 0 and (entry is None or not entry.batches):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} starts at sequence {first_sequence}, not 0.",
            )
        if first_sequence > expected.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} sent sequence {first_sequence}, {expected.lowest_sequence} must come first.",
            )

    def end_transaction(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        commit: bool,
        offset: int,
        timestamp: int,
        *,
        transaction_version: int = 0,
        replicated: bool = False,
    ) -> AbortedTxn | None:
        """Apply an end marker at `offset`; the entry for the transaction index if it aborted one.
        transaction_version: of the transaction's client. Raises KafkaError INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED.
        """
        known = self.entries.get(producer_id)
        entry = known or Producer(NO_EPOCH, (), -1)
        if not replicated:
            if epoch < entry.epoch or (
                epoch == entry.epoch < LAST_EPOCH and transaction_version >= EPOCH_BUMPING and entry.txn_start >= 0
            ):
                raise _fenced(producer_id, epoch, entry.epoch)
            if coordinator_epoch < entry.coordinator_epoch:
                raise KafkaError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"Producer {producer_id}: coordinator epoch {coordinator_epoch} < {entry.coordinator_epoch}.",
                )
        batches = entry.batches if epoch == entry.epoch else ()
        updated = Producer(epoch, batches, timestamp, coordinator_epoch, -1)
        start = entry.txn_start
        aborted = None
        self._journal.append((offset, producer_id, known, -1, start))
        if start >= 0:
            self.open_txns.pop(start, None)
            heappush(self.completed, (start, offset))
            if not commit:
                aborted = AbortedTxn(producer_id, start, offset, next(iter(self.open_txns), offset + 1))
        self.entries[producer_id] = updated
        if self.verifying:
            self.verifying.pop(producer_id, None)
        return aborted

    def commit(self, end_offset: int) -> None:
        """What was appended below `end_offset` is written."""
        journal = self._journal
        if journal:
            if journal[-1][0] < end_offset:
                journal.clear()
            else:
                self._journal = [step for step in journal if step[0] >= end_offset]

    def rollback(self, from_offset: int = 0) -> None:
        """What was appended at `from_offset` or later, since `commit`, is not written: forget it."""
        while self._journal and self._journal[-1][0] >= from_offset:
            offset, producer_id, entry, began, ended = self._journal.pop()
            if entry is None:
                self.entries.pop(producer_id, None)
            else:
                self.entries[producer_id] = entry
            if began >= 0:
                del self.open_txns[began]
            if ended >= 0:
                self.open_txns = dict(sorted([*self.open_txns.items(), (ended, producer_id)]))
                self.completed.remove((ended, offset))
                heapify(self.completed)

    # ---- looking

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the earliest open transaction starts."""
        return next(iter(self.open_txns), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of a transaction whose end is not below the high watermark, which must not fall."""
        completed = self.completed
        while completed and completed[0][1] < high_watermark:
            heappop(completed)
        undecided = next(iter(self.open_txns), None)
        if completed and (undecided is None or completed[0][0] < undecided):
            return completed[0][0]
        return undecided

    # ---- ageing

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers without open transaction whose last batch is `expiration_ms` old or older. Returns how
        many.
        """
        gone = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.txn_start < 0 and now_ms - entry.timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        if self.verifying:
            self.verifying = {
                producer_id: each
                for producer_id, each in self.verifying.items()
                if now_ms - each.since_ms < expiration_ms
            }
        return len(gone)

    def log_start_moved(self, offset: int) -> None:
        """Transactions that ended below the log start are over."""
        if self.completed:
            self.completed = [(start, end) for start, end in self.completed if end >= offset]
            heapify(self.completed)

    def clear(self) -> None:
        self.entries.clear()
        self.open_txns.clear()
        self.completed.clear()
        self._journal.clear()
        self.verifying.clear()

    # ---- snapshots

    def encode(self) -> bytes:
        """A snapshot's bytes: the state without what is not committed."""
        entries = self.entries
        if self._journal:
            entries = dict(entries)
            for _, producer_id, entry, _, _ in reversed(self._journal):
                if entry is None:
                    del entries[producer_id]
                else:
                    entries[producer_id] = entry
        pack = _SNAPSHOT_ENTRY.pack
        body = bytearray()
        for producer_id, entry in entries.items():
            last = entry.batches[-1] if entry.batches else _NONE
            body += pack(
                producer_id,
                entry.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.timestamp,
                entry.coordinator_epoch,
                entry.txn_start,
            )
        count = len(entries).to_bytes(4, "big")
        return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(count + body), len(entries)) + bytes(body)

    def load(self, data: bytes, name: str) -> None:
        """Become what a snapshot says. Raises `CorruptFile`; the state is then empty."""
        self.clear()
        try:
            version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        except struct.error:
            raise CorruptFile(f"{name} is shorter than its head") from None
        if version != SNAPSHOT_VERSION:
            raise CorruptFile(f"{name} has version {version}, known is {SNAPSHOT_VERSION}")
        if crc != crc32c(data[_CRC_START:]):
            raise CorruptFile(f"{name} has a wrong checksum")
        if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
            raise CorruptFile(f"{name} has {len(data)} bytes, not what {count} producers take")
        for fields in _SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_start = fields
            batches: tuple[Written, ...] = ()
            if last_offset >= 0:
                first_sequence = last_sequence - delta & 0x7FFFFFFF if last_sequence >= 0 else NO_SEQUENCE
                batches = (Written(first_sequence, last_sequence, last_offset, delta, timestamp),)
            self.entries[producer_id] = Producer(epoch, batches, timestamp, coordinator_epoch, max(txn_start, -1))
        starts = [(entry.txn_start, who) for who, entry in self.entries.items() if entry.txn_start >= 0]
        self.open_txns = dict(sorted(starts))


_NONE = Written(NO_SEQUENCE, NO_SEQUENCE, -1, 0, -1)


def _fenced(producer_id: int, epoch: int, known_epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Producer {producer_id} has epoch {epoch}, but {known_epoch} was seen already.",
    )
