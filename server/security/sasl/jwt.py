"""Validation of JSON Web Tokens (RFC 7519) that name a user.

A token is three parts in base64, signed by one of the keys of `jwks`. What is checked, as Apache Kafka does it with
`OAuthBearerValidatorCallbackHandler`:

| claim | rule |
| --- | --- |
| signature | RS, PS, ES of 256 to 512 bits, or EdDSA; never `none`, and no secret that we would share |
| exp, iat | must be there, numbers of seconds; not past, but for the skew |
| nbf | if there: not in the future, but for the skew |
| iss | the expected issuer, if one is set |
| aud | one of the expected audiences; with none set, a token that names an audience is rejected |
| subject claim | text, not blank: the user |
| scope claim | if there: text, or a list of texts; neither blank nor twice the same |

Source: `BrokerJwtValidator.java`, `ClaimValidationUtils.java` (4.3). Not here: tokens that are asked back at their
issuer (opaque ones).
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws
from joserfc.errors import SecurityWarning

from barnabas.server.security.sasl.jwks import NAME_LENGTH_MAX, Jwks
from barnabas.server.security.sasl.oauthbearer import TokenHolder, TokenRefused

KEY_TYPES: Final = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}
"""The algorithms that are accepted, and the type of their keys."""

TOKEN_LENGTH_MAX: Final = 128 * 1024
KEYS_TRIED_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Settings `sasl.oauthbearer.…`. `issuer` None: any; `audiences` empty: tokens that name none."""

    issuer: str | None = None
    audiences: frozenset[str] = frozenset()
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30


class _Registry(jws.JWSRegistry):
    """Longer headers than the library's 512 bytes (`x5c`); signatures of large RSA keys."""

    max_header_length = 16 * 1024
    max_signature_length = 4 * 1024


class TokenReader:
    """See the module. `now`: seconds of the clock that `jwks` is fetched by is given to `read`."""

    def __init__(self, rules: TokenRules, jwks: Jwks) -> None:
        self._rules = rules
        self._jwks = jwks
        self._registry = _Registry(algorithms=list(KEY_TYPES), strict_check_header=False)

    def read(self, token: str, now_ms: int, now: float) -> TokenHolder:
        """The user that the token names. `now_ms`: wall clock. Raises TokenRefused."""
        return self._believe(self._verify(token, now), now_ms)

    def _verify(self, token: str, now: float) -> dict[str, Any]:
        if len(token) > TOKEN_LENGTH_MAX or token.count(".") != 2:
            raise TokenRefused(f"{len(token)} characters that are no signed token")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SecurityWarning)
            try:
                signed = jws.extract_compact(token.encode(), registry=self._registry)
                header = signed.headers()
            except Exception as error:  # of the library, over what a stranger has written
                raise TokenRefused(f"its header cannot be read ({type(error).__name__})") from None
            algorithm, kid = header.get("alg"), header.get("kid")
            if not isinstance(algorithm, str) or algorithm not in KEY_TYPES:
                raise TokenRefused(f"its algorithm {str(algorithm)[:20]!r} is not accepted")
            if kid is not None and (not isinstance(kid, str) or len(kid) > NAME_LENGTH_MAX):
                raise TokenRefused("the name of its key is no short text")
            keys = self._jwks.keys(kid, KEY_TYPES[algorithm])
            if not keys:
                self._jwks.miss(kid, now)
                raise TokenRefused(f"there is no key {str(kid)[:100]!r} for {algorithm}")
            if not any(self._is_signed_with(signed, key) for key in keys[:KEYS_TRIED_MAX]):
                raise TokenRefused("its signature is not of the key that it names")
        try:
            claims = json.loads(signed.payload)
        except (ValueError, RecursionError):
            claims = None
        if not isinstance(claims, dict):
            raise TokenRefused("it holds no claims")
        return claims

    def _is_signed_with(self, signed: Any, key: Any) -> bool:
        try:
            return jws.validate_compact(signed, key, registry=self._registry)
        except Exception:  # the key does not fit the algorithm, a critical header is not known, …
            return False

    def _believe(self, claims: dict[str, Any], now_ms: int) -> TokenHolder:
        rules, now_s, skew_s = self._rules, now_ms / 1000, self._rules.skew_s
        expires_s = _seconds(claims, "exp")
        _seconds(claims, "iat")
        if expires_s <= now_s - skew_s:
            raise TokenRefused(f"it ended {now_s - expires_s:.0f} s ago")
        if "nbf" in claims and _seconds(claims, "nbf") > now_s + skew_s:
            raise TokenRefused("it does not hold yet")
        if rules.issuer is not None and claims.get("iss") != rules.issuer:
            raise TokenRefused("it is not of the expected issuer")
        self._check_audience(claims)
        self._check_scope(claims)
        subject = claims.get(rules.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f"its claim {rules.subject_claim} names no user")
        return TokenHolder(subject.strip(), int(expires_s * 1000))

    def _check_audience(self, claims: dict[str, Any]) -> None:
        named = claims.get("aud")
        if named is None and not self._rules.audiences:
            return
        audiences = [named] if isinstance(named, str) else named
        if not isinstance(audiences, list) or not any(
            isinstance(each, str) and each in self._rules.audiences for each in audiences
        ):
            raise TokenRefused("it is for another audience, or for none")

    def _check_scope(self, claims: dict[str, Any]) -> None:
        named = claims.get(self._rules.scope_claim)
        scopes = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        if not all(isinstance(each, str) and each.strip() for each in scopes) or len(
            {each.strip() for each in scopes}
        ) < len(scopes):
            raise TokenRefused(f"its claim {self._rules.scope_claim} has a blank scope, or one twice")


def _seconds(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:  # nor NaN
        raise TokenRefused(f"its claim {name} is no time")
    return float(value)
