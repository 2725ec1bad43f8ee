"""The tokens that a broker knows, by id and by secret, and the log-ins with them.

    HMAC = HMAC-SHA512(key: delegation.token.secret.key, message: the token's id), both as UTF-8
    password = base64(HMAC)

What SCRAM keeps of the password has a salt of this broker's own and 4096 iterations, as in Apache Kafka. It is made at
the first log-in with a token: that takes the loop one or two ms, and is asked for by who knows a token's id.
Source: `DelegationTokenManager.java`, `DelegationTokenCache.java` (4.3).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from barnabas.server.security.sasl.scram_credentials import (
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    make_credential,
)
from barnabas.server.security.tokens.model import DelegationToken


@dataclass(slots=True, repr=False)
class _Known:
    token: DelegationToken
    secret: bytes
    credentials: dict[ScramMechanism, ScramCredential] = field(default_factory=dict)


class KnownTokens:
    """See the module. secret_key: as the settings have it. random_bytes(size): for salts."""

    def __init__(self, secret_key: str, random_bytes: Callable[[int], bytes]) -> None:
        self._key = secret_key.encode()
        self._random_bytes = random_bytes
        self._by_id: dict[str, _Known] = {}
        self._by_secret: dict[bytes, str] = {}

    def __repr__(self) -> str:
        return f"KnownTokens({len(self._by_id)} tokens)"

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[DelegationToken]:
        """All, as they are when this is asked."""
        return iter([known.token for known in self._by_id.values()])

    def put(self, token: DelegationToken) -> None:
        """Know a token, in place of what was known of it."""
        known = self._by_id.get(token.token_id)
        if known is not None:
            known.token = token
            return
        secret = self.hmac_of(token.token_id)
        self._by_id[token.token_id] = _Known(token, secret)
        self._by_secret[secret] = token.token_id

    def drop(self, token_id: str) -> None:
        """Forget a token, if there is one."""
        known = self._by_id.pop(token_id, None)
        if known is not None:
            del self._by_secret[known.secret]

    def hmac_of(self, token_id: str) -> bytes:
        """The secret of a token, be it known or not."""
        return hmac.digest(self._key, token_id.encode(), "sha512")

    def with_hmac(self, secret: bytes) -> DelegationToken | None:
        """The token that a secret is of."""
        token_id = self._by_secret.get(secret)
        return None if token_id is None else self._by_id[token_id].token

    def find(self, mechanism: ScramMechanism, token_id: str, now_ms: int) -> ScramLogin | None:
        """The credentials of a token's id at `now_ms` (wall clock); None: there is no such token, or it has expired."""
        known = self._by_id.get(token_id)
        if known is None or known.token.is_expired(now_ms):
            return None
        credential = known.credentials.get(mechanism)
        if credential is None:
            password = b64encode(known.secret).decode()
            credential = make_credential(mechanism, password, self._random_bytes(SALT_BYTES), ITERATIONS_MIN)
            known.credentials[mechanism] = credential
        return ScramLogin(known.token.owner.name, credential, known.token.expiry_ms, by_token=True)
