"""The tokens that a broker knows: found by secret, and logged in with by SCRAM."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace

import pytest

from barnabas.server.security.principals import Principal
from barnabas.server.security.sasl.client import ClientCredentials, begin
from barnabas.server.security.sasl.exchange import Challenge, LoggedIn, Refused
from barnabas.server.security.sasl.scram import ScramExchange
from barnabas.server.security.sasl.scram_credentials import ScramMechanism
from barnabas.server.security.sasl.users import ScramUsers
from barnabas.server.security.tokens.known import KnownTokens
from barnabas.server.security.tokens.model import DelegationToken

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOKEN = DelegationToken("id-1", ALICE, BOB, (), 0, 1000, 500)


def known(*tokens: DelegationToken) -> KnownTokens:
    made = KnownTokens("key", bytes)
    for token in tokens:
        made.put(token)
    return made


def log_in(tokens: KnownTokens, token_id: str, secret: bytes, mechanism: ScramMechanism, now_ms: int) -> LoggedIn:
    users = ScramUsers(b"s" * 32)
    server = ScramExchange(
        mechanism,
        lambda name, by_token, now: tokens.find(mechanism, name, now) if by_token else None,
        lambda name: users.stand_in(mechanism, name),
        lambda: b"server",
    )
    password = base64.b64encode(secret).decode()
    client = begin(ClientCredentials(mechanism.value, token_id, password, by_token=True), b"client")
    challenge = server.evaluate(client.first(), now_ms)
    assert isinstance(challenge, Challenge)
    final = client.answer(challenge.answer)
    assert final is not None
    done = server.evaluate(final, now_ms)
    assert isinstance(done, LoggedIn)
    assert client.answer(done.answer) is None
    return done


def test_the_secret_is_apache_kafkas() -> None:
    assert known().hmac_of("id-1") == hmac.digest(b"key", b"id-1", hashlib.sha512)


def test_found_by_its_secret_and_nothing_else() -> None:
    tokens = known(TOKEN, replace(TOKEN, token_id="id-2"))
    assert tokens.with_hmac(tokens.hmac_of("id-1")) is TOKEN
    assert [tokens.with_hmac(secret) for secret in (b"", tokens.hmac_of("id-3"), b"\0" * 64)] == [None] * 3
    tokens.drop("id-1")
    tokens.drop("id-1")
    assert tokens.with_hmac(tokens.hmac_of("id-1")) is None
    assert [token.token_id for token in tokens] == ["id-2"]
    assert len(tokens) == 1


def test_what_is_put_again_is_the_same_token() -> None:
    tokens = known(TOKEN)
    mechanism = ScramMechanism.SHA_256
    before = tokens.find(mechanism, "id-1", 0)
    tokens.put(replace(TOKEN, expiry_ms=900))
    after = tokens.find(mechanism, "id-1", 0)
    assert before is not None
    assert after is not None
    assert (before.expires_ms, after.expires_ms) == (500, 900)
    assert before.credential is after.credential
    tokens.drop("id-1")
    assert tokens.find(mechanism, "id-1", 0) is None


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_log_in_is_its_owners_until_it_ends(mechanism: ScramMechanism) -> None:
    tokens = known(TOKEN)
    secret = tokens.hmac_of("id-1")
    done = log_in(tokens, "id-1", secret, mechanism, 500)
    assert (done.user, done.expires_ms, done.by_token) == ("alice", 500, True)
    with pytest.raises(Refused, match="unknown delegation token 'id-1'"):
        log_in(tokens, "id-1", secret, mechanism, 501)
    with pytest.raises(Refused, match="wrong password"):
        log_in(tokens, "id-1", b"guessed", mechanism, 0)
    with pytest.raises(Refused, match="unknown delegation token 'id-2'"):
        log_in(tokens, "id-2", secret, mechanism, 0)


def test_a_token_is_no_user_and_a_user_no_token() -> None:
    tokens = known(TOKEN)
    assert tokens.find(ScramMechanism.SHA_256, "alice", 0) is None
    without = begin(ClientCredentials("SCRAM-SHA-256", "id-1", "x"), b"client").first()
    assert without == b"n,,n=id-1,r=client"


def test_secrets_are_not_shown() -> None:
    tokens = known(TOKEN)
    assert repr(tokens) == "KnownTokens(1 tokens)"
    assert "key" not in repr(tokens)
