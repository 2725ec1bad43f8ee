"""ListPartitionReassignments (key 46, version 0): partitions on the move between brokers (KIP-455).

Behaviour: of those asked for, or all for a null list, the partitions that are being reassigned, with present, coming
and going replicas; others, and unknown ones, are left out. kafka-topics --describe asks this each time. Only the
controller knows (NOT_CONTROLLER elsewhere).
"""

from __future__ import annotations

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def handle(
    svc: Services, ctx: RequestContext, req: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    asked: set[tuple[str, int]] | None = None
    if req.topics is not None:
        asked = set()  # without what is not there: so it is bounded by the cluster, however often it is named
        for topic in req.topics:
            known = svc.image.topics.get(topic.name)
            count = 0 if known is None else len(known.partitions)
            yield 1
            for index in topic.partition_indexes:
                if 0 <= index < count:
                    asked.add((topic.name, index))
                yield 1
    topics: dict[str, ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
    for change in svc.controller.list_reassignments(asked):
        partition = change.partition
        topics.setdefault(change.topic, _Topic(name=change.topic)).partitions.append(
            _Partition(
                partition_index=partition.index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
        )
    return ListPartitionReassignmentsResponse(error_message=None, topics=list(topics.values()))


def _refusal(
    req: ListPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> ListPartitionReassignmentsResponse:
    """Beside the error it names what was asked for, as Apache Kafka's does."""
    topics = [
        _Topic(name=topic.name, partitions=[_Partition(partition_index=index) for index in topic.partition_indexes])
        for topic in req.topics or ()
    ]
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None, topics=topics)


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), handle, access=needs(on_cluster(Op.DESCRIBE)), on_error=_refusal)
