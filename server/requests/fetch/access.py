"""Who may fetch: consumers need Read on each topic, other brokers ClusterAction.

A session is opened for what may be read, all of it: where a request names a topic that is denied, or an id that no
topic has, it gets none, which is correct but chattier, and each of its requests is decided again. So within a session
nothing needs to be asked, until an ACL changes, somebody else uses it, or the request names a topic. Whose permission
ends loses the session, and is told of the denial when he begins again. Source: `KafkaApis.handleFetchRequest` (4.3).
"""

from __future__ import annotations

from collections.abc import Generator
from copy import copy

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.requests.access import CLUSTER, TOPIC, Admitted, Asked, Op, Outcome, Refused, for_each
from barnabas.server.requests.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH


def _denied(request: FetchRequest, code: ErrorCode = ErrorCode.TOPIC_AUTHORIZATION_FAILED) -> FetchResponse:
    """The answer with `code` at every partition."""
    return FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    FetchResponse.PartitionData(
                        partition_index=asked.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_topics = for_each("topics", "responses", Op.READ, name="topic", refusal=_denied)


def may_fetch(asked: Asked) -> Generator[int, None, Outcome]:
    """The declaration of Fetch."""
    request: FetchRequest = asked.request
    version = asked.version
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    is_incremental = version >= 7 and request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH)
    if replica_id >= 0:
        if asked.allows(Op.CLUSTER_ACTION, CLUSTER):
            return Admitted(request)
        return _begin_anew(asked) if is_incremental else Refused(_denied(request))
    if is_incremental:
        return (yield from _in_session(asked, request))
    outcome = yield from _topics(asked)
    if isinstance(outcome, Admitted) and outcome.amend is not None and version >= 7:
        kept = copy(outcome.request)
        kept.session_epoch = FINAL_EPOCH
        return outcome._replace(request=kept)
    return outcome


def _in_session(asked: Asked, request: FetchRequest) -> Generator[int, None, Outcome]:
    sessions = asked.services.fetch_sessions
    session = sessions.find(request.session_id)
    if session is None:
        return Admitted(request)  # the handler says so
    for topic in request.topics:
        if not _may_read(asked, topic.topic, topic.topic_id):
            return _begin_anew(asked)
        yield 1
    if session.allowed is not asked.permissions:
        session.allowed = None
        for topic_name, topic_id in {(target.topic, target.topic_id) for target in session.targets.values()}:
            if not _may_read(asked, topic_name or "", ZERO_UUID if topic_name else topic_id):
                return _begin_anew(asked)
            yield 1
        session.allowed = asked.permissions
    return Admitted(request)


def _may_read(asked: Asked, topic: str, topic_id: bytes) -> bool:
    name = asked.topic_name(topic, topic_id)
    return name is not None and asked.allows(Op.READ, TOPIC, name)


def _begin_anew(asked: Asked) -> Refused:
    """The session is over; the full request that follows is told which topics are denied."""
    asked.services.fetch_sessions.close(asked.request.session_id)
    return Refused(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
