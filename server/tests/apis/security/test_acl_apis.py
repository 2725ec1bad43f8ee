"""DescribeAcls, CreateAcls and DeleteAcls over the wire, on one broker and on three."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResponse,
    MetadataRequest,
)
from barnabas.server.security.acls.model import AclOperation, PatternType, PermissionType, ResourceType
from barnabas.server.testing import connected, embedded_broker, embedded_cluster
from barnabas.server.tests.apis.test_access import ALICE, WITH_AUTHORIZER

Op, Kind, Pattern, Permission, E = AclOperation, ResourceType, PatternType, PermissionType, ErrorCode


def creation(
    name: str = "t",
    kind: int = Kind.TOPIC,
    pattern: int = Pattern.LITERAL,
    operation: int = Op.READ,
    permission: int = Permission.ALLOW,
    principal: str = "User:alice",
) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def filters(cls: Any, name: str | None = None, kind: int = Kind.ANY, pattern: int = Pattern.ANY, **more: Any) -> Any:
    anybody = {"principal_filter": None, "host_filter": None}
    wanted = {**anybody, "operation": Op.ANY, "permission_type": Permission.ANY, **more}
    return cls(resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=pattern, **wanted)


def sought(*what: Any, **more: Any) -> DescribeAclsRequest:
    made: DescribeAclsRequest = filters(DescribeAclsRequest, *what, **more)
    return made


def doomed(*what: Any, **more: Any) -> DeleteAclsRequest:
    return DeleteAclsRequest(filters=[filters(DeleteAclsRequest.DeleteAclsFilter, *what, **more)])


def created(response: CreateAclsResponse) -> list[int]:
    return [result.error_code for result in response.results]


def described(response: DescribeAclsResponse) -> dict[tuple[int, str, int], list[tuple[str, int, int]]]:
    assert (response.error_code, response.error_message) == (0, None)
    return {
        (resource.resource_type, resource.resource_name, resource.pattern_type): [
            (acl.principal, acl.operation, acl.permission_type) for acl in resource.acls
        ]
        for resource in response.resources
    }


@pytest.mark.parametrize("version", range(4))
async def test_every_version(version: int, autojump_clock: trio.abc.Clock) -> None:
    pattern = Pattern.PREFIXED if version else Pattern.LITERAL
    kind = Kind.USER if version >= 3 else Kind.TOPIC
    exactly = "t", kind, pattern
    async with embedded_broker(**WITH_AUTHORIZER) as broker, connected(broker) as client:
        creations = [
            creation("t", kind, pattern),
            creation("t", kind, pattern, Op.ALTER_CONFIGS, Permission.DENY),
            creation("g", Kind.GROUP),
            creation("t", kind, pattern),
        ]
        assert created(await client.ask(CreateAclsRequest(creations=creations), version)) == [0, 0, 0, 0]
        found = described(await client.ask(sought(*exactly), version))
        assert found == {
            (kind, "t", pattern): [
                ("User:alice", Op.READ, Permission.ALLOW),
                ("User:alice", Op.ALTER_CONFIGS, Permission.DENY),
            ]
        }
        (result,) = (await client.ask(doomed(*exactly, operation=Op.READ), version)).filter_results
        assert (result.error_code, result.error_message) == (0, None)
        (match,) = result.matching_acls
        assert (match.resource_type, match.resource_name, match.pattern_type) == (kind, "t", pattern)
        assert (match.principal, match.host, match.operation, match.permission_type, match.error_code) == (
            *("User:alice", "*", Op.READ, Permission.ALLOW),
            0,
        )
        (result,) = (await client.ask(doomed(*exactly, operation=Op.READ), version)).filter_results
        assert (result.error_code, result.matching_acls) == (0, [])
        assert described(await client.ask(sought(*exactly), version)) == {
            (kind, "t", pattern): [("User:alice", Op.ALTER_CONFIGS, Permission.DENY)]
        }


@pytest.mark.parametrize("version", range(4))
async def test_without_an_authorizer(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker() as broker, connected(broker) as client:
        pattern = {"pattern": Pattern.LITERAL}
        answer = await client.ask(sought(**pattern), version)
        assert (answer.error_code, answer.resources) == (E.SECURITY_DISABLED, [])
        assert created(await client.ask(CreateAclsRequest(creations=[creation()] * 2), version)) == [54, 54]
        (result,) = (await client.ask(doomed(**pattern), version)).filter_results
        assert (result.error_code, result.matching_acls) == (E.SECURITY_DISABLED, [])


async def test_invalid_items_are_rejected_alone(autojump_clock: trio.abc.Clock) -> None:
    async with embedded_broker(**WITH_AUTHORIZER) as broker, connected(broker) as client:
        wrong = [
            creation(kind=Kind.ANY),
            creation(kind=99),
            creation(pattern=Pattern.MATCH),
            creation(operation=Op.ANY),
            creation(permission=Permission.ANY),
            creation(""),
            creation("my-cluster", Kind.CLUSTER),
            creation(principal="alice"),
            creation("a/b"),
        ]
        answer = await client.ask(CreateAclsRequest(creations=[*wrong, creation("fine")]), 3)
        assert created(answer) == [E.INVALID_REQUEST] * len(wrong) + [0]
        assert all(result.error_message for result in answer.results[:-1])
        assert list(described(await client.ask(sought(), 3))) == [(Kind.TOPIC, "fine", Pattern.LITERAL)]
        assert described(await client.ask(sought(kind=99), 3)) == {}
        (result,) = (await client.ask(doomed(kind=99), 3)).filter_results
        assert result.error_code == E.INVALID_REQUEST


@pytest.mark.parametrize("has_authorizer", [False, True])
@pytest.mark.parametrize(
    "request_",
    [
        sought(kind=0),
        sought(pattern=0),
        sought(operation=0),
        sought(permission_type=0),
        doomed(kind=0),
        doomed(operation=0),
        CreateAclsRequest(creations=[creation(), creation(kind=0)]),
        CreateAclsRequest(creations=[creation(pattern=0)]),
        CreateAclsRequest(creations=[creation(operation=0)]),
        CreateAclsRequest(creations=[creation(permission=0)]),
    ],
    ids=str,
)
async def test_a_zero_cannot_be_read(request_: Any, has_authorizer: bool, autojump_clock: trio.abc.Clock) -> None:
    settings = WITH_AUTHORIZER if has_authorizer else {}
    async with embedded_broker(**settings) as broker, connected(broker) as client, connected(broker) as other:
        await client.send(request_, 3)
        with pytest.raises(EOFError):
            await client.receive_frame()
        if has_authorizer:
            assert described(await other.ask(sought(), 3)) == {}


async def test_who_may_describe_and_alter(autojump_clock: trio.abc.Clock) -> None:
    async with (
        embedded_broker(**WITH_AUTHORIZER) as broker,
        connected(broker) as root,
        connected(broker, principal=ALICE) as alice,
    ):
        answer = await alice.ask(sought(), 3)
        assert (answer.error_code, answer.resources) == (E.CLUSTER_AUTHORIZATION_FAILED, [])
        assert created(await alice.ask(CreateAclsRequest(creations=[creation()] * 2), 3)) == [31, 31]
        (result,) = (await alice.ask(doomed(), 3)).filter_results
        assert result.error_code == E.CLUSTER_AUTHORIZATION_FAILED
        alter = creation("kafka-cluster", Kind.CLUSTER, operation=Op.ALTER)
        assert created(await root.ask(CreateAclsRequest(creations=[alter]), 3)) == [0]
        assert created(await alice.ask(CreateAclsRequest(creations=[creation()]), 3)) == [0]
        assert len(described(await alice.ask(sought(), 3))) == 2  # Alter implies Describe
        await alice.ask(doomed(), 3)
        assert (await alice.ask(sought(), 3)).error_code == E.CLUSTER_AUTHORIZATION_FAILED


async def test_acls_outlive_the_broker(autojump_clock: trio.abc.Clock, tmp_path: Any) -> None:
    async with embedded_broker(tmp_path, **WITH_AUTHORIZER) as broker, connected(broker) as client:
        await client.ask(CreateAclsRequest(creations=[creation(operation=Op.DESCRIBE)]), 3)
    async with embedded_broker(tmp_path, **WITH_AUTHORIZER) as broker, connected(broker, principal=ALICE) as alice:
        asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in ("t", "u")])
        found = [(each.name, each.error_code) for each in (await alice.ask(asked, 9)).topics]
        assert found == [("t", E.TOPIC_AUTHORIZATION_FAILED), ("u", E.TOPIC_AUTHORIZATION_FAILED)]
        asked.allow_auto_topic_creation = False
        found = [(each.name, each.error_code) for each in (await alice.ask(asked, 9)).topics]
        assert found == [("t", E.UNKNOWN_TOPIC_OR_PARTITION), ("u", E.TOPIC_AUTHORIZATION_FAILED)]


async def test_three_brokers_are_notified(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_cluster(3, **WITH_AUTHORIZER) as cluster:
        brokers = [cluster[broker_id] for broker_id in cluster.running]
        first, second, last = brokers
        async with connected(first) as client, connected(last) as other:
            assert created(await client.ask(CreateAclsRequest(creations=[creation()]), 3)) == [0]
            await trio.sleep(1)
            for broker in brokers:
                assert broker.services.authorizer is not None
                assert len(broker.services.authorizer.index) == 1
            # A session that was lost has missed what came meanwhile.
            await cluster.expire(second.config.broker_id)
            assert created(await other.ask(CreateAclsRequest(creations=[creation("u")]), 3)) == [0]
            await other.ask(doomed("t"), 3)
            await trio.sleep(60)
            for broker in brokers:
                assert broker.services.authorizer is not None
                assert {one.name for one in broker.services.authorizer.index.patterns()} == {"u"}
