"""OAUTHBEARER's messages; what makes a token good is in test_jwt.py."""

from __future__ import annotations

import pytest

from barnabas.server.security.sasl.exchange import Challenge, LoggedIn, Refused
from barnabas.server.security.sasl.oauthbearer import OAuthBearerExchange, TokenHolder, TokenRefused


def read(token: str, now_ms: int) -> TokenHolder:
    if token != "good.token.x-y_z~+/=":
        raise TokenRefused("because")
    return TokenHolder("alice", now_ms + 1000)


GOOD = b"n,,\x01auth=Bearer good.token.x-y_z~+/=\x01\x01"


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        GOOD.replace(b"Bearer", b"bEARER"),
        GOOD.replace(b"Bearer ", b"Bearer   "),
        GOOD.replace(b"n,,", b"n,a=alice,"),
        b"n,,\x01first=1\x01auth=Bearer good.token.x-y_z~+/=\x01last=a b\t=,c\r\n\x01\x01",
    ],
)
def test_is_let_in(message: bytes) -> None:
    assert OAuthBearerExchange(read).evaluate(message, 5) == LoggedIn("alice", b"", 1005)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        GOOD[:-1],
        GOOD[:-2],
        GOOD + b"\x01",
        GOOD[3:],
        b"y" + GOOD[1:],
        GOOD.replace(b"Bearer", b"Basic"),
        GOOD.replace(b"Bearer ", b"Bearer"),
        GOOD.replace(b"auth", b"token"),
        GOOD.replace(b"good", b"go od"),
        GOOD.replace(b"good", b"g\xc3\xb6od"),
        GOOD.replace(b"\x01auth", b"\x01k1=v\x01auth"),
        GOOD.replace(b"\x01auth", b"\x01k=\x01auth"),
    ],
)
def test_what_is_malformed_fails_at_once(message: bytes) -> None:
    with pytest.raises(Refused) as caught:
        OAuthBearerExchange(read).evaluate(message, 5)
    assert caught.value.said is None
    assert "good" not in str(caught.value)


def test_a_token_that_is_not_accepted_fails_with_the_next_message() -> None:
    exchange = OAuthBearerExchange(read)
    answer = exchange.evaluate(GOOD.replace(b"good", b"evil"), 5)
    assert isinstance(answer, Challenge)
    assert answer.answer == b'{"status":"invalid_token"}'
    with pytest.raises(Refused, match="because") as caught:
        exchange.evaluate(b"\x01", 5)
    assert caught.value.said == '{"status":"invalid_token"}'


def test_there_is_no_second_try() -> None:
    exchange = OAuthBearerExchange(read)
    exchange.evaluate(GOOD.replace(b"good", b"evil"), 5)
    with pytest.raises(Refused) as caught:
        exchange.evaluate(GOOD, 5)
    assert caught.value.said is None


def test_another_authorization_id() -> None:
    with pytest.raises(Refused) as caught:
        OAuthBearerExchange(read).evaluate(GOOD.replace(b"n,,", b"n,a=bob,"), 5)
    assert caught.value.said == "Authentication failed: the authorization id is not the one of who logs in"
