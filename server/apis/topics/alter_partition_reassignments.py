"""AlterPartitionReassignments (key 45, versions 0-1): move partitions to other brokers, or call a move off (KIP-455).

Behaviour: every partition for itself. Unknown partitions give UNKNOWN_TOPIC_OR_PARTITION, as do topics being deleted,
whatever is asked of them. Replicas must be given, each once, and new ones live (else INVALID_REPLICA_ASSIGNMENT); a
null list calls off a move, which gives NO_REASSIGNMENT_IN_PROGRESS where there is none. A partition that is where it
shall be succeeds and nothing happens. The answer says that the store has it; ListPartitionReassignments shows the
progress. Only the controller can (NOT_CONTROLLER elsewhere).

Versions:

- 1: `allow_replication_factor_change`: without it, a target of another size is INVALID_REPLICATION_FACTOR
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse
from barnabas.replication import Image
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse

_Targets = dict[tuple[str, int], Sequence[int] | None]
_Outcome = dict[tuple[str, int], KafkaError | None]

_AT_ONCE = 1000
"""How many moves the controller is asked for in one call, which it plans in one go."""


async def handle(
    svc: Services, ctx: RequestContext, req: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets, outcome = await svc.turns.run(_targets(svc.image, req))
    keys = list(targets)
    for first in range(0, max(1, len(keys)), _AT_ONCE):  # without targets it is still asked whether we are controller
        some = {key: targets[key] for key in keys[first : first + _AT_ONCE]}
        outcome.update(await svc.controller.reassign(some))
    return await svc.turns.run(_result_of(outcome, req))


def _targets(image: Image, req: AlterPartitionReassignmentsRequest) -> Steps[tuple[_Targets, _Outcome]]:
    """What to ask of the controller, and what is refused before."""
    targets: _Targets = {}
    outcome: _Outcome = {}
    for topic in req.topics:
        yield 1
        for requested in topic.partitions:
            key = topic.name, requested.partition_index
            error = None
            if not req.allow_replication_factor_change:
                error = _other_factor(image, *key, requested.replicas)
            if error is None:
                targets[key] = requested.replicas
            outcome[key] = error
            yield 1
    return targets, outcome


def _result_of(
    outcome: _Outcome, req: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    topics: dict[str, AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = {}
    for (name, index), error in outcome.items():
        yield 1
        answer = _Partition(partition_index=index, error_message=None)
        if error is not None:
            answer.error_code, answer.error_message = error.code, error.message
        topics.setdefault(name, _Topic(name=name)).partitions.append(answer)
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=list(topics.values()),
        allow_replication_factor_change=req.allow_replication_factor_change,
    )


def _other_factor(image: Image, name: str, index: int, target: Sequence[int] | None) -> KafkaError | None:
    partition = image.partition(name, index)
    if partition is None or target is None or len(target) == len(partition.target_replicas):
        return None
    now = len(partition.target_replicas)
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"The replication factor would change from {now} to {len(target)}, which the request does not allow.",
    )


def _refusal(
    req: AlterPartitionReassignmentsRequest, code: ErrorCode, version: int
) -> AlterPartitionReassignmentsResponse:
    topics = [
        _Topic(
            name=topic.name,
            partitions=[
                _Partition(partition_index=requested.partition_index, error_code=code, error_message=None)
                for requested in topic.partitions
            ],
        )
        for topic in req.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=None, responses=topics)


API = Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), handle, access=needs(on_cluster(Op.ALTER)), on_error=_refusal)
