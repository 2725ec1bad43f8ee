"""Who may fetch in a share group, and acknowledge: Read on the group, and on each topic. Topics are looked at with each
request, as a session names them once. Source: `KafkaApis.handleShareFetchRequest` (4.3).
"""

from __future__ import annotations

from collections.abc import Generator

from barnabas.kproto import ErrorCode
from barnabas.server.requests.access import AccessCheck, Admitted, Op, Outcome, needs, on_group
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.guard import readable
from barnabas.server.requests.services import Services
from barnabas.server.requests.share.checks import is_enabled

_may_read_in_group = needs(on_group(Op.READ))


def may_share(check: AccessCheck) -> Generator[int, None, Outcome]:
    """The declaration of ShareFetch and ShareAcknowledge. Topics are the handler's to refuse (`TopicRights`)."""
    if not is_enabled(check.services):
        return Admitted(check.request)
    return (yield from _may_read_in_group(check))


class TopicRights:
    """What a client may read, by topic id."""

    __slots__ = ("_image", "_is_allowed", "_known")

    def __init__(self, svc: Services, ctx: RequestContext) -> None:
        self._image = svc.image
        self._is_allowed = readable(svc, ctx)
        self._known: dict[bytes, ErrorCode] = {}

    def refusal(self, topic_id: bytes) -> ErrorCode:
        """UNKNOWN_TOPIC_ID, TOPIC_AUTHORIZATION_FAILED, or NONE."""
        code = self._known.get(topic_id)
        if code is None:
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
            elif self._is_allowed is not None and not self._is_allowed(topic.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            else:
                code = ErrorCode.NONE
            self._known[topic_id] = code
        return code
