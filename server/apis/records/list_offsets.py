"""ListOffsets (key 2, versions 0-11): from a point in time, or a named place, to an offset.

Behaviour: the timestamp of each partition asks for

    ====  =====  ==================================================================================================
    sent  since  asks for
    ====  =====  ==================================================================================================
    -1    v0     latest: the high watermark; for `read_committed` the last stable offset;
                 for replicas (id other than -1) the log's end
    -2    v0     earliest: the log start offset
    -3    v7     the first record with the greatest timestamp (KIP-734)
    -4    v8     earliest in the local log; without tiered storage the same as -2 (KIP-405)
    -5    v9     latest in tiered storage; there is none here: offset -1 (KIP-1005)
    -6    v11    earliest that waits for upload to tiered storage; likewise offset -1 (KIP-1023)
    >= 0  v0     the first record at or after that time, with its own timestamp
    ====  =====  ==================================================================================================

-1, -2 and -4 answer timestamp -1. A record that the caller may not read yet, and a time after all records, answer
offset -1. Any other negative number, or one that is newer than the request's version, gives UNSUPPORTED_VERSION; a
partition named twice INVALID_REQUEST. While the high watermark of a new leader is below the start of its epoch,
"latest" and what lies behind it give OFFSET_NOT_AVAILABLE. Only the leader answers; the replica id -2 of a debugging
tool gets an answer from any replica.

Versions:

- 0 answers an array of offsets, newest first, at most `max_num_offsets`: where segments start, and the log's end; a
  time selects up to the last segment whose records are no later (Apache Kafka goes by the modification time of files,
  which copying changes; here it counts where no record has a timestamp).
- 1 answers one offset with its timestamp.
- 2 adds the isolation level.
- 4 adds leader epochs in both directions, with FENCED_LEADER_EPOCH and UNKNOWN_LEADER_EPOCH.
- 5 answers OFFSET_NOT_AVAILABLE; earlier versions LEADER_NOT_AVAILABLE instead.
- 6 is flexible.
- 10 adds `timeout_ms`, for tiered storage alone.

Not done: tiered storage.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ListOffsetsRequest, ListOffsetsResponse
from barnabas.logdir import LongBatch
from barnabas.server.partitions.partition import Partition
from barnabas.server.requests.access import Op, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

CONSUMER = -1
"""The replica id of a client that is no replica."""
ANY_REPLICA = -2
READ_COMMITTED = 1
_LOOK_UP_UNITS = 300
"""Look-ups by time read from disk and decode a batch."""

_TOLD = ("error_code", "timestamp", "offset", "leader_epoch")
_Found = tuple[int, int, int]
"""(timestamp, offset, leader epoch), each -1 where there is none."""
_Requested = ListOffsetsRequest.ListOffsetsPartition
_Answer = ListOffsetsResponse.ListOffsetsPartitionResponse


@dataclass(slots=True)
class _Long:
    """A look-up that takes long, and the place of its answer. Not the batch: there may be thousands."""

    answer: ListOffsetsResponse.ListOffsetsPartitionResponse
    topic: str
    requested: ListOffsetsRequest.ListOffsetsPartition


def handle(svc: Services, ctx: RequestContext, req: ListOffsetsRequest) -> Steps[object]:
    version = ctx.api_version
    if version >= 2 and req.isolation_level not in (0, READ_COMMITTED):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {req.isolation_level}")
    twice = yield from _asked_twice(req)
    topics: dict[str, dict[int, _Answer]] = {}
    long: list[_Long] = []
    for topic in req.topics:
        answers = topics.setdefault(topic.name, {})
        yield 1
        for requested in topic.partitions:
            index = requested.partition_index
            yield 1
            try:
                if version == 0:
                    if index not in answers:
                        yield 0 if requested.timestamp in (LATEST, EARLIEST) else _LOOK_UP_UNITS
                        answers[index] = _old_style(svc, topic.name, requested, req.replica_id)
                    continue
                if (topic.name, index) in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if requested.timestamp < 0 and version < _SINCE_VERSION.get(requested.timestamp, 1 << 15):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                partition = _checked(svc, topic.name, requested, req)
                if requested.timestamp not in (LATEST, EARLIEST):
                    yield _LOOK_UP_UNITS
                    partition = _checked(svc, topic.name, requested, req)
                answers[index] = _result_of(index, _look_up(partition, requested.timestamp, req), version)
            except KafkaError as error:
                answers[index] = _failed(index, error, version)
            except LongBatch:
                answers[index] = _Answer(partition_index=index)
                long.append(_Long(answers[index], topic.name, requested))
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(name=name, partitions=list(answers.values()))
            for name, answers in topics.items()
        ]
    )
    return _look_longer(svc, ctx, req, response, long) if long else response


def _checked(svc: Services, topic: str, requested: _Requested, req: ListOffsetsRequest) -> Partition:
    """The partition, if this broker may answer for it. Raises KafkaError."""
    partition = svc.partitions.get(topic, requested.partition_index)
    partition.check_leader_epoch(requested.current_leader_epoch, only_leader=req.replica_id != ANY_REPLICA)
    return partition


async def _look_longer(
    svc: Services, ctx: RequestContext, req: ListOffsetsRequest, response: ListOffsetsResponse, long: list[_Long]
) -> ListOffsetsResponse:
    """Look through batches off the loop, and put what is found into its place."""
    version = ctx.api_version
    for each in long:
        if ctx.closed:
            break
        index = each.requested.partition_index
        try:
            found = await _found(svc, each.topic, each.requested)
            answer = _result_of(index, _readable(_checked(svc, each.topic, each.requested, req), found, req), version)
        except KafkaError as error:
            answer = _failed(index, error, version)
        for name in _TOLD:
            setattr(each.answer, name, getattr(answer, name))
    return response


async def _found(svc: Services, topic: str, requested: ListOffsetsRequest.ListOffsetsPartition) -> _Found | None:
    """Looks again, and as long as it takes. Raises KafkaError."""
    start_offset = 0
    while True:
        log = svc.partitions.get(topic, requested.partition_index).log
        try:
            if requested.timestamp == MAX_TIMESTAMP:
                return log.offset_of_max_timestamp(leave_long=True)
            return log.offset_for_timestamp(requested.timestamp, start_offset, leave_long=True)
        except LongBatch as long:
            found = await svc.turns.elsewhere(long.batch.first_at, long.target_ms, long.start_offset)
            if found is not None or requested.timestamp == MAX_TIMESTAMP:
                return found
            start_offset = long.batch.last_offset + 1  # what was in there has been deleted


def _result_of(index: int, found: _Found, version: int) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    timestamp, offset, epoch = found
    return _Answer(
        partition_index=index, timestamp=timestamp, offset=offset, leader_epoch=epoch if version >= 4 else -1
    )


def _failed(index: int, error: KafkaError, version: int) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    code = error.code
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and version < 5:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    return _Answer(partition_index=index, error_code=code)


def _asked_twice(req: ListOffsetsRequest) -> Steps[set[tuple[str, int]]]:
    seen: set[tuple[str, int]] = set()
    twice: set[tuple[str, int]] = set()
    for topic in req.topics:
        for requested in topic.partitions:
            key = (topic.name, requested.partition_index)
            if key in seen:
                twice.add(key)
            seen.add(key)
            yield 1
    return twice


def _look_up(partition: Partition, timestamp: int, req: ListOffsetsRequest) -> _Found:
    """Raises KafkaError CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, OFFSET_NOT_AVAILABLE, and `LongBatch` where there is a
    batch to be looked through elsewhere.
    """
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return -1, start, log.epochs.epoch_for(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1, -1

    if timestamp == LATEST:
        if _is_lagging(partition, req):
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, _limit(partition, req), partition.leader_epoch
    if timestamp == MAX_TIMESTAMP:
        return _readable(partition, log.offset_of_max_timestamp(leave_long=True), req)
    return _readable(partition, log.offset_for_timestamp(timestamp, leave_long=True), req)


def _limit(partition: Partition, req: ListOffsetsRequest) -> int:
    """The offset up to which the caller may read."""
    if req.replica_id != CONSUMER:
        return partition.log.log_end_offset
    return partition.last_stable_offset if req.isolation_level == READ_COMMITTED else partition.high_watermark


def _is_lagging(partition: Partition, req: ListOffsetsRequest) -> bool:
    return req.replica_id == CONSUMER and partition.lags_behind_its_epoch


def _readable(partition: Partition, found: _Found | None, req: ListOffsetsRequest) -> _Found:
    """What was found, if the caller may read it. Raises KafkaError OFFSET_NOT_AVAILABLE."""
    if found is not None and found[1] < _limit(partition, req):
        return found
    if _is_lagging(partition, req):
        # It may be there, but the new leader does not know yet what the former leader had committed.
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return -1, -1, -1


def _old_style(svc: Services, topic: str, requested: _Requested, replica_id: int) -> _Answer:
    """Version 0: offsets at which segments start, newest first. Raises KafkaError."""
    if requested.timestamp < EARLIEST:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = svc.partitions.get(topic, requested.partition_index)
    partition.check_leader_epoch(-1, only_leader=replica_id != ANY_REPLICA)
    log = partition.log
    end = log.log_end_offset
    bases = log.segment_bases
    starts = [max(base, log.log_start_offset) for base in bases]
    if end > bases[-1]:
        starts.append(end)
    if requested.timestamp == EARLIEST:
        del starts[1:]
    elif 0 <= requested.timestamp < svc.wall_ms():
        times = log.segment_times()
        count = len(times)
        while count and times[count - 1] > requested.timestamp:
            count -= 1
        del starts[count:]
    offsets = starts[::-1][: max(requested.max_num_offsets, 0)]
    high_watermark = partition.high_watermark
    if replica_id == CONSUMER and offsets and offsets[0] > high_watermark:
        offsets = [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return _Answer(partition_index=requested.partition_index, old_style_offsets=offsets)


def _on_error(req: ListOffsetsRequest, code: ErrorCode, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _Answer(partition_index=requested.partition_index, error_code=code)
                    for requested in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(ApiKey.LIST_OFFSETS, (0, 11), handle, access=for_each("topics", "topics", Op.DESCRIBE), on_error=_on_error)
