"""Stock clients through TLS: whom they trust, whom the broker trusts, and who they are to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.harness.secured import Secured
from compat_tests.subjects.security.clients.choice import with_each
from compat_tests.subjects.security.clients.client import BROKERS_CERTIFICATE, OWN_CERTIFICATE, TOPIC, Client
from compat_tests.subjects.security.steps import refusal, there_and_back

AREA = "TLS"
CAROL = r"CN=Carol\, the first,OU=clients,O=Example"
"""A subject whose text has to be written just as Java does."""


@pytest.fixture
def carols_topic(secured: Secured, unique: Callable[..., str]) -> str:
    """A topic that nobody else may use."""
    name = unique()
    secured.make_topic(name, only=f"User:{CAROL}")
    return name


@with_each(AREA, "the broker shows a certificate")
def test_one_sided(secured: Secured, topic: str, client: Client) -> None:
    there_and_back(client, secured.access("TLS"), topic)


@with_each(AREA, "the client shows one, too, and is whom it names")
def test_mutual(secured: Secured, carols_topic: str, client: Client) -> None:
    access = secured.access("MUTUAL", identity=secured.stores.client("carol", CAROL))
    there_and_back(client, access, carols_topic)


@with_each(AREA, "whom another certificate names may not use what is hers")
def test_another_user(secured: Secured, carols_topic: str, client: Client) -> None:
    access = secured.access("MUTUAL", identity=secured.stores.client("dave", "CN=Dave,OU=clients,O=Example"))
    assert refusal(client, access, carols_topic) == TOPIC


@with_each(AREA, "who shows no certificate is nobody in particular")
def test_nobody_in_particular(secured: Secured, carols_topic: str, client: Client) -> None:
    access = secured.access("TLS", identity=secured.stores.client("carol", CAROL))  # which the broker does not ask for
    assert refusal(client, access, carols_topic) == TOPIC


@with_each(AREA, "the broker's certificate is of an unknown authority")
def test_unknown_authority(secured: Secured, topic: str, client: Client) -> None:
    access = secured.access("TLS", authority=secured.stores.other_authority)
    assert refusal(client, access, topic) == BROKERS_CERTIFICATE


@with_each(AREA, "the broker's certificate has expired")
def test_expired(secured: Secured, topic: str, client: Client) -> None:
    assert refusal(client, secured.access("EXPIRED"), topic) == BROKERS_CERTIFICATE


@with_each(AREA, "the broker's certificate names another host")
def test_another_host(secured: Secured, topic: str, client: Client) -> None:
    assert refusal(client, secured.access("ELSEWHERE"), topic) == BROKERS_CERTIFICATE


@with_each(AREA, "the client's certificate has expired")
def test_own_expired(secured: Secured, topic: str, client: Client) -> None:
    access = secured.access("MUTUAL", identity=secured.stores.client("carol-before", CAROL, expired=True))
    assert refusal(client, access, topic) == OWN_CERTIFICATE


@with_each(AREA, "the client's certificate is of an unknown authority")
def test_own_of_an_unknown_authority(secured: Secured, topic: str, client: Client) -> None:
    access = secured.access("MUTUAL", identity=secured.stores.client("carol-elsewhere", CAROL, other=True))
    assert refusal(client, access, topic) == OWN_CERTIFICATE


@with_each(AREA, "the client shows no certificate where one is wanted")
def test_no_certificate(secured: Secured, topic: str, client: Client) -> None:
    assert refusal(client, secured.access("MUTUAL"), topic) == OWN_CERTIFICATE
