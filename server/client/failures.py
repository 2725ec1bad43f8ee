"""What goes wrong for a client: exceptions for a whole request, `Failed` for one topic, partition, group or record.

The text of each is a sentence for the person who asked: it names what, and where something can be done, what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.kproto import ErrorCode, KafkaError


class ClientError(Exception):
    """The request failed."""


class Unreachable(ClientError):
    """No broker could be asked: no connection, no answer, or nothing that speaks Kafka's protocol. Nothing was done."""


class Rejected(Unreachable):
    """What answers does not take us: the log-in, a certificate, or it is no broker. Waiting does not help."""


class Unanswered(ClientError):
    """The request was sent and the connection lost: whether it was carried out is unknown."""


class Unsupported(ClientError):
    """The broker does not offer this request in a version that we speak."""


class Refused(ClientError):
    """The broker answered with an error code for the whole request."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


MEANING: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition, or it may not be seen",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader now",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition's leader has moved, and the brokers do not agree where to yet",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "access to the topic is denied",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "access to the group is denied",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "access to the cluster is denied",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "access to the transactional id is denied",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads this topic now",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates the group now",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is still reading its log",
    ErrorCode.NOT_CONTROLLER: "the brokers do not agree on their controller",
    ErrorCode.REQUEST_TIMED_OUT: "it took too long",
    ErrorCode.MESSAGE_TOO_LARGE: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is not in the log",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "this cannot be the name of a topic",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are not so many brokers",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not in sync, or its broker is down",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "who has not logged in, or with a token, cannot ask for tokens",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "delegation tokens are not enabled (delegation.token.secret.key)",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "access to tokens of this owner is denied",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "owners and renewers must be users",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
}
"""What a code means to a person, where its name alone does not say it."""


_SAY_NOTHING: Final = ("This server does not host this topic-partition.", "NONE")
"""Messages of brokers that are less clear than `MEANING`."""


@dataclass(frozen=True, slots=True)
class Failed:
    """One item's failure, as a value. message: the broker's own words or ours; None: the code says all."""

    code: ErrorCode
    message: str | None = None

    @classmethod
    def of(cls, number: int, message: str | None = None) -> Failed:
        """From what stands in an answer."""
        code = ErrorCode.of(number)
        message = None if message in _SAY_NOTHING else message and message.strip().removesuffix(".")
        if code == ErrorCode.UNKNOWN_SERVER_ERROR and number != code:
            return cls(code, f"error {number}, which is unknown here{f': {message}' if message else ''}")
        return cls(code, message or None)

    def __str__(self) -> str:
        said = self.message or MEANING.get(self.code)
        return f"{said} ({self.code.name})" if said else self.code.name

    def as_error(self) -> KafkaError:
        return KafkaError(self.code, str(self))
