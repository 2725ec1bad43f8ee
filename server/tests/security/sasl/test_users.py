"""SCRAM credentials as they stand in the store, and the users of a broker."""

from __future__ import annotations

import pytest

from barnabas.server.security.sasl.scram_credentials import (
    BadCredential,
    ScramCredential,
    ScramMechanism,
    make_credential,
    parse_credential,
)
from barnabas.server.security.sasl.users import ScramUsers

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
TEXT = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


def test_the_text_of_the_store() -> None:
    credential = parse_credential(TEXT)
    assert credential == ScramCredential(b"salt", b"stored", b"server", 4096)
    assert credential.text() == TEXT
    assert parse_credential("iterations=4096,server_key=c2VydmVy,salt=c2FsdA==,stored_key=c3RvcmVk") == credential
    made = make_credential(SHA_512, "p", b"s", 5000)
    assert parse_credential(made.text()) == made
    assert (len(made.stored_key), len(made.server_key)) == (64, 64)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt",
        "[iterations=8192,password=p]",
        "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy",
        TEXT + ",more=1",
        TEXT.replace("4096", "x"),
        TEXT.replace("4096", "-4096"),
        TEXT.replace("4096", "9" * 5000),
        TEXT.replace("c3RvcmVk", "c3Rv*mVk"),
        TEXT.replace("c3RvcmVk", "c3RvcmV"),
    ],
)
def test_what_is_no_credential_is_not_shown(text: str) -> None:
    with pytest.raises(BadCredential) as caught:
        parse_credential(text)
    assert not any(part in str(caught.value) for part in ("c2VydmVy", "c3Rv", "password="))


def test_numbers_and_names() -> None:
    assert [one.number for one in ScramMechanism] == [1, 2]
    assert ScramMechanism.of_number(2) is SHA_512
    assert ScramMechanism.of_number(0) is ScramMechanism.of_number(3) is None
    assert ScramMechanism.of_name("SCRAM-SHA-256") is SHA_256
    assert ScramMechanism.of_name("PLAIN") is None


def test_a_user_comes_changes_and_goes() -> None:
    users = ScramUsers(b"s")
    assert users.put("alice", {"SCRAM-SHA-256": TEXT, "producer_byte_rate": "1024"}) == []
    assert users.put("bob", {"producer_byte_rate": "1024"}) == []
    assert users.names == ["alice"]
    found = users.find(SHA_256, "alice")
    assert found is not None
    assert (found.user, found.credential) == ("alice", parse_credential(TEXT))
    assert users.find(SHA_512, "alice") is users.find(SHA_256, "bob") is None
    users.put("alice", {"SCRAM-SHA-512": TEXT})
    assert users.find(SHA_256, "alice") is None
    assert set(users.credentials("alice")) == {SHA_512}
    users.put("alice", {})
    assert users.names == []


def test_what_cannot_be_used_is_named_and_left_out() -> None:
    users = ScramUsers(b"s")
    assert users.put("alice", {"SCRAM-SHA-256": "salt=c2FsdA==", "SCRAM-SHA-512": TEXT}) == [
        "the SCRAM-SHA-256 credential of user 'alice' cannot be used: "
        "it must have salt, stored_key, server_key and iterations"
    ]
    assert set(users.credentials("alice")) == {SHA_512}


def test_nothing_secret_is_in_a_repr() -> None:
    users = ScramUsers(b"secret-of-the-cluster")
    users.put("alice", {"SCRAM-SHA-256": TEXT})
    shown = repr(users) + repr(users.find(SHA_256, "alice")) + repr(parse_credential(TEXT))
    assert not any(part in shown for part in ("secret", "stored", "server'", "c3Rv", "salt"))
