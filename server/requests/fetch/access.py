"""Who may fetch: consumers need Read on each topic, other brokers ClusterAction.

A session is opened only if all of its topics may be read: a request with a denied topic or an unknown id gets none,
which is correct but chattier, and each of its requests is checked again. So within a session nothing needs to be
checked until an ACL changes, another principal uses it, or the request names a topic. A client that loses a permission
loses the session, and gets the denial with its next full request. Source: `KafkaApis.handleFetchRequest` (4.3).
"""

from __future__ import annotations

from collections.abc import Generator
from copy import copy

from barnabas.kproto import ZERO_UUID, ErrorCode
from barnabas.kproto.messages import FetchRequest, FetchResponse
from barnabas.server.requests.access import CLUSTER, TOPIC, AccessCheck, Admitted, Op, Outcome, Refused, for_each
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
                        partition_index=requested.partition, error_code=code, high_watermark=-1, records=b""
                    )
                    for requested in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_topics = for_each("topics", "responses", Op.READ, name="topic", refusal=_denied)


def may_fetch(check: AccessCheck) -> Generator[int, None, Outcome]:
    """The declaration of Fetch."""
    request: FetchRequest = check.request
    version = check.version
    replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
    is_incremental = version >= 7 and request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH)
    if replica_id >= 0:
        if check.allows(Op.CLUSTER_ACTION, CLUSTER):
            return Admitted(request)
        return _restart_session(check) if is_incremental else Refused(_denied(request))
    if is_incremental:
        return (yield from _in_session(check, request))
    outcome = yield from _topics(check)
    if isinstance(outcome, Admitted) and outcome.amend is not None and version >= 7:
        kept = copy(outcome.request)
        kept.session_epoch = FINAL_EPOCH
        return outcome._replace(request=kept)
    return outcome


def _in_session(check: AccessCheck, request: FetchRequest) -> Generator[int, None, Outcome]:
    sessions = check.services.fetch_sessions
    session = sessions.find(request.session_id)
    if session is None:
        return Admitted(request)  # the handler answers the error
    for topic in request.topics:
        if not _may_read(check, topic.topic, topic.topic_id):
            return _restart_session(check)
        yield 1
    if session.allowed is not check.permissions:
        session.allowed = None
        for topic_name, topic_id in {(target.topic, target.topic_id) for target in session.targets.values()}:
            if not _may_read(check, topic_name or "", ZERO_UUID if topic_name else topic_id):
                return _restart_session(check)
            yield 1
        session.allowed = check.permissions
    return Admitted(request)


def _may_read(check: AccessCheck, topic: str, topic_id: bytes) -> bool:
    name = check.topic_name(topic, topic_id)
    return name is not None and check.allows(Op.READ, TOPIC, name)


def _restart_session(check: AccessCheck) -> Refused:
    """Close the session; the full request that follows gets an error for each denied topic."""
    check.services.fetch_sessions.close(check.request.session_id)
    return Refused(FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
