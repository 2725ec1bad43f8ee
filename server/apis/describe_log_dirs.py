"""DescribeLogDirs (key 35, versions 0-5): what lies where on this broker's disk (KIP-113).

Behaviour: the log directory with the partitions asked for (null: all) that are there: bytes of their segments, and
how far they lag behind the high watermark. Partitions that are not here are left out, without an error. A directory
that cannot be written any more is answered with KAFKA_STORAGE_ERROR and nothing else.

Versions: 1 is as 0; 2 flexible; 3 an error for the whole request; 4 size and free bytes of the file system (KIP-827);
5 says whether the directory is cordoned (KIP-1066), which it never is.

Not done: several log directories and moving partitions between them (`is_future_key` is false).
"""

from __future__ import annotations

import os
from collections.abc import Collection

from kproto import ApiKey, ErrorCode
from kproto.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from server.api import Api
from server.context import RequestContext
from server.services import Services

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
_LONG_MAX = 2**63 - 1


async def handle(svc: Services, ctx: RequestContext, req: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    path = _path(svc)
    total_bytes = usable_bytes = -1
    try:
        if svc.partitions.log_dir.failure is not None:
            raise svc.partitions.log_dir.failure
        if ctx.api_version >= 4:
            total_bytes, usable_bytes = await svc.offload(_space, path)
    except OSError:
        return DescribeLogDirsResponse(results=[_Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)])
    result = _Result(log_dir=path, topics=_topics(svc, req), total_bytes=total_bytes, usable_bytes=usable_bytes)
    return DescribeLogDirsResponse(results=[result])


def _path(svc: Services) -> str:
    return os.path.abspath(svc.partitions.log_dir.path)


def _space(path: str) -> tuple[int, int]:
    """(size, free for us) of the file system, in bytes. Blocks as long as the file system does. Raises OSError."""
    found = os.statvfs(path)
    return min(found.f_blocks * found.f_frsize, _LONG_MAX), min(found.f_bavail * found.f_frsize, _LONG_MAX)


def _topics(svc: Services, req: DescribeLogDirsRequest) -> list[_Topic]:
    wanted: Collection[tuple[str, int]] | None = None
    if req.topics is not None:
        wanted = {(topic.topic, index) for topic in req.topics for index in topic.partitions}
    topics: dict[str, _Topic] = {}
    for partition in svc.partitions:
        if wanted is not None and (partition.topic, partition.index) not in wanted:
            continue
        topic = topics.setdefault(partition.topic, _Topic(name=partition.topic))
        log = partition.log
        topic.partitions.append(
            _Partition(
                partition_index=partition.index,
                partition_size=log.size,
                offset_lag=max(partition.high_watermark - log.log_end_offset, 0),
            )
        )
    return list(topics.values())


API = Api(ApiKey.DESCRIBE_LOG_DIRS, (0, 5), handle)
