"""AddPartitionsToTxn (key 24, versions 0-5): partitions that a transaction is about to write to.

Behaviour: answered when the record that holds the partitions is committed, so that a marker will reach each of them
whatever happens. If a partition does not exist nothing is added: it gets UNKNOWN_TOPIC_OR_PARTITION, the others
OPERATION_NOT_ATTEMPTED.

Versions: 2 may answer PRODUCER_FENCED, before it that is INVALID_PRODUCER_EPOCH; 3 is flexible, and the last that
clients use; 4 and 5 are asked by partition leaders, for several transactions at once, and may only ask whether
partitions are part of one (`verify_only`, KIP-890). Trouble of a transaction is told of each of its partitions.
"""

from __future__ import annotations

from kproto import ApiKey
from kproto.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from server.api import PENDING, Api
from server.context import RequestContext
from server.services import Services


def handle(svc: Services, ctx: RequestContext, req: AddPartitionsToTxnRequest) -> object:
    svc.transactions.add_partitions(req, ctx.api_version, ctx)
    return PENDING


def _on_error(req: AddPartitionsToTxnRequest, code: int, version: int) -> AddPartitionsToTxnResponse:
    if version >= 4:
        return AddPartitionsToTxnResponse(error_code=code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in req.v3_and_below_topics
        ]
    )


API = Api(ApiKey.ADD_PARTITIONS_TO_TXN, (0, 5), handle, on_error=_on_error)
