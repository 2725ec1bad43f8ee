"""What the four APIs of delegation tokens share: which sessions may use them, and that there are tokens.

A session that was authenticated by a token gets no further token, nor does an anonymous one, and no secret is sent over
PLAINTEXT. Over SASL_PLAINTEXT it is, as Apache Kafka allows that. Source: `KafkaApis.scala` (allowTokenRequests, 4.3).
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.cluster.tokens import StoredTokens
from barnabas.server.requests.services import Services
from barnabas.server.security.principals import ANONYMOUS
from barnabas.server.security.session import Session

NO_TIME: Final = -1
"""In place of a time, in an error."""


def may_ask(session: Session) -> bool:
    """Whether the session may use the APIs of tokens."""
    if session.token_authenticated or session.protocol == "PLAINTEXT":
        return False
    return session.protocol != "SSL" or session.principal != ANONYMOUS


def tokens_for(svc: Services, session: Session) -> StoredTokens:
    """The tokens. Raises KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED."""
    if not may_ask(session):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return enabled(svc)


def enabled(svc: Services) -> StoredTokens:
    """The tokens, where the session was checked before. Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED."""
    if svc.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return svc.tokens


def end_of_refused(code: ErrorCode) -> int:
    """A token's expiry time in an error, as in Apache Kafka 4.3: it differs when the session may not use the API,
    which another part of Apache Kafka answers.
    """
    return NO_TIME if code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0
