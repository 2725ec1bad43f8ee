"""ConsumerGroupHeartbeat (key 68, versions 0-1): members of KIP-848 groups join, stay and leave.

Behaviour: the member's epoch says what it does (0 join, -1 leave, -2 leave for a while as a static member, else stay);
null fields are unchanged. The answer has the epoch, and the assignment whenever it changed. The rules are in
`barnabas.coordinator.group`. It waits for no other member, only until its own changes are committed.

While the protocol is off (`group.coordinator.rebalance.protocols` without consumer, or group.version 0) the answer is
UNSUPPORTED_VERSION, though ApiVersions lists the API, as in Apache Kafka.

Versions:

- 0: gets its member id from the broker
- 1: brings its own, and may subscribe by a regular expression (RE2)
"""

from __future__ import annotations

from typing import Any

from barnabas.kproto import ApiKey, ErrorCode, KafkaError
from barnabas.kproto.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from barnabas.server.requests.access import TOPIC, AccessCheck, Admitted, Op, Outcome, needs, on_group
from barnabas.server.requests.api import PENDING, Api
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.guard import describable
from barnabas.server.requests.services import Services
from barnabas.server.runtime.turns import Steps


def is_enabled(svc: Services) -> bool:
    """Whether groups of the new protocol are served."""
    offered = svc.config.get_value("group.coordinator.rebalance.protocols")
    return isinstance(offered, tuple) and "consumer" in offered and svc.features.level("group.version") >= 1


def handle(svc: Services, ctx: RequestContext, req: ConsumerGroupHeartbeatRequest) -> Any:
    if not is_enabled(svc):
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        svc.groups.consumer_heartbeat(req, ctx.api_version, ctx.client_id, ctx.client_host, ctx, describable(svc, ctx))
    except KafkaError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    return PENDING


_may_read = needs(on_group(Op.READ))


def _access(check: AccessCheck) -> Steps[Outcome]:
    """One topic that may not be described denies the whole request. Topics that an expression matches are checked when
    it is matched.
    """
    if not is_enabled(check.services):
        return Admitted(check.request)
    outcome = yield from _may_read(check)
    for name in check.request.subscribed_topic_names or ():
        if isinstance(outcome, Admitted) and not check.allows(Op.DESCRIBE, TOPIC, name):
            outcome = check.refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        yield 1
    return outcome


API = Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, (0, 1), handle, access=_access)
