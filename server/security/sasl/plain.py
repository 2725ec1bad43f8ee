"""PLAIN (RFC 4616): `[authzid] NUL user NUL password`, in one token, and nothing comes back.

Users and passwords stand in the listener's own login entry. Not here: servers that are asked (Java's callback handler).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

from barnabas.server.security.sasl.exchange import ANOTHER_AUTHZID, Challenge, LoggedIn, Refused

MECHANISM = "PLAIN"


class PlainUsers:
    """Users and passwords; the time of a check shows neither how much of a password was right, nor whether there is
    such a user. Passwords themselves are not kept.
    """

    __slots__ = ("_digests", "_key", "_no_user")

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {name: self._digest(password) for name, password in passwords.items()}
        self._no_user = secrets.token_bytes(32)

    def __repr__(self) -> str:
        return f"PlainUsers({len(self._digests)} users)"

    def accepts(self, name: str, password: str) -> bool:
        """True if this is the password of a user of this name."""
        return hmac.compare_digest(self._digests.get(name, self._no_user), self._digest(password))

    def _digest(self, password: str) -> bytes:
        """Of one length for all, or comparing would reveal lengths."""
        return hmac.digest(self._key, password.encode("utf-8", "replace"), "sha256")


class PlainExchange:
    """A log-in by PLAIN; see `exchange`."""

    __slots__ = ("_users",)

    def __init__(self, users: PlainUsers) -> None:
        self._users = users

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | LoggedIn:
        parts = token.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise _refused(f"expected 3 parts in the token of PLAIN, got {len(parts)}")
        authzid, name, password = parts
        if not name:
            raise _refused("no user name given")
        if not password:
            raise _refused("no password given")
        if not self._users.accepts(name, password):
            raise Refused(
                f"unknown user {name[:100]!r}, or another password",
                said="Authentication failed: invalid username or password",
            )
        if authzid not in ("", name):
            raise Refused(f"user {name[:100]!r} asks for another authorization id", said=ANOTHER_AUTHZID)
        return LoggedIn(name)


def _refused(why: str) -> Refused:
    return Refused(why, said=f"Authentication failed: {why}")
