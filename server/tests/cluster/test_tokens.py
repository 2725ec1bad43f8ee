"""Delegation tokens of brokers that share a store: known where they were made at once, elsewhere by notice, and removed
by the controller when they have expired.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import cast

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import EmbeddedSession, EmbeddedStore, Image, Node, NoSuchNode, Op, StoreError
from barnabas.replication.store.store import Create, Delete, Set
from barnabas.replication.tree import token_nodes
from barnabas.server.cluster.member import ClusterMember
from barnabas.server.cluster.tokens import StoredTokens
from barnabas.server.security.principals import Principal
from barnabas.server.security.tokens.known import KnownTokens
from barnabas.server.security.tokens.rules import TokenRules
from barnabas.server.security.tokens.settings import TokenSettings

ALICE, BOB, CAROL = (Principal("User", name) for name in ("alice", "bob", "carol"))
SETTINGS = TokenSettings("key", TokenRules(max_lifetime_ms=100_000, expiry_time_ms=10_000), check_interval_s=60)


class BrokerOf:
    """What one broker has of tokens. `is_active`: it is the controller."""

    def __init__(self, session: EmbeddedSession, name: str = "t") -> None:
        self.session = session
        self.now_ms = 1_000_000
        numbers = count(1)
        self.known = KnownTokens(SETTINGS.secret_key, bytes)
        self.tokens = StoredTokens(
            session, self.known, SETTINGS, lambda: self.now_ms, new_id=lambda: f"{name}-{next(numbers)}"
        )
        self.is_active = True

    async def image_until(self, ready: Callable[[Image], bool]) -> None:
        while not ready(Image()):  # noqa: ASYNC110 - virtual time
            await trio.sleep(1)

    def ends(self) -> dict[str, int]:
        """When tokens end, by id."""
        return {token.token_id: token.expiry_ms - 1_000_000 for token in self.known}


@asynccontextmanager
async def two() -> AsyncIterator[tuple[BrokerOf, BrokerOf]]:
    store = EmbeddedStore.open()
    brokers = BrokerOf(store.connect(), "one"), BrokerOf(store.connect(), "other")
    async with trio.open_nursery() as nursery:
        for each in brokers:
            await each.tokens.load()
            nursery.start_soon(each.tokens.run)
        await trio.testing.wait_all_tasks_blocked()
        yield brokers
        nursery.cancel_scope.cancel()


def refused(code: ErrorCode) -> pytest.RaisesExc[KafkaError]:
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)


async def test_made_here_and_known_there() -> None:
    async with two() as (one, other):
        made = await one.tokens.create(ALICE, CAROL, [BOB], 50_000)
        assert (made.issue_ms, made.max_ms, made.expiry_ms) == (1_000_000, 1_050_000, 1_010_000)
        assert list(one.known) == [made]
        await trio.testing.wait_all_tasks_blocked()
        assert list(other.known) == [made]
        secret = one.known.hmac_of(made.token_id)
        assert other.known.with_hmac(secret) == made
        other.now_ms += 5000
        assert await other.tokens.renew(BOB, secret, -1) == 1_015_000
        assert other.ends() == {"one-1": 15_000}
        await trio.testing.wait_all_tasks_blocked()
        assert one.ends() == {"one-1": 15_000}
        assert await one.tokens.expire(ALICE, secret, 40_000) == 1_040_000
        assert one.ends() == {"one-1": 40_000}
        await trio.testing.wait_all_tasks_blocked()
        assert other.ends() == {"one-1": 40_000}
        assert await other.tokens.expire(ALICE, secret, -1) == other.now_ms
        assert other.ends() == {}
        await trio.testing.wait_all_tasks_blocked()
        assert one.ends() == {}
        with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
            await one.tokens.renew(ALICE, secret, 0)


async def test_what_is_not_allowed_changes_nothing() -> None:
    async with two() as (one, _):
        made = await one.tokens.create(ALICE, ALICE, [], 0)
        secret = one.known.hmac_of(made.token_id)
        for code, ask in (
            (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, lambda: one.tokens.renew(BOB, secret, 0)),
            (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, lambda: one.tokens.expire(BOB, secret, -1)),
            (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, lambda: one.tokens.expire(ALICE, secret + b"x", -1)),
            (
                ErrorCode.INVALID_PRINCIPAL_TYPE,
                lambda: one.tokens.create(ALICE, ALICE, [Principal("Group", "g")], 0),
            ),
        ):
            with refused(code):
                await ask()
        assert list(one.known) == [made]
        assert [name async for name in _names(one.session, token_nodes.CHANGES)] == ["token_change_0000000000"]


async def _names(session: EmbeddedSession, place: str) -> AsyncIterator[str]:
    for name in await session.children(place):
        yield name


async def test_decided_by_what_the_store_has() -> None:
    """Another broker has renewed a token, and its notice has not been seen."""
    store = EmbeddedStore.open()
    one, deaf = BrokerOf(store.connect()), BrokerOf(store.connect())
    await one.tokens.load()
    made = await one.tokens.create(ALICE, ALICE, [], 0)
    secret = one.known.hmac_of(made.token_id)
    await deaf.tokens.load()
    await one.tokens.expire(ALICE, secret, 90_000)
    deaf.now_ms += 10_001
    assert deaf.ends() == {"t-1": 10_000}
    assert await deaf.tokens.renew(ALICE, secret, 1) == deaf.now_ms + 1
    await one.tokens.expire(ALICE, secret, -1)
    with refused(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
        await deaf.tokens.renew(ALICE, secret, 1)
    assert deaf.ends() == {}


async def test_read_before_serving_and_after_a_lost_session() -> None:
    store = EmbeddedStore.open()
    writer, reader = BrokerOf(store.connect()), BrokerOf(store.connect())
    await writer.tokens.load()
    for _ in range(2):
        await writer.tokens.create(ALICE, ALICE, [], 0)
    await reader.tokens.load()
    assert reader.ends().keys() == {"t-1", "t-2"}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reader.tokens.run)
        await trio.testing.wait_all_tasks_blocked()
        # While it is away, somebody writes, and the notices are removed by yet another.
        await writer.session.commit([Delete(token_nodes.path("t-1"))])
        node = await writer.session.get(token_nodes.path("t-2"))
        assert node is not None
        third = node.data.replace(b"t-2", b"t-3")
        await writer.session.commit([Create(token_nodes.path("t-3"), third)])
        await reader.session.expire()
        await trio.testing.wait_all_tasks_blocked()
        assert reader.ends().keys() == {"t-2", "t-3"}
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_read_is_not_known(caplog: pytest.LogCaptureFixture) -> None:
    async with two() as (one, other):
        await one.tokens.create(ALICE, ALICE, [], 0)
        path = token_nodes.path("one-1")
        notice = Create(f"{token_nodes.CHANGES}/token_change_", b"one-1", sequential=True)
        await one.session.commit([Set(path, b"nonsense"), notice])
        await trio.testing.wait_all_tasks_blocked()
        assert one.ends() == other.ends() == {}
        assert f"cannot read a delegation token, rejecting log-ins with it: {path}" in caplog.text


class Failing(EmbeddedSession):
    """A session whose commits about tokens fail."""

    def __init__(self, other: EmbeddedSession, error: StoreError) -> None:
        self.__dict__.update(other.__dict__)
        self.error = error

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        if any(op.path.startswith(f"{token_nodes.TOKENS}/") for op in ops):
            raise self.error
        return await super().commit(ops)


async def test_the_store_does_not_take_it(caplog: pytest.LogCaptureFixture) -> None:
    session = EmbeddedStore.open().connect()
    whole = BrokerOf(session)
    await whole.tokens.load()
    made = await whole.tokens.create(ALICE, ALICE, [], 0)
    secret = whole.known.hmac_of(made.token_id)
    broker = BrokerOf(Failing(session, StoreError("the disk is full")))
    await broker.tokens.load()
    for ask in (
        lambda: broker.tokens.create(ALICE, ALICE, [], 0),
        lambda: broker.tokens.renew(ALICE, secret, 5),
        lambda: broker.tokens.expire(ALICE, secret, -1),
    ):
        with refused(ErrorCode.UNKNOWN_SERVER_ERROR):
            await cast("Callable[[], object]", ask)()  # type: ignore[misc]
    assert list(broker.known) == [made]
    assert secret.hex() not in caplog.text


async def test_the_controller_removes_what_has_expired(autojump_clock: trio.testing.MockClock) -> None:
    async with two() as (one, other), trio.open_nursery() as nursery:
        other.is_active = False
        for each in (one, other):
            nursery.start_soon(each.tokens.sweep, cast(ClusterMember, each))
        await one.tokens.create(ALICE, ALICE, [], 5000)
        kept = await one.tokens.create(BOB, BOB, [], 0)
        await trio.sleep(30)
        other.now_ms += 5001
        await trio.sleep(60)  # its own clock says so, but it is not the controller
        assert one.ends() == other.ends() == {"one-1": 5000, "one-2": 10_000}
        one.now_ms += 5001
        await trio.sleep(20)
        assert other.ends().keys() == {"one-1", "one-2"}  # not yet looked for
        await trio.sleep(40)
        assert one.ends() == other.ends() == {"one-2": 10_000}
        assert await one.session.children(token_nodes.TOKENS) == [kept.token_id]
        one.is_active, other.is_active = False, True
        other.now_ms += 5000
        await trio.sleep(60)
        assert one.ends() == other.ends() == {}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("meanwhile", ["renewed", "removed", "unreadable"])
async def test_what_has_expired_as_far_as_is_known_here(meanwhile: str) -> None:
    store = EmbeddedStore.open()
    one, deaf = BrokerOf(store.connect()), BrokerOf(store.connect())
    await one.tokens.load()
    made = await one.tokens.create(ALICE, ALICE, [], 0)
    await deaf.tokens.load()
    if meanwhile == "unreadable":
        await one.session.commit([Set(token_nodes.path(made.token_id), b"nonsense")])
    else:
        period_ms = 50_000 if meanwhile == "renewed" else -1
        await one.tokens.expire(ALICE, one.known.hmac_of(made.token_id), period_ms)
    deaf.now_ms += 20_000
    await deaf.tokens.remove_expired()
    expected = {"renewed": {"t-1": 50_000}, "removed": {}, "unreadable": {"t-1": 10_000}}
    assert deaf.ends() == expected[meanwhile]


async def test_a_store_that_fails_for_a_while_is_asked_again(autojump_clock: trio.testing.MockClock) -> None:
    session = EmbeddedStore.open().connect()
    broker = BrokerOf(session)
    await broker.tokens.load()
    await broker.tokens.create(ALICE, ALICE, [], 0)
    failing = BrokerOf(Failing(session, StoreError("the connection is lost")))
    await failing.tokens.load()
    failing.now_ms += 20_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(failing.tokens.sweep, cast(ClusterMember, failing))
        await trio.sleep(70)
        assert failing.ends() == {"t-1": 10_000}
        cast(Failing, failing.session).error = NoSuchNode("x")  # what a removal by somebody else looks like
        await trio.sleep(60)
        assert failing.ends() == {}
        nursery.cancel_scope.cancel()
