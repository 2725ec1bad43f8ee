"""DescribeLogDirs (key 35, versions 0-5): this broker's log directories and their partitions (KIP-113).

Behaviour: every log directory with the partitions asked for (null: all) that are there: bytes of their segments, and
how far they lag behind the high watermark. Partitions that are not here are left out, without an error. A partition on
its way to another directory is in both: there as a copy (`is_future_key`), whose lag is what is still to be copied; -1
if the original cannot be reached. A directory that has failed is answered with KAFKA_STORAGE_ERROR and nothing else.

Versions:

- 1: as version 0
- 2: flexible
- 3: an error for the whole request
- 4: size and free bytes of the file system (KIP-827)
- 5: says whether the directory is cordoned (KIP-1066), which it never is
"""

from __future__ import annotations

import os
from collections.abc import Collection

from barnabas.kproto import ApiKey, ErrorCode
from barnabas.kproto.messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas.logdir import LogDir
from barnabas.server.requests.access import CLUSTER, DENIED, AccessCheck, Admitted, Op, Outcome, Refused
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = DescribeLogDirsResponse.DescribeLogDirsPartition
_LONG_MAX = 2**63 - 1
_LAG_UNKNOWN = -1

_Key = tuple[str, int]


async def handle(svc: Services, ctx: RequestContext, req: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    wanted: Collection[_Key] | None = None
    if req.topics is not None:
        wanted = {(topic.topic, index) for topic in req.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[await _describe(svc, ctx, each, wanted) for each in svc.partitions.log_dirs.dirs]
    )


async def _describe(
    svc: Services, ctx: RequestContext, log_dir: LogDir, wanted: Collection[_Key] | None
) -> DescribeLogDirsResponse.DescribeLogDirsResult:
    path = _whole(log_dir)
    total_bytes = usable_bytes = -1
    try:
        if log_dir.failure is not None:
            raise log_dir.failure
        if ctx.api_version >= 4:
            total_bytes, usable_bytes = await svc.offload(_space, path)
    except OSError:
        return _Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
    topics = await svc.turns.run(_topics(svc, log_dir, wanted))
    return _Result(log_dir=path, topics=topics, total_bytes=total_bytes, usable_bytes=usable_bytes)


def _whole(one: LogDir) -> str:
    return os.path.abspath(one.path)


def _space(path: str) -> tuple[int, int]:
    """(size, free for us) of the file system, in bytes. Blocks as long as the file system does. Raises OSError."""
    found = os.statvfs(path)
    return min(found.f_blocks * found.f_frsize, _LONG_MAX), min(found.f_bavail * found.f_frsize, _LONG_MAX)


def _topics(
    svc: Services, log_dir: LogDir, wanted: Collection[_Key] | None
) -> Steps[list[DescribeLogDirsResponse.DescribeLogDirsTopic]]:
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for is_future, logs in ((False, log_dir.logs), (True, log_dir.futures)):
        for key, log in list(logs.items()):
            yield 2
            if wanted is not None and key not in wanted:
                continue
            name, index = key
            partition = svc.partitions.find(name, index)
            if partition is None:
                lag = _LAG_UNKNOWN
            elif is_future:
                lag = partition.log_end_offset - log.log_end_offset
            else:
                lag = max(partition.high_watermark - log.log_end_offset, 0)
            topic = topics.setdefault(name, _Topic(name=name))
            topic.partitions.append(
                _Partition(partition_index=index, partition_size=log.size, offset_lag=lag, is_future_key=is_future)
            )
    return list(topics.values())


def _access(check: AccessCheck) -> Steps[Outcome]:
    """Before version 3 a caller that is denied gets no directories."""
    if check.allows(Op.DESCRIBE, CLUSTER):
        return Admitted(check.request)
    return check.refuse(DENIED[CLUSTER]) if check.version >= 3 else Refused(DescribeLogDirsResponse())
    yield


def _on_error(req: DescribeLogDirsRequest, code: ErrorCode, version: int) -> DescribeLogDirsResponse:
    """Before version 3 the error is that of a directory without name; Apache Kafka answers without any directory."""
    if version >= 3:
        return DescribeLogDirsResponse(error_code=code)
    return DescribeLogDirsResponse(results=[_Result(error_code=code, log_dir="")])


API = Api(ApiKey.DESCRIBE_LOG_DIRS, (0, 5), handle, access=_access, on_error=_on_error)
