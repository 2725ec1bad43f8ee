"""LeaderAndIsr (4), versions 0–7: the controller says which partitions to lead, and which to follow from which leader.

Applied in the order of the controller's connection; the answer comes when all partitions are opened and have their
role. From version 5 on the answer is grouped by topic id. Between brokers only.

| error | where | when |
| --- | --- | --- |
| STALE_CONTROLLER_EPOCH | whole, and every partition | a newer controller epoch is known |
| STALE_BROKER_EPOCH | whole, and every partition | meant for an earlier registration of this broker |
| STALE_CONTROLLER_EPOCH | partition | its leader epoch is not newer than ours |
| UNKNOWN_TOPIC_OR_PARTITION | partition | this broker is none of its replicas |
| INCONSISTENT_TOPIC_ID | partition | the topic has another id here |
| KAFKA_STORAGE_ERROR | partition | its log cannot be opened |

Not done: type Full, which only controllers of a migration to KRaft send.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import LeaderAndIsrRequest, LeaderAndIsrResponse
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api

if TYPE_CHECKING:
    from barnabas.server.requests.context import RequestContext
    from barnabas.server.requests.services import Services


async def handle(svc: Services, ctx: RequestContext, req: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    from barnabas.replication.messages import wire  # a broker alone starts without it

    listener = svc.config.inter_broker_listener
    protocol = next(each.protocol for each in svc.config.listeners if each.name == listener)
    message = wire.leader_and_isr(req, listener, protocol)
    codes = await svc.cluster.receive(message)
    return wire.leader_and_isr_response(message, codes, ctx.api_version)


def _on_error(req: LeaderAndIsrRequest, code: ErrorCode, version: int) -> LeaderAndIsrResponse:
    from barnabas.replication.messages import wire  # a broker alone starts without it

    message = wire.leader_and_isr(req, "", "PLAINTEXT")
    codes = {(change.topic, change.partition.index): code for change in message.partitions}
    response = wire.leader_and_isr_response(message, codes, version)
    response.error_code = code
    return response


API = Api(ApiKey.LEADER_AND_ISR, (0, 7), handle, access=needs(on_cluster(Op.CLUSTER_ACTION)), on_error=_on_error)
