"""Tokens for OAUTHBEARER, and log-ins of the client with all mechanisms and TLS."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

import barnabas.server.config.sasl  # noqa: F401  a broker loads it in a task, where pytest cannot always rewrite it
from barnabas.server.client.approach import Approach
from barnabas.server.client.client import open_client
from barnabas.server.client.command_config import Unusable, read_approach
from barnabas.server.client.failures import Unreachable
from barnabas.server.client.tokens import ENDPOINT, NoTokens, token_source
from barnabas.server.network.peers import PeerError
from barnabas.server.security.sasl.client import ClientCredentials, begin
from barnabas.server.security.sasl.oauthbearer import parse_first
from barnabas.server.tests.network.sasl_rig import PASSWORD, sasl_broker
from barnabas.server.tests.network.test_peer_login import Wire

OPTIONS = {"clientId": "me", "clientSecret": "s3:cret", "scope": "kafka"}


def of(values: Mapping[str, str], options: Mapping[str, str] = {}, post: Any = None) -> Any:
    return token_source(values, options, lambda: 1000.0, post)


async def test_a_token_in_a_file_is_read_for_each_log_in(tmp_path: Path) -> None:
    file = tmp_path / "to ken"
    file.write_text("aaa.bbb.ccc\n")
    source = of({ENDPOINT: file.as_uri()})
    assert (await source()).password == "aaa.bbb.ccc"
    file.write_text("ddd")
    assert (await source()).password == "ddd"
    file.write_text("no token\x01")
    with pytest.raises(PeerError, match="must be printable ASCII"):
        await source()
    file.unlink()
    with pytest.raises(PeerError, match="cannot be read: No such file"):
        await source()


async def test_a_token_of_a_server() -> None:
    asked = []

    async def post(url: str, form: bytes, headers: Mapping[str, str]) -> bytes:
        asked.append((url, form, headers["Authorization"]))
        return answers.pop(0)

    answers = [b'{"access_token": "a.b.c", "expires_in": 60}', b"<html>", b"[]", b'{"error": "invalid_client"}']
    source = of({ENDPOINT: "https://idp/token"}, OPTIONS, post)
    credentials = await source()
    assert credentials == ClientCredentials("OAUTHBEARER", "client id me", "a.b.c")
    assert "a.b.c" not in repr(credentials)
    assert asked[0] == ("https://idp/token", b"grant_type=client_credentials&scope=kafka", "Basic bWU6czM6Y3JldA==")
    for _ in range(3):
        with pytest.raises(
            PeerError, match="no token for client id me from https://idp/token: the answer has no"
        ) as no:
            await source()
        assert "s3:cret" not in str(no.value)


async def test_a_server_that_is_not_there() -> None:
    source = of({ENDPOINT: "http://127.0.0.1:1/token"}, OPTIONS)
    with pytest.raises(PeerError, match="Connection refused"):
        await source()


async def test_a_token_without_signature() -> None:
    credentials = await of({}, {"unsecuredLoginStringClaim_sub": "alice"})()
    head, claims, signature = credentials.password.split(".")
    assert signature == ""
    assert json.loads(urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(urlsafe_b64decode(claims + "==")) == {"sub": "alice", "iat": 1000, "exp": 4600}


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ({}, {}, "is missing: where tokens come from"),
        ({ENDPOINT: "ftp://x"}, {}, "must begin with file:, https: or http:"),
        ({ENDPOINT: "https://x"}, {"clientId": "me"}, "must have clientId and clientSecret"),
    ],
)
def test_settings_without_tokens(values: dict[str, str], options: dict[str, str], said: str) -> None:
    with pytest.raises(NoTokens, match=said):
        of(values, options)


def test_what_is_said_is_what_brokers_read() -> None:
    login = begin(ClientCredentials("OAUTHBEARER", "x", "a.b.c"), b"")
    assert parse_first(login.first()) == ("", "a.b.c")
    assert login.answer(b"") is None
    assert login.answer(b'{"status":"invalid_token"}') == b"\x01"


def test_a_command_config_with_tokens(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    text = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config=o.Bearer required"
    file.write_text(f"{text};\n{ENDPOINT}=file:/tmp/token\n")
    approach = read_approach(str(file))
    assert approach.protocol == "SASL_PLAINTEXT"
    assert callable(approach.credentials)
    file.write_text(f"{text};\n")
    with pytest.raises(Unusable, match="where tokens come from"):
        read_approach(str(file))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_log_ins(autojump_clock: MockClock, tmp_path: Path, mechanism: str) -> None:
    async with sasl_broker(tmp_path) as broker:

        async def connect(endpoint: Any) -> Any:
            return await Wire(broker)(endpoint_of_clients(endpoint))

        right = Approach(None, ClientCredentials(mechanism, "alice", PASSWORD))
        async with open_client(["broker:1"], approach=right, connect=connect) as client:
            assert (await client.refresh([])).brokers
        wrong = Approach(None, ClientCredentials(mechanism, "alice", "wrong"))
        async with open_client(["broker:1"], approach=wrong, connect=connect) as client:
            with pytest.raises(Unreachable, match=r"broker:1: it rejects the log-in of alice: "):
                await client.refresh([])


def endpoint_of_clients(endpoint: Any) -> Any:
    """The wire of these tests chooses the listener by its name."""
    from barnabas.replication import Endpoint

    return Endpoint("CLIENTS", endpoint.host, endpoint.port, endpoint.security_protocol)
