"""What a page gives back: a view, a thing done, a download, a stream; or a refusal, which is raised."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from barnabas.kproto import ErrorCode
from barnabas.server.client.failures import ClientError, Failed, Refused, Unanswered


@dataclass(frozen=True, slots=True)
class View:
    """A template over data that JSON has words for. template: its name without `.html`."""

    template: str
    title: str
    data: Mapping[str, Any]
    status: int = 200


@dataclass(frozen=True, slots=True)
class Done:
    """A change was made. `what`: for the audit, in the past tense. `said`: a key of `SAID`, told on the page at
    `location`, to which the visitor is sent. view: shown at once instead of that, for what is shown only once.
    """

    what: str
    said: str
    location: str
    data: Mapping[str, Any] = field(default_factory=dict)
    view: View | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that no template made. name: of the file that it is saved as; None: it is not a file."""

    content_type: str
    pieces: AsyncGenerator[bytes]
    name: str | None = None


Answer: TypeAlias = View | Done | Sent

SAID: Mapping[str, str] = {
    "created": "The topic was created.",
    "deleted": "The topic was deleted.",
    "grown": "The partitions were added.",
    "emptied": "The records were deleted.",
    "set": "The setting was changed.",
    "unset": "The setting is back to its default.",
    "produced": "The record was written.",
    "schema-given": "The schema counts now.",
    "schema-forgotten": "The schema counts no longer.",
    "reset": "The offsets were set.",
    "forgotten": "The offsets were deleted.",
    "group-deleted": "The group was deleted.",
    "aborted": "The transaction was aborted in this partition.",
    "moving": "The move has begun.",
    "called-off": "The move was called off.",
    "throttled": "What is on its way is throttled.",
    "throttle-cleared": "The throttle was cleared.",
    "elected": "The preferred replicas lead.",
    "acl-created": "The ACL was created.",
    "acl-deleted": "The ACL was deleted.",
    "quota-set": "The limit was set.",
    "quota-deleted": "What was chosen has no limit of its own any more.",
    "token-made": "The token was made.",
    "token-renewed": "The token was renewed.",
    "token-ended": "The token was ended.",
    "user-put": "The user has this password now.",
    "user-deleted": "What was chosen was deleted.",
}
"""What is told after a change. A fixed table: a link cannot put words into the console's mouth."""


class Refusal(Exception):
    """The visit ends with an error page. status: of HTTP. text: a sentence."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


_STATUS: Mapping[ErrorCode, int] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.SASL_AUTHENTICATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: 403,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 403,
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: 403,
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: 404,
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: 409,
    ErrorCode.DELEGATION_TOKEN_EXPIRED: 409,
    ErrorCode.INVALID_PRINCIPAL_TYPE: 422,
    ErrorCode.SECURITY_DISABLED: 409,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: 409,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: 409,
    ErrorCode.UNKNOWN_MEMBER_ID: 409,
    ErrorCode.INVALID_CONFIG: 422,
    ErrorCode.INVALID_REQUEST: 422,
    ErrorCode.INVALID_PARTITIONS: 422,
    ErrorCode.INVALID_REPLICATION_FACTOR: 422,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: 422,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
    ErrorCode.POLICY_VIOLATION: 422,
    ErrorCode.INVALID_RECORD: 422,
    ErrorCode.MESSAGE_TOO_LARGE: 422,
    ErrorCode.OFFSET_OUT_OF_RANGE: 422,
}


def status_of(code: ErrorCode) -> int:
    """Of HTTP: 502 for what is the cluster's trouble."""
    return _STATUS.get(code, 502)


def refused(what: str, failed: Failed) -> Refusal:
    """A failure of one item, as the end of a visit."""
    return Refusal(status_of(failed.code), f"{what}: {failed}")


def of_client(error: ClientError) -> Refusal:
    """A request that failed as a whole."""
    if isinstance(error, Refused):
        return Refusal(status_of(error.code), str(error))
    return Refusal(504 if isinstance(error, Unanswered) else 502, str(error))
