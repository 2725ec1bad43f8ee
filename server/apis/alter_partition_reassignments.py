"""AlterPartitionReassignments (key 45, versions 0-1): move partitions to other brokers, or call a move off (KIP-455).

Behaviour: every partition for itself. Replicas must be live brokers, each once, at least one (39 else); a null list
calls off a move, which gives NO_REASSIGNMENT_IN_PROGRESS where there is none. A partition that is where it shall be
succeeds and nothing happens. As long as a broker is alone, no other wish can pass these checks: `kafka-reassign-
partitions` works as with Apache Kafka on one broker.

Versions: 1 `allow_replication_factor_change`, echoed.

Not done: moving. A target among several live brokers is refused with OPERATION_NOT_ATTEMPTED until replication between
brokers is there. Authorization.
"""

from __future__ import annotations

from collections.abc import Sequence

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from replication import Image, check_replicas
from server.api import Api
from server.context import RequestContext
from server.services import Services

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def handle(
    svc: Services, ctx: RequestContext, req: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    if not svc.controller.is_active:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    image = svc.image
    topics = []
    for topic in req.topics:
        answers = _Topic(name=topic.name)
        topics.append(answers)
        for wish in topic.partitions:
            answer = _Partition(partition_index=wish.partition_index, error_message=None)
            try:
                _check(image, topic.name, wish.partition_index, wish.replicas)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            answers.partitions.append(answer)
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=topics,
        allow_replication_factor_change=req.allow_replication_factor_change,
    )


def _check(image: Image, topic: str, index: int, target: Sequence[int] | None) -> None:
    """Raises KafkaError unless the partition is where it shall be."""
    partition = image.partition(topic, index)
    if partition is None:
        known = f"{topic[:250]}-{index}"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {known}.")
    if target is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_replicas(target, image.brokers)
    if list(target) != list(partition.replicas):
        raise KafkaError(ErrorCode.OPERATION_NOT_ATTEMPTED, "This broker cannot move replicas to other brokers.")


def _refusal(
    req: AlterPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=None)


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), handle, on_error=_refusal)
