"""When keys are fetched, and which of them are used."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("joserfc")

from joserfc.jwk import ECKey, OctKey, RSAKey

from barnabas.server.security.sasl.jwks import BadKeySet, Jwks, RefreshRules, parse_keys

EC = ECKey.generate_key("P-256", {"kid": "a"}).as_dict(private=False)
EC_2 = ECKey.generate_key("P-384", {"kid": "b"}).as_dict(private=False)
RSA = RSAKey.generate_key(2048, {"kid": "a"}).as_dict(private=False)


def document(*keys: Any) -> str:
    return json.dumps({"keys": keys})


def test_keys_by_name_and_type() -> None:
    jwks = Jwks(RefreshRules())
    assert not jwks.has_keys
    jwks.fetched(document(EC, EC_2, RSA), 0)
    assert jwks.has_keys
    assert [key.kid for key in jwks.keys("a", "EC")] == ["a"]
    assert [key.kid for key in jwks.keys(None, "EC")] == ["a", "b"]
    assert jwks.keys("b", "RSA") == jwks.keys("c", "EC") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys":{}}',
        '{"keys":[]}',
        '{"keys":[1,null,{}]}',
        document(EC | {"use": "enc"}),
        document(EC | {"crv": "P-1"}),
        document({"kty": "EC", "kid": "x"}),
        document(OctKey.import_key(b"k" * 32).as_dict(private=True)),
        "[" * 100_000,
    ],
)
def test_what_is_no_set_of_keys(text: str) -> None:
    with pytest.raises(BadKeySet):
        parse_keys(text)


def test_a_key_that_cannot_be_used_does_not_spoil_the_others() -> None:
    short = {"kty": "RSA", "kid": "short", "n": "AQAB" * 20, "e": "AQAB"}
    assert [key.kid for key in parse_keys(document({"kty": "new"}, short, EC | {"use": "enc"}, EC_2))] == ["b"]


def test_when_keys_are_fetched() -> None:
    jwks = Jwks(RefreshRules(refresh_s=100, backoff_s=1, backoff_max_s=5))
    assert jwks.next_fetch < 0
    pauses = []
    for _ in range(5):
        jwks.failed(10)
        pauses.append(jwks.next_fetch - 10)
    assert pauses == [1, 2, 4, 5, 5]
    jwks.fetched(document(EC), 20)
    assert jwks.next_fetch == 120
    with pytest.raises(BadKeySet):
        jwks.fetched("rubbish", 120)
    assert jwks.next_fetch == 121
    assert jwks.keys("a", "EC"), "what was there stays"


def test_a_name_that_is_missed_brings_the_fetch_forward_once_a_minute() -> None:
    jwks = Jwks(RefreshRules())
    jwks.fetched(document(EC), 0)
    assert jwks.miss("new", 10)
    assert jwks.next_fetch == 10
    assert not jwks.miss("newer", 10), "a fetch is due"
    jwks.fetched(document(EC), 11)
    assert not jwks.miss("new", 12)
    assert jwks.next_fetch == 3611
    assert jwks.miss("new", 70)
    jwks.fetched(document(EC | {"kid": "new"}), 71)
    jwks.fetched(document(EC), 72)
    assert jwks.miss("new", 73), "it had been there in between"


def test_made_up_names_cost_nothing() -> None:
    jwks = Jwks(RefreshRules())
    jwks.fetched(document(EC), 0)
    assert not jwks.miss("k" * 1001, 1)
    assert not jwks.miss(None, 1)
    for number in range(1000):
        jwks.miss(f"made-up-{number}", 1)
    assert len(jwks._missed) <= 16
    jwks.failed(2)
    before = jwks.next_fetch
    assert not jwks.miss("another", 2.01), "while fetching fails, its pauses hold"
    assert jwks.next_fetch == before
