"""Questions to one broker and no other: a client's library asks whichever it likes.

Speaks by `kproto`, like `compat_tests/subjects/access`.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

from barnabas.kproto.messages import MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from compat_tests.subjects.access.connection import Closed, Connection

_NONCE = b"of-the-tests"


class LogInRefused(Exception):
    """The broker does not know the user, or the password is another."""


class ScramConnection(Connection):
    """Logs in by SCRAM; by_token: with a delegation token's id and its secret in base64. Raises LogInRefused."""

    def __init__(
        self, address: tuple[str, int], mechanism: str, user: str, password: str, *, by_token: bool = False
    ) -> None:
        super().__init__(address)
        self._login = mechanism, user.encode(), password.encode()
        self._extension = b",tokenauth=true" if by_token else b""

    def _open(self) -> None:
        super()._open()
        mechanism, user, password = self._login
        shaken = self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        assert not shaken.error_code, shaken
        bare = b"n=%b,r=%b%b" % (user, _NONCE, self._extension)
        challenge = self._say(b"n,," + bare)
        fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
        digest = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
        salted = hashlib.pbkdf2_hmac(digest, password, b64decode(fields[b"s"]), int(fields[b"i"]))
        client_key = hmac.digest(salted, b"Client Key", digest)
        unproved = b"c=biws,r=" + fields[b"r"]
        message = b"%b,%b,%b" % (bare, challenge, unproved)
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        verifier = self._say(b"%b,p=%b" % (unproved, b64encode(proof)))
        expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), message, digest)
        assert verifier == b"v=" + b64encode(expected)

    def _say(self, token: bytes) -> bytes:
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 1)
        if answer.error_code:
            self.close()
            raise LogInRefused(answer.error_message)
        return bytes(answer.auth_bytes)


def can_log_in(address: tuple[str, int], mechanism: str, user: str, password: str, *, by_token: bool = False) -> bool:
    """Whether somebody is let in, and then answered."""
    connection = ScramConnection(address, mechanism, user, password, by_token=by_token)
    try:
        connection.ask(MetadataRequest(topics=[]), 9)
    except (LogInRefused, Closed):
        return False
    finally:
        connection.close()
    return True
