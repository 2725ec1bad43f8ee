"""ElectLeaders (key 43, versions 0-2): preferred leaders back in charge, or any leader where there is none (KIP-460).

Behaviour: election type 0 elects the first assigned replica of each partition if it is alive and in sync
(PREFERRED_LEADER_NOT_AVAILABLE else), type 1 any live replica for partitions without a leader, losing data
(ELIGIBLE_LEADERS_NOT_AVAILABLE else). Partitions that have what is asked for give ELECTION_NOT_NEEDED, and are left
out when a null list asks for all. The answer comes when the new leaders are known here, or after `timeout_ms`.

Versions:

- 0: preferred only, and no error of the whole answer
- 1: election types
- 2: flexible
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ElectLeadersRequest, ElectLeadersResponse
from barnabas.replication import Image
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

PREFERRED = 0
UNCLEAN = 1

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = ElectLeadersResponse.PartitionResult


async def handle(svc: Services, ctx: RequestContext, req: ElectLeadersRequest) -> ElectLeadersResponse:
    election_type = req.election_type if ctx.api_version >= 1 else PREFERRED
    if election_type not in (PREFERRED, UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
    asked: list[tuple[str, int]] | None = None
    unknown: list[tuple[str, int]] = []
    if req.topic_partitions is not None:
        asked, unknown = await svc.turns.run(_asked(svc.image, req.topic_partitions))
    outcomes = await svc.controller.elect_leaders(asked, unclean=election_type == UNCLEAN, timeout_ms=req.timeout_ms)
    missing = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    outcomes.update((key, missing) for key in unknown)
    return await svc.turns.run(_result_of(outcomes))


def _asked(
    image: Image, topics: Iterable[ElectLeadersRequest.TopicPartitions]
) -> Steps[tuple[list[tuple[str, int]], list[tuple[str, int]]]]:
    """Each partition once: those that there are, and the others."""
    known: dict[tuple[str, int], None] = {}
    unknown: dict[tuple[str, int], None] = {}
    for topic in topics:
        found = image.topics.get(topic.topic)
        count = 0 if found is None else len(found.partitions)
        yield 1
        for index in topic.partitions:
            (known if 0 <= index < count else unknown)[topic.topic, index] = None
            yield 1
    return list(known), list(unknown)


def _result_of(outcomes: Mapping[tuple[str, int], KafkaError | None]) -> Steps[ElectLeadersResponse]:
    topics: dict[str, ElectLeadersResponse.ReplicaElectionResult] = {}
    for (name, index), error in outcomes.items():
        yield 1
        topic = topics.setdefault(name, _Topic(topic=name))
        topic.partition_result.append(
            _Partition(
                partition_id=index,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
            )
        )
    return ElectLeadersResponse(replica_election_results=list(topics.values()))


def _refusal(req: ElectLeadersRequest, code: ErrorCode, version: int) -> ElectLeadersResponse:
    results = [
        _Topic(
            topic=topic.topic,
            partition_result=[
                _Partition(partition_id=index, error_code=code, error_message=None) for index in topic.partitions
            ],
        )
        for topic in req.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=code if version >= 1 else ErrorCode.NONE, replica_election_results=results)


API = Api(ApiKey.ELECT_LEADERS, (0, 2), handle, access=needs(on_cluster(Op.ALTER)), on_error=_refusal)
