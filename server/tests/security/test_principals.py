"""The values that the room speaks of."""

import pytest

from barnabas.server.security.principals import ANONYMOUS, Principal
from barnabas.server.security.session import Session, anonymous


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:CN=kafka1,OU=ops,O=Foo", Principal("User", "CN=kafka1,OU=ops,O=Foo")),
        ("User:a:b", Principal("User", "a:b")),
        ("User:*", Principal("User", "*")),
        ("Group:ops", Principal("Group", "ops")),
        ("User:", Principal("User", "")),
    ],
)
def test_the_text_is_split_at_the_first_colon_and_comes_back(text: str, principal: Principal) -> None:
    assert Principal.parse(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice"])
def test_without_a_colon_it_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="is no principal"):
        Principal.parse(text)


def test_an_unauthenticated_client_is_anonymous() -> None:
    session = anonymous("10.0.0.1", "PLAINTEXT", "PLAINTEXT")
    assert session == Session(ANONYMOUS, "10.0.0.1", "PLAINTEXT", "PLAINTEXT", token_authenticated=False)
    assert str(session.principal) == "User:ANONYMOUS"
