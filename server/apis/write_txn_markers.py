"""WriteTxnMarkers (key 27, versions 0-2): a transaction coordinator, or an administrator who aborts a transaction that
hangs, has markers written into partitions that this broker leads (KIP-98, KIP-664).

Behaviour: `server.marker_writer`: answered when everything is committed or refused. Per partition: an unknown one, or
one that is elsewhere, 3 or 6; an old producer epoch 47; an old coordinator epoch 52; too few replicas 19 and 20; not
committed in time 7.

Versions: 1 is flexible; 2 says which transaction.version the transaction's client has (KIP-1228): from 2 on a marker's
epoch must be higher than that of the batches it ends. 0 was not in Apache Kafka 4 any more.
"""

from __future__ import annotations

from kproto import ApiKey, ErrorCode
from kproto.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from server.api import PENDING, Api
from server.context import RequestContext
from server.services import Services


def handle(svc: Services, ctx: RequestContext, req: WriteTxnMarkersRequest) -> object:
    svc.markers.write(req, ctx)
    return PENDING


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


API = Api(ApiKey.WRITE_TXN_MARKERS, (0, 2), handle, on_error=_on_error)
