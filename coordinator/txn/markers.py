"""Delivery of transaction markers to partition leaders: which broker gets which, and what its answers mean.

The decision of a transaction is one `MarkersToWrite`, an effect of `barnabas.coordinator.txn.shard`. `MarkerQueues` is
shared by all shards of a broker: it splits the partitions by leader, puts the markers for one broker into one
WriteTxnMarkers request at a time, retries failed markers with the partition's current leader, and reports as `Marked`
which partitions need no marker any more. A marker is never dropped while its shard is led here, for the transaction is
decided and readers wait for it; a partition that no longer exists needs none.

The runtime asks `requests` after each change and when `deadline` has come, sends them, and brings back each answer with
`answered`, or None if the connection failed. The sender's own broker is a broker like the others.

Difference from Apache Kafka: it retries without pause, and stops for good (until the shard moves) at
INVALID_PRODUCER_EPOCH and at errors it does not know. Here the first means that a newer epoch has written to the
partition, so nothing of this transaction can be open there; the others are retried slowly, and logged. Sources:
`TransactionMarkerChannelManager` and `TransactionMarkerRequestCompletionHandler` of Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from enum import Enum
from typing import Final, NamedTuple

from barnabas.coordinator.txn.transaction import TopicPartition
from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse

log = logging.getLogger("barnabas.transactions")

RETRY_S: Final = 0.1
"""Pause before a partition is tried again: a leader is being elected, or replicas are behind."""
SLOW_RETRY_S: Final = 5.0
"""Pause after an error that time alone does not cure."""
PARTITIONS_PER_REQUEST: Final = 5_000
"""Keeps a request far below any limit; the rest goes with the next one."""


class Leader(Enum):
    """What `leader_of` says instead of a broker id."""

    UNKNOWN = "the partition exists; it has no leader now, or the leader's address is not known"
    GONE = "the partition does not exist"


LeaderOf = Callable[[str, int], int | Leader]
"""(topic, partition) → broker id. `GONE`, which skips the partition, only on good authority."""


class Outcome(Enum):
    """What an error in the answer to WriteTxnMarkers means for the partition."""

    DONE = "no marker is needed any more"
    RETRY = "try again soon"
    SLOW = "try again later"


OUTCOMES: Final = {
    ErrorCode.NONE: Outcome.DONE,
    # The format has no room for markers, so the producer could not write there either.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.DONE,
    ErrorCode.UNSUPPORTED_VERSION: Outcome.DONE,
    ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.DONE,
    # From the broker this means that it does not lead the partition yet; only the image shows that it is deleted.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.RETRY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Outcome.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS: Outcome.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Outcome.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: Outcome.RETRY,
    ErrorCode.KAFKA_STORAGE_ERROR: Outcome.RETRY,
    # There is a newer coordinator: this one will be notified, and then `remove` ends the retries.
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Outcome.SLOW,
}
"""Every other error is SLOW."""


class MarkersToWrite(NamedTuple):
    """An effect: each of `partitions` gets the marker. What comes back are `Marked`, until all partitions are in one.

    `producer_id`, `producer_epoch`: as in the markers. `transaction_version`: of the transaction's client, for
    WriteTxnMarkers 2. `coordinator_epoch`: the leader epoch of the shard's partition.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    coordinator_epoch: int
    transaction_version: int


class Marked(NamedTuple):
    """Partitions of `markers` that are settled; for `TxnShard.marked` of the shard `source`."""

    source: Hashable
    markers: MarkersToWrite
    partitions: frozenset[TopicPartition]


class ToSend(NamedTuple):
    """A request for a broker. Its answer, or None, goes to `answered` with the same broker id."""

    broker_id: int
    request: WriteTxnMarkersRequest


class _Part(NamedTuple):
    """Partitions of one transaction that take the same way."""

    source: Hashable
    markers: MarkersToWrite
    partitions: frozenset[TopicPartition]


