"""The transactional ids of one partition of `__transaction_state`, and how records become ids: hard state, changed by
`replay` alone.
"""

from __future__ import annotations

from barnabas.coordinator.machine import Deadlines
from barnabas.coordinator.txn.config import TxnConfig
from barnabas.coordinator.txn.ids import Due, TransactionalId
from barnabas.coordinator.txn.stored import parse_txn
from barnabas.coordinator.txn.transaction import Txn
from barnabas.kproto import ErrorCode


class TxnStore:
    """What the parts of one partition's machine share.

    coordinator_epoch: the leader epoch in which the broker began to lead the partition. ids: by their name. is_loaded:
    the log was read to its end. is_gone: the partition is led elsewhere; nothing is decided any more.
    """

    __slots__ = ("config", "coordinator_epoch", "deadlines", "ids", "is_gone", "is_loaded")

    def __init__(self, config: TxnConfig, coordinator_epoch: int) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch
        self.ids: dict[str, TransactionalId] = {}
        self.deadlines: Deadlines[tuple[str, Due]] = Deadlines()
        self.is_loaded = False
        self.is_gone = False

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
        if record.txn is None and not self.is_loaded:
            del self.ids[record.transactional_id]
        elif record.txn is None or entry.target is None:
            entry.logged = record.txn
        else:
            entry.logged = entry.target

    def has(self, entry: TransactionalId) -> bool:
        """Whether `entry` is still what it was made for."""
        return not self.is_gone and self.ids.get(entry.transactional_id) is entry

    def unload(self) -> None:
        """The partition is led elsewhere."""
        self.is_gone = True
        self.ids.clear()
        self.deadlines = Deadlines()

    def owned_by(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> ErrorCode | tuple[TransactionalId, Txn]:
        """The id with the producer's id and epoch, or the error if they are not the present ones."""
        if self.is_gone:
            return ErrorCode.NOT_COORDINATOR
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        entry = self.ids.get(transactional_id)
        txn = None if entry is None else entry.txn
        if entry is None or txn is None or txn.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if txn.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return entry, txn
