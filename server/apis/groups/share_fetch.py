"""ShareFetch (key 78, versions 1-2): a member of a share group acknowledges records, and gets others (KIP-932).

Behaviour: `barnabas.server.requests.share.fetching`, in a share session (`barnabas.coordinator.share.sessions`). Which
partitions are the member's is not checked, nor whether it is a member: whoever may read may acquire. With a session's
last epoch (−1) nothing is fetched, and what the member has is given back once its acknowledgements are stored. Errors
of the request: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH; SHARE_SESSION_LIMIT_REACHED, after the time that
the request would wait, also for a session that would have too many partitions, and ends; INVALID_REQUEST. Of a
partition: TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER with the
leader; COORDINATOR_NOT_AVAILABLE while its state cannot be read. While `share.version` is 0 the answer is
UNSUPPORTED_VERSION.

Versions:

- 2: locks may be renewed, and then nothing is fetched; whether the limit of records is hard
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from barnabas.coordinator.share import AcquireMode, ShareSession
from barnabas.coordinator.share.sessions import BEGIN, END
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ShareFetchRequest, ShareFetchResponse
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.access import TopicRights, may_share
from barnabas.server.requests.share.acknowledging import Acknowledging, Place, Said, acknowledgements, by_place
from barnabas.server.requests.share.checks import check_member, is_enabled
from barnabas.server.requests.share.fetching import ShareFetch
from barnabas.server.runtime.turns import Steps

_MODES = frozenset(AcquireMode)


def handle(svc: Services, ctx: RequestContext, req: ShareFetchRequest) -> Steps[Any]:
    if not is_enabled(svc):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    check_member(req)
    if req.is_renew_ack and (req.max_wait_ms or req.min_bytes or req.max_bytes or req.max_records):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A request that renews locks cannot fetch.")
    if req.share_acquire_mode not in _MODES:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no acquire mode {req.share_acquire_mode}.")
    wanted: dict[Place, None] = {}
    said: list[tuple[Place, Any]] = []
    for topic in req.topics:
        for each in topic.partitions:
            place = topic.topic_id, each.partition_index
            wanted[place] = None
            if each.acknowledgement_batches:
                said.append((place, acknowledgements(each)))
            yield 1
    deadline = svc.now() + max(req.max_wait_ms, 0) / 1000
    if req.share_session_epoch == BEGIN:
        yield from svc.share_partitions.before_session(req.group_id or "", req.member_id or "")
    sessions = svc.share_partitions.sessions
    try:
        session = _session(svc, ctx, req, bool(said))
        if req.share_session_epoch != END:
            _add(svc, session, wanted)
    except KafkaError as error:
        if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            raise
        # The client comes again at once.
        timer = svc.timers.at(deadline, partial(ctx.reply, ShareFetchResponse(error_code=error.code)))
        ctx.on_close(timer.cancel)
        return PENDING
    if req.share_session_epoch != END:
        gone = ((topic.topic_id, index) for topic in req.forgotten_topics_data for index in topic.partitions)
        sessions.forget(session, gone)
    rights = TopicRights(svc, ctx)
    then = partial(_fetch, svc, ctx, req, session, said, deadline, rights)
    yield from Acknowledging(ctx, len(said), then).start(
        svc, session.group_id, session.member_id, said, rights, is_renew=req.is_renew_ack
    )
    return PENDING


def _add(svc: Services, session: ShareSession, wanted: Collection[Place]) -> None:
    """The session grows, or ends. Raises KafkaError SHARE_SESSION_LIMIT_REACHED."""
    try:
        svc.share_partitions.sessions.add(session, wanted)
    except KafkaError:
        svc.share_partitions.end_session(session)
        raise


def _session(svc: Services, ctx: RequestContext, req: ShareFetchRequest, acknowledges: bool) -> ShareSession:
    sessions, group_id, member_id = svc.share_partitions.sessions, req.group_id, req.member_id
    assert group_id is not None
    assert member_id is not None
    if req.share_session_epoch != BEGIN:
        return sessions.resume(group_id, member_id, req.share_session_epoch)
    if acknowledges:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A request that begins a session cannot acknowledge.")
    return svc.share_partitions.begin_session(group_id, member_id, ctx.connection)


def _fetch(
    svc: Services,
    ctx: RequestContext,
    req: ShareFetchRequest,
    session: ShareSession,
    said: Said,
    deadline: float,
    rights: TopicRights,
    codes: list[ErrorCode],
) -> None:
    """The acknowledgements are answered: go on."""
    is_last = req.share_session_epoch == END
    if not ctx.closed:
        is_fetching = not is_last and not req.is_renew_ack and req.max_records > 0 and req.max_bytes > 0
        ShareFetch(svc, ctx, req, session, by_place(said, codes), rights, deadline, is_fetching=is_fetching).start()
    if is_last:
        svc.share_partitions.end_session(session)


API = Api(ApiKey.SHARE_FETCH, (1, 2), handle, access=may_share)
