"""AlterReplicaLogDirs (key 34, versions 0-2): move replicas of this broker to other log directories (KIP-113).

Behaviour: for each directory the partitions that shall be there. A replica that is elsewhere is copied while it is
served, and the copy takes its place when it is complete (`server/storage/dir_moves.py`); the answer does not wait for
that, DescribeLogDirs shows the progress. Named again with another directory the move goes there instead; named
with the one that it is in, it is called off. A partition that this broker does not have yet gives
REPLICA_NOT_AVAILABLE, and if it comes later it will be made in that directory: so tools can choose the place before
they move a replica here.

Per partition: LOG_DIR_NOT_FOUND (no such directory in `log.dirs`, by its whole path), KAFKA_STORAGE_ERROR (the
directory or the partition is offline; or any directory is, and a copy would have to be made, for there may be one
already), REPLICA_NOT_AVAILABLE, INVALID_TOPIC_EXCEPTION (a name too long to be moved, KAFKA-4893). In this order
and with these codes as `ReplicaManager.alterReplicaLogDirs` (3.9). A partition that stands under two directories goes
to the last one.

Versions:

- 1: as version 0
- 2: flexible
"""

from __future__ import annotations

import os

import trio

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from barnabas.logdir import LogDir
from barnabas.server.requests.access import Op, needs, on_cluster
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult

AT_ONCE = 8
"""Copies to make between two checkpoints; each takes up to some milliseconds."""


async def handle(svc: Services, ctx: RequestContext, req: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    by_path = {_whole(each): each for each in svc.partitions.log_dirs.dirs}
    wanted: dict[tuple[str, int], LogDir | None] = {}
    for requested in req.dirs:
        target = by_path.get(requested.path)
        for topic in requested.topics:
            for index in topic.partitions:
                wanted[topic.name, index] = target
    results: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for number, ((name, index), where) in enumerate(wanted.items(), 1):
        try:
            _move(svc, name, index, where)
            code = ErrorCode.NONE
        except KafkaError as error:
            code = error.code
        result = results.setdefault(name, _Topic(topic_name=name))
        result.partitions.append(_Partition(partition_index=index, error_code=code))
        if number % AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _whole(one: LogDir) -> str:
    return os.path.abspath(one.path)


def _move(svc: Services, topic: str, index: int, target: LogDir | None) -> None:
    partitions = svc.partitions
    dirs = partitions.log_dirs
    if not dirs.can_move(topic, index):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if target is None:
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND)
    if target.failure is not None or partitions.is_offline(topic, index):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    partition = partitions.find(topic, index)
    if partition is None:
        if dirs.home(topic, index) is not target:
            dirs.prefer(topic, index, target)
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE)
    partitions.move(partition, target)


def _on_error(req: AlterReplicaLogDirsRequest, code: ErrorCode, version: int) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            _Topic(
                topic_name=topic.name,
                partitions=[_Partition(partition_index=index, error_code=code) for index in topic.partitions],
            )
            for requested in req.dirs
            for topic in requested.topics
        ]
    )


API = Api(ApiKey.ALTER_REPLICA_LOG_DIRS, (0, 2), handle, access=needs(on_cluster(Op.ALTER)), on_error=_on_error)
