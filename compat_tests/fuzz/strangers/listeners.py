"""A broker for strangers: its listeners, certificates, keys of tokens and users.

| listener | who comes in |
| --- | --- |
| PLAINTEXT | anybody: those who watch |
| CLEAR (SASL_PLAINTEXT), SEALED (SASL_SSL) | `alice`, by PLAIN, SCRAM and OAUTHBEARER |
| SSL | anybody with a handshake |
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import trustme
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from barnabas.kproto.messages import AlterUserScramCredentialsRequest
from compat_tests.fuzz.honest import Caller, Wronged
from compat_tests.fuzz.strangers.talk import PASSWORD, USER
from compat_tests.harness.ports import free_ports

LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SASL_PLAINTEXT": "CLEAR", "SASL_SSL": "SEALED", "SSL": "SSL"}
"""Their names, by protocol."""
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
AUDIENCE = "kafka"
SALT, ITERATIONS = b"salt-of-alice", 4096


class Ground(NamedTuple):
    """`settings`: of the broker, but for `listeners`. `tokens`: signed well and badly. `client`: trusts the broker."""

    settings: Mapping[str, str]
    tokens: list[bytes]
    client: ssl.SSLContext


def ground(directory: Path) -> Ground:
    """Files in `directory`, and what goes with them."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    identity = directory / "broker.pem"
    identity.write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
    key = ECKey.generate_key("P-256", {"kid": "k"})
    keys = directory / "keys.json"
    keys.write_text(json.dumps({"keys": [key.as_dict(private=False)]}))
    settings = {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for protocol, name in LISTENERS.items()),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
    }
    for protocol in ("SASL_PLAINTEXT", "SASL_SSL"):
        prefix = f"listener.name.{LISTENERS[protocol].lower()}."
        settings[f"{prefix}plain.sasl.jaas.config"] = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        settings[f"{prefix}oauthbearer.sasl.server.callback.handler.class"] = VALIDATOR
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Ground(settings, _tokens(key), client)


def _tokens(key: ECKey) -> list[bytes]:
    now = int(time.time())
    right = {"sub": USER, "iat": now, "exp": now + 86_400, "aud": AUDIENCE}

    def signed(alg: str, by: ECKey | RSAKey | OctKey, kid: str = "k", **claims: object) -> bytes:
        made = {name: value for name, value in {**right, **claims}.items() if value is not None}
        return jwt.encode({"alg": alg, "kid": kid}, made, by, algorithms=[alg]).encode()

    def unsigned(header: dict[str, object]) -> bytes:
        parts = (json.dumps(header).encode(), json.dumps(right).encode(), b"")
        return b".".join(_base64(part) for part in parts)

    public = json.dumps(key.as_dict(private=False))
    return [
        signed("ES256", key),
        signed("ES256", key, aud="others"),
        signed("ES256", key, exp=now - 1000),
        signed("ES256", key, iat=now + 10_000, nbf=now + 10_000),
        signed("ES256", key, sub=None),
        signed("ES256", key, sub=["alice"]),
        signed("ES256", key, kid="another"),
        signed("ES256", key, kid="x" * 2000),
        signed("ES256", ECKey.generate_key("P-256", {"kid": "k"})),
        signed("RS256", RSAKey.generate_key(2048, {"kid": "k"})),
        signed("HS256", OctKey.import_key(public)),
        unsigned({"alg": "none"}),
        unsigned({"alg": "None", "kid": "k"}),
        unsigned({"alg": "ES256", "kid": "k", "crit": ["x"]}),
        b"..",
        b"a" * 50_000,
    ]


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def free_addresses() -> dict[str, tuple[str, int]]:
    """By protocol, where a broker may listen."""
    return {protocol: ("127.0.0.1", port) for protocol, port in zip(LISTENERS, free_ports(len(LISTENERS)), strict=True)}


def listening(addresses: Mapping[str, tuple[str, int]]) -> str:
    """The value of `listeners`."""
    return ",".join(f"{LISTENERS[protocol]}://{host}:{port}" for protocol, (host, port) in addresses.items())


def make_user(address: tuple[str, int]) -> None:
    """Let alice log in by SCRAM. address: of PLAINTEXT. Raises Wronged."""
    caller = Caller(address)
    try:
        made = [
            AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name=USER,
                mechanism=number,
                iterations=ITERATIONS,
                salt=SALT,
                salted_password=hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), SALT, ITERATIONS),
            )
            for number, hash_name in ((1, "sha256"), (2, "sha512"))
        ]
        # One user is altered once in a request.
        for one in made:
            answer = caller.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[one]), 0)
            if answer.results[0].error_code:
                raise Wronged(f"no user is made: {answer.results[0]}")
    finally:
        caller.close()
