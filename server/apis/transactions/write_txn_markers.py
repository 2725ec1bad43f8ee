"""WriteTxnMarkers (key 27, versions 0-2): a transaction coordinator, or an administrator who aborts a transaction that
hangs, has markers written into partitions that this broker leads (KIP-98, KIP-664).

Behaviour: `barnabas.server.coordinators.marker_writer`: answered when everything is committed or refused. Per
partition: an unknown one UNKNOWN_TOPIC_OR_PARTITION, one led elsewhere NOT_LEADER_OR_FOLLOWER; an old producer epoch
INVALID_PRODUCER_EPOCH; an old coordinator epoch TRANSACTION_COORDINATOR_FENCED; too few replicas NOT_ENOUGH_REPLICAS
and NOT_ENOUGH_REPLICAS_AFTER_APPEND; not committed in time REQUEST_TIMED_OUT. A marker without producer id or epoch
makes the whole request UNKNOWN_SERVER_ERROR, as in Apache Kafka: there can be no such batch.

Versions:

- 1: flexible
- 2: says which transaction.version the transaction's client has (KIP-1228): from 2 on a marker's epoch must be higher
  than that of the batches it ends

Apache Kafka 4 does not serve version 0 any more.
"""

from __future__ import annotations

from copy import copy

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.portions import AT_ONCE, in_portions
from barnabas.server.requests.services import Services

_Result = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_Partition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


def handle(svc: Services, ctx: RequestContext, req: WriteTxnMarkersRequest) -> object:
    count = 0
    for marker in req.markers:
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker without producer")
        count += 1 + sum(1 + len(topic.partition_indexes) for topic in marker.topics)
    if count > AT_ONCE:
        return _in_portions(svc, ctx, req)
    svc.markers.write(req, ctx)
    return PENDING


async def _in_portions(svc: Services, ctx: RequestContext, req: WriteTxnMarkersRequest) -> object:
    wanted = [
        (marker, topic.name, index)
        for marker in req.markers
        for topic in marker.topics
        for index in dict.fromkeys(topic.partition_indexes)
    ]
    if not wanted:
        return WriteTxnMarkersResponse()
    written = _Written(ctx, [(marker.producer_id, name, index) for marker, name, index in wanted])

    def write(first: int, end: int) -> None:
        markers = []
        for marker, name, index in wanted[first:end]:
            one = copy(marker)
            one.topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=[index])]
            markers.append(one)
        svc.markers.write(WriteTxnMarkersRequest(markers=markers), _Some(written, end - first))

    await in_portions(svc, len(wanted), write)
    return PENDING


class _Written:
    """A response that collects the results of markers written in portions. The token of a portion is a `_Some`."""

    __slots__ = ("_codes", "_ctx", "_owed")

    def __init__(self, ctx: RequestContext, wanted: list[tuple[int, str, int]]) -> None:
        self._ctx = ctx
        self._owed = len(wanted)
        self._codes: dict[int, dict[str, dict[int, int]]] = {}
        for producer_id, topic, index in wanted:  # which is the order of the answer
            self._codes.setdefault(producer_id, {}).setdefault(topic, {})[index] = ErrorCode.REQUEST_TIMED_OUT

    def answered(self, count: int, response: WriteTxnMarkersResponse) -> None:
        for marker in response.markers:
            topics = self._codes.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                codes = topics.setdefault(topic.name, {})
                codes.update((each.partition_index, each.error_code) for each in topic.partitions)
        self._owed -= count
        if not self._owed:
            results = [_result(producer_id, topics) for producer_id, topics in self._codes.items()]
            self._ctx.reply(WriteTxnMarkersResponse(markers=results))

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


class _Some:
    __slots__ = ("_count", "_written")

    def __init__(self, written: _Written, count: int) -> None:
        self._written = written
        self._count = count

    def reply(self, response: WriteTxnMarkersResponse) -> None:
        self._written.answered(self._count, response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._written.release_waiters()


def _result(producer_id: int, topics: dict[str, dict[int, int]]) -> _Result:
    return _Result(
        producer_id=producer_id,
        topics=[
            _Topic(
                name=name,
                partitions=[_Partition(partition_index=index, error_code=code) for index, code in codes.items()],
            )
            for name, codes in topics.items()
        ],
    )


def _on_error(req: WriteTxnMarkersRequest, code: ErrorCode, version: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in req.markers
        ]
    )


API = Api(
    ApiKey.WRITE_TXN_MARKERS,
    (0, 2),
    handle,
    access=needs(on_cluster(Op.CLUSTER_ACTION), on_cluster(Op.ALTER)),
    on_error=_on_error,
)
