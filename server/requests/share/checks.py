"""What ShareFetch and ShareAcknowledge check before anything else."""

from __future__ import annotations

from typing import Any, Final

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication.tree.features import SHARE_VERSION
from barnabas.server.requests.services import Services

_MEMBER_ID_MAX: Final = 36
"""Of a UUID as text."""


def is_enabled(svc: Services) -> bool:
    """Whether share groups are served: `share.version` is finalised at 1."""
    return svc.features.level(SHARE_VERSION) >= 1


def check_member(req: Any) -> None:
    """Raises KafkaError INVALID_REQUEST."""
    if req.group_id is None or not req.member_id or len(req.member_id) > _MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
