"""The client's end of SASL, for connections to brokers: PLAIN, SCRAM and OAUTHBEARER, without IO.

    login = begin(credentials, nonce)
    token = login.first()                   # send it
    token = login.answer(challenge)         # … as long as that gives one; None: done

The server proves in SCRAM that it knows the user, too; one that cannot is not spoken to.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from dataclasses import dataclass
from typing import Final, Protocol

from barnabas.server.security.sasl import oauthbearer, plain
from barnabas.server.security.sasl.scram_credentials import ITERATIONS_MIN, ScramMechanism, salted_password
from barnabas.server.security.sasl.scram_messages import (
    TOKEN_EXTENSION,
    BadMessage,
    escape,
    parse_server_final,
    parse_server_first,
)

ITERATIONS_MAX: Final = 1_000_000
"""More would keep this broker busy for a server's fun."""


class ServerRefused(Exception):
    """The server does not speak as the mechanism wants it, or has not proved who it is. Holds no secret."""


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """Who we are to other brokers. mechanism: PLAIN, a SCRAM, or OAUTHBEARER, whose bearer token is the password and
    whose user is for messages alone. by_token: the user is a delegation token's id, the password its secret in base64;
    with SCRAM alone.
    """

    mechanism: str
    user: str
    password: str
    by_token: bool = False

    def __repr__(self) -> str:
        return f"ClientCredentials({self.mechanism}, {self.user})"


class ClientLogin(Protocol):
    """One log-in, seen from the client."""

    def first(self) -> bytes:
        """What to begin with."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What to say to the server's next bytes; None: nothing more, it is done. Raises ServerRefused."""
        ...


def begin(credentials: ClientCredentials, nonce: bytes) -> ClientLogin:
    """A new log-in. nonce: random, printable ASCII without comma."""
    mechanism = ScramMechanism.of_name(credentials.mechanism)
    if mechanism is not None:
        return _ScramLogin(mechanism, credentials, nonce)
    if credentials.mechanism == oauthbearer.MECHANISM:
        return _BearerLogin(credentials)
    assert credentials.mechanism == plain.MECHANISM, credentials.mechanism
    return _PlainLogin(credentials)


class _PlainLogin:
    def __init__(self, credentials: ClientCredentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        return f"\0{self._credentials.user}\0{self._credentials.password}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class _BearerLogin:
    """RFC 7628. A token that is not accepted is answered with the reasons, which get one byte 1 in return; only then
    does the server say that the log-in has failed.
    """

    def __init__(self, credentials: ClientCredentials) -> None:
        self._token = credentials.password

    def first(self) -> bytes:
        return b"n,,\x01auth=Bearer %b\x01\x01" % self._token.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        return b"\x01" if challenge else None


class _ScramLogin:
    def __init__(self, mechanism: ScramMechanism, credentials: ClientCredentials, nonce: bytes) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._nonce = nonce
        extension = b",%b=true" % TOKEN_EXTENSION.encode() if credentials.by_token else b""
        self._bare = b"n=%b,r=%b%b" % (escape(credentials.user), nonce, extension)
        self._verifier: bytes | None = None

    def first(self) -> bytes:
        return b"n,," + self._bare

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            if self._verifier is None:
                return self._prove(challenge)
            if not hmac.compare_digest(parse_server_final(challenge), self._verifier):
                raise ServerRefused("the server does not know what is kept of the password")
            return None
        except BadMessage as error:
            raise ServerRefused(str(error)) from None

    def _prove(self, challenge: bytes) -> bytes:
        first = parse_server_first(challenge)
        if not first.nonce.startswith(self._nonce) or len(first.nonce) == len(self._nonce):
            raise ServerRefused("the server's nonce does not continue ours")
        if not ITERATIONS_MIN <= first.iterations <= ITERATIONS_MAX:
            raise ServerRefused(f"the server asks for {first.iterations} iterations")
        digest = self._mechanism.digest
        salted = salted_password(self._mechanism, self._credentials.password, first.salt, first.iterations)
        unproved = b"c=biws,r=" + first.nonce
        message = b"%b,%b,%b" % (self._bare, challenge, unproved)
        client_key = hmac.digest(salted, b"Client Key", digest)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
        return b"%b,p=%b" % (unproved, b64encode(proof))