class MarkerQueues:
    """See the module. `source` names a shard in office; a shard that comes back is another source."""

    def __init__(self) -> None:
        self._new: list[_Part] = []
        self._later: list[tuple[float, _Part]] = []
        self._waiting: dict[int, list[_Part]] = {}
        self._in_flight: dict[int, list[_Part]] = {}

    def __len__(self) -> int:
        """Partitions that still need a marker."""
        parts = [*self._new, *(part for _, part in self._later)]
        for queue in (*self._waiting.values(), *self._in_flight.values()):
            parts.extend(queue)
        return sum(len(part.partitions) for part in parts)

    def add(self, source: Hashable, markers: MarkersToWrite) -> None:
        self._new.append(_Part(source, markers, markers.partitions))

    def remove(self, source: Hashable) -> None:
        """The shard is led elsewhere, where the markers are written again. What is under way is not waited for."""
        self._new = [part for part in self._new if part.source != source]
        self._later = [(due, part) for due, part in self._later if part.source != source]
        for queues in (self._waiting, self._in_flight):
            for broker_id, parts in queues.items():
                queues[broker_id] = [part for part in parts if part.source != source]

    def deadline(self) -> float | None:
        """When `requests` has more to do, in seconds of the monotonic clock."""
        return min((due for due, _ in self._later), default=None)

    def requests(self, leader_of: LeaderOf, now: float) -> tuple[list[ToSend], list[Marked]]:
        """What to send now, one request at most per broker that owes no answer; and partitions that are gone."""
        gone: list[Marked] = []
        placing = self._new + [part for due, part in self._later if due <= now]
        self._new = []
        self._later = [(due, part) for due, part in self._later if due > now]
        for part in placing:
            by_leader: dict[int | Leader, set[TopicPartition]] = {}
            # In order, so that the same events give the same requests, in tests and simulations.
            for partition in sorted(part.partitions):
                by_leader.setdefault(leader_of(*partition), set()).add(partition)
            for leader, partitions in by_leader.items():
                piece = part._replace(partitions=frozenset(partitions))
                if leader is Leader.GONE:
                    log.info("%s: %s do not exist any more and get no marker", _of(part), sorted(partitions))
                    gone.append(Marked(*piece))
                elif isinstance(leader, Leader):
                    self._later.append((now + RETRY_S, piece))
                else:
                    self._waiting.setdefault(leader, []).append(piece)
        return [self._request(broker_id) for broker_id in list(self._waiting) if self._may_send(broker_id)], gone

    def _may_send(self, broker_id: int) -> bool:
        if not self._waiting[broker_id]:
            del self._waiting[broker_id]
            return False
        return broker_id not in self._in_flight

    def _request(self, broker_id: int) -> ToSend:
        waiting = self._waiting.pop(broker_id)
        room, taken = PARTITIONS_PER_REQUEST, 0
        # A transaction that is larger than that goes alone.
        while taken < len(waiting) and (not taken or len(waiting[taken].partitions) <= room):
            room -= len(waiting[taken].partitions)
            taken += 1
        if taken < len(waiting):
            self._waiting[broker_id] = waiting[taken:]
        self._in_flight[broker_id] = waiting[:taken]
        return ToSend(broker_id, WriteTxnMarkersRequest(markers=[_marker(part) for part in waiting[:taken]]))

    def answered(self, broker_id: int, response: WriteTxnMarkersResponse | None, now: float) -> list[Marked]:
        """The answer to the request `broker_id` has; None: there will be none."""
        marked = []
        codes = {} if response is None else _by_producer(response)
        for part in self._in_flight.pop(broker_id, ()):
            outcomes: dict[Outcome, set[TopicPartition]] = {}
            for partition in sorted(part.partitions):
                # A partition the answer does not speak of was not dealt with.
                code = codes.get((part.markers.producer_id, *partition), ErrorCode.REQUEST_TIMED_OUT)
                outcome = OUTCOMES.get(code, Outcome.SLOW)
                outcomes.setdefault(outcome, set()).add(partition)
                if outcome is Outcome.SLOW:
                    fenced = code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
                    report = log.warning if fenced else log.error
                    report("%s: broker %d rejected the marker for %s: %s", _of(part), broker_id, partition, code.name)
            for outcome, partitions in outcomes.items():
                piece = part._replace(partitions=frozenset(partitions))
                if outcome is Outcome.DONE:
                    marked.append(Marked(*piece))
                else:
                    self._later.append((now + (RETRY_S if outcome is Outcome.RETRY else SLOW_RETRY_S), piece))
        return marked


def _of(part: _Part) -> str:
    markers = part.markers
    return f"transactional id {markers.transactional_id!r} ({'commit' if markers.commit else 'abort'})"


def _marker(part: _Part) -> WriteTxnMarkersRequest.WritableTxnMarker:
    markers = part.markers
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(part.partitions):
        topics.setdefault(topic, []).append(partition)
    return WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.commit,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in topics.items()
        ],
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.transaction_version,
    )


def _by_producer(response: WriteTxnMarkersResponse) -> dict[tuple[int, str, int], ErrorCode]:
    return {
        (result.producer_id, topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
