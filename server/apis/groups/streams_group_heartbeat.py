"""StreamsGroupHeartbeat (key 88, version 0): members of streams groups join, stay and leave (KIP-1071).

Behaviour: the member's epoch says what it does (0 join, -1 leave, else stay); null means "unchanged". The answer has
the epoch, the tasks whenever they changed, and what stands in the way of them (statuses). The rules are in
`barnabas.coordinator.group.streams`. It waits for no other member, only until its own changes are committed. Internal
topics that are missing are made, if the client may: CREATE on the cluster or on all of them, and within its quota of
controller mutations; what comes of it is told with the status MISSING_INTERNAL_TOPICS, of at most three topics. While
the protocol is off (`group.coordinator.rebalance.protocols` without streams, or `streams.version` 0) the answer is
UNSUPPORTED_VERSION, though ApiVersions lists the API, as in Apache Kafka.

Not done, as in Apache Kafka 4.3: static members, regular expressions for source topics, task offsets, warm-up tasks and
new topologies are refused with INVALID_REQUEST. Beyond it: so are ids of members and processes, and hosts, of more than
255 characters, more than 1,000 client tags, and members that say that they have more than 100,000 tasks of a kind; a
topology that lists more than 50,000 things, or has more than 100,000 tasks, is refused with STREAMS_INVALID_TOPOLOGY.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, Final

import trio

from barnabas.coordinator import Callback
from barnabas.coordinator.group.streams import HeartbeatAnswer, Status, check_names, check_size, topology_of
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from barnabas.replication import is_internal, name_fault
from barnabas.replication.tree.features import STREAMS_VERSION
from barnabas.server.requests.access import CLUSTER, TOPIC, AccessCheck, Admitted, Op, Outcome, Refused, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.guard import current_permissions
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps
from barnabas.server.security.acls.model import CLUSTER_NAME

_SHOWN: Final = 3
"""Topics that a status names, as in Apache Kafka."""
_KEPT_BEATS: Final = 2
"""Heartbeats for which it is told what went wrong with a topic."""


def is_enabled(svc: Services) -> bool:
    """Whether streams groups are served: `streams.version` is finalised at 1, and the setting has them."""
    offered = svc.config.get_value("group.coordinator.rebalance.protocols")
    return isinstance(offered, tuple) and "streams" in offered and svc.features.level(STREAMS_VERSION) >= 1


def handle(svc: Services, ctx: RequestContext, req: StreamsGroupHeartbeatRequest) -> Any:
    if not is_enabled(svc):
        return StreamsGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        if req.topology is not None:
            _names(req.topology)
        token = Callback(partial(_answer, svc, ctx, req.group_id), ctx.release_waiters)
        svc.groups.streams.heartbeat(req, ctx.client_id, ctx.client_host, token)
    except KafkaError as error:
        return _refusal(error)
    return PENDING


def _names(topology: StreamsGroupHeartbeatRequest.Topology) -> list[str]:
    """All topics of a topology. Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
    check_size(topology)
    return check_names(topology_of(topology), is_internal, lambda name: name_fault(name) is None)


def _refusal(error: KafkaError) -> StreamsGroupHeartbeatResponse:
    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)


def _answer(svc: Services, ctx: RequestContext, group_id: str, answer: HeartbeatAnswer) -> None:
    if answer.wanted:
        _make_topics(svc, ctx, group_id, answer)
    ctx.reply(answer.response)


def _make_topics(svc: Services, ctx: RequestContext, group_id: str, answer: HeartbeatAnswer) -> None:
    """Have the missing internal topics made, and tell what stands in the way."""
    wanted, topics = answer.wanted, svc.groups.streams.topics
    denied = []
    if svc.authorizer is not None:
        permissions = current_permissions(ctx, svc.authorizer)
        if not permissions.allows(Op.CREATE, CLUSTER, CLUSTER_NAME):
            denied = [name for name in wanted if not permissions.allows(Op.CREATE, TOPIC, name)]
    if denied:
        _tell(answer.response, f"The client may not create {_some(denied)}.")
        return
    errors = topics.errors(wanted)
    if errors:
        _tell(answer.response, f"Not created: {_some([f'{name} ({code.name})' for name, code in errors.items()])}.")
    keep_s = _KEPT_BEATS * svc.groups.streams.heartbeat_interval_s(group_id)
    topics.want(wanted.values(), keep_s, partial(_charge, svc, ctx.connection.session.principal.name, ctx.client_id))


def _charge(svc: Services, user: str, client_id: str | None, count: int) -> None:
    """Count partitions of an internal topic as the client's. Raises KafkaError THROTTLING_QUOTA_EXCEEDED beyond its
    quota. The client is not made to wait, as a member that is silent for long loses its tasks.
    """
    if svc.quotas.mutations.take(user, client_id or "", count, trio.current_time(), strict=True):
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def _tell(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    """In the status about missing internal topics, which is made if there is none."""
    for status in response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f" {text}"
            return
    told = StreamsGroupHeartbeatResponse.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail=text)
    response.status = [*(response.status or ()), told]


def _some(texts: list[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(islice(texts, _SHOWN)) + (f" and {more} more" if more > 0 else "")


_may_read = needs(on_group(Op.READ))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """One topic that may not be described denies the whole request; topics that cannot be used come before."""
    if not is_enabled(check.services):
        return Admitted(check.request)
    outcome = yield from _may_read(check)
    if not isinstance(outcome, Admitted) or check.request.topology is None:
        return outcome
    try:
        names = _names(check.request.topology)
    except KafkaError as error:
        return Refused(_refusal(error))
    for name in names:
        if isinstance(outcome, Admitted) and not check.allows(Op.DESCRIBE, TOPIC, name):
            outcome = check.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield 1
    return outcome


API = Api(ApiKey.STREAMS_GROUP_HEARTBEAT, (0, 0), handle, access=_access)
