"""SCRAM-SHA-256 and -512, the server's end (RFC 5802, 7677): the client proves that it knows a password, without
showing it, and the server that it knows what is kept of it.

    AuthMessage = client-first-bare + "," + server-first + "," + client-final-without-proof
    ClientProof = ClientKey xor HMAC(StoredKey, AuthMessage)
    ServerSignature = HMAC(ServerKey, AuthMessage)

A client must not learn whether there is a user of a name. An unknown one is given a salt and a number of iterations
that look like a user's and are always the same (`users.ScramUsers.stand_in`), and fails with its proof, like a wrong
password. Apache Kafka refuses unknown users at the first message. The same goes for a credential with too few
iterations (below 4096), which Apache Kafka does not take either.

Beyond Apache Kafka the channel binding is checked: it must repeat the header of the first message.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable

from barnabas.server.security.sasl.exchange import ANOTHER_AUTHZID, Challenge, LoggedIn, Refused
from barnabas.server.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
)
from barnabas.server.security.sasl.scram_messages import (
    TOKEN_EXTENSION,
    BadMessage,
    ClientFirst,
    ServerFirst,
    parse_client_final,
    parse_client_first,
)

NONCE_BYTES = 24


FindLogin = Callable[[str, bool, int], ScramLogin | None]
"""The log-in of a name, now: `(name, is the name a delegation token's id, now_ms)`; None: there is none."""

StandIn = Callable[[str], ScramCredential]
"""What is shown of a user that there is not; the same for the same name."""


class ScramExchange:
    """A log-in by SCRAM; see the module. `nonce()`: a random text for each log-in, printable ASCII without comma."""

    def __init__(
        self, mechanism: ScramMechanism, find: FindLogin, stand_in: StandIn, nonce: Callable[[], bytes]
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._stand_in = stand_in
        self._nonce = nonce
        self._first: tuple[ClientFirst, ServerFirst] | None = None
        self._login: ScramLogin | None = None
        self._credential: ScramCredential
        self._why_not = ""

    def evaluate(self, token: bytes, now_ms: int) -> Challenge | LoggedIn:
        try:
            return self._begin(token, now_ms) if self._first is None else self._finish(token, *self._first)
        except BadMessage as error:
            raise Refused(str(error)) from None

    def _begin(self, token: bytes, now_ms: int) -> Challenge:
        first = parse_client_first(token)
        if first.authzid not in ("", first.user):
            raise Refused(f"user {first.user[:100]!r} asks for another authorization id", said=ANOTHER_AUTHZID)
        by_token = first.extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        found = self._find(first.user, by_token, now_ms)
        if found is None:
            self._why_not = f"unknown {'delegation token' if by_token else 'user'} {first.user[:100]!r}"
        elif found.credential.iterations < ITERATIONS_MIN:
            self._why_not = f"the credential of {first.user[:100]!r} has fewer than {ITERATIONS_MIN} iterations"
            found = None
        self._login = found
        self._credential = self._stand_in(first.user) if found is None else found.credential
        answer = ServerFirst(first.nonce + self._nonce(), self._credential.salt, self._credential.iterations)
        self._first = first, answer
        return Challenge(answer.encode())

    def _finish(self, token: bytes, first: ClientFirst, answered: ServerFirst) -> LoggedIn:
        final = parse_client_final(token)
        if final.nonce != answered.nonce:
            raise Refused("the nonce is not the one of this log-in")
        if final.channel != first.gs2:
            raise Refused("the channel binding is not the header of the first message")
        digest, kept = self._mechanism.digest, self._credential
        message = b"%b,%b,%b" % (first.bare, answered.encode(), final.unproved)
        signature = hmac.digest(kept.stored_key, message, digest)
        proves = len(final.proof) == len(signature)
        client_key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=False))
        proves &= hmac.compare_digest(hashlib.new(digest, client_key).digest(), kept.stored_key)
        verifier = hmac.digest(kept.server_key, message, digest)
        login = self._login
        if login is None or not proves:
            raise Refused(self._why_not or f"wrong password of {first.user[:100]!r}")
        return LoggedIn(login.user, b"v=" + b64encode(verifier), login.expires_ms, login.by_token)
