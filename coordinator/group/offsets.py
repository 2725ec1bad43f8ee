"""What a group committed: hard state, changed by replay alone.

A read must not return what may still be lost, so what the high watermark has not passed lies in layers, over what it
has: `get` takes `committed_to`, the first offset of the log that is not committed yet, and looks through the layers
below it, the newest first. The next commit takes layers down that the high watermark has passed meanwhile; with one
in-sync replica there is hardly ever more than the last round's. A commit of many partitions that is repeated stays as
it came (`put_repeated`): the next one like it takes its place, and nobody has looked at single partitions.

Transactional commits (TxnOffsetCommit) come as batches of a producer id; they are pending until the control batch that
ends the transaction, and for readers until that is committed. Of two commits the one that was written later wins,
whenever its transaction ended.

A removal takes effect when it is replayed, committed or not: should it get lost, the offset comes back, which its own
retry repairs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.coordinator.commit_records import CommitRecords, Entry, TopicPartition
from barnabas.coordinator.stored import CommittedOffset


class _Layer:
    """`real_from`: the offset of the record that made the entries real: the last one of the commit, or the marker.
    made: the entries, unless they are made of `commit`, at its base offset, when they are first asked for.
    """

    __slots__ = ("_commit", "made", "real_from")

    def __init__(
        self,
        real_from: int,
        entries: dict[TopicPartition, Entry] | None = None,
        commit: tuple[CommitRecords, int] | None = None,
    ) -> None:
        self.real_from = real_from
        self.made = entries
        self._commit = commit

    @property
    def entries(self) -> dict[TopicPartition, Entry]:
        """By partition. Whoever changes them is the only one to have had them."""
        if self.made is None:
            assert self._commit is not None
            commit, base_offset = self._commit
            self.made = dict(commit.entries(base_offset))
            self._commit = None
        return self.made

    def covers(self, earlier: _Layer) -> bool:
        """Whether nothing is left of `earlier` beneath this one: the same commit, repeated."""
        ours, theirs = self._commit, earlier._commit
        return ours is not None and theirs is not None and ours[0].layout is theirs[0].layout


class Offsets:
    """Offsets of one group by (topic, partition). Record offsets are positions in `__consumer_offsets`: the later
    record wins.
    """

    __slots__ = ("_ending", "_layers", "_pending", "_settled", "_top")

    def __init__(self) -> None:
        self._settled: dict[TopicPartition, Entry] = {}
        self._top: _Layer | None = None
        """Committed, too, and newer than what is settled: it becomes part of that when somebody reads it, or another
        commit does not cover it.
        """
        self._layers: list[_Layer] = []
        self._pending: dict[int, dict[TopicPartition, Entry]] = {}
        self._ending: list[tuple[int, frozenset[TopicPartition]]] = []
        """Offsets of markers that were not committed, rising, and what they ended."""

    def __len__(self) -> int:
        return len(self._newest())

    def __bool__(self) -> bool:
        return bool(self._settled or self._top or self._layers or self._pending)

    def __contains__(self, partition: object) -> bool:
        return partition in self._all_settled() or any(partition in layer.entries for layer in self._layers)

    def _newest(self) -> dict[TopicPartition, Entry]:
        """All that is real, or will be when it is committed."""
        settled = self._all_settled()
        if not self._layers:
            return settled
        newest = dict(settled)
        for layer in self._layers:
            newest.update(layer.entries)
        return newest

    # -- replay -----------------------------------------------------------------------------------

    def put(self, partition: TopicPartition, committed: CommittedOffset, record_offset: int, committed_to: int) -> None:
        """A commit was read from the log at `record_offset`."""
        self.put_all([(partition, (*committed, record_offset))], record_offset, committed_to)

    def put_all(self, entries: Iterable[tuple[TopicPartition, Entry]], real_from: int, committed_to: int) -> None:
        """A commit of several partitions was written, its last record at `real_from`. Of two entries for one partition
        the later one counts.
        """
        layers = self._layers
        if layers and layers[0].real_from < committed_to:
            self._settle(committed_to)
        if real_from < committed_to:
            self._all_settled().update(entries)
        else:
            layers.append(_Layer(real_from, dict(entries)))

    def put_repeated(self, commit: CommitRecords, base_offset: int, committed_to: int) -> None:
        """As `put_all` of the entries of `commit`, written from `base_offset` on, which will come again with other
        numbers: if nobody reads them meanwhile, they are never made.
        """
        layers = self._layers
        if layers and layers[0].real_from < committed_to:
            self._settle(committed_to)
        layer = _Layer(base_offset + len(commit) - 1, None, (commit, base_offset))
        if layer.real_from < committed_to:
            self._take_down(layer)
        else:
            layers.append(layer)

    def _settle(self, committed_to: int) -> None:
        """Take down the layers that the high watermark has passed."""
        layers = self._layers
        count = 0
        for layer in layers:
            if layer.real_from >= committed_to:
                break
            self._take_down(layer)
            count += 1
        del layers[:count]

    def _take_down(self, layer: _Layer) -> None:
        """The lowest layer is committed."""
        top, made = self._top, layer.made
        if top is not None and not layer.covers(top):
            self._all_settled()
        if made is not None:
            self._settled.update(made)
        else:
            self._top = layer

    def _all_settled(self) -> dict[TopicPartition, Entry]:
        top = self._top
        if top is not None:
            self._top = None
            self._settled.update(top.entries)
        return self._settled

    def remove(self, partition: TopicPartition) -> None:
        """A removal outside of transactions, which counts for what is pending, too."""
        self._all_settled().pop(partition, None)
        if self._layers:
            for layer in self._layers:
                layer.entries.pop(partition, None)
            self._layers = [layer for layer in self._layers if layer.entries]
        for producer_id in list(self._pending):
            self._drop_pending(producer_id, partition)

    def put_pending(
        self, producer_id: int, partition: TopicPartition, committed: CommittedOffset | None, record_offset: int
    ) -> None:
        """A commit (None: its removal) in an open transaction."""
        if committed is not None:
            self.put_all_pending(producer_id, [(partition, (*committed, record_offset))])
        else:
            self._drop_pending(producer_id, partition)

    def put_all_pending(self, producer_id: int, entries: Iterable[tuple[TopicPartition, Entry]]) -> None:
        """A commit of several partitions in an open transaction."""
        self._pending.setdefault(producer_id, {}).update(entries)

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
        latest = [(partition, entry) for partition, entry in pending.items() if self._last(partition) < entry[-1]]
        if latest:
            self.put_all(latest, marker_offset, committed_to)

    def _last(self, partition: TopicPartition) -> int:
        """The record offset of the newest commit of `partition`, committed or not; -1 if there is none."""
        for layer in reversed(self._layers):
            if partition in layer.entries:
                return layer.entries[partition][-1]
        entry = self._all_settled().get(partition)
        return -1 if entry is None else entry[-1]

    # -- read -------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition, committed_to: int) -> CommittedOffset | None:
        for layer in reversed(self._layers):
            if layer.real_from < committed_to and partition in layer.entries:
                return CommittedOffset(*layer.entries[partition][:-1])
        entry = self._all_settled().get(partition)
        return None if entry is None else CommittedOffset(*entry[:-1])

    def partitions(self) -> list[TopicPartition]:
        return list(self._newest())

    def touched(self) -> list[TopicPartition]:
        """Partitions with an offset, or with one in an open transaction: those that a removal of all must name."""
        pending = (partition for of_producer in self._pending.values() for partition in of_producer)
        return list(dict.fromkeys((*self._newest(), *pending)))

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
        for partition, (_, _, _, commit_time_ms, expire_time_ms, _) in self._newest().items():
            if partition[0] in subscribed or self.is_pending(partition):
                continue
            if expire_time_ms != -1:
                due = expire_time_ms
            else:
                due = (commit_time_ms if since_ms is None else since_ms) + retention_ms
            if now_ms >= due:
                gone.append(partition)
        return gone
