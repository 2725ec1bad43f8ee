"""Stock clients log in with SASL, through TLS and without: who is let in, as whom, and who is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from compat_tests.harness.matrix import Absent, Place
from compat_tests.harness.secured import PASSWORDS, USER, Access, Secured
from compat_tests.subjects.security.clients.choice import LIBRARIES, with_each
from compat_tests.subjects.security.clients.client import LOGIN, TOPIC, UNSAID, Client
from compat_tests.subjects.security.steps import refusal, there_and_back

AREA = "SASL"
TOKENS = "OAUTHBEARER"
ABSENT = [
    Absent(Place(AREA, "log in with a token", "kcat"), "it takes signed tokens from a server of tokens only"),
    Absent(Place(AREA, "a token that has ended", "kcat"), "it takes signed tokens from a server of tokens only"),
    Absent(Place(AREA, "a token that has ended", "aiokafka"), "it takes the refusal for a success, and waits"),
]


def no_login(secured: Secured) -> set[str]:
    """How a client is refused. Ours gives it time to read why."""
    return {LOGIN} if secured.broker.name == "Barnabas" else {LOGIN, UNSAID}


@with_each(AREA, "log in without TLS")
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_logs_in_without_tls(secured: Secured, topic: str, client: Client, mechanism: str) -> None:
    _logs_in(secured, client, secured.login("CLIENTS", mechanism), topic)


@with_each(AREA, "log in through TLS")
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_logs_in_through_tls(secured: Secured, unique: Callable[..., str], client: Client, mechanism: str) -> None:
    topic = unique()
    secured.make_topic(topic, only=f"User:{USER}")
    _logs_in(secured, client, secured.login("SECURE", mechanism), topic)


def _logs_in(secured: Secured, client: Client, access: Access, topic: str) -> None:
    if access.mechanism.startswith("SCRAM") and not getattr(client, "speaks_scram", True):
        assert refusal(client, access, topic) in no_login(secured)
    else:
        there_and_back(client, access, topic)


@with_each(AREA, "log in with a token", LIBRARIES)
def test_logs_in_with_a_token(secured: Secured, unique: Callable[..., str], client: Client) -> None:
    topic = unique()
    secured.make_topic(topic, only=f"User:{USER}")
    there_and_back(client, secured.login("SECURE", TOKENS), topic)


@with_each(AREA, "who has logged in may not use what is another's")
def test_another_users_topic(secured: Secured, unique: Callable[..., str], client: Client) -> None:
    topic = unique()
    secured.make_topic(topic, only="User:bob")
    assert refusal(client, secured.login("SECURE", "PLAIN"), topic) == TOPIC


@with_each(AREA, "a wrong password")
@pytest.mark.parametrize(("listener", "mechanism"), [("CLIENTS", "PLAIN"), ("SECURE", "SCRAM-SHA-256")])
def test_wrong_password(secured: Secured, topic: str, client: Client, listener: str, mechanism: str) -> None:
    access = replace(secured.login(listener, mechanism), password="another-secret")
    assert refusal(client, access, topic) in no_login(secured)


@with_each(AREA, "an unknown user")
@pytest.mark.parametrize(("listener", "mechanism"), [("SECURE", "PLAIN"), ("CLIENTS", "SCRAM-SHA-512")])
def test_unknown_user(secured: Secured, topic: str, client: Client, listener: str, mechanism: str) -> None:
    assert refusal(client, replace(secured.login(listener, mechanism), user="mallory"), topic) in no_login(secured)


@with_each(AREA, "a token that has ended", [name for name in LIBRARIES if name != "aiokafka"])
def test_token_that_has_ended(secured: Secured, topic: str, client: Client) -> None:
    access = replace(secured.login("SECURE", TOKENS), token=secured.tokens.token(USER, seconds=-300))
    assert refusal(client, access, topic) in no_login(secured)
