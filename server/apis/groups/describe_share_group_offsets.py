"""DescribeShareGroupOffsets (key 90, versions 0-1): where share groups stand, for administrators (KIP-932).

Behaviour: of each partition the offset from which on not all is settled, as the share coordinators have it: −1 before
anything was. A null list of topics means all that the group may read and that exist, without those that the caller may
not describe; named ones get TOPIC_AUTHORIZATION_FAILED. Of an unknown group, topic or partition the start is −1,
without an error. Errors of a group: INVALID_GROUP_ID, NOT_COORDINATOR, UNSUPPORTED_VERSION while `share.version` is 0;
of a partition what the share coordinator answers. Each group is answered once.

Versions:

- 1: the lag, records that are not settled: −1 where it is not known. Other brokers are asked where partitions end that
  they lead; of those that do not say it within `ENDS_S` it is not known
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from barnabas.coordinator.share import ShareKey, Summary
from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse
from barnabas.server.requests.access import GROUP, AccessCheck, Admitted, Op, Outcome, for_each
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.guard import describable
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled
from barnabas.server.runtime.turns import Steps

_Group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
_Topic = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic
_Partition = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition
_NOT_KNOWN = -1
_WITH_LAG = 1


async def handle(
    svc: Services, ctx: RequestContext, req: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    may_see = describable(svc, ctx)
    response = DescribeShareGroupOffsetsResponse()
    for wanted in {group.group_id: group for group in req.groups}.values():
        if ctx.closed:
            break
        try:
            response.groups.append(await _described(svc, ctx.api_version, wanted, may_see))
        except KafkaError as error:
            response.groups.append(
                _Group(group_id=wanted.group_id, error_code=error.code, error_message=error.message or None)
            )
    return response


async def _described(svc: Services, version: int, wanted: Any, may_see: Callable[[str], bool] | None) -> Any:
    """One group. Raises KafkaError."""
    image = svc.image
    initialized = svc.groups.shares.initialized_partitions(wanted.group_id)
    answer, asked = await svc.turns.run(_begun(image, wanted, initialized, may_see))
    told = await svc.share_partitions.summaries(asked)
    settled: dict[tuple[str, int], tuple[Any, int]] = {}
    for key, partition in asked.items():
        _fill(partition, told[key])
        known, complete = image.topic_by_id(key.topic_id), told[key].delivery_complete_count
        if known is not None and _NOT_KNOWN not in (partition.start_offset, complete):
            settled[known.name, key.partition] = partition, partition.start_offset + complete
    if version >= _WITH_LAG:
        for place, end in (await svc.share_partitions.high_watermarks(settled)).items():
            partition, until = settled[place]
            partition.lag = max(end - until, 0)
    return answer


def _begun(
    image: Any, wanted: Any, initialized: Mapping[bytes, Any] | None, may_see: Callable[[str], bool] | None
) -> Steps[tuple[Any, dict[ShareKey, Any]]]:
    """The answer about one group, and its partitions that share coordinators are to be asked for."""
    answer = _Group(group_id=wanted.group_id)
    asked: dict[ShareKey, Any] = {}
    for name, topic_id, indexes in _topics(image, wanted, initialized, may_see):
        denied = may_see is not None and not may_see(name)
        topic = _Topic(topic_name=name, topic_id=ZERO_UUID if denied else topic_id)
        answer.topics.append(topic)
        yield 1
        for index in indexes:
            partition = _Partition(partition_index=index, start_offset=_NOT_KNOWN, leader_epoch=0)
            topic.partitions.append(partition)
            if denied:
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif initialized is not None and index in initialized.get(topic_id, ()):
                asked[ShareKey(wanted.group_id, topic_id, index)] = partition
            yield 1
    return answer, asked


def _topics(
    image: Any, wanted: Any, initialized: Mapping[bytes, Any] | None, may_see: Callable[[str], bool] | None
) -> list[tuple[str, bytes, list[int]]]:
    """Name, id and partitions of the topics in an answer."""
    if wanted.topics is not None:
        topics = []
        for each in wanted.topics:
            known = image.topics.get(each.topic_name)
            topic_id = ZERO_UUID if known is None else known.topic_id
            topics.append((each.topic_name, topic_id, list(dict.fromkeys(each.partitions))))
        return topics
    found = []
    for topic_id, indexes in (initialized or {}).items():
        known = image.topic_by_id(topic_id)
        if known is not None and (may_see is None or may_see(known.name)):
            found.append((known.name, topic_id, sorted(indexes)))
    return sorted(found)


def _fill(partition: Any, told: Summary) -> None:
    partition.error_code, partition.error_message = told.code, told.message
    if told.code == ErrorCode.NONE:
        partition.start_offset, partition.leader_epoch = told.start_offset, told.leader_epoch


def _on_error(
    req: DescribeShareGroupOffsetsRequest, code: ErrorCode, version: int
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[_Group(group_id=group.group_id, error_code=code) for group in req.groups]
    )


_each = for_each("groups", "groups", Op.DESCRIBE, GROUP, name="group_id")


def _access(check: AccessCheck) -> Steps[Outcome]:
    if not is_enabled(check.services):
        return Admitted(check.request)
    return (yield from _each(check))


API = Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), handle, access=_access, on_error=_on_error)
