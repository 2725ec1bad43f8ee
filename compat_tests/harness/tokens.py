"""Signed tokens for tests of OAUTHBEARER: a key, its public half as a key set (JWKS), and what it signs."""

from __future__ import annotations

import json
import time
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import RSAKey

ISSUER, AUDIENCE = "https://tokens.example", "brokers"


class TokenIssuer:
    """Signs JSON Web Tokens with RS256; writes its public key to `jwks`, a file."""

    def __init__(self, jwks: Path) -> None:
        self._key = RSAKey.generate_key(2048, {"kid": "first", "use": "sig", "alg": "RS256"})
        self.jwks = jwks
        jwks.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))

    def token(self, user: str, *, seconds: float = 3600) -> str:
        """One for `user`, good for so long from now; of a negative number, one that has ended so long ago."""
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "scope": "broker",
            "iat": min(now, int(now + seconds) - 60),
            "exp": int(now + seconds),
        }
        return jwt.encode({"alg": "RS256", "kid": "first"}, claims, self._key)
