"""Users in the tree: what is read of them, and the secret that all brokers share."""

from __future__ import annotations

import pytest

from barnabas.replication import USER_CONFIG, BadNode, make_roots, write_config
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.store import Create, Set
from barnabas.replication.tree.users import SECRET_BYTES, read_users, settle_secret


async def test_users_are_read_by_name() -> None:
    store = EmbeddedStore.open().connect()
    await make_roots(store)
    await write_config(store, USER_CONFIG, "a b", lambda stored: {"SCRAM-SHA-256": "x"})
    await write_config(store, USER_CONFIG, "a b", lambda stored: {**stored, "producer_byte_rate": "1"})
    await write_config(store, USER_CONFIG, "<default>", lambda stored: {"producer_byte_rate": "2"})
    await store.commit([Create("/config/users/empty"), Create("/config/users/bad", b"[")])
    bad: list[BadNode] = []
    assert await read_users(store, bad.append) == {
        "a b": {"SCRAM-SHA-256": "x", "producer_byte_rate": "1"},
        "empty": {},
    }
    assert [error.path for error in bad] == ["/config/users/bad"]


async def test_a_notice_tells_of_each_change() -> None:
    store = EmbeddedStore.open().connect()
    await make_roots(store)
    await write_config(store, USER_CONFIG, "ü/b", lambda stored: {"SCRAM-SHA-256": "x"})
    (name,) = await store.children("/config/changes")
    node = await store.get(f"/config/changes/{name}")
    assert node is not None
    assert node.data == b'{"version":2,"entity_path":"users/%C3%BC%2Fb"}'


async def test_the_secret_is_made_once() -> None:
    store = EmbeddedStore.open().connect()
    first = await settle_secret(store, lambda: b"1" * SECRET_BYTES)
    assert await settle_secret(store, lambda: pytest.fail("there is one")) == first == b"1" * SECRET_BYTES


async def test_two_brokers_that_make_it_at_the_same_time_share_one() -> None:
    store = EmbeddedStore.open().connect()

    def make() -> bytes:
        return b"ours"

    class Slow:
        """Another broker is faster, once."""

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def commit(self, ops: list[Create]) -> object:
            if ops[0].path.endswith("secret"):
                await store.commit([Create(ops[0].path, b"theirs")])
            return await store.commit(ops)

    assert await settle_secret(Slow(), make) == b"theirs"  # type: ignore[arg-type]
    await store.commit([Set("/barnabas/stand_in_secret", b"")])
    assert await settle_secret(store, make) == b""
