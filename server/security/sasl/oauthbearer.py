"""OAUTHBEARER (RFC 7628), the server's end: the client shows a token that a trusted issuer has signed.

    n,[a=authzid],^A auth=Bearer <token>^A [key=value^A]… ^A        (^A: the byte 1; no blanks between)

A token that is not accepted is answered with JSON, as a challenge; the client says one byte 1 to that, and only then
has the log-in failed. What is malformed fails at once. Extensions (`key=value`) are taken and not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.server.security.sasl.exchange import ANOTHER_AUTHZID, Challenge, LoggedIn, Refused
from barnabas.server.security.sasl.scram_messages import unescape

MECHANISM = "OAUTHBEARER"
_SEPARATOR: Final = b"\x01"
_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>" + _NAME + rb"))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(rb"(?P<scheme>[A-Za-z0-9_]+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The user that a token names, and when it ends (wall clock, ms)."""

    name: str
    expires_ms: int


class TokenRefused(Exception):
    """A token is not accepted. The message is for the log: it says why and shows nothing of the token."""


ReadToken = Callable[[str, int], TokenHolder]
"""Validates a token at a time (ms, wall clock). Raises TokenRefused."""


class OAuthBearerExchange:
    """A log-in by OAUTHBEARER; see the module."""

    __slots__ = ("_read", "_why_not")

    def __init__(self, read: ReadToken) -> None:
        self._read = read
        self._why_not = ""

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | LoggedIn:
        if self._why_not:
            raise Refused(self._why_not, said=INVALID_TOKEN.decode() if token == _SEPARATOR else None)
        authzid, shown = parse_first(token)
        try:
            holder = self._read(shown, now_ms)
        except TokenRefused as error:
            self._why_not = f"the token is not accepted: {error}"
            return Challenge(INVALID_TOKEN)
        if authzid not in ("", holder.name):
            raise Refused(f"the holder of a token, {holder.name[:100]!r}, asks for another id", said=ANOTHER_AUTHZID)
        return LoggedIn(holder.name, expires_ms=holder.expires_ms)


INVALID_TOKEN: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":")).encode()


def parse_first(message: bytes) -> tuple[str, str]:
    """Authorization id ("": none) and token. Raises Refused."""
    match = _FIRST.fullmatch(message)
    if match is None:
        raise Refused("this is no first message of OAUTHBEARER")
    pairs: dict[bytes, bytes] = {}
    for pair in match["pairs"].split(_SEPARATOR)[:-1]:
        key, _, value = pair.partition(b"=")
        pairs[key] = value
    auth = _AUTH.fullmatch(pairs.get(b"auth", b""))
    if auth is None or auth["scheme"].lower() != b"bearer":
        raise Refused("there is no bearer token in the first message of OAUTHBEARER")
    return unescape(match["authzid"] or b""), auth["token"].decode()
