"""Delegation tokens in the tree: Apache Kafka's paths and JSON, and changes beside other brokers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from barnabas.replication import BadNode, Node, NoSuchNode, Op
from barnabas.replication.store.memory import EmbeddedSession, EmbeddedStore
from barnabas.replication.store.store import Create, Set
from barnabas.replication.tree import token_nodes
from barnabas.replication.tree.change_nodes import read_changes
from barnabas.replication.tree.token_nodes import StoredToken, TooManyChanges

TOKEN = StoredToken("id-1", "User:alice", "User:ad min*", ("User:bob", "User:CN=c,O=ü~"), 1, 3000, 2000)
WHERE = "/delegation_token/tokens/id-1"
WRITTEN = {
    "version": 3,
    "owner": "User%3Aalice",
    "tokenRequester": "User%3Aad%20min%2A",
    "renewers": ["User%3Abob", "User%3ACN%3Dc%2CO%3D%C3%BC%7E"],
    "issueTimestamp": 1,
    "maxTimestamp": 3000,
    "expiryTimestamp": 2000,
    "tokenId": "id-1",
}


def reported(error: BadNode) -> None:
    raise AssertionError(error)


async def session() -> EmbeddedSession:
    made = EmbeddedStore.open().connect()
    await token_nodes.make_token_roots(made)
    return made


def test_the_text_is_apache_kafkas() -> None:
    assert token_nodes.path("id-1") == WHERE
    assert json.loads(token_nodes.encode_token(TOKEN)) == WRITTEN
    assert token_nodes.decode_token(WHERE, token_nodes.encode_token(TOKEN)) == TOKEN


@pytest.mark.parametrize("version", [1, 2])
def test_older_versions_have_no_requester(version: int) -> None:
    older = {key: value for key, value in WRITTEN.items() if key != "tokenRequester"}
    text = json.dumps({**older, "version": version, "owner": "User%3Aa+b"}).encode()
    assert token_nodes.decode_token(WHERE, text) == TOKEN._replace(owner="User:a b", requester="User:a b")


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 4},
        {"version": None},
        {"owner": "alice"},
        {"owner": None},
        {"tokenRequester": 5},
        {"renewers": None},
        {"renewers": ["bob"]},
        {"renewers": [None]},
        {"issueTimestamp": "1"},
        {"maxTimestamp": None},
        {"expiryTimestamp": True},
        {"tokenId": "id-2"},
    ],
    ids=str,
)
def test_what_cannot_be_a_token(changed: dict[str, object]) -> None:
    with pytest.raises(BadNode, match="id-1"):
        token_nodes.decode_token(WHERE, json.dumps({**WRITTEN, **changed}).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{", b"[" * 10_000], ids=lambda data: repr(data[:4]))
def test_what_is_no_object(data: bytes) -> None:
    with pytest.raises(BadNode, match="id-1"):
        token_nodes.decode_token(WHERE, data)


@pytest.mark.parametrize("data", [b"", b"a/b", b"\xff"])
def test_what_is_no_notice(data: bytes) -> None:
    with pytest.raises(BadNode):
        token_nodes.decode_change("/delegation_token/token_changes/token_change_1", data)


async def notices(store: EmbeddedSession) -> list[str | None]:
    found = await read_changes(store, token_nodes.CHANGES, token_nodes.decode_change, (), reported)
    return [found[name] for name in sorted(found)]


async def test_written_changed_removed_each_with_a_notice() -> None:
    store = await session()
    await token_nodes.create_token(store, TOKEN)
    assert await token_nodes.read_token(store, "id-1") == TOKEN
    assert await token_nodes.update_token(store, "id-1", lambda token: token) == TOKEN  # nothing new
    renewed = TOKEN._replace(expiry_ms=2500)
    assert await token_nodes.update_token(store, "id-1", lambda token: renewed) == renewed
    assert await token_nodes.read_all_tokens(store, reported) == [renewed]
    assert await token_nodes.update_token(store, "id-1", lambda token: None) is None
    assert await token_nodes.read_token(store, "id-1") is None
    assert await notices(store) == ["id-1"] * 3
    assert await store.children(token_nodes.CHANGES) == [f"token_change_{number:010}" for number in range(3)]
    with pytest.raises(NoSuchNode):
        await token_nodes.update_token(store, "id-1", lambda token: None)


async def test_what_cannot_be_read_is_left_out() -> None:
    store = await session()
    await token_nodes.create_token(store, TOKEN)
    await store.commit([Create("/delegation_token/tokens/other", b"{}")])
    told: list[BadNode] = []
    assert await token_nodes.read_all_tokens(store, told.append) == [TOKEN]
    assert [error.path for error in told] == ["/delegation_token/tokens/other"]


class Overtaken(EmbeddedSession):
    """A session before whose commits another writer changes the token, so many times."""

    def __init__(self, other: EmbeddedSession, times: int) -> None:
        self.__dict__.update(other.__dict__)
        self.times = times

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        if self.times:
            self.times -= 1
            await super().commit([Set(WHERE, token_nodes.encode_token(TOKEN._replace(expiry_ms=self.times)))])
        return await super().commit(ops)


async def test_another_writer_was_faster() -> None:
    store = await session()
    await token_nodes.create_token(store, TOKEN)
    after = await token_nodes.update_token(
        Overtaken(store, 10), "id-1", lambda token: token._replace(expiry_ms=token.expiry_ms + 7000)
    )
    assert after is not None
    assert after.expiry_ms == 7000  # of what the other one wrote last
    assert await notices(store) == ["id-1"] * 2  # the other one writes none


async def test_another_writer_is_always_faster() -> None:
    store = await session()
    await token_nodes.create_token(store, TOKEN)
    with pytest.raises(TooManyChanges, match="id-1"):
        await token_nodes.update_token(Overtaken(store, 1000), "id-1", lambda token: None)
