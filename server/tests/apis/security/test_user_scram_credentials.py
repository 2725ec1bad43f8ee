"""Describe- and AlterUserScramCredentials over the wire: every error, and what comes of it in the store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from barnabas.replication import USER_CONFIG, read_config, write_config
from barnabas.server.broker.broker import Broker
from barnabas.server.security.sasl.scram_credentials import ScramMechanism, make_credential, salted_password
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
SALT = b"salt"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with embedded_broker(tmp_path) as running:
        yield running


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with connected(broker) as one:
        yield one


def upsert(name: str, mechanism: int = 1, iterations: int = 4096, password: str = "secret") -> Any:
    one = ScramMechanism.of_number(mechanism) or SHA_256
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=SALT,
        salted_password=salted_password(one, password, SALT, 4096) if password else b"",
    )


def delete(name: str, mechanism: int = 1) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(client: Client, *items: Any) -> dict[str, ErrorCode]:
    response = await client.ask(
        AlterUserScramCredentialsRequest(
            deletions=[item for item in items if not hasattr(item, "salt")],
            upsertions=[item for item in items if hasattr(item, "salt")],
        ),
        0,
    )
    for result in response.results:
        assert result.error_message is None or result.error_code
        assert "secret" not in (result.error_message or "")
    return {result.user: ErrorCode(result.error_code) for result in response.results}


async def describe(client: Client, *names: str, users: Any = ()) -> dict[str, Any]:
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in names] or users
    response = await client.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    assert response.error_code == 0
    assert len({result.user for result in response.results}) == len(response.results)
    return {
        result.user: ErrorCode(result.error_code)
        if result.error_code
        else {info.mechanism: info.iterations for info in result.credential_infos}
        for result in response.results
    }


async def test_users_come_change_and_go(client: Client, broker: Broker) -> None:
    assert await alter(client, upsert("alice"), upsert("alice", 2, 8192), upsert("bob", 2)) == {
        "alice": ErrorCode.NONE,
        "bob": ErrorCode.NONE,
    }
    every = {"alice": {1: 4096, 2: 8192}, "bob": {2: 4096}}
    assert await describe(client, users=None) == await describe(client, users=[]) == every
    assert await alter(client, delete("alice", 2), upsert("alice", 1, 16384)) == {"alice": ErrorCode.NONE}
    assert await describe(client, "alice") == {"alice": {1: 16384}}
    assert await alter(client, delete("alice"), delete("bob", 2)) == {"alice": ErrorCode.NONE, "bob": ErrorCode.NONE}
    assert await describe(client, users=None) == {}


async def test_what_is_stored_is_what_the_password_gives(client: Client, broker: Broker) -> None:
    await alter(client, upsert("alice"))
    stored = await read_config(broker.services.cluster.store, USER_CONFIG, "alice", pytest.fail)
    assert stored == {"SCRAM-SHA-256": make_credential(SHA_256, "secret", SALT, 4096).text()}
    found = broker.services.users.scram.find(SHA_256, "alice")
    assert found is not None
    assert found.credential == make_credential(SHA_256, "secret", SALT, 4096)


async def test_quotas_beside_credentials_stay(client: Client, broker: Broker) -> None:
    store = broker.services.cluster.store
    await write_config(store, USER_CONFIG, "a b*", lambda stored: {"producer_byte_rate": "1024"})
    await alter(client, upsert("a b*"))
    stored = await read_config(store, USER_CONFIG, "a b*", pytest.fail)
    assert stored.keys() == {"producer_byte_rate", "SCRAM-SHA-256"}
    await alter(client, delete("a b*"))
    assert await read_config(store, USER_CONFIG, "a b*", pytest.fail) == {"producer_byte_rate": "1024"}
    assert "a%20b%2A" in await store.children("/config/users")


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ([upsert("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("x", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("x", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("x", iterations=-1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("x", password="")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("x", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([upsert("x", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([delete("x", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([delete("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([delete("x")], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsert("x"), upsert("x")], ErrorCode.DUPLICATE_RESOURCE),
        ([delete("x"), upsert("x")], ErrorCode.DUPLICATE_RESOURCE),
        ([upsert("x"), upsert("x", 2, 1)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("x"), delete("x", 2)], ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
async def test_of_a_user_with_something_wrong_nothing_is_done(
    client: Client, items: list[Any], code: ErrorCode
) -> None:
    assert await alter(client, *items, upsert("good")) == {items[0].name: code, "good": ErrorCode.NONE}
    assert await describe(client, users=None) == {"good": {1: 4096}}


async def test_users_that_cannot_be_described(client: Client) -> None:
    await alter(client, upsert("alice"))
    assert await describe(client, "alice", "bob", "alice", "", "bob", "carol") == {
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.RESOURCE_NOT_FOUND,
        "carol": ErrorCode.RESOURCE_NOT_FOUND,
    }


@pytest.mark.parametrize("times", [1, 2])
async def test_a_name_of_any_length_is_answered(client: Client, times: int) -> None:
    """What is said of it holds it once more, and must fit, too."""
    name = "u" * 32767
    code = ErrorCode.RESOURCE_NOT_FOUND if times == 1 else ErrorCode.DUPLICATE_RESOURCE
    assert await describe(client, *[name] * times) == {name: code}


async def test_users_are_there_again_after_a_restart(tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as first, connected(first) as client:
        await alter(client, upsert("alice"), upsert("ü/b"))
    async with embedded_broker(tmp_path) as second, connected(second) as client:
        assert await describe(client, users=None) == {"alice": {1: 4096}, "ü/b": {1: 4096}}


async def test_a_credential_that_cannot_be_read_is_named_in_the_log(
    client: Client, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    member = broker.services.cluster
    await write_config(member.store, USER_CONFIG, "alice", lambda stored: {"SCRAM-SHA-256": "password=secret"})
    await member.reload_config(USER_CONFIG, "alice")
    assert "the SCRAM-SHA-256 credential of user 'alice' cannot be used" in caplog.text
    assert "secret" not in caplog.text
    assert await describe(client, users=None) == {}


async def test_in_a_cluster_every_broker_knows_and_only_the_controller_changes(autojump_clock: Any) -> None:
    async with embedded_cluster(2) as cluster:
        controller = cluster.controller()
        other = 3 - controller
        heard = trio.Event()
        cluster[other].services.cluster.watch_clients(lambda kind, name, config: heard.set())
        async with connected(cluster[controller]) as client:
            assert await alter(client, upsert("alice")) == {"alice": ErrorCode.NONE}
        with trio.fail_after(60):
            await heard.wait()
        async with connected(cluster[other]) as client:
            assert await describe(client, users=None) == {"alice": {1: 4096}}
            assert await alter(client, upsert("bob"), delete("x")) == {
                "bob": ErrorCode.NOT_CONTROLLER,
                "x": ErrorCode.NOT_CONTROLLER,
            }
