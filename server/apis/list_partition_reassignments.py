"""ListPartitionReassignments (key 46, version 0): partitions on the move between brokers (KIP-455).

Behaviour: of those asked for, or all for a null list, the partitions that are being reassigned, with present, coming
and going replicas; others, and unknown ones, are left out. kafka-topics --describe asks this each time. Only the
controller knows (NOT_CONTROLLER elsewhere). On one broker nothing ever moves.

Not done: authorization.
"""

from __future__ import annotations

from collections.abc import Iterable

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse
from replication import PartitionImage
from server.api import Api
from server.context import RequestContext
from server.services import Services

_Topic = ListPartitionReassignmentsResponse.OngoingTopicReassignment
_Partition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


def handle(
    svc: Services, ctx: RequestContext, req: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not svc.controller.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    image = svc.image
    moving: dict[str, list[PartitionImage]] = {}
    if req.topics is None:
        for topic in image.topics.values():
            moving[topic.name] = _moving(topic.partitions)
    else:
        for asked in req.topics:
            known = (image.partition(asked.name, index) for index in asked.partition_indexes)
            moving.setdefault(asked.name, []).extend(_moving(p for p in known if p is not None))
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            _Topic(name=name, partitions=[_described(partition) for partition in partitions])
            for name, partitions in moving.items()
            if partitions
        ],
    )


def _moving(partitions: Iterable[PartitionImage]) -> list[PartitionImage]:
    return [partition for partition in partitions if partition.adding_replicas or partition.removing_replicas]


def _described(
    partition: PartitionImage,
) -> ListPartitionReassignmentsResponse.OngoingPartitionReassignment:
    return _Partition(
        partition_index=partition.index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )


API = Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, (0, 0), handle)
