"""DeleteRecords (key 21, versions 0-2): give up the records before an offset (KIP-107).

Behaviour: the log start offset of each partition moves up to the given offset; -1 stands for the high watermark.
Answered is the low watermark, the smallest log start offset of the replicas; while this broker is the only replica
that is its own, and nobody has to wait. Files go with the next run of retention. What is refused: an offset above the
high watermark or below -1 (OFFSET_OUT_OF_RANGE), an internal topic (INVALID_TOPIC_EXCEPTION), a topic without
`delete` in its `cleanup.policy` (POLICY_VIOLATION). An offset below the log start is fine and changes nothing.

Versions: 1 is as 0; 2 is flexible.

Not done: waiting, up to `timeout_ms`, for followers to move their log starts (with the cluster).
"""

from __future__ import annotations

from kproto import ApiKey, ErrorCode, KafkaError
from kproto.messages import DeleteRecordsRequest, DeleteRecordsResponse
from replication import is_internal
from server.api import Api
from server.context import RequestContext
from server.services import Services

_Asked = DeleteRecordsRequest.DeleteRecordsPartition
_Answer = DeleteRecordsResponse.DeleteRecordsPartitionResult
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult


def handle(svc: Services, ctx: RequestContext, req: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            _Topic(name=topic.name, partitions=[_delete(svc, topic.name, asked) for asked in topic.partitions])
            for topic in req.topics
        ]
    )


def _delete(svc: Services, topic: str, asked: _Asked) -> _Answer:
    index = asked.partition_index
    try:
        partition = svc.partitions.get(topic, index)
        if is_internal(topic):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition.check_leader_epoch(-1)
        if not partition.log.config.delete:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        low_watermark = partition.log.delete_records(asked.offset, partition.high_watermark)
    except KafkaError as error:
        return _Answer(partition_index=index, low_watermark=-1, error_code=error.code)
    return _Answer(partition_index=index, low_watermark=low_watermark)


def _on_error(req: DeleteRecordsRequest, code: ErrorCode, version: int) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Answer(partition_index=asked.partition_index, low_watermark=-1, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(ApiKey.DELETE_RECORDS, (0, 2), handle, on_error=_on_error)
