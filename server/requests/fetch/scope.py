"""What a Fetch request is about: its targets, and the session that it uses, opens or closes (KIP-227)."""

from __future__ import annotations

from barnabas.kproto.messages import FetchRequest
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.fetch.sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, FetchTarget, TargetKey
from barnabas.server.requests.fetch.targets import PART, REPLICA_STATE_FROM, apply_changes, forget, parts_of, targets_of
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps

BY_ID_FROM = 13
SESSIONS_FROM = 7
FULL_EPOCHS = (FINAL_EPOCH, INITIAL_EPOCH)
"""Of a request that names all that it wants."""


Scope = tuple[dict[TargetKey, FetchTarget], FetchSession | None, bool]
"""The targets, of the request or of its session; the session; whether the fetch is incremental: unchanged partitions
are left out.
"""


def scope_of(svc: Services, ctx: RequestContext, req: FetchRequest) -> Scope:
    """Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""
    by_id = ctx.api_version >= BY_ID_FROM
    if ctx.api_version < SESSIONS_FROM or req.session_epoch in FULL_EPOCHS:
        return _opened(svc, ctx, req, dict(targets_of(req.topics, by_id)))
    session = svc.fetch_sessions.use(req.session_id, req.session_epoch, by_id, svc.now())
    session.advance()
    if req.topics:
        apply_changes(session, req.topics, by_id)
    return _continued(svc, req, session, by_id)


async def scope_in_turns(svc: Services, ctx: RequestContext, req: FetchRequest) -> Scope:
    """As `scope_of`, for a request of very many partitions, which are processed in turns."""
    by_id = ctx.api_version >= BY_ID_FROM
    if ctx.api_version < SESSIONS_FROM or req.session_epoch in FULL_EPOCHS:
        return _opened(svc, ctx, req, await svc.turns.run(_targets_in_parts(req, by_id)))
    session = svc.fetch_sessions.use(req.session_id, req.session_epoch, by_id, svc.now())
    session.advance()  # so that no other request uses it meanwhile
    await svc.turns.run(_apply_in_parts(session, req, by_id))
    return _continued(svc, req, session, by_id)


def _targets_in_parts(req: FetchRequest, by_id: bool) -> Steps[dict[TargetKey, FetchTarget]]:
    targets: dict[TargetKey, FetchTarget] = {}
    for part in parts_of(req.topics):
        targets.update(targets_of(part, by_id))
        yield PART
    return targets


def _apply_in_parts(session: FetchSession, req: FetchRequest, by_id: bool) -> Steps[None]:
    for part in parts_of(req.topics):
        apply_changes(session, part, by_id)
        yield PART


def _opened(svc: Services, ctx: RequestContext, req: FetchRequest, targets: dict[TargetKey, FetchTarget]) -> Scope:
    """A full request closes its session, and opens a new one if its epoch says so."""
    sessions = svc.fetch_sessions
    version = ctx.api_version
    if req.session_id:
        sessions.close(req.session_id)
    session = None
    if version >= SESSIONS_FROM and req.session_epoch == INITIAL_EPOCH:
        replica_id = req.replica_state.replica_id if version >= REPLICA_STATE_FROM else req.replica_id
        session = sessions.open(targets, version >= BY_ID_FROM, replica_id >= 0, svc.now(), ctx.connection)
    return targets, session, False


def _continued(svc: Services, req: FetchRequest, session: FetchSession, by_id: bool) -> Scope:
    """The session's targets, as changed by the request. Raises KafkaError FETCH_SESSION_ID_NOT_FOUND."""
    if req.forgotten_topics_data:
        forget(session, req, by_id)
    if len(session.targets) != session.noted_size:
        svc.fetch_sessions.resized(session)
    if not session.targets:
        svc.fetch_sessions.close(session.session_id)
        return {}, None, True
    return session.targets, session, True
