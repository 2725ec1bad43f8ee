"""The share coordinator of one partition of `__share_group_state`: what is stored of share partitions, for the brokers
that lead them and for the coordinators of their groups (KIP-932). What the runtime holds per partition it leads.

Life: `replay` every record from the log start to its end, then `loaded`; operations from then on; `unload` when the
partition is led elsewhere. What must be refused before (loading, not the coordinator, who may ask) is the runtime's to
say. See `barnabas.coordinator.machine` for the shape. Each operation is about one share partition.

Two epochs fence those who are late. A *leader epoch* comes with the first read of a leader, and whoever writes with an
older one is told FENCED_LEADER_EPOCH; −1 asks without. A *state epoch* comes with `initialize`; a leader that loaded
what was there before is told FENCED_STATE_EPOCH. A partition that was never initialised is INVALID_REQUEST.

The log is not compacted. A write is an update, or each so many times a snapshot of everything; what lies before the
last snapshots of all partitions is redundant and can be cut off (`redundant_to`). So that it is not one partition at
rest that keeps all others' updates, `snapshot_old` writes its snapshot again from time to time.

Differences from Apache Kafka: `initialize` keeps the leader epoch of what was there, so that no former leader can write
into what begins anew; an answer to a read waits until what it tells is committed. Sources: KIP-932,
`ShareCoordinatorShard`, `ShareCoordinatorOffsetsManager` of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.coordinator.group.answers import write_error
from barnabas.coordinator.group.topics import Topics
from barnabas.coordinator.machine import NOTHING, Decision, Now, Record, Result, answer
from barnabas.coordinator.share.batches import StateBatch, merge
from barnabas.coordinator.share.state_store import StateStore, StoredPartition, changed
from barnabas.coordinator.share.state_stored import (
    NOT_KNOWN,
    ShareChange,
    ShareKey,
    ShareState,
    snapshot_record,
    update_record,
)
from barnabas.coordinator.share.states import STORED
from barnabas.coordinator.share.writes import WriteState
from barnabas.kproto import ErrorCode, KafkaError

_RECORDS_PER_BATCH: Final = 100
"""Of tombstones, and of snapshots: with windows as wide as they may be, they are 23 KB each at the utmost."""
_NO_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
"""No partition lives to see it, but a log may say so."""


@dataclass(frozen=True, slots=True)
class StateConfig:
    """Defaults are Apache Kafka's. `snapshot_update_records_per_snapshot`: so many updates follow a snapshot at most.
    `cold_partition_snapshot_interval_ms`: how old a snapshot may get while others move on.
    """

    snapshot_update_records_per_snapshot: int = 500
    cold_partition_snapshot_interval_ms: int = 300_000


class Stored(NamedTuple):
    """Answer to what changes the store."""

    code: ErrorCode
    message: str | None = None


class StateRead(NamedTuple):
    """Answer to `read`. `start_offset` −1: no member has settled anything yet."""

    code: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    start_offset: int = NOT_KNOWN
    batches: Sequence[StateBatch] = ()


class Summary(NamedTuple):
    """Answer to `summary`; with the defaults if the partition was never initialised."""

    code: ErrorCode
    message: str | None = None
    state_epoch: int = 0
    leader_epoch: int = 0
    start_offset: int = NOT_KNOWN
    delivery_complete_count: int = NOT_KNOWN


class StateShard:
    """See the module. store: what there is, and how records become it."""

    def __init__(self, config: StateConfig) -> None:
        self._config = config
        self.store = StateStore()
        self.replay = self.store.replay

    def set_config(self, config: StateConfig) -> None:
        """New settings; they hold from the next decision on."""
        self._config = config

    def set_topics(self, topics: Topics) -> None:
        """Another image of the cluster."""
        self.store.topics = topics

    # -- life -------------------------------------------------------------------------------------

    def loaded(self, now: Now) -> Result:
        """The log was read to its end."""
        return NOTHING

    def unload(self) -> None:
        """The partition is led elsewhere. Replies that are held are the runtime's to refuse, by `Result.failed`."""
        self.store.is_gone = True
        self.store.partitions.clear()

    def deadline(self) -> float | None:
        """When `expire` has something to do: never."""
        return None

    def expire(self, now: Now) -> Result:
        """Nothing is ever due."""
        return NOTHING

    # -- operations -------------------------------------------------------------------------------

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int, token: Any, now: Now) -> Result:
        """InitializeShareGroupState: begin anew, whatever is there. start_offset −1: the leader finds it. Answers
        `Stored`.
        """
        found = self.store.partitions.get(key)
        try:
            self._check_key(key)
            if found is not None:
                _check_state_epoch(found.state, state_epoch)
            self._check_exists(key)
        except KafkaError as error:
            return answer(token, Stored(error.code, error.message))
        state = ShareState(
            0 if found is None else _next_epoch(found.state),
            state_epoch,
            0 if found is None else found.state.leader_epoch,
            start_offset,
            NOT_KNOWN if start_offset == NOT_KNOWN else 0,
            now.wall_ms,
            now.wall_ms,
        )
        return _store(snapshot_record(key, state), token)

    def read(self, key: ShareKey, leader_epoch: int, token: Any, now: Now) -> Result:
        """ReadShareGroupState, for the leader of the partition. Answers `StateRead`. From now on leaders of before are
        fenced.
        """
        try:
            found = self._initialized(key)
            _check_leader_epoch(found.state, leader_epoch)
            self._check_exists(key)
        except KafkaError as error:
            return answer(token, StateRead(error.code, error.message))
        state = found.state
        out = Decision()
        if leader_epoch > state.leader_epoch:
            change = ShareChange(state.snapshot_epoch, leader_epoch, state.start_offset, state.delivery_complete_count)
            out.records.append(self._record(key, found, change, now))
        told = StateRead(ErrorCode.NONE, None, state.state_epoch, state.start_offset, state.batches)
        out.reply_when_committed(token, told, lambda code: StateRead(write_error(code)))
        return out.result()

    def write(self, key: ShareKey, write: WriteState, token: Any, now: Now) -> Result:
        """WriteShareGroupState: merge what changed. The start does not fall: a write with an earlier one was repeated,
        and overtaken by others. (Apache Kafka lets it fall.) Answers `Stored`.
        """
        try:
            found = self._initialized(key)
            _check_leader_epoch(found.state, write.leader_epoch)
            _check_state_epoch(found.state, write.state_epoch)
            _check_batches(write.batches)
            self._check_exists(key)
        except KafkaError as error:
            return answer(token, Stored(error.code, error.message))
        start_offset, complete = write.start_offset, write.delivery_complete_count
        if start_offset < found.state.start_offset and start_offset != NOT_KNOWN:
            start_offset, complete = NOT_KNOWN, found.state.delivery_complete_count
        change = ShareChange(
            found.state.snapshot_epoch,
            found.state.leader_epoch,
            start_offset,
            complete,
            merge(start_offset, write.batches),
        )
        return _store(self._record(key, found, change, now), token)

    def delete(self, key: ShareKey, token: Any, now: Now) -> Result:
        """DeleteShareGroupState: forget the partition, if it is there. Answers `Stored`."""
        try:
            self._check_key(key)
        except KafkaError as error:
            return answer(token, Stored(error.code, error.message))
        if key not in self.store.partitions:
            out = Decision()
            out.reply_when_committed(token, Stored(ErrorCode.NONE), lambda code: Stored(write_error(code)))
            return out.result()
        return _store(snapshot_record(key, None), token)

    def summary(self, key: ShareKey, token: Any, now: Now) -> Result:
        """ReadShareGroupStateSummary, for administrators. Answers `Summary`."""
        try:
            self._check_key(key)
        except KafkaError as error:
            return answer(token, Summary(error.code, error.message))
        told = Summary(ErrorCode.NONE)
        found = self.store.partitions.get(key)
        if found is not None:
            state = found.state
            told = Summary(
                ErrorCode.NONE,
                None,
                state.state_epoch,
                state.leader_epoch,
                state.start_offset,
                state.delivery_complete_count,
            )
        out = Decision()
        out.reply_when_committed(token, told, lambda code: Summary(write_error(code)))
        return out.result()

    # -- upkeep -----------------------------------------------------------------------------------

    def topics_deleted(self, topic_ids: Collection[bytes], now: Now) -> Iterator[Result]:
        """Topics are gone from the cluster, and with them what is stored of their partitions."""
        yield from self._in_portions(
            [snapshot_record(key, None) for key in self.store.partitions if key.topic_id in topic_ids]
        )

    def snapshot_old(self, now: Now) -> Iterator[Result]:
        """The periodic renewal of old snapshots, so that the log can be cut off before them."""
        before_ms = now.wall_ms - self._config.cold_partition_snapshot_interval_ms
        partitions = self.store.partitions
        if all(found.state.create_ms != found.state.write_ms for found in partitions.values()):
            # All are at rest since they were written again: there is nothing more to cut off.
            return
        old = [key for key, found in partitions.items() if found.state.write_ms <= before_ms]
        yield from self._in_portions([self._snapshot(key, partitions[key], now) for key in old])

    def redundant_to(self, committed_to: int) -> int | None:
        """Below which offset the log can be cut off, and nothing is lost; None: not now, as a snapshot or a tombstone
        is not committed yet. committed_to: the high watermark.
        """
        offsets = [found.snapshot_offset for found in self.store.partitions.values()]
        if max(self.store.removed_offset, *offsets, -1) >= committed_to:
            return None
        return min(offsets, default=self.store.removed_offset + 1)

    @staticmethod
    def _in_portions(records: Sequence[Record]) -> Iterator[Result]:
        for start in range(0, len(records), _RECORDS_PER_BATCH):
            yield Result(records[start : start + _RECORDS_PER_BATCH])

    # -- parts of operations ----------------------------------------------------------------------

    def _record(self, key: ShareKey, found: StoredPartition, change: ShareChange, now: Now) -> Record:
        """The update, or a snapshot if there are updates enough."""
        if found.updates < self._config.snapshot_update_records_per_snapshot:
            return update_record(key, change)
        state = changed(found.state, change)._replace(
            snapshot_epoch=_next_epoch(found.state), create_ms=now.wall_ms, write_ms=now.wall_ms
        )
        return snapshot_record(key, state)

    @staticmethod
    def _snapshot(key: ShareKey, found: StoredPartition, now: Now) -> Record:
        state = found.state
        return snapshot_record(key, state._replace(snapshot_epoch=_next_epoch(state), write_ms=now.wall_ms))

    def _check_key(self, key: ShareKey) -> None:
        if self.store.is_gone:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if key.partition < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no partition {key.partition}.")

    def _initialized(self, key: ShareKey) -> StoredPartition:
        self._check_key(key)
        found = self.store.partitions.get(key)
        if found is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The partition was never initialized for this group.")
        return found

    def _check_exists(self, key: ShareKey) -> None:
        if not self.store.exists(key):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_leader_epoch(state: ShareState, leader_epoch: int) -> None:
    if leader_epoch != _NO_EPOCH and leader_epoch < state.leader_epoch:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH, f"A leader of epoch {state.leader_epoch} has come after {leader_epoch}."
        )


def _check_state_epoch(state: ShareState, state_epoch: int) -> None:
    if state_epoch != _NO_EPOCH and state_epoch < state.state_epoch:
        raise KafkaError(
            ErrorCode.FENCED_STATE_EPOCH, f"The partition began anew in epoch {state.state_epoch}, after {state_epoch}."
        )


def _check_batches(batches: Sequence[StateBatch]) -> None:
    """What no leader could read again must not be stored, whoever sends it."""
    for batch in batches:
        if not 0 <= batch.first_offset <= batch.last_offset or batch.state not in STORED or batch.deliveries < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{batch} cannot be stored.")


def _next_epoch(state: ShareState) -> int:
    """Of the next snapshot."""
    return min(state.snapshot_epoch + 1, _LAST_EPOCH)


def _store(record: Record, token: Any) -> Result:
    out = Decision()
    out.records.append(record)
    out.reply_when_committed(token, Stored(ErrorCode.NONE), lambda code: Stored(write_error(code)))
    return out.result()
