"""Writes a transaction coordinator's decisions into the partitions that this broker leads: one control batch, a marker,
per transaction and partition (WriteTxnMarkers).

A marker is answered, partition by partition, when it is committed (as with acks=all) or rejected; after
`request.timeout.ms` with REQUEST_TIMED_OUT, though it may still become committed: the coordinator sends it again, and a
second marker does no harm. Staging it ends the transaction in the partition's log; one in `__consumer_offsets` ends it
for its groups at the same moment, so that the order in memory is that of the log. While groups are being loaded their
part in a transaction is not known, so their partition answers NOT_LEADER_OR_FOLLOWER, as in Apache Kafka.

A control batch has the broker's time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.kproto.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.kproto.records import build_control_batch
from barnabas.logdir import AppendOrigin, InTransaction
from barnabas.replication import GROUP_METADATA_TOPIC
from barnabas.server.partitions.partition import Partition
from barnabas.server.runtime.containment import HasWaiters

if TYPE_CHECKING:
    from barnabas.server.config.broker import BrokerConfig
    from barnabas.server.coordinators.groups import GroupCoordinator
    from barnabas.server.partitions.registry import Partitions
    from barnabas.server.runtime.timers import Timer, Timers

_Marker = WriteTxnMarkersRequest.WritableTxnMarker
_MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
_TopicResult = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_PartitionResult = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class _Request:
    """A request whose markers are being written. `waiting`: partitions that are not committed yet."""

    def __init__(self, token: Any) -> None:
        self.token = token
        self.results: dict[int, dict[tuple[str, int], ErrorCode]] = {}
        self.staged: list[_Waiting] = []
        self.waiting: dict[_Waiting, None] = {}
        self.timer: Timer | None = None

    def settle(self, producer_id: int, partition: tuple[str, int], code: ErrorCode) -> None:
        self.results.setdefault(producer_id, {})[partition] = code

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        if isinstance(self.token, HasWaiters):
            return self.token.release_waiters()
        return "a request to write transaction markers"

    def answer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.token.reply(WriteTxnMarkersResponse(markers=[_result(*each) for each in self.results.items()]))


class _Waiting:
    """One marker, and the callback for when it is committed."""

    __slots__ = ("end_offset", "partition", "producer_id", "request")

    def __init__(self, request: _Request, partition: Partition, producer_id: int, end_offset: int) -> None:
        self.request = request
        self.partition = partition
        self.producer_id = producer_id
        self.end_offset = end_offset

    def settle(self, code: ErrorCode) -> None:
        self.request.settle(self.producer_id, (self.partition.topic, self.partition.index), code)

    def __call__(self, code: ErrorCode) -> None:
        request = self.request
        self.settle(code)
        request.waiting.pop(self, None)
        if not request.waiting and not request.staged:
            request.answer()

    def release_waiters(self) -> str:
        return self.request.release_waiters()


class MarkerWriter:
    """See the module. One per broker."""

    def __init__(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        timers: Timers,
        *,
        current_config: Callable[[], BrokerConfig],
        wall_ms: Callable[[], int],
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._timers = timers
        self._config = current_config
        self._wall_ms = wall_ms

    def write(self, request: WriteTxnMarkersRequest, token: Any) -> None:
        """Stage the markers; `token.reply` takes a WriteTxnMarkersResponse once, after the round's write or later.

        Outside of a round the caller sees to `Partitions.write_staged`.
        """
        pending = _Request(token)
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    try:
                        waiting = self._stage(pending, marker, topic.name, index)
                    except KafkaError as error:
                        pending.settle(marker.producer_id, (topic.name, index), error.code)
                    else:
                        pending.staged.append(waiting)
        self._partitions.after_write(partial(self._written, pending))

    def _stage(self, pending: _Request, marker: _Marker, topic: str, index: int) -> _Waiting:
        partition = self._partitions.get(topic, index)
        is_of_groups = topic == GROUP_METADATA_TOPIC
        if is_of_groups and partition.is_leader and not self._groups.is_loaded(index):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self._wall_ms()
        batch = build_control_batch(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=now_ms,
        )
        info = partition.append(
            batch,
            origin=AppendOrigin.COORDINATOR,
            now_ms=now_ms,
            required_acks=-1,
            in_txn=InTransaction(transaction_version=marker.transaction_version),
        )
        if is_of_groups:
            self._groups.marker_appended(index, marker.producer_id, marker.transaction_result, info.base_offset)
        return _Waiting(pending, partition, marker.producer_id, info.last_offset + 1)

    def _written(self, pending: _Request) -> None:
        staged, pending.staged = pending.staged, []
        for waiting in staged:
            error = waiting.partition.outcome_of(waiting.end_offset - 1)
            if error is not None:
                waiting.settle(error.code)
            else:
                pending.waiting[waiting] = None
        # What is committed by now calls back at once, and must not find itself the last one.
        pending.staged = staged
        for waiting in list(pending.waiting):
            waiting.partition.when_committed(waiting.end_offset, waiting)
        pending.staged = []
        if not pending.waiting:
            pending.answer()
            return
        timeout_s = self._config().get_int("request.timeout.ms") / 1000
        pending.timer = self._timers.after(timeout_s, partial(self._timed_out, pending))

    @staticmethod
    def _timed_out(pending: _Request) -> None:
        waiting, pending.waiting = pending.waiting, {}
        for each in waiting:
            each.partition.drop_commit(each)
            each.settle(ErrorCode.REQUEST_TIMED_OUT)
        pending.answer()


def _result(producer_id: int, codes: dict[tuple[str, int], ErrorCode]) -> _MarkerResult:
    topics: dict[str, list[_PartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(_PartitionResult(partition_index=index, error_code=code))
    return _MarkerResult(
        producer_id=producer_id,
        topics=[_TopicResult(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
