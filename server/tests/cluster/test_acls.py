"""Access lists of brokers that share a store: in force where they were made at once, elsewhere by notice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode
from barnabas.replication import EmbeddedSession, EmbeddedStore, Node, NoSuchNode, Op, StoreError
from barnabas.replication.store.store import Create, Set
from barnabas.replication.tree import acl_nodes
from barnabas.server.cluster.acls import StoredAcls
from barnabas.server.cluster.change_notices import LIFE_MS
from barnabas.server.security.acls.authorizer import Authorizer
from barnabas.server.security.acls.filters import AclFilter
from barnabas.server.security.acls.model import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from barnabas.server.security.principals import Principal
from barnabas.server.security.session import Session

ALICE = Session(Principal("User", "alice"), "10.0.0.1", "L", "PLAINTEXT")


def acl(
    name: str = "orders",
    pattern: PatternType = PatternType.LITERAL,
    operation: AclOperation = AclOperation.READ,
    permission: PermissionType = PermissionType.ALLOW,
    principal: str = "User:alice",
) -> AclBinding:
    return AclBinding(
        ResourcePattern(ResourceType.TOPIC, name, pattern), AccessControlEntry(principal, "*", operation, permission)
    )


class Clock:
    now_ms = 1_000_000


class BrokerOf:
    """What one broker has of access control."""

    def __init__(self, session: EmbeddedSession, *, allow_everyone: bool = False) -> None:
        self.session = session
        self.authorizer = Authorizer(allow_everyone=allow_everyone)
        self.acls = StoredAcls(session, self.authorizer, lambda: Clock.now_ms)

    def bindings(self) -> set[AclBinding]:
        return set(self.authorizer.index.bindings())

    def may_read(self, topic: str = "orders") -> bool:
        return self.authorizer.allows(ALICE, AclOperation.READ, ResourceType.TOPIC, topic)


@asynccontextmanager
async def two() -> AsyncIterator[tuple[BrokerOf, BrokerOf]]:
    store = EmbeddedStore.open()
    brokers = BrokerOf(store.connect()), BrokerOf(store.connect())
    async with trio.open_nursery() as nursery:
        for each in brokers:
            await each.acls.load()
            nursery.start_soon(each.acls.run)
        await trio.testing.wait_all_tasks_blocked()
        yield brokers
        nursery.cancel_scope.cancel()


async def test_created_here_and_seen_there() -> None:
    async with two() as (one, other):
        prefixed = acl("ord", PatternType.PREFIXED, AclOperation.WRITE)
        assert await one.acls.create([acl(), prefixed, acl()]) == [None, None, None]
        assert one.may_read()
        await trio.testing.wait_all_tasks_blocked()
        assert other.may_read()
        assert one.bindings() == other.bindings() == {acl(), prefixed}
        version = other.authorizer.version
        assert await one.acls.create([acl()]) == [None]  # is there
        await trio.testing.wait_all_tasks_blocked()
        assert other.authorizer.version == version


async def test_what_cannot_be_created_is_refused_alone() -> None:
    async with two() as (one, _):
        none, refused, last = await one.acls.create([acl(), acl(principal="alice"), acl("x")])
        assert (none, last) == (None, None)
        assert refused is not None
        assert refused.code is ErrorCode.INVALID_REQUEST
        assert one.bindings() == {acl(), acl("x")}


async def test_deleted() -> None:
    async with two() as (one, other):
        await one.acls.create([acl(), acl("x"), acl(operation=AclOperation.WRITE), acl("ord", PatternType.PREFIXED)])
        await trio.testing.wait_all_tasks_blocked()
        results = await other.acls.delete(
            [
                AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH, operation=AclOperation.READ),
                AclFilter(name="x", principal="User:alice"),
                AclFilter(name="nothing"),
                AclFilter(ResourceType.from_code(77)),
                AclFilter(ResourceType.TOPIC, "x", PatternType.LITERAL),
            ]
        )
        assert [{binding for binding, _ in result.matches} for result in results] == [
            {acl(), acl("ord", PatternType.PREFIXED)},
            {acl("x")},
            set(),
            set(),
            {acl("x")},  # each filter tells all that it matched
        ]
        assert [result.refusal and result.refusal.code for result in results] == [
            *(None, None, None),
            ErrorCode.INVALID_REQUEST,
            None,
        ]
        await trio.testing.wait_all_tasks_blocked()
        assert one.bindings() == other.bindings() == {acl(operation=AclOperation.WRITE)}
        assert await one.session.get("/kafka-acl/Topic/x") is None


async def test_what_another_broker_has_just_made_is_deleted_by_an_exact_filter() -> None:
    store = EmbeddedStore.open()
    one, deaf = BrokerOf(store.connect()), BrokerOf(store.connect())
    await one.acls.load()
    await deaf.acls.load()
    await one.acls.create([acl()])
    [result] = await deaf.acls.delete([AclFilter(ResourceType.TOPIC, "orders", PatternType.ANY)])
    assert [binding for binding, _ in result.matches] == [acl()]


async def test_read_before_serving_and_after_a_lost_session() -> None:
    store = EmbeddedStore.open()
    writer, reader = BrokerOf(store.connect()), BrokerOf(store.connect())
    await writer.acls.load()
    await writer.acls.create([acl(), acl("x")])
    await reader.acls.load()
    assert reader.bindings() == {acl(), acl("x")}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.acls.run)
        await trio.testing.wait_all_tasks_blocked()
        # While it is away, somebody writes, and the notice is removed by yet another.
        await writer.session.commit([Set("/kafka-acl/Topic/orders", b"")])
        await reader.session.expire()
        await trio.testing.wait_all_tasks_blocked()
        assert reader.bindings() == {acl("x")}
        nursery.cancel_scope.cancel()


async def test_old_notices_are_removed() -> None:
    async with two() as (one, other):
        await one.acls.create([acl()])
        await trio.testing.wait_all_tasks_blocked()
        assert len(await one.session.children(acl_nodes.LITERAL_CHANGES)) == 1
        Clock.now_ms += LIFE_MS + 1
        await one.acls.create([acl("x")])
        await trio.testing.wait_all_tasks_blocked()
        assert await other.session.children(acl_nodes.LITERAL_CHANGES) == ["acl_changes_0000000001"]


async def test_a_list_that_cannot_be_read_closes_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    store = EmbeddedStore.open()
    session = store.connect()
    await acl_nodes.make_acl_roots(session)
    await session.commit([Create("/kafka-acl/Topic/orders", b"?")])
    broker = BrokerOf(session, allow_everyone=True)
    await broker.acls.load()
    assert not broker.may_read("orders")
    assert broker.may_read("others")
    assert "/kafka-acl/Topic/orders" in caplog.text
    [result] = await broker.acls.delete([AclFilter()])
    assert result.matches == ()
    [refusal] = await broker.acls.create([acl()])
    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_what_others_wrote_and_we_do_not_know_stays_as_it_is() -> None:
    store = EmbeddedStore.open()
    session = store.connect()
    await acl_nodes.make_acl_roots(session)
    odd = acl_nodes.StoredAcl("User:a", "Perhaps", "Fly", "*")
    await session.commit([Create("/kafka-acl/Topic/orders", acl_nodes.encode_acls([odd]))])
    broker = BrokerOf(session)
    await broker.acls.load()
    assert await broker.acls.create([acl()]) == [None]
    kept = await acl_nodes.read_acls(session, acl_nodes.AclPlace("Topic", "orders"))
    assert kept[0] == odd
    assert broker.may_read()


class Failing(EmbeddedSession):
    """A session whose commits fail."""

    def __init__(self, other: EmbeddedSession, error: StoreError) -> None:
        self.__dict__.update(other.__dict__)
        self.error = error

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        if any(op.path.startswith("/kafka-acl/Topic/") for op in ops):
            raise self.error
        return await super().commit(ops)


async def test_the_store_does_not_take_it() -> None:
    broker = BrokerOf(Failing(EmbeddedStore.open().connect(), StoreError("the disk is full")))
    await broker.acls.load()
    [refusal] = await broker.acls.create([acl()])
    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not broker.may_read()


async def test_acls_that_could_not_be_deleted_are_reported() -> None:
    session = EmbeddedStore.open().connect()
    broker = BrokerOf(session)
    await broker.acls.load()
    await broker.acls.create([acl()])
    failing = BrokerOf(Failing(session, NoSuchNode("/kafka-acl/Topic/orders")))
    await failing.acls.load()
    [result] = await failing.acls.delete([AclFilter()])
    [(binding, refusal)] = result.matches
    assert binding == acl()
    assert refusal is not None
    assert refusal.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert failing.may_read()
