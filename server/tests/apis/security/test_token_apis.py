"""The four APIs of delegation tokens over the wire: every version, every error, who sees what; log-ins with tokens,
under a mock clock. What Apache Kafka 4.3.1 answers to the same is in compat_tests/subjects/security/test_tokens.py.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from barnabas.replication.tree import token_nodes
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.token_requests import may_ask
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclOperation,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.principals import ANONYMOUS, Principal
from barnabas.server.security.session import Session
from barnabas.server.testing import START_OF_VIRTUAL_TIME, Client, connected, embedded_broker, embedded_cluster
from barnabas.server.tests.network.sasl_rig import METADATA, SETTINGS, log_in

E = ErrorCode
USERS = ("alice", "bob", "carol", "root")
KEY = {"delegation.token.secret.key": "very-secret"}
SASL = {
    **SETTINGS,
    "listener.name.clients.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{name}="{name}-secret"' for name in USERS)
    + ";",
    "delegation.token.max.lifetime.ms": "100000",
    "delegation.token.expiry.time.ms": "10000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}
VERSIONS = [
    (request, version)
    for request, last in (("create", 3), ("renew", 2), ("expire", 2), ("describe", 3))
    for version in range(last + 1)
]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with embedded_broker(tmp_path, **SASL, **KEY) as running:
        yield running


@asynccontextmanager
async def user(broker: Broker, name: str) -> AsyncIterator[Client]:
    """A client that has logged in by PLAIN."""
    async with connected(broker, "CLIENTS") as client:
        assert (await log_in(client, "PLAIN", name, f"{name}-secret")).error_code == E.NONE
        yield client


@asynccontextmanager
async def bearer(broker: Broker, token: Any, mechanism: str = "SCRAM-SHA-512") -> AsyncIterator[Client]:
    """A client that has logged in with a token, the answer to CreateDelegationToken."""
    async with connected(broker, "CLIENTS") as client:
        assert (await token_log_in(client, token, mechanism)).error_code == E.NONE
        yield client


async def token_log_in(client: Client, token: Any, mechanism: str = "SCRAM-SHA-512") -> Any:
    password = base64.b64encode(token.hmac).decode()
    return await log_in(client, mechanism, token.token_id, password, by_token=True)


def now_ms() -> int:
    return int((START_OF_VIRTUAL_TIME + trio.current_time()) * 1000)


def create(
    *renewers: str, owner: tuple[str | None, str] | None = None, lifetime_ms: int = -1, kind: str = "User"
) -> CreateDelegationTokenRequest:
    who = {} if owner is None else {"owner_principal_type": owner[0], "owner_principal_name": owner[1]}
    return CreateDelegationTokenRequest(
        **who,
        renewers=[
            CreateDelegationTokenRequest.CreatableRenewers(principal_type=kind, principal_name=name)
            for name in renewers
        ],
        max_lifetime_ms=lifetime_ms,
    )


def renew(hmac: bytes, period_ms: int = -1) -> RenewDelegationTokenRequest:
    return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)


def expire(hmac: bytes, period_ms: int = -1) -> ExpireDelegationTokenRequest:
    return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)


def describe(*owners: str) -> DescribeDelegationTokenRequest:
    """Without owners: all."""
    named = [
        DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
        for name in owners
    ]
    return DescribeDelegationTokenRequest(owners=named or None)


def asked(request: str) -> Any:
    return {"create": create("bob"), "renew": renew(b"x"), "expire": expire(b"x"), "describe": describe()}[request]


async def seen(client: Client, *owners: str) -> set[str]:
    """Ids of the tokens that are described to a client."""
    return {token.token_id for token in (await client.ask(describe(*owners), 3)).tokens}


def allow(broker: Broker, name: str, operation: AclOperation, kind: ResourceType, resource: str) -> None:
    authorizer = broker.services.authorizer
    assert authorizer is not None
    entry = AccessControlEntry(f"User:{name}", "*", operation, PermissionType.ALLOW)
    authorizer.put(ResourcePattern(kind, resource), [entry])


@pytest.mark.parametrize("version", range(4))
async def test_made_and_described_in_every_version(autojump_clock: MockClock, broker: Broker, version: int) -> None:
    async with user(broker, "alice") as alice:
        made = await alice.ask(create("bob", "carol", lifetime_ms=50_000), version)
        assert (made.error_code, made.principal_type, made.principal_name) == (E.NONE, "User", "alice")
        assert made.issue_timestamp_ms == now_ms()
        assert (made.max_timestamp_ms, made.expiry_timestamp_ms) == (now_ms() + 50_000, now_ms() + 10_000)
        assert (len(made.token_id), len(made.hmac)) == (22, 64)
        response = await alice.ask(describe(), version)
        assert response.error_code == E.NONE
        (told,) = response.tokens
        assert (told.principal_type, told.principal_name) == ("User", "alice")
        assert (told.token_id, told.hmac) == (made.token_id, made.hmac)
        assert (told.issue_timestamp, told.expiry_timestamp, told.max_timestamp) == (
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )
        assert [(each.principal_type, each.principal_name) for each in told.renewers] == [
            ("User", "bob"),
            ("User", "carol"),
        ]
        requester = ("User", "alice") if version >= 3 else ("", "")
        assert (made.token_requester_principal_type, made.token_requester_principal_name) == requester
        assert (told.token_requester_principal_type, told.token_requester_principal_name) == requester


@pytest.mark.parametrize("version", range(3))
async def test_renewed_and_ended_in_every_version(autojump_clock: MockClock, broker: Broker, version: int) -> None:
    async with user(broker, "alice") as alice, user(broker, "bob") as bob, user(broker, "carol") as carol:
        made = await alice.ask(create("bob"), 3)
        await trio.sleep(5)
        for client, answer in (
            (alice, (E.NONE, now_ms() + 2000)),
            (bob, (E.NONE, now_ms() + 2000)),
            (carol, (E.DELEGATION_TOKEN_OWNER_MISMATCH, 0)),
        ):
            for request in (renew(made.hmac, 2000), expire(made.hmac, 2000)):
                response = await client.ask(request, version)
                assert (response.error_code, response.expiry_timestamp_ms) == answer
        await trio.sleep(2.002)
        for request in (renew(made.hmac), expire(made.hmac, 0)):
            response = await alice.ask(request, version)
            assert (response.error_code, response.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_EXPIRED, 0)
        assert await seen(alice) == {made.token_id}  # until it is removed
        response = await bob.ask(expire(made.hmac), version)
        assert (response.error_code, response.expiry_timestamp_ms) == (E.NONE, now_ms())
        for request in (renew(made.hmac), expire(made.hmac)):
            response = await alice.ask(request, version)
            assert (response.error_code, response.expiry_timestamp_ms) == (E.DELEGATION_TOKEN_NOT_FOUND, 0)
        assert await seen(alice) == set()


@pytest.mark.parametrize(("request_name", "version"), VERSIONS)
async def test_sessions_that_may_not_use_tokens(
    autojump_clock: MockClock, broker: Broker, request_name: str, version: int
) -> None:
    """On PLAINTEXT, and with a token."""
    async with user(broker, "alice") as alice, connected(broker, "PLAINTEXT") as plaintext:
        made = await alice.ask(create(), 3)
        async with bearer(broker, made) as again:
            for client, name in ((plaintext, "ANONYMOUS"), (again, "alice")):
                response = await client.ask(asked(request_name), version)
                assert response.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
                if request_name == "describe":
                    assert response.tokens == []
                else:
                    assert response.expiry_timestamp_ms == -1
                if request_name == "create":
                    assert (response.issue_timestamp_ms, response.max_timestamp_ms) == (-1, -1)
                    assert (response.principal_name, response.token_id, response.hmac) == (name, "", b"")


@pytest.mark.parametrize(("request_name", "version"), VERSIONS)
async def test_without_a_key_there_are_no_tokens(
    tmp_path: Path, autojump_clock: MockClock, request_name: str, version: int
) -> None:
    async with embedded_broker(tmp_path, **SASL) as broker, user(broker, "alice") as alice:
        response = await alice.ask(asked(request_name), version)
        assert response.error_code == E.DELEGATION_TOKEN_AUTH_DISABLED
        if request_name != "describe":
            assert response.expiry_timestamp_ms == 0
        assert await broker.services.cluster.store.get("/delegation_token") is None
        async with connected(broker, "CLIENTS") as client:
            refused = await log_in(client, "SCRAM-SHA-256", "alice", by_token=True)
            assert refused.error_code == E.SASL_AUTHENTICATION_FAILED


async def test_errors_come_in_apache_kafkas_order(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with embedded_broker(tmp_path, **SASL) as broker:
        other: Any = ("User", "bob")
        async with user(broker, "alice") as alice:
            response = await alice.ask(create("g", kind="Group", owner=other), 3)
            assert response.error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            assert (response.principal_name, response.token_requester_principal_name) == ("bob", "alice")
            assert response.expiry_timestamp_ms == -1
            response = await alice.ask(create("g", kind="Group"), 3)
            assert (response.error_code, response.expiry_timestamp_ms) == (E.INVALID_PRINCIPAL_TYPE, -1)
        async with connected(broker, "PLAINTEXT") as plaintext:
            response = await plaintext.ask(create("g", kind="Group", owner=other), 3)
            assert response.error_code == E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert (response.principal_name, response.token_requester_principal_name) == ("bob", "ANONYMOUS")


async def test_renewers_are_limited(autojump_clock: MockClock, broker: Broker) -> None:
    many = [f"renewer-{number}" for number in range(1001)]
    async with user(broker, "alice") as alice:
        refused = await alice.ask(create(*many), 3)
        assert (refused.error_code, refused.expiry_timestamp_ms) == (E.INVALID_REQUEST, -1)
        made = await alice.ask(create(*many[1:]), 3)
        assert made.error_code == E.NONE
        (told,) = (await alice.ask(describe(), 3)).tokens
        assert [renewer.principal_name for renewer in told.renewers] == many[1:]


async def test_a_token_for_another_owner(autojump_clock: MockClock, broker: Broker) -> None:
    bobs: Any = ("User", "bob")
    async with user(broker, "alice") as alice, user(broker, "bob") as bob, user(broker, "root") as root:
        refused = await alice.ask(create(owner=bobs), 3)
        assert refused.error_code == E.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        allow(broker, "alice", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        made = await alice.ask(create(owner=bobs), 3)
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (E.NONE, "bob", "alice")
        assert (await alice.ask(create(owner=("User", "carol")), 3)).error_code == refused.error_code
        for nobody in (("User", ""), (None, "")):
            assert (await alice.ask(create(owner=nobody), 3)).principal_name == "alice"
        for kind in ("Group", None):
            assert (await root.ask(create(owner=(kind, "x")), 3)).error_code == E.INVALID_PRINCIPAL_TYPE
        # Who had it made has no say in it, but may see it, in every version.
        assert (await alice.ask(renew(made.hmac), 2)).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH
        for version in range(4):
            response = await alice.ask(describe("alice"), version)
            assert made.token_id in {token.token_id for token in response.tokens}
        assert await seen(bob) == await seen(bob, "alice") == {made.token_id}
        assert await seen(bob, "root") == set()
        (told,) = (await bob.ask(describe(), 3)).tokens
        assert told.token_requester_principal_name == "alice"


async def test_who_sees_which_tokens(autojump_clock: MockClock, broker: Broker) -> None:
    async with (
        user(broker, "alice") as alice,
        user(broker, "bob") as bob,
        user(broker, "carol") as carol,
        user(broker, "root") as root,
    ):
        first = (await alice.ask(create("bob"), 3)).token_id
        second = (await alice.ask(create(), 3)).token_id
        third = (await bob.ask(create(), 3)).token_id
        assert await seen(alice) == await seen(alice, "alice") == {first, second}
        assert await seen(alice, "bob") == {first}  # he may renew it
        assert await seen(bob) == await seen(bob, "bob", "carol") == {first, third}
        assert await seen(carol) == await seen(carol, "alice") == set()
        assert await seen(root) == {first, second, third}
        assert await seen(root, "alice") == {first, second}
        assert (await root.ask(DescribeDelegationTokenRequest(owners=[]), 3)).tokens == []
        allow(broker, "carol", AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, second)
        assert await seen(carol) == {second}
        allow(broker, "carol", AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
        assert await seen(carol) == {second, third}
        assert await seen(carol, "bob") == {third}


async def test_without_an_authorizer_all_are_seen_and_made(tmp_path: Path, autojump_clock: MockClock) -> None:
    settings = {**SASL, **KEY, "authorizer.class.name": ""}
    async with (
        embedded_broker(tmp_path, **settings) as broker,
        user(broker, "alice") as alice,
        user(broker, "carol") as carol,
    ):
        made = await alice.ask(create(owner=("User", "bob")), 3)
        assert made.principal_name == "bob"
        assert await seen(carol) == {made.token_id}
        assert (await carol.ask(renew(made.hmac), 2)).error_code == E.DELEGATION_TOKEN_OWNER_MISMATCH


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_log_in_is_its_owners_and_ends_with_the_token(
    autojump_clock: MockClock, broker: Broker, mechanism: str
) -> None:
    async with user(broker, "alice") as alice:
        made = await alice.ask(create(), 3)
        await trio.sleep(4)
        async with connected(broker, "CLIENTS") as client:
            answer = await token_log_in(client, made, mechanism)
            assert (answer.error_code, answer.session_lifetime_ms) == (E.NONE, made.expiry_timestamp_ms - now_ms())
            assert (await client.ask(METADATA, 12)).brokers
            # She renews it: a log-in from now on lasts longer, also on a connection that is open.
            assert (await alice.ask(renew(made.hmac), 2)).error_code == E.NONE
            await trio.sleep(2)
            answer = await token_log_in(client, made, mechanism)
            assert (answer.error_code, answer.session_lifetime_ms) == (E.NONE, 8000)
            await trio.sleep(7.5)
            assert (await client.ask(METADATA, 12)).brokers
            await trio.sleep(1)
            with pytest.raises((EOFError, trio.BrokenResourceError)):
                await client.ask(METADATA, 12)


async def test_token_log_ins_that_fail(
    autojump_clock: MockClock, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with user(broker, "alice") as alice:
        made = await alice.ask(create(), 3)
        secret = base64.b64encode(made.hmac).decode()
        attempts = {
            "another secret": (made.token_id, "guessed", True),
            "another id": ("no-such-token", secret, True),
            "a token as a user": (made.token_id, secret, False),
            "a user as a token": ("alice", "alice-secret", True),
        }
        said = set()
        with caplog.at_level(logging.INFO, "barnabas"):
            for name, password, by_token in attempts.values():
                async with connected(broker, "CLIENTS") as client:
                    answer = await log_in(client, "SCRAM-SHA-256", name, password, by_token=by_token)
                    said.add((answer.error_code, answer.error_message))
            assert (await alice.ask(expire(made.hmac, 0), 2)).error_code == E.NONE
            await trio.sleep(0.1)
            async with connected(broker, "CLIENTS") as client:
                answer = await token_log_in(client, made)
                said.add((answer.error_code, answer.error_message.replace("512", "256")))
        assert [code for code, _ in said] == [E.SASL_AUTHENTICATION_FAILED]
        assert secret not in caplog.text
        assert made.hmac.hex() not in caplog.text


async def test_the_store_has_what_apache_kafka_would_have(autojump_clock: MockClock, broker: Broker) -> None:
    async with user(broker, "alice") as alice:
        made = await alice.ask(create("bob"), 3)
        store = broker.services.cluster.store
        stored = await token_nodes.read_token(store, made.token_id)
        assert stored == token_nodes.StoredToken(
            made.token_id,
            "User:alice",
            "User:alice",
            ("User:bob",),
            made.issue_timestamp_ms,
            made.max_timestamp_ms,
            made.expiry_timestamp_ms,
        )
        node = await store.get(token_nodes.path(made.token_id))
        assert node is not None
        assert made.hmac.hex() not in node.data.hex()


async def test_tokens_outlive_a_restart_and_the_expired_are_removed(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**SASL, **KEY, "delegation.token.expiry.check.interval.ms": "60000"}
    async with embedded_broker(tmp_path, **settings) as broker, user(broker, "alice") as alice:
        kept = await alice.ask(create(), 3)
        gone = await alice.ask(create(lifetime_ms=1000), 3)
    await trio.sleep(2)
    with caplog.at_level(logging.INFO, "barnabas.security"):
        async with embedded_broker(tmp_path, **settings) as broker, user(broker, "alice") as alice:
            await trio.sleep(0.1)
            assert await seen(alice) == {kept.token_id}
            async with bearer(broker, kept) as client:
                assert (await client.ask(METADATA, 12)).brokers
            await trio.sleep(61)
            assert await seen(alice) == set()
    assert f"delegation token {gone.token_id} was removed" in caplog.text


async def test_a_token_of_one_broker_is_good_at_the_others(autojump_clock: MockClock) -> None:
    settings = {
        **SASL,
        **KEY,
        "inter.broker.listener.name": "PLAINTEXT",
        "delegation.token.expiry.check.interval.ms": "30000",
    }
    with trio.fail_after(600):
        async with (
            embedded_cluster(3, None, **settings) as cluster,  # type: ignore[arg-type]
            user(cluster[1], "alice") as alice,
            user(cluster[2], "alice") as elsewhere,
        ):
            made = await alice.ask(create(), 3)
            await trio.sleep(0.1)
            for number in (2, 3):
                async with bearer(cluster[number], made) as client:
                    assert (await client.ask(METADATA, 12)).brokers
            assert (await elsewhere.ask(renew(made.hmac), 2)).error_code == E.NONE
            await trio.sleep(0.1)
            assert await seen(alice) == {made.token_id}
            await trio.sleep(41)
            assert await seen(alice) == await seen(elsewhere) == set()  # removed by the controller alone


def test_which_protocols_may_use_tokens() -> None:
    alice = Principal("User", "alice")
    allowed = {
        (protocol, str(who), by_token)
        for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        for who in (alice, ANONYMOUS)
        for by_token in (False, True)
        if may_ask(Session(who, "10.0.0.1", "L", protocol, by_token))
    }
    # No client is anonymous where it must log in.
    assert allowed == {
        *(("SSL", "User:alice", False), ("SASL_PLAINTEXT", "User:alice", False), ("SASL_SSL", "User:alice", False)),
        *(("SASL_PLAINTEXT", "User:ANONYMOUS", False), ("SASL_SSL", "User:ANONYMOUS", False)),
    }
