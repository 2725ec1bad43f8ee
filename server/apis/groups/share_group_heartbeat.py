"""ShareGroupHeartbeat (key 76, version 1): members of share groups join, stay and leave (KIP-932).

Behaviour: the member's epoch says what it does (0 join, -1 leave, else stay); a null list of topics means "unchanged".
The answer has the epoch, and the assignment whenever it changed. The rules are in `barnabas.coordinator.group.share`.
It waits for no other member, only until its own changes are committed. While `share.version` is 0 the answer is
UNSUPPORTED_VERSION, though ApiVersions lists the API, as in Apache Kafka.
"""

from __future__ import annotations

from typing import Any

from barnabas.coordinator.group.share import check_member_id
from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas.server.requests.access import TOPIC, AccessCheck, Admitted, Op, Outcome, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled
from barnabas.server.runtime.turns import Steps


def handle(svc: Services, ctx: RequestContext, req: ShareGroupHeartbeatRequest) -> Any:
    if not is_enabled(svc):
        return ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        svc.groups.shares.heartbeat(req, ctx.client_id, ctx.client_host, ctx)
    except KafkaError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return PENDING


_may_read = needs(on_group(Op.READ))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """One topic that may not be described denies the whole request; a wrong member id comes before."""
    if not is_enabled(check.services):
        return Admitted(check.request)
    outcome = yield from _may_read(check)
    if not isinstance(outcome, Admitted):
        return outcome
    try:
        check_member_id(check.request)
    except KafkaError as error:
        return check.refuse(error.code)
    for name in check.request.subscribed_topic_names or ():
        if isinstance(outcome, Admitted) and not check.allows(Op.DESCRIBE, TOPIC, name):
            outcome = check.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield 1
    return outcome


API = Api(ApiKey.SHARE_GROUP_HEARTBEAT, (1, 1), handle, access=_access)
"""Version 0 was of early access in Apache Kafka 4.0, and is gone."""
