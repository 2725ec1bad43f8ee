"""What the four APIs of delegation tokens share: who may ask at all, and that there are tokens.

Nobody gets a token with a token, nobody asks who is not known, and a secret is not sent where it can be read. On a
listener with SASL_PLAINTEXT it can be; Apache Kafka allows that. Source: `KafkaApis.scala` (allowTokenRequests, 4.3).
"""

from __future__ import annotations

from typing import Final

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.server.cluster.tokens import StoredTokens
from barnabas.server.requests.services import Services
from barnabas.server.security.principals import ANONYMOUS
from barnabas.server.security.session import Session

NO_TIME: Final = -1
"""In place of a time, for whoever may not ask."""


def may_ask(session: Session) -> bool:
    """Whether the connection is one on which tokens are spoken of."""
    if session.token_authenticated or session.protocol == "PLAINTEXT":
        return False
    return session.protocol != "SSL" or session.principal != ANONYMOUS


def tokens_for(svc: Services, session: Session) -> StoredTokens:
    """The tokens. Raises KafkaError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED."""
    if not may_ask(session):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return enabled(svc)


def enabled(svc: Services) -> StoredTokens:
    """The tokens, for whoever may ask. Raises KafkaError DELEGATION_TOKEN_AUTH_DISABLED."""
    if svc.tokens is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    return svc.tokens


def end_of_refused(code: ErrorCode) -> int:
    """What Apache Kafka 4.3 gives as a token's end with an error: whoever may not ask is answered by another part of
    it than others are.
    """
    return NO_TIME if code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0
