"""ShareAcknowledge (key 79, versions 1-2): a member of a share group says what it has made of records (KIP-932).

Behaviour: as ShareFetch does with acknowledgements, in the same session, whose next epoch it is. Answered when all of
it is stored. With a session's last epoch (−1) the rest of what the member has is given back then. Errors of the
request: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH (also for epoch 0, as only ShareFetch begins a session),
INVALID_REQUEST; of a partition: those of `barnabas.server.requests.share.acknowledging`. While `share.version` is 0 the
answer is UNSUPPORTED_VERSION.

Versions:

- 2: locks may be renewed; the answer says how long they last
"""

from __future__ import annotations

from functools import partial
from typing import Any

from barnabas.coordinator.share import ShareSession
from barnabas.coordinator.share.sessions import BEGIN, END
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.leader_hints import HINTED_IN_FETCH, LeaderHints
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.access import TopicRights, may_share
from barnabas.server.requests.share.acknowledging import Acknowledging, Place, Said, acknowledgements
from barnabas.server.requests.share.checks import check_member, is_enabled
from barnabas.server.requests.share.late_steps import run_late
from barnabas.server.runtime.turns import Steps


def handle(svc: Services, ctx: RequestContext, req: ShareAcknowledgeRequest) -> Steps[Any]:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    check_member(req)
    group_id, member_id = req.group_id, req.member_id
    assert group_id is not None
    assert member_id is not None
    if req.share_session_epoch == BEGIN:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    session = svc.share_partitions.sessions.resume(group_id, member_id, req.share_session_epoch)
    said: list[tuple[Place, Any]] = []
    for topic in req.topics:
        for each in topic.partitions:
            said.append(((topic.topic_id, each.partition_index), acknowledgements(each)))
            yield 1
    then = partial(_answer, svc, ctx, session, said, req.share_session_epoch == END)
    yield from Acknowledging(ctx, len(said), then).start(
        svc, group_id, member_id, said, TopicRights(svc, ctx), is_renew=req.is_renew_ack
    )
    return PENDING


def _answer(
    svc: Services, ctx: RequestContext, session: ShareSession, said: Said, is_last: bool, codes: list[ErrorCode]
) -> None:
    run_late(svc, ctx, _told(svc, ctx, session, said, codes))
    if is_last:
        svc.share_partitions.end_session(session)


def _told(svc: Services, ctx: RequestContext, session: ShareSession, said: Said, codes: list[ErrorCode]) -> Steps[Any]:
    """The answer."""
    hints = LeaderHints(svc, ctx.listener)
    topics: dict[bytes, list[Any]] = {}
    for ((topic_id, index), _), code in zip(said, codes, strict=True):
        data = ShareAcknowledgeResponse.PartitionData(partition_index=index, error_code=code)
        if code in HINTED_IN_FETCH:
            data.current_leader = ShareAcknowledgeResponse.LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
            hints.fill(data.current_leader, None, topic_id, index)
        topics.setdefault(topic_id, []).append(data)
        yield 1
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=svc.share_partitions.settings(session.group_id).record_lock_duration_ms,
        responses=[
            ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=hints.endpoints(ShareAcknowledgeResponse.NodeEndpoint),
    )


API = Api(ApiKey.SHARE_ACKNOWLEDGE, (1, 2), handle, access=may_share)
