"""The four APIs of delegation tokens, and log-ins with tokens, by Java's admin client: each broker gives the same
answer to each question.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compat_tests.harness.jars import classpath, java
from compat_tests.subjects.security.guarded import EXPIRY_MS, LIFETIME_MS, Guarded

PROGRAM = Path(__file__).parent / "src" / "Tokens.java"
USUAL, LAST = EXPIRY_MS // 1000, LIFETIME_MS // 1000
CAROLS = "User:carol by User:carol []"
NOT_HERE = "UnsupportedByAuthenticationException"
TOKEN = f"User:alice by User:alice [User:bob] {USUAL} {LAST} 22 64"

EXPECTED = f"""
without log-in, create: {NOT_HERE}
without log-in, renew: {NOT_HERE}
without log-in, expire: {NOT_HERE}
without log-in, describe: {NOT_HERE}
for -1: {CAROLS} {USUAL} {LAST} 22 64
for 0: {CAROLS} {USUAL} {LAST} 22 64
for 30000: {CAROLS} 30 30 22 64
for 60000: {CAROLS} 60 60 22 64
for 60000000: {CAROLS} {USUAL} {LAST} 22 64
for 9223372036854775807: {CAROLS} {USUAL} {LAST} 22 64
a group renews: InvalidPrincipalTypeException
for bob: DelegationTokenAuthorizationException
for bob, a group renews: DelegationTokenAuthorizationException
made: {TOKEN}
alice sees: [{TOKEN}]
alice sees of bob: [{TOKEN}]
alice sees of carol: []
bob sees: [{TOKEN}]
bob sees of alice or carol: [{TOKEN}]
carol sees of alice: []
alice renews: 300
bob renews: {USUAL}
bob renews for long: {USUAL}
bob renews for no time: {USUAL}
carol renews: DelegationTokenOwnerMismatchException
carol expires: DelegationTokenOwnerMismatchException
who renews what is not: DelegationTokenNotFoundException
who expires what is not: DelegationTokenNotFoundException
bob expires: 300
alice expires late: {LAST}
SCRAM-SHA-256: 1
with a token, create: {NOT_HERE}
with a token, renew: {NOT_HERE}
with a token, expire: {NOT_HERE}
with a token, describe: {NOT_HERE}
SCRAM-SHA-512: 1
with a token, create: {NOT_HERE}
with a token, renew: {NOT_HERE}
with a token, expire: {NOT_HERE}
with a token, describe: {NOT_HERE}
another secret: SaslAuthenticationException
another id: SaslAuthenticationException
alice expires now: 0
alice renews late: DelegationTokenExpiredException
carol renews late: DelegationTokenExpiredException
alice expires again: DelegationTokenExpiredException
carol expires late: DelegationTokenOwnerMismatchException
bob removes it: 0
alice renews what is gone: DelegationTokenNotFoundException
alice sees nothing: []
a token that is gone: SaslAuthenticationException
""".strip()


CLIENTS = [
    pytest.param(version, marks=pytest.mark.case("delegation tokens", "all that is asked", client=f"Java {version}"))
    for version in ("4.3.1", "3.9.1")
]


@pytest.mark.slow
@pytest.mark.jvm
@pytest.mark.parametrize("version", CLIENTS)
def test_each_answer(guarded: Guarded, version: str) -> None:
    program = [*java(), "-cp", classpath(f"clients-{version}"), str(PROGRAM), guarded.plaintext, guarded.clients]
    done = subprocess.run(program, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().splitlines() == EXPECTED.splitlines()
