"""Describe- and AlterClientQuotas over the wire: every error, and what comes of it in the store and on the broker."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest
from barnabas.replication import CLIENT_CONFIG, IP_CONFIG, USER_CONFIG, read_config, write_config
from barnabas.replication.tree.client_nodes import read_clients
from barnabas.replication.tree.paths import user_clients
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import Client, connected, embedded_broker, embedded_cluster

Named = Mapping[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


class _Hosts(trio.abc.HostnameResolver):
    """Knows one host. Addresses are not asked for."""

    async def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        if host != b"known.example":
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, 1, 6, "", (f"10.0.0.{last}", 0)) for last in (1, 2, 1)]

    async def getnameinfo(self, sockaddr: Any, flags: int) -> Any:
        raise NotImplementedError


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    trio.socket.set_custom_hostname_resolver(_Hosts())
    async with embedded_broker(tmp_path) as running:
        yield running


@pytest.fixture(params=[0, 1])
async def client(broker: Broker, request: pytest.FixtureRequest) -> AsyncIterator[Quotas]:
    async with connected(broker) as one:
        yield Quotas(one, request.param)


def named(user: str | None = "", client: str | None = "", ip: str | None = "") -> Named:
    """'' where the entity does not have it, None for the default."""
    return {kind: name for kind, name in (("user", user), ("client-id", client), ("ip", ip)) if name != ""}


class Quotas:
    """A client and the version that it speaks."""

    def __init__(self, client: Client, version: int) -> None:
        self.client = client
        self.version = version

    async def alter(
        self, *entries: tuple[Named, Mapping[str, float | None]], validate_only: bool = False
    ) -> list[tuple[Named, ErrorCode]]:
        return await self.send(
            [
                AlterClientQuotasRequest.EntryData(
                    entity=[entity_part(kind, name) for kind, name in entity.items()],
                    ops=[op(key, value) for key, value in limits.items()],
                )
                for entity, limits in entries
            ],
            validate_only,
        )

    async def send(self, entries: list[Any], validate_only: bool = False) -> list[tuple[Named, ErrorCode]]:
        request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
        response = await self.client.ask(request, self.version)
        for entry in response.entries:
            assert (entry.error_message is None) == (entry.error_code == ErrorCode.NONE)
        return [
            ({part.entity_type: part.entity_name for part in entry.entity}, ErrorCode(entry.error_code))
            for entry in response.entries
        ]

    async def describe(self, *components: Any, strict: bool = False) -> Any:
        """The limits of each entity, or the error."""
        response = await self.client.ask(
            DescribeClientQuotasRequest(
                components=[
                    DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=how, match=name)
                    for kind, how, name in components
                ],
                strict=strict,
            ),
            self.version,
        )
        if response.error_code:
            assert response.entries is None
            assert response.error_message
            return ErrorCode(response.error_code)
        assert response.error_message is None
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in response.entries
        }


def entity_part(kind: str, name: str | None) -> Any:
    return AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)


def op(key: str, value: float | None) -> Any:
    return AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)


OF_USER = named("alice")
OF_DEFAULT_USER = named(None)
OF_CLIENT = named(client="c")
OF_BOTH = named("alice", "c")
OF_DEFAULT_CLIENT_OF_USER = named("alice", None)
OF_IP = named(ip="10.1.2.3")
OF_DEFAULT_IP = named(ip=None)
EVERY: list[tuple[Named, Mapping[str, float | None]]] = [
    (OF_USER, {"producer_byte_rate": 1024.0, "consumer_byte_rate": 2048.0}),
    (OF_DEFAULT_USER, {"request_percentage": 12.5}),
    (OF_CLIENT, {"controller_mutation_rate": 0.5}),
    (OF_BOTH, {"producer_byte_rate": 1.0}),
    (OF_DEFAULT_CLIENT_OF_USER, {"producer_byte_rate": 2.0}),
    (OF_IP, {"connection_creation_rate": 3.0}),
    (OF_DEFAULT_IP, {"connection_creation_rate": 4.0}),
]


def described(*entities: Named) -> dict[Any, Any]:
    return {tuple(entity.items()): limits for entity, limits in EVERY if entity in entities}


async def test_limits_come_change_and_go(client: Quotas, broker: Broker) -> None:
    assert await client.alter(*EVERY) == [(entity, ErrorCode.NONE) for entity, _ in EVERY]
    assert await client.describe() == described(*(entity for entity, _ in EVERY))
    assert await client.describe(strict=True) == {}
    changed = {"producer_byte_rate": None, "request_percentage": 50.0}
    assert await client.alter((OF_USER, changed)) == [(OF_USER, ErrorCode.NONE)]
    exact = await client.describe(("user", EXACT, "alice"), strict=True)
    assert exact == {(("user", "alice"),): {"consumer_byte_rate": 2048.0, "request_percentage": 50.0}}
    gone = [(entity, {**dict.fromkeys(limits), "request_percentage": None}) for entity, limits in EVERY]
    await client.alter(*gone, (OF_USER | {"client-id": "x"}, {"consumer_byte_rate": None}))
    await client.alter((OF_USER, {"consumer_byte_rate": None}))
    assert await client.describe() == {}
    assert await read_clients(broker.services.cluster.store, pytest.fail) == {}


async def test_what_filters_match(client: Quotas) -> None:
    await client.alter(*EVERY)
    user_any, user_exact, user_default = ("user", ANY, None), ("user", EXACT, "alice"), ("user", DEFAULT, None)
    client_any = ("client-id", ANY, None)
    for components, loose, strict in (
        ([user_any], [OF_USER, OF_DEFAULT_USER, OF_BOTH, OF_DEFAULT_CLIENT_OF_USER], [OF_USER, OF_DEFAULT_USER]),
        ([user_exact], [OF_USER, OF_BOTH, OF_DEFAULT_CLIENT_OF_USER], [OF_USER]),
        ([user_default], [OF_DEFAULT_USER], [OF_DEFAULT_USER]),
        ([client_any], [OF_CLIENT, OF_BOTH, OF_DEFAULT_CLIENT_OF_USER], [OF_CLIENT]),
        ([client_any, user_exact], [OF_BOTH, OF_DEFAULT_CLIENT_OF_USER], [OF_BOTH, OF_DEFAULT_CLIENT_OF_USER]),
        ([user_exact, ("client-id", DEFAULT, None)], [OF_DEFAULT_CLIENT_OF_USER], [OF_DEFAULT_CLIENT_OF_USER]),
        ([("ip", ANY, None)], [OF_IP, OF_DEFAULT_IP], [OF_IP, OF_DEFAULT_IP]),
        ([("ip", EXACT, "10.1.2.3")], [OF_IP], [OF_IP]),
        ([("ip", DEFAULT, None)], [OF_DEFAULT_IP], [OF_DEFAULT_IP]),
        ([("user", EXACT, "bob")], [], []),
        ([("user", EXACT, "")], [], []),  # not the default's
    ):
        assert await client.describe(*components) == described(*loose)
        assert await client.describe(*components, strict=True) == described(*strict)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, None), ("user", EXACT, "a")], ErrorCode.INVALID_REQUEST),
        ([("ip", ANY, None), ("user", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("client-id", ANY, None), ("ip", ANY, None)], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "a")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("user", -1, None)], ErrorCode.INVALID_REQUEST),
        ([("group", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("User", ANY, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_filters_that_are_refused(client: Quotas, components: list[Any], code: ErrorCode) -> None:
    assert await client.describe(*components) is code


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "<default>"}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        (named("alice", ip="10.0.0.1"), {"connection_creation_rate": 1.0}),
        (named(client="c", ip="10.0.0.1"), {"connection_creation_rate": 1.0}),
        (named(ip="unknown.example"), {"connection_creation_rate": 1.0}),
        (named(ip="a" * 70), {"connection_creation_rate": 1.0}),
        (OF_USER, {"connection_creation_rate": 1.0}),
        (OF_IP, {"producer_byte_rate": 1.0}),
        (OF_USER, {"SCRAM-SHA-256": 1.0}),
        (OF_USER, {"producer_byte_rate": 0.0}),
        (OF_USER, {"producer_byte_rate": -1.0}),
        (OF_USER, {"producer_byte_rate": 1.5}),
        (OF_USER, {"producer_byte_rate": 1e19}),
        (OF_USER, {"request_percentage": float("nan")}),
        (OF_IP, {"connection_creation_rate": 2.5}),
        (OF_USER, {"consumer_byte_rate": 5.0, "producer_byte_rate": 0.0}),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
async def test_of_an_entity_with_something_wrong_nothing_is_done(
    client: Quotas, entity: Named, limits: Mapping[str, float | None], validate_only: bool
) -> None:
    good = named("good")
    results = await client.alter((entity, limits), (good, {"request_percentage": 1.0}), validate_only=validate_only)
    assert results == [(entity, ErrorCode.INVALID_REQUEST), (good, ErrorCode.NONE)]
    assert len(await client.describe()) == (not validate_only)


async def test_duplicates_in_a_request(client: Quotas) -> None:
    twice = AlterClientQuotasRequest.EntryData(
        entity=[entity_part("user", "alice")], ops=[op("request_percentage", 1.0), op("request_percentage", None)]
    )
    assert await client.send([twice]) == [(OF_USER, ErrorCode.INVALID_REQUEST)]
    one, other = {"producer_byte_rate": 1.0}, {"consumer_byte_rate": 1.0}
    results = await client.alter((OF_USER, one), (OF_CLIENT, one), (OF_USER, other))
    assert results == [(OF_USER, ErrorCode.INVALID_REQUEST), (OF_CLIENT, ErrorCode.NONE)]
    assert await client.describe() == {(("client-id", "c"),): one}


async def test_validation_changes_nothing(client: Quotas, broker: Broker) -> None:
    assert await client.alter(*EVERY, validate_only=True) == [(entity, ErrorCode.NONE) for entity, _ in EVERY]
    assert await client.describe() == {}
    assert await read_clients(broker.services.cluster.store, pytest.fail) == {}


async def test_they_are_stored_as_apache_kafka_has_them_beside_credentials(client: Quotas, broker: Broker) -> None:
    store = broker.services.cluster.store
    await write_config(store, USER_CONFIG, "alice", lambda stored: {"SCRAM-SHA-256": "x"})
    await client.alter(*EVERY)
    assert await read_config(store, USER_CONFIG, "alice", pytest.fail) == {
        "SCRAM-SHA-256": "x",
        "producer_byte_rate": "1024",
        "consumer_byte_rate": "2048",
    }
    assert await read_config(store, USER_CONFIG, "<default>", pytest.fail) == {"request_percentage": "12.5"}
    assert await read_config(store, user_clients("alice"), "<default>", pytest.fail) == {"producer_byte_rate": "2"}
    assert await read_config(store, CLIENT_CONFIG, "c", pytest.fail) == {"controller_mutation_rate": "0.5"}
    assert await read_config(store, IP_CONFIG, "<default>", pytest.fail) == {"connection_creation_rate": "4"}
    await client.alter((OF_USER, {"producer_byte_rate": None, "consumer_byte_rate": None, "SCRAM-SHA-256": None}))
    assert await read_config(store, USER_CONFIG, "alice", pytest.fail) == {"SCRAM-SHA-256": "x"}


async def test_the_limits_are_in_force(client: Quotas, broker: Broker) -> None:
    await client.alter(*EVERY, (named(ip="known.example"), {"connection_creation_rate": 5.0}))
    quotas = broker.services.quotas
    for user, client_id, produce in (("alice", "c", 1.0), ("alice", "d", 2.0), ("bob", "c", None)):
        limit = quotas.produce.limits.find(user, client_id)
        assert (limit and limit.value) == produce
    assert [quota.limits.find("alice", "c").value for quota in (quotas.fetch, quotas.request, quotas.mutations)] == [  # type: ignore[union-attr]
        2048.0,
        12.5,
        0.5,
    ]
    assert quotas.connections.default == 4.0
    known = {"10.1.2.3": 3.0, "10.0.0.1": 5.0, "10.0.0.2": 5.0}
    with trio.fail_after(60):
        while quotas.connections.limits != known:
            await trio.lowlevel.checkpoint()
    await client.alter(
        (named(ip="known.example"), {"connection_creation_rate": None}),
        (OF_DEFAULT_IP, {"connection_creation_rate": None}),
    )
    assert quotas.connections.limits == {"10.1.2.3": 3.0}
    assert quotas.connections.default is None


async def test_limits_are_there_again_after_a_restart(tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as first, connected(first) as one:
        await Quotas(one, 1).alter(*EVERY)
    async with embedded_broker(tmp_path) as second, connected(second) as one:
        assert await Quotas(one, 1).describe() == described(*(entity for entity, _ in EVERY))


async def test_a_limit_that_cannot_be_read_is_named_in_the_log(
    client: Quotas, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    member = broker.services.cluster
    await write_config(member.store, CLIENT_CONFIG, "c", lambda stored: {"producer_byte_rate": "much"})
    await member.reload_config(CLIENT_CONFIG, "c")
    assert "producer_byte_rate='much' of client-id c is no limit" in caplog.text
    assert await client.describe() == {}


async def test_in_a_cluster_any_broker_changes_and_every_broker_knows(autojump_clock: Any) -> None:
    async with embedded_cluster(2) as cluster:
        for broker, other in ((1, 2), (2, 1)):
            heard = trio.Event()
            cluster[other].services.cluster.watch_clients(lambda kind, name, config, heard=heard: heard.set())  # type: ignore[misc]
            entity = named(f"u{broker}", "c")
            async with connected(cluster[broker]) as one:
                assert await Quotas(one, 1).alter((entity, {"producer_byte_rate": 1.0})) == [(entity, ErrorCode.NONE)]
            with trio.fail_after(60):
                await heard.wait()
            async with connected(cluster[other]) as one:
                assert tuple(entity.items()) in await Quotas(one, 1).describe()
