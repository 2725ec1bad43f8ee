"""PLAIN: accepted and rejected log-ins, and their answers."""

from __future__ import annotations

import pytest

from barnabas.server.security.sasl.exchange import LoggedIn, Refused
from barnabas.server.security.sasl.plain import PlainExchange, PlainUsers

USERS = PlainUsers({"alice": "secret-of-alice", "bob": "pässwörd", "empty": ""})


@pytest.mark.parametrize(
    ("token", "user"),
    [
        (b"\0alice\0secret-of-alice", "alice"),
        (b"alice\0alice\0secret-of-alice", "alice"),
        ("\0bob\0pässwörd".encode(), "bob"),
    ],
)
def test_is_let_in(token: bytes, user: str) -> None:
    outcome = PlainExchange(USERS).evaluate(token, 0)
    assert isinstance(outcome, LoggedIn)
    assert (outcome.user, outcome.answer, outcome.expires_ms, outcome.by_token) == (user, b"", None, False)


WRONG = "Authentication failed: invalid username or password"


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (b"\0alice\0secret-of-bob", WRONG),
        (b"\0alice\0secret-of-alic", WRONG),
        (b"\0alice\0secret-of-alice2", WRONG),
        (b"\0mallory\0secret-of-alice", WRONG),
        (b"\0Alice\0secret-of-alice", WRONG),
        (b"\0alice\0\xff\xfe", WRONG),
        (b"\0alice\0", "Authentication failed: no password given"),
        (b"\0empty\0", "Authentication failed: no password given"),
        (b"\0\0secret-of-alice", "Authentication failed: no user name given"),
        (b"bob\0alice\0secret-of-alice", "Authentication failed: the authorization id is not the one of who logs in"),
        # Whose password is wrong does not learn that the authorization id was, too.
        (b"bob\0alice\0secret-of-bob", WRONG),
        (b"", "Authentication failed: expected 3 parts in the token of PLAIN, got 1"),
        (b"alice\0secret-of-alice", "Authentication failed: expected 3 parts in the token of PLAIN, got 2"),
        (b"\0alice\0secret-of-alice\0", "Authentication failed: expected 3 parts in the token of PLAIN, got 4"),
        (b"\0" * 100_000, "Authentication failed: expected 3 parts in the token of PLAIN, got 4"),
    ],
)
def test_is_refused(token: bytes, said: str) -> None:
    with pytest.raises(Refused) as caught:
        PlainExchange(USERS).evaluate(token, 0)
    assert caught.value.said == said
    assert "secret" not in str(caught.value)


def test_nothing_of_the_passwords_is_kept_or_shown() -> None:
    assert "secret" not in repr(USERS)
    assert not any(b"secret" in value for value in USERS._digests.values())
