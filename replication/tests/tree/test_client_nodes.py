"""Settings of users, client ids and addresses in the tree: where they stand, and when nothing of them stays."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.replication import CLIENT_CONFIG, IP_CONFIG, TOPIC_CONFIG, USER_CONFIG, BadNode, make_roots, write_config
from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.store import Create, Store
from barnabas.replication.tree import paths
from barnabas.replication.tree.client_nodes import is_client_kind, read_clients

RATE = {"producer_byte_rate": "1024"}


async def new_store() -> Store:
    store = EmbeddedStore.open().connect()
    await make_roots(store)
    return store


async def put(store: Store, kind: str, name: str, config: Mapping[str, str]) -> None:
    await write_config(store, kind, name, lambda stored: config)


async def notices(store: Store) -> list[str]:
    names = await store.children(paths.CONFIG_CHANGES)
    nodes = await store.get_many([f"{paths.CONFIG_CHANGES}/{name}" for name in names])
    return [node.data.decode() for node in nodes if node is not None]


async def test_all_are_read_from_where_apache_kafka_has_them() -> None:
    store = await new_store()
    of_clients, of_default = paths.user_clients("ü/b"), paths.user_clients("<default>")
    every = {
        (USER_CONFIG, "ü/b"): {"SCRAM-SHA-256": "x", **RATE},
        (USER_CONFIG, "<default>"): {"request_percentage": "50.0"},
        (of_clients, "c*"): {"consumer_byte_rate": "1"},
        (of_clients, "<default>"): {"consumer_byte_rate": "2"},
        (of_default, "c*"): {"consumer_byte_rate": "3"},
        (CLIENT_CONFIG, "<default>"): {"controller_mutation_rate": "0.5"},
        (IP_CONFIG, "::1"): {"connection_creation_rate": "7"},
    }
    for (kind, name), config in every.items():
        await put(store, kind, name, config)
    await store.commit([Create("/config/clients/bad", b"[")])
    bad: list[BadNode] = []
    assert await read_clients(store, bad.append) == every
    assert [error.path for error in bad] == ["/config/clients/bad"]
    assert await store.get("/config/users/%C3%BC%2Fb/clients/c%2A") is not None
    assert await store.get("/config/users/<default>/clients/c%2A") is not None
    assert await store.get("/config/ips/%3A%3A1") is not None


async def test_a_user_that_has_only_clients_has_no_settings() -> None:
    store = await new_store()
    await put(store, paths.user_clients("alice"), "c", RATE)
    assert await read_clients(store, pytest.fail) == {
        (USER_CONFIG, "alice"): {},
        (paths.user_clients("alice"), "c"): RATE,
    }


async def test_a_notice_names_a_users_client() -> None:
    store = await new_store()
    await put(store, paths.user_clients("ü/b"), "c*", RATE)
    assert await notices(store) == ['{"version":2,"entity_path":"users/%C3%BC%2Fb/clients/c%2A"}']
    for data in (await notices(store))[0], '{"version":2,"entity_path":"users/%C3%BC%2Fb/clients/c%2A"}':
        assert paths.decode_config_change("/n", data.encode()) == (paths.user_clients("ü/b"), "c*")
    slashes = b'{"version":2,"entity_path":"users/a%2Fclients%2Fb"}'
    assert paths.decode_config_change("/n", slashes) == (USER_CONFIG, "a/clients/b")


@pytest.mark.parametrize("kind", [USER_CONFIG, CLIENT_CONFIG, IP_CONFIG])
async def test_an_empty_node_is_removed_and_notified(kind: str) -> None:
    store = await new_store()
    await put(store, kind, "a", RATE)
    await put(store, kind, "a", {})
    assert await store.children(f"/config/{kind}") == []
    assert len(await notices(store)) == 2
    await put(store, kind, "a", {})  # was not there
    assert len(await notices(store)) == 2


async def test_a_users_last_client_takes_what_is_empty_with_it() -> None:
    store = await new_store()
    clients = paths.user_clients("alice")
    await put(store, clients, "c", RATE)
    await put(store, clients, "d", RATE)
    await put(store, clients, "c", {})
    assert await store.children("/config/users/alice/clients") == ["d"]
    await put(store, clients, "d", {})
    assert await store.children("/config/users") == []


async def test_a_user_with_other_settings_stays() -> None:
    store = await new_store()
    await put(store, USER_CONFIG, "alice", RATE)
    await put(store, paths.user_clients("alice"), "c", RATE)
    await put(store, paths.user_clients("alice"), "c", {})
    assert await store.children("/config/users/alice") == []
    assert await read_clients(store, pytest.fail) == {(USER_CONFIG, "alice"): RATE}


async def test_a_user_with_clients_stays_without_settings() -> None:
    store = await new_store()
    await put(store, USER_CONFIG, "alice", RATE)
    await put(store, paths.user_clients("alice"), "c", RATE)
    await put(store, USER_CONFIG, "alice", {})
    assert (await read_clients(store, pytest.fail))[USER_CONFIG, "alice"] == {}
    node = await store.get("/config/users/alice")
    assert node is not None
    assert node.data == b'{"version":1,"config":{}}'


async def test_a_setting_added_during_a_removal_is_kept() -> None:
    store = await new_store()
    await put(store, USER_CONFIG, "alice", RATE)

    class Slow:
        """Another broker is faster, once."""

        is_first = True

        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def commit(self, ops: list[Create]) -> object:
            if self.is_first:
                self.is_first = False
                await put(store, paths.user_clients("alice"), "c", RATE)
            return await store.commit(ops)

    await put(Slow(), USER_CONFIG, "alice", {})  # type: ignore[arg-type]
    assert await read_clients(store, pytest.fail) == {
        (USER_CONFIG, "alice"): {},
        (paths.user_clients("alice"), "c"): RATE,
    }


def test_kinds() -> None:
    for kind in (USER_CONFIG, CLIENT_CONFIG, IP_CONFIG, paths.user_clients("a/b")):
        assert is_client_kind(kind)
    for kind in (TOPIC_CONFIG, "users/a", "users/a/b", "users/a/b/clients"):
        assert not is_client_kind(kind)
    assert paths.user_of_clients(paths.user_clients("a/b")) == "a/b"
