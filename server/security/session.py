"""What is known of the peer of a connection, as far as permissions and quotas depend on it."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.server.security.principals import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Session:
    """One per connection, replaced as a whole when the peer authenticates (again).

    `host`: the peer's address as text, without port. `listener`: name of the listener that it came in on, `protocol`
    that listener's: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL. `token_authenticated`: it logged in with a delegation
    token, and so may not ask for another one.
    """

    principal: Principal
    host: str
    listener: str
    protocol: str
    token_authenticated: bool = False


def anonymous(host: str, listener: str, protocol: str) -> Session:
    """The session of a peer that has not authenticated, or is not asked to."""
    return Session(ANONYMOUS, host, listener, protocol)
