"""A broker with a listener that wants a log-in, and what its clients say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import ApiVersionsRequest, MetadataRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.replication import USER_CONFIG, write_config
from barnabas.server.broker.broker import Broker
from barnabas.server.security.sasl.client import ClientCredentials, begin
from barnabas.server.security.sasl.scram_credentials import ScramMechanism, make_credential
from barnabas.server.testing import Client, embedded_broker

PASSWORD = "secret-of-alice"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}" user_bob="secret-2";'
SETTINGS = {
    "listeners": "CLIENTS://localhost:0,PLAINTEXT://localhost:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
}
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
METADATA = MetadataRequest(topics=[])


@asynccontextmanager
async def sasl_broker(directory: Path, **settings: str) -> AsyncIterator[Broker]:
    """With alice and bob by PLAIN, alice by both SCRAM. Settings with `_` for `.`."""
    async with embedded_broker(directory, **{**SETTINGS, **settings}) as broker:
        member = broker.services.cluster
        texts = {one.value: make_credential(one, PASSWORD, b"salt", 4096).text() for one in ScramMechanism}
        await write_config(member.store, USER_CONFIG, "alice", lambda stored: texts)
        await member.reload_config(USER_CONFIG, "alice")
        yield broker


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    return await client.ask(SaslAuthenticateRequest(auth_bytes=token), version)


async def log_in(
    client: Client,
    mechanism: str = "PLAIN",
    user: str = "alice",
    password: str = PASSWORD,
    version: int = 2,
    *,
    by_token: bool = False,
) -> Any:
    """The last answer of the broker. by_token: user and password are a delegation token's."""
    answer = await handshake(client, mechanism)
    assert answer.error_code == ErrorCode.NONE
    login = begin(ClientCredentials(mechanism, user, password, by_token), b"nonce")
    token: bytes | None = login.first()
    while token is not None:
        answer = await authenticate(client, token, version)
        if answer.error_code:
            break
        token = login.answer(answer.auth_bytes)
    return answer
