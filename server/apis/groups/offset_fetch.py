"""OffsetFetch (key 9, versions 0-10): how far groups have read.

Behaviour: answers from memory, in any state of the group; an offset that is not committed to the log yet is left out.
Offset -1 without an error: nothing stored. An unknown group or topic is no error. A group that is requested twice in
the same way is answered once.

Versions:

- 2: allows null topics, all of the group's, and has an error for the whole request (before, each partition carries it)
- 5: adds the leader epoch
- 6: flexible
- 7: can ask for stable offsets, UNSTABLE_OFFSET_COMMIT while a transaction is open (KIP-447)
- 8: asks for several groups
- 9: a member may send its id and epoch, which are checked in a KIP-848 group (STALE_MEMBER_EPOCH)
- 10: names topics by id: an unknown one gets UNKNOWN_TOPIC_ID, and with null topics those without an id any more are
  left out

In Apache Kafka version 0 read ZooKeeper, and reported a missing offset as UNKNOWN_TOPIC_OR_PARTITION. Here it reads the
same store as the others and keeps that error.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from barnabas.coordinator import FetchedOffset
from barnabas.kproto import ZERO_UUID, ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import OffsetFetchRequest, OffsetFetchResponse
from barnabas.replication import Image
from barnabas.server.requests.access import (
    GROUP,
    TOPIC,
    AccessCheck,
    Admitted,
    Key,
    Op,
    Outcome,
    Refused,
    for_each,
    hidden,
    needs,
    on_group,
    split,
)
from barnabas.server.requests.api import Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

_Topic = OffsetFetchResponse.OffsetFetchResponseTopic
_Partition = OffsetFetchResponse.OffsetFetchResponsePartition
_Group = OffsetFetchResponse.OffsetFetchResponseGroup
_GroupTopic = OffsetFetchResponse.OffsetFetchResponseTopics
_GroupPartition = OffsetFetchResponse.OffsetFetchResponsePartitions


_AT_ONCE = 500
"""Offsets to look up in one call."""


def handle(svc: Services, ctx: RequestContext, req: OffsetFetchRequest) -> Steps[OffsetFetchResponse]:
    version = ctx.api_version
    if version >= 8:
        image = svc.image
        response = OffsetFetchResponse()
        of_all: set[tuple[str, str | None, int]] = set()
        for group in req.groups:
            who = group.group_id, group.member_id, group.member_epoch
            if group.topics is not None or who not in of_all:
                response.groups.append((yield from _group(svc, image, group, req.require_stable, version >= 10)))
            if group.topics is None:
                of_all.add(who)
            yield 1
        return response
    partitions = yield from _requested(req.topics)
    try:
        fetched = yield from _fetched(svc, req.group_id, partitions, req.require_stable)
    except KafkaError as error:
        if version == 0:
            svc.groups.want_topic()
        return _on_error(req, error.code, version)
    topics: dict[str, OffsetFetchResponse.OffsetFetchResponseTopic] = {}
    for each in fetched:
        yield 1
        answer = _Partition(
            partition_index=each.partition,
            committed_offset=each.offset,
            committed_leader_epoch=each.leader_epoch,
            metadata=each.metadata,
            error_code=each.error,
        )
        if version == 0 and each.offset == -1:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topics.setdefault(each.topic, _Topic(name=each.topic)).partitions.append(answer)
    return OffsetFetchResponse(topics=list(topics.values()))


def _group(
    svc: Services, image: Image, group: OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, by_id: bool
) -> Steps[OffsetFetchResponse.OffsetFetchResponseGroup]:
    """The response for one group of a request of version 8 or later."""
    unknown: list[OffsetFetchResponse.OffsetFetchResponseTopics] = []
    wanted: list[tuple[str, int]] | None = None
    if not by_id:
        wanted = yield from _requested(group.topics)
    elif group.topics is not None:
        wanted = []
        for topic in group.topics:
            known = image.topics_by_id.get(topic.topic_id)
            if known is None:
                unknown.append(_unknown_id(topic.topic_id, topic.partition_indexes))
            else:
                wanted += [(known.name, index) for index in topic.partition_indexes]
            yield 1 + len(topic.partition_indexes)
    try:
        code = svc.groups.check_fetch(group.group_id, group.member_id, group.member_epoch)
        if code != ErrorCode.NONE:
            return _Group(group_id=group.group_id, error_code=code)
        fetched = yield from _fetched(svc, group.group_id, wanted, require_stable)
    except KafkaError as error:
        return _Group(group_id=group.group_id, error_code=error.code)
    topics: dict[str, OffsetFetchResponse.OffsetFetchResponseTopics] = {}
    for each in fetched:
        answer = topics.get(each.topic)
        if answer is None:
            topic_id = ZERO_UUID
            if by_id:
                known = image.topics.get(each.topic)
                if known is None:
                    continue
                topic_id = known.topic_id
            answer = topics[each.topic] = _GroupTopic(name=each.topic, topic_id=topic_id)
        answer.partitions.append(_group_partition(each))
        yield 1
    return _Group(group_id=group.group_id, topics=[*topics.values(), *unknown])


def _group_partition(each: FetchedOffset) -> OffsetFetchResponse.OffsetFetchResponsePartitions:
    return _GroupPartition(
        partition_index=each.partition,
        committed_offset=each.offset,
        committed_leader_epoch=each.leader_epoch,
        metadata=each.metadata,
        error_code=each.error,
    )


def _unknown_id(topic_id: bytes, indexes: Sequence[int]) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return _GroupTopic(
        topic_id=topic_id,
        partitions=[
            _GroupPartition(
                partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in indexes
        ],
    )


def _requested(topics: Sequence[Any] | None) -> Steps[list[tuple[str, int]] | None]:
    """What is asked for, None for all."""
    if topics is None:
        return None
    wanted = []
    for topic in topics:
        wanted += [(topic.name, index) for index in topic.partition_indexes]
        yield 1 + len(topic.partition_indexes) // 8
    return wanted


def _fetched(
    svc: Services, group_id: str, wanted: list[tuple[str, int]] | None, require_stable: bool
) -> Steps[list[FetchedOffset]]:
    """Raises KafkaError."""
    of_all = wanted is None
    if wanted is None:
        wanted = svc.groups.with_offsets(group_id)
    if len(wanted) <= _AT_ONCE:
        return svc.groups.fetch(group_id, wanted, require_stable, only_found=of_all)
    fetched: list[FetchedOffset] = []
    for first in range(0, len(wanted), _AT_ONCE):
        fetched += svc.groups.fetch(group_id, wanted[first : first + _AT_ONCE], require_stable, only_found=of_all)
        yield _AT_ONCE
    return fetched


def _on_error(req: OffsetFetchRequest, code: ErrorCode, version: int) -> OffsetFetchResponse:
    if version >= 8:
        return OffsetFetchResponse(groups=[_Group(group_id=group.group_id, error_code=code) for group in req.groups])
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in req.topics or ()
        ]
    )


def _denied_topic(topic: Any, code: ErrorCode) -> OffsetFetchResponse.OffsetFetchResponseTopics:
    return _GroupTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _GroupPartition(
                partition_index=index,
                committed_offset=-1,
                metadata="",
                error_code=code,
            )
            for index in topic.partition_indexes
        ],
    )


_one_group = needs(on_group(Op.DESCRIBE))
_named_topics = for_each(
    "topics",
    "topics",
    Op.DESCRIBE,
    refusal=lambda req, code: OffsetFetchResponse(
        topics=[
            _Topic(
                name=topic.name,
                partitions=[
                    _Partition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in req.topics
        ]
    ),
)
_seen_topics = hidden("topics", Op.DESCRIBE, TOPIC, name="name")


def _access(check: AccessCheck) -> Steps[Outcome]:
    """Topics named in the request are denied; a request for all topics leaves out those that may not be described."""
    if check.version >= 8:
        return (yield from _groups(check))
    outcome = yield from _one_group(check)
    if isinstance(outcome, Refused):
        return outcome
    return (yield from (_seen_topics if check.request.topics is None else _named_topics)(check))


def _groups(check: AccessCheck) -> Steps[Outcome]:
    req: OffsetFetchRequest = check.request
    kept = []
    refused: list[OffsetFetchResponse.OffsetFetchResponseGroup] = []
    topics: dict[str, list[OffsetFetchResponse.OffsetFetchResponseTopics]] = {}
    for group in req.groups:
        yield 1
        if not check.allows(Op.DESCRIBE, GROUP, group.group_id):
            refused.append(_Group(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        if group.topics is not None:
            denied: dict[Key, ErrorCode] = {}
            keys: list[Key] = [(topic.name, topic.topic_id) for topic in group.topics]
            for key in keys:
                name = check.topic_name(*key)
                yield 1
                if name is None:
                    denied[key] = ErrorCode.UNKNOWN_TOPIC_ID
                elif not check.allows(Op.DESCRIBE, TOPIC, name):
                    denied[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if denied:
                group, without = split(group, "topics", keys, denied)
                topics.setdefault(group.group_id, []).extend(
                    _denied_topic(topic, denied[topic.name, topic.topic_id]) for topic in without.topics
                )
        kept.append(group)
    admitted = copy(req)
    admitted.groups = kept
    of_all = {group.group_id for group in kept if group.topics is None}
    order = {group.group_id: number for number, group in reversed(list(enumerate(req.groups)))}

    def amend(response: OffsetFetchResponse) -> Steps[None]:
        for group in response.groups:
            if group.group_id in of_all:
                group.topics = [
                    topic for topic in group.topics if check.would_allow(Op.DESCRIBE, TOPIC, _name_of(check, topic))
                ]
            if not group.error_code:
                group.topics += topics.pop(group.group_id, ())
            yield 1 + len(group.topics)
        response.groups = sorted([*response.groups, *refused], key=lambda group: order[group.group_id])

    return Admitted(admitted, amend)


def _name_of(check: AccessCheck, topic: OffsetFetchResponse.OffsetFetchResponseTopics) -> str:
    return topic.name or check.topic_name(None, topic.topic_id) or ""


API = Api(ApiKey.OFFSET_FETCH, (0, 10), handle, access=_access, on_error=_on_error)
