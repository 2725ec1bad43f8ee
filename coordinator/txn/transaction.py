"""What the coordinator knows of a transactional id: an immutable value, and the values that may follow it.

Each function takes a value and returns the next one as it will be written; whether a request may have it is decided in
`barnabas.coordinator.txn.shard`. The state always comes from `TRANSITIONS`, so what the table does not allow raises
KeyError.

Epochs. A producer writes with (producer id, epoch). Handing an epoch to a new instance fences the one before it;
32767 is kept for the coordinator, so that it can always fence, and an epoch of 32766 or more is exhausted: the next
producer gets a new id with epoch 0. With transaction.version 2 the end of every transaction bumps the epoch; if that
exhausts it, the producer continues with `next_producer_id` and epoch 0, while the markers still carry the old id.

Times are milliseconds since the epoch, -1 none. Sources: KIP-98, KIP-360, KIP-890; `TransactionMetadata` of Apache
Kafka 4.3 (which rotates the id also when the coordinator aborts at an exhausted epoch).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.coordinator.txn.states import AT_REST, TRANSITIONS, Event, State

TopicPartition = tuple[str, int]

NO_ID: Final = -1
NO_EPOCH: Final = -1
LAST_EPOCH: Final = 32767
EXHAUSTED_FROM: Final = LAST_EPOCH - 1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of a producer that takes part in a two-phase commit of others (KIP-939): never aborted by time."""
EPOCH_BUMPING: Final = 2
"""The transaction.version from which on the end of a transaction bumps the epoch."""


class Txn(NamedTuple):
    """A transactional id at one moment.

    `last_epoch`: the epoch before the present one, if its owner itself asked for the next (so that it may ask again);
    it is not in the log. `previous_producer_id` and `next_producer_id` are in the log from value version 1 on.
    `client_version`: 2 if the transaction's client knows transaction.version 2, else 0.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_version: int = 0


class Owner(NamedTuple):
    """Who a client says it is, in InitProducerId 3+: the id and epoch it had so far."""

    producer_id: int
    producer_epoch: int


def is_exhausted(epoch: int) -> bool:
    """Whether no producer may get the epoch after this one."""
    return epoch >= EXHAUSTED_FROM


def fresh(producer_id: int, timeout_ms: int) -> Txn:
    """A new id, whose first epoch is still to be assigned."""
    return Txn(producer_id, NO_EPOCH, timeout_ms, State.EMPTY)


def may_be(txn: Txn, owner: Owner) -> bool:
    """Whether `owner` could be the producer of `txn`; its epoch is compared by `initialised`.

    A previous id is believed if its epoch was exhausted: the answer that brought the new one may have been lost.
    """
    return (
        txn.producer_epoch == NO_EPOCH
        or owner.producer_id == txn.producer_id
        or (owner.producer_id == txn.previous_producer_id and is_exhausted(owner.producer_epoch))
    )


def needs_new_id(txn: Txn, owner: Owner | None) -> bool:
    """Whether InitProducerId cannot raise the epoch any more."""
    return is_exhausted(txn.producer_epoch) and (owner is None or owner.producer_epoch == txn.producer_epoch)


def initialised(txn: Txn, owner: Owner | None, timeout_ms: int, now_ms: int) -> Txn | None:
    """The next epoch for a producer (KIP-360); None: `owner` is fenced.

    Without `owner` it is a new instance, which fences the epoch before. An owner with the last epoch repeats a request
    whose answer it did not get, and gets the present one.
    """
    epoch, last_epoch = txn.producer_epoch + 1, NO_EPOCH
    if owner is not None:
        if owner.producer_epoch == txn.producer_epoch or txn.producer_epoch == NO_EPOCH:
            last_epoch = txn.producer_epoch
        elif owner.producer_epoch == txn.last_epoch:
            epoch, last_epoch = txn.producer_epoch, txn.last_epoch
        else:
            return None
    return _empty(txn, txn.producer_id, epoch, last_epoch, timeout_ms, now_ms)


def rotated(txn: Txn, owner: Owner | None, new_id: int, timeout_ms: int, now_ms: int) -> Txn:
    """A new producer id with epoch 0, as `needs_new_id` said."""
    return _empty(txn, new_id, 0, NO_EPOCH if owner is None else txn.producer_epoch, timeout_ms, now_ms)


def _empty(txn: Txn, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Txn:
    return txn._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_epoch=last_epoch,
        previous_producer_id=txn.producer_id,
        timeout_ms=timeout_ms,
        state=TRANSITIONS[txn.state][Event.INITIALISED],
        partitions=frozenset(),
        start_ms=-1,
        update_ms=now_ms,
    )


def with_partitions(txn: Txn, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> Txn:
    """The transaction continues with more partitions, or starts with these."""
    return txn._replace(
        state=TRANSITIONS[txn.state][Event.PARTITIONS_ADDED],
        partitions=txn.partitions.union(partitions),
        start_ms=now_ms if txn.state in AT_REST else txn.start_ms,
        update_ms=now_ms,
        previous_producer_id=txn.producer_id,
        client_version=client_version,
    )


def needs_next_id(txn: Txn, client_version: int) -> bool:
    """Whether the end of this transaction uses up the producer id."""
    return client_version >= EPOCH_BUMPING and is_exhausted(txn.producer_epoch)


def ended(txn: Txn, event: Event, client_version: int, next_id: int, now_ms: int) -> Txn:
    """The outcome is decided: `event` is COMMIT, ABORT or ABORT_NOTHING. `next_id`: as `needs_next_id` said, else -1.

    An epoch of 32767 cannot rise; only an abort can come that far.
    """
    bumps = client_version >= EPOCH_BUMPING
    return txn._replace(
        state=TRANSITIONS[txn.state][event],
        producer_epoch=min(txn.producer_epoch + 1, LAST_EPOCH) if bumps else txn.producer_epoch,
        last_epoch=txn.producer_epoch if bumps else txn.last_epoch,
        # A transaction without partitions has no known start time, but one that is complete must have one.
        start_ms=now_ms if event is Event.ABORT_NOTHING else txn.start_ms,
        update_ms=now_ms,
        previous_producer_id=txn.producer_id,
        next_producer_id=next_id,
        client_version=client_version if bumps else 0,
    )


def fenced(txn: Txn, transaction_version: int, next_id: int, now_ms: int) -> Txn:
    """The coordinator fences the producer of an open transaction and aborts it, with an epoch that no producer gets.
    `transaction_version`: the finalised level. `next_id`: as `needs_next_id` said for it, else -1.
    """
    shut = txn._replace(state=TRANSITIONS[txn.state][Event.FENCE])
    if transaction_version < EPOCH_BUMPING:
        shut = with_fencing_epoch(shut)
    return ended(shut, Event.ABORT, transaction_version, next_id, now_ms)


def with_fencing_epoch(txn: Txn) -> Txn:
    """The epoch that shuts out the producer, where ending the transaction does not bump it."""
    return txn._replace(producer_epoch=min(txn.producer_epoch + 1, LAST_EPOCH), last_epoch=NO_EPOCH)


def completed(txn: Txn, now_ms: int) -> Txn:
    """Every partition has its marker."""
    rotates = txn.client_version >= EPOCH_BUMPING and txn.next_producer_id != NO_ID
    return txn._replace(
        state=TRANSITIONS[txn.state][Event.MARKED],
        producer_id=txn.next_producer_id if rotates else txn.producer_id,
        producer_epoch=0 if rotates else txn.producer_epoch,
        previous_producer_id=txn.producer_id,
        next_producer_id=NO_ID,
        partitions=frozenset(),
        update_ms=now_ms,
    )
