"""What a group committed: hard state, changed by replay alone.

A read must not return what may still be lost, so a commit that the high watermark has not passed keeps the one before
it: `get` and `items` take `committed_to`, the first offset of the log that is not committed yet. With one in-sync
replica the chain is two long at most.

Transactional commits (TxnOffsetCommit) come as batches of a producer id; they are pending until the control batch that
ends the transaction, and for readers until that is committed. Of two commits the one that was written later wins,
whenever its transaction ended.

A removal takes effect when it is replayed, committed or not: should it get lost, the offset comes back, which its own
retry repairs.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.coordinator.stored import CommittedOffset

TopicPartition = tuple[str, int]


class _Entry:
    """`record_offset`: of the commit; `real_from`: of the record that made it real, the same but in a transaction."""

    __slots__ = ("before", "committed", "real_from", "record_offset")

    def __init__(self, committed: CommittedOffset, record_offset: int, before: _Entry | None = None) -> None:
        self.committed = committed
        self.record_offset = self.real_from = record_offset
        self.before = before

    def at(self, committed_to: int) -> _Entry | None:
        """The newest entry of the chain that cannot be lost."""
        entry: _Entry | None = self
        while entry is not None and entry.real_from >= committed_to:
            entry = entry.before
        return entry


class Offsets:
    """Offsets of one group by (topic, partition). Record offsets are positions in `__consumer_offsets`: the later
    record wins.
    """

    __slots__ = ("_ending", "_entries", "_pending")

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}
        self._pending: dict[int, dict[TopicPartition, _Entry]] = {}
        self._ending: list[tuple[int, frozenset[TopicPartition]]] = []
        """Offsets of markers that were not committed, rising, and what they ended."""

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries) or bool(self._pending)

    def __contains__(self, partition: object) -> bool:
        return partition in self._entries

    # -- replay -----------------------------------------------------------------------------------

    def put(self, partition: TopicPartition, committed: CommittedOffset, record_offset: int, committed_to: int) -> None:
        """A commit was read from, or appended to, the log at `record_offset`."""
        self._take(partition, _Entry(committed, record_offset), committed_to)

    def _take(self, partition: TopicPartition, entry: _Entry, committed_to: int) -> None:
        if entry.real_from >= committed_to:
            before = self._entries.get(partition)
            settled = None if before is None else before.at(committed_to)
            if settled is not None:
                settled.before = None
            entry.before = before
        self._entries[partition] = entry

    def remove(self, partition: TopicPartition) -> None:
        """A removal outside of transactions, which counts for what is pending, too."""
        self._entries.pop(partition, None)
        for producer_id in list(self._pending):
            self._drop_pending(producer_id, partition)

    def put_pending(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset | None, record_offset: int
    ) -> None:
        """A commit (None: its removal) in an open transaction."""
        if committed is not None:
            self._pending.setdefault(producer_id, {})[partition] = _Entry(committed, record_offset)
        else:
            self._drop_pending(producer_id, partition)

    def _drop_pending(self, producer_id: int, partition: TopicPartition) -> None:
        of_producer = self._pending.get(producer_id)
        if of_producer is not None:
            of_producer.pop(partition, None)
            if not of_producer:
                del self._pending[producer_id]

    def end_transaction(self, producer_id: int, committed: bool, marker_offset: int, committed_to: int) -> None:
        """The marker of `producer_id` was replayed: its commits become real, unless there is a later one, or vanish."""
        pending = self._pending.pop(producer_id, None)
        if not pending:
            return
        if marker_offset >= committed_to:
            self._ending = [each for each in self._ending if each[0] >= committed_to]
            self._ending.append((marker_offset, frozenset(pending)))
        if not committed:
            return
        for partition, entry in pending.items():
            present = self._entries.get(partition)
            if present is None or present.record_offset < entry.record_offset:
                entry.real_from = marker_offset
                self._take(partition, entry, committed_to)

    # -- read -------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition, committed_to: int) -> CommittedOffset | None:
        entry = self._entries.get(partition)
        if entry is not None:
            entry = entry.at(committed_to)
        return None if entry is None else entry.committed

    def partitions(self) -> list[TopicPartition]:
        return list(self._entries)

    def touched(self) -> list[TopicPartition]:
        """Partitions with an offset, or with one in an open transaction: those that a removal of all must name."""
        pending = (partition for of_producer in self._pending.values() for partition in of_producer)
        return list(dict.fromkeys((*self._entries, *pending)))

    def is_pending(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has a commit for `partition`."""
        return any(partition in of_producer for of_producer in self._pending.values())

    def is_unstable(self, partition: TopicPartition, committed_to: int) -> bool:
        """Whether there is a transaction with a commit for `partition` whose end may still be lost: `require_stable`
        readers must wait for it (KIP-447).
        """
        if self.is_pending(partition):
            return True
        return any(offset >= committed_to and partition in ended for offset, ended in self._ending)

    def expired(
        self, now_ms: int, retention_ms: int, since_ms: int | None, subscribed: Collection[str]
    ) -> list[TopicPartition]:
        """Partitions whose offset may go, `retention_ms` after `since_ms`, or after its commit with None (KIP-211).

        Topics in `subscribed` never expire. A commit that brought its own expiry time obeys that alone.
        """
        gone = []
        for partition, entry in self._entries.items():
            if partition[0] in subscribed or self.is_pending(partition):
                continue
            committed = entry.committed
            if committed.expire_time_ms != -1:
                due = committed.expire_time_ms
            else:
                due = (committed.commit_time_ms if since_ms is None else since_ms) + retention_ms
            if now_ms >= due:
                gone.append(partition)
        return gone
