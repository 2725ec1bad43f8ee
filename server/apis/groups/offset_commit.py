"""OffsetCommit (key 8, versions 0-10): store how far a group has read.

Behaviour: a member commits with its generation, or its epoch in a KIP-848 group; any other client (generation -1) only
while the group has no members. Topics and partitions that do not exist get their own error, the others are stored as
one batch in `__consumer_offsets` (very many in portions: `barnabas.server.requests.portions`) and answered when that is
committed. A topic that is named twice is answered once, with all of its partitions. A request like the one before on
its connection is not decoded (`barnabas.server.requests.fast_paths.offset_commit`).

Versions:

- 1: adds the generation and a time of commit
- 2: replaces the time of commit by a retention time: such offsets expire at their own time
- 5: drops the retention time
- 6: adds the leader epoch
- 7: static members
- 8: flexible
- 9: for members of KIP-848 groups (UNSUPPORTED_VERSION below); an old epoch is STALE_MEMBER_EPOCH
- 10: names topics by id

In Apache Kafka version 0 stored offsets in ZooKeeper, for consumers that knew no coordinator. Here it is handled as the
others, as a commit from outside the group, and version 0 of OffsetFetch finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.coordinator import OffsetToCommit
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import OffsetCommitRequest, OffsetCommitResponse
from barnabas.server.requests.access import Op, both, for_each, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fast_paths.offset_commit import LEARNT_FROM, learn
from barnabas.server.requests.portions import AT_ONCE, Codes, Portion, in_portions
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

PARTITIONS_PER_STEP = 50
"""A request of no more topics and partitions has no steps to pay for."""

_Topic = OffsetCommitRequest.OffsetCommitRequestTopic
_Partition = OffsetCommitRequest.OffsetCommitRequestPartition


class _Commit:
    """A response in progress: it has the errors of single partitions; those in `open`, with the offsets to be stored in
    `offsets`, wait for the coordinator.
    """

    __slots__ = ("_by_id", "_ctx", "_image", "_topics", "offsets", "open", "response")

    def __init__(self, svc: Services, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._image = svc.image
        self._by_id = ctx.api_version >= 10
        self._topics: dict[str | bytes, OffsetCommitResponse.OffsetCommitResponseTopic] = {}
        self.response = OffsetCommitResponse()
        self.open: list[OffsetCommitResponse.OffsetCommitResponsePartition] = []
        self.offsets: list[OffsetToCommit] = []

    def take(self, topic: _Topic, partitions: Iterable[_Partition]) -> None:
        """Check some of a topic's partitions."""
        by_id = self._by_id
        key: str | bytes = topic.topic_id if by_id else topic.name
        known = self._image.topics_by_id.get(topic.topic_id) if by_id else self._image.topics.get(topic.name)
        answered = self._topics.get(key)
        if answered is None:
            answered = OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            self._topics[key] = answered
            self.response.topics.append(answered)
        for partition in partitions:
            answer = OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=partition.partition_index)
            answered.partitions.append(answer)
            if known is None:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not 0 <= partition.partition_index < len(known.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                self.open.append(answer)
                self.offsets.append(
                    OffsetToCommit(
                        known.name,
                        partition.partition_index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        partition.committed_metadata,
                        partition.commit_timestamp,
                    )
                )

    def reply(self, codes: list[ErrorCode]) -> None:
        for partition, code in zip(self.open, codes, strict=True):
            partition.error_code = code
        self._ctx.reply(self.response)

    def release_waiters(self) -> str:
        """Part of `HasWaiters`."""
        return self._ctx.release_waiters()


def handle(svc: Services, ctx: RequestContext, req: OffsetCommitRequest) -> Any:
    commit = _Commit(svc, ctx)
    count = len(req.topics)
    for topic in req.topics:
        count += len(topic.partitions)
    if count > PARTITIONS_PER_STEP:
        return _in_steps(svc, ctx, req, commit)
    for topic in req.topics:
        commit.take(topic, topic.partitions)
    return _store(svc, ctx, req, commit)


def _in_steps(svc: Services, ctx: RequestContext, req: OffsetCommitRequest, commit: _Commit) -> Steps[Any]:
    for topic in req.topics:
        for first in range(0, len(topic.partitions) or 1, PARTITIONS_PER_STEP):
            partitions = topic.partitions[first : first + PARTITIONS_PER_STEP]
            commit.take(topic, partitions)
            yield 1 + len(partitions)
    return _store(svc, ctx, req, commit)


def _store(svc: Services, ctx: RequestContext, req: OffsetCommitRequest, commit: _Commit) -> Any:
    """Store the offsets, once all topics are checked."""
    offsets = commit.offsets
    if not offsets:
        return commit.response
    if len(offsets) > AT_ONCE:
        return _in_portions(svc, ctx, req, offsets, commit)
    _commit(svc, ctx, req, offsets, commit)
    return PENDING


async def _in_portions(
    svc: Services, ctx: RequestContext, req: OffsetCommitRequest, offsets: list[OffsetToCommit], commit: _Commit
) -> object:
    codes = Codes(len(offsets), commit.reply, commit)
    await in_portions(
        svc,
        len(offsets),
        lambda first, end: _commit(svc, ctx, req, offsets[first:end], codes.portion(first, end)),
    )
    return PENDING


def _commit(
    svc: Services,
    ctx: RequestContext,
    req: OffsetCommitRequest,
    offsets: list[OffsetToCommit],
    token: _Commit | Portion,
) -> None:
    try:
        svc.groups.commit(
            req.group_id,
            req.generation_id_or_member_epoch,
            req.member_id,
            req.group_instance_id,
            req.retention_time_ms,
            offsets,
            token,
            version=ctx.api_version,
        )
    except KafkaError as error:
        if ctx.api_version == 0:
            # Such clients never ask for a coordinator, which is what creates the topic.
            svc.groups.want_topic()
        token.reply([error.code] * len(offsets))


def _on_error(req: OffsetCommitRequest, code: ErrorCode, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in req.topics
        ]
    )


API = Api(
    ApiKey.OFFSET_COMMIT,
    (0, 10),
    handle,
    access=both(needs(on_group(Op.READ)), for_each("topics", "topics", Op.READ)),
    on_error=_on_error,
    learn=learn,
    learn_from=LEARNT_FROM,
)
