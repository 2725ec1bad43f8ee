"""Which signed tokens are believed: each claim, each way to cheat with the signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest

pytest.importorskip("joserfc")

from joserfc import jwt as maker
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from barnabas.server.security.sasl.jwks import Jwks, RefreshRules
from barnabas.server.security.sasl.jwt import TokenReader, TokenRules
from barnabas.server.security.sasl.oauthbearer import TokenRefused

NOW_S = 1_700_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "other"})
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
ED = OKPKey.generate_key("Ed25519", {"kid": "ed"})
CLAIMS: dict[str, Any] = {
    "sub": "alice",
    "exp": NOW_S + 600,
    "iat": NOW_S - 10,
    "iss": "https://issuer",
    "aud": "kafka",
    "scope": "read write",
}
RULES = TokenRules(issuer="https://issuer", audiences=frozenset(("kafka", "second")))


def reader(rules: TokenRules = RULES) -> TokenReader:
    jwks = Jwks(RefreshRules())
    jwks.fetched(json.dumps({"keys": [key.as_dict(private=False) for key in (RSA, OTHER, EC, ED)]}), 0)
    return TokenReader(rules, jwks)


def token(key: Any = RSA, alg: str = "RS256", header: dict[str, Any] | None = None, **claims: Any) -> str:
    all_claims = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    return maker.encode({"alg": alg, "kid": key.kid} | (header or {}), all_claims, key, algorithms=[alg])


def read(text: str, rules: TokenRules = RULES, now_s: float = NOW_S) -> tuple[str, int]:
    holder = reader(rules).read(text, int(now_s * 1000), 0.0)
    return holder.name, holder.expires_ms


@pytest.mark.parametrize(
    ("key", "alg"), [(RSA, "RS256"), (RSA, "RS512"), (RSA, "PS384"), (EC, "ES256"), (OTHER, "RS256"), (ED, "Ed25519")]
)
def test_is_believed(key: Any, alg: str) -> None:
    assert read(token(key, alg)) == ("alice", (NOW_S + 600) * 1000)


@pytest.mark.parametrize(
    ("claims", "rules"),
    [
        ({"aud": ["x", "second"]}, RULES),
        ({"aud": None}, TokenRules(issuer="https://issuer")),
        ({"iss": "https://another"}, TokenRules(audiences=frozenset(("kafka",)))),
        ({"iss": None}, TokenRules(audiences=frozenset(("kafka",)))),
        ({"scope": None}, RULES),
        ({"scope": ["read", "write"]}, RULES),
        ({"scope": 17}, RULES),
        ({"nbf": NOW_S + 30}, RULES),
        ({"exp": NOW_S - 29}, RULES),
        ({"exp": NOW_S + 0.5}, RULES),
        ({"sub": "  alice "}, RULES),
        ({"sub": None, "user": "alice"}, TokenRules("https://issuer", RULES.audiences, subject_claim="user")),
        ({"unknown": {"deep": [1]}}, RULES),
    ],
)
def test_claims_that_are_fine(claims: dict[str, Any], rules: TokenRules) -> None:
    assert read(token(**claims), rules)[0] == "alice"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": None}, "exp"),
        ({"iat": None}, "iat"),
        ({"exp": "1800000000"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": -1}, "exp"),
        ({"exp": 1e300}, "exp"),
        ({"exp": NOW_S - 30}, "ended 30 s ago"),
        ({"nbf": NOW_S + 31}, "not hold yet"),
        ({"nbf": "soon"}, "nbf"),
        ({"iss": "https://issuer/"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"iss": ["https://issuer"]}, "issuer"),
        ({"aud": "kafkaa"}, "audience"),
        ({"aud": None}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": [["kafka"]]}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": "  "}, "sub"),
        ({"sub": 17}, "sub"),
        ({"scope": ""}, "scope"),
        ({"scope": ["read", " "]}, "scope"),
        ({"scope": ["read", "read "]}, "scope"),
        ({"scope": [1]}, "scope"),
    ],
)
def test_claims_that_are_not(claims: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefused, match=why) as caught:
        read(token(**claims))
    assert "alice" not in str(caught.value)


def test_without_an_expected_audience_a_token_for_one_is_refused() -> None:
    with pytest.raises(TokenRefused, match="audience"):
        read(token(), TokenRules(issuer="https://issuer"))


def encoded(part: Any) -> str:
    raw = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def unsigned(header: Any, claims: Any = CLAIMS, signature: bytes = b"") -> str:
    return f"{encoded(header)}.{encoded(claims)}.{encoded(signature)}"


def with_secret(secret: bytes) -> str:
    """The old trick: the public key taken for the secret of an HMAC."""
    start = f"{encoded({'alg': 'HS256', 'kid': 'rsa'})}.{encoded(CLAIMS)}"
    return f"{start}.{encoded(hmac.new(secret, start.encode(), hashlib.sha256).digest())}"


@pytest.mark.parametrize(
    "text",
    [
        unsigned({"alg": "none"}),
        unsigned({"alg": "none", "kid": "rsa"}),
        unsigned({"alg": "NONE", "kid": "rsa"}),
        unsigned({"alg": "None", "kid": "rsa"}, signature=b"x"),
        unsigned({"alg": "RS256", "kid": "rsa"}),
        unsigned({"alg": "RS256", "kid": "rsa"}, signature=b"\0" * 256),
        unsigned({"alg": ["RS256"], "kid": "rsa"}),
        unsigned({"kid": "rsa"}),
        unsigned([]),
        unsigned(b"{"),
        with_secret(RSA.as_pem(private=False)),
        with_secret(b""),
        token(STRANGER),
        token(OTHER, header={"kid": "rsa"}),
        token(EC, "ES256", header={"kid": "rsa"}),
        token(header={"kid": "unknown"}),
        token(header={"kid": "k" * 2000}),
        token()[:-6] + "AAAAAA",
        token() + ".",
        token().replace(".", "", 1),
        token().rpartition(".")[0] + ".",
        token() + "=",
        "..",
        "",
        "a.b.c",
        "." * 50_000,
        unsigned({"alg": "RS256", "kid": "rsa", "crit": ["x"], "x": 1}, signature=b"x"),
        unsigned({"alg": "RS256"}, b"[" * 90_000, signature=b"x"),
        token(filler="x" * 200_000),
    ],
)
def test_signatures_that_are_none(text: str) -> None:
    with pytest.raises(TokenRefused):
        read(text)


def test_claims_that_were_changed() -> None:
    header, _, signature = token().split(".")
    with pytest.raises(TokenRefused, match="signature"):
        read(f"{header}.{encoded(CLAIMS | {'sub': 'bob'})}.{signature}")


def test_claims_that_are_no_object() -> None:
    from joserfc import jws

    for payload in (b"[]", b"1", b"{", b"[" * 10_000, b"\xff"):
        signed = jws.serialize_compact({"alg": "RS256", "kid": "rsa"}, payload, RSA, algorithms=["RS256"])
        with pytest.raises(TokenRefused, match="no claims"):
            read(signed)


def test_a_token_signed_with_a_secret_is_not_believed_whatever_the_key_set_says() -> None:
    secret = OctKey.import_key(b"k" * 32, {"kid": "oct"})
    jwks = Jwks(RefreshRules())
    jwks.fetched(json.dumps({"keys": [secret.as_dict(private=True), RSA.as_dict(private=False)]}), 0)
    with pytest.raises(TokenRefused, match="algorithm 'HS256'"):
        TokenReader(RULES, jwks).read(token(secret, "HS256"), NOW_S * 1000, 0.0)


def test_without_a_name_every_key_of_the_type_is_tried() -> None:
    made = maker.encode({"alg": "RS256"}, CLAIMS, OTHER, algorithms=["RS256"])
    assert read(made)[0] == "alice"


def test_an_unknown_key_is_asked_for() -> None:
    jwks = Jwks(RefreshRules())
    jwks.fetched(json.dumps({"keys": [EC.as_dict(private=False)]}), 100.0)
    assert jwks.next_fetch == 3700.0
    with pytest.raises(TokenRefused, match="no key 'rsa'"):
        TokenReader(RULES, jwks).read(token(), NOW_S * 1000, 200.0)
    assert jwks.next_fetch == 200.0
