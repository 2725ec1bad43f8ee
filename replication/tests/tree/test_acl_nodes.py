"""Access lists in the tree: Apache Kafka's paths and JSON, and changes beside other brokers."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from barnabas.replication import BadNode, Node, Op
from barnabas.replication.store.memory import EmbeddedSession, EmbeddedStore
from barnabas.replication.store.store import Create, Set
from barnabas.replication.tree import acl_nodes
from barnabas.replication.tree.acl_nodes import AclPlace, StoredAcl, TooManyConflicts, update_acls
from barnabas.replication.tree.change_nodes import drop_changes, read_changes

READ = StoredAcl("User:a", "Allow", "Read", "*")
WRITE = StoredAcl("User:CN=b,O=c", "Deny", "Write", "10.0.0.1")
ORDERS = AclPlace("Topic", "orders")
TX = AclPlace("TransactionalId", "tx:1", is_prefix=True)


def reported(error: BadNode) -> None:
    raise AssertionError(error)


def test_paths() -> None:
    assert acl_nodes.path(ORDERS) == "/kafka-acl/Topic/orders"
    assert acl_nodes.path(AclPlace("Cluster", "kafka-cluster")) == "/kafka-acl/Cluster/kafka-cluster"
    assert acl_nodes.path(AclPlace("Group", "a b*ü")) == "/kafka-acl/Group/a b*ü"  # not escaped
    assert acl_nodes.path(TX) == "/kafka-acl-extended/prefixed/TransactionalId/tx:1"


def test_the_list() -> None:
    data = acl_nodes.encode_acls([READ])
    assert json.loads(data) == {
        "version": 1,
        "acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "Read", "host": "*"}],
    }
    assert acl_nodes.decode_acls("/x", acl_nodes.encode_acls([READ, WRITE])) == [READ, WRITE]
    assert acl_nodes.decode_acls("/x", b"") == []


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"{}",
        b'{"version":2,"acls":[]}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":[{}]}',
        b'{"version":1,"acls":["User:a"]}',
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow","operation":3,"host":"*"}]}',
    ],
)
def test_unreadable_lists(data: bytes) -> None:
    with pytest.raises(BadNode):
        acl_nodes.decode_acls("/kafka-acl/Topic/x", data)


LITERAL_CHANGE, PREFIXED_CHANGE = "/kafka-acl-changes/acl_changes_0", "/kafka-acl-extended-changes/acl_changes_0"


def test_notices() -> None:
    assert acl_nodes.encode_change(ORDERS) == b"TOPIC:orders"
    literal = AclPlace("TransactionalId", "tx:1")
    assert acl_nodes.encode_change(literal) == b"TRANSACTIONAL_ID:tx:1"
    assert acl_nodes.decode_change(LITERAL_CHANGE, b"TRANSACTIONAL_ID:tx:1") == literal
    assert json.loads(acl_nodes.encode_change(TX)) == {
        "version": 1,
        "resourceType": "TRANSACTIONAL_ID",
        "name": "tx:1",
        "patternType": "PREFIXED",
    }
    assert acl_nodes.decode_change(PREFIXED_CHANGE, acl_nodes.encode_change(TX)) == TX


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (LITERAL_CHANGE, b"TOPIC"),
        (LITERAL_CHANGE, b"SHELF:x"),
        (LITERAL_CHANGE, b"\xff:x"),
        (PREFIXED_CHANGE, b"TOPIC:x"),
        (PREFIXED_CHANGE, b'{"version":2,"resourceType":"TOPIC","name":"x","patternType":"PREFIXED"}'),
        (PREFIXED_CHANGE, b'{"version":1,"resourceType":"TOPIC","name":"x","patternType":"SUFFIXED"}'),
        (PREFIXED_CHANGE, b'{"version":1,"resourceType":"TOPIC","patternType":"PREFIXED"}'),
    ],
)
def test_unreadable_notifications(path: str, data: bytes) -> None:
    with pytest.raises(BadNode):
        acl_nodes.decode_change(path, data)


async def new_store() -> EmbeddedSession:
    store = EmbeddedStore.open().connect()
    await acl_nodes.make_acl_roots(store)
    return store


async def test_roots() -> None:
    store = await new_store()
    assert await store.children("/kafka-acl") == sorted(acl_nodes.TYPES)
    assert await store.children("/kafka-acl-extended/prefixed") == sorted(acl_nodes.TYPES)
    assert await store.children("/kafka-acl-changes") == []
    await acl_nodes.make_acl_roots(store)


async def test_a_list_comes_grows_shrinks_and_goes_and_each_change_is_noticed() -> None:
    store = await new_store()
    assert await update_acls(store, ORDERS, lambda before: [*before, READ]) == [READ]
    assert await update_acls(store, ORDERS, lambda before: [*before, WRITE]) == [READ, WRITE]
    assert await acl_nodes.read_acls(store, ORDERS) == [READ, WRITE]
    await update_acls(store, ORDERS, lambda before: [WRITE, READ])  # the same
    await update_acls(store, ORDERS, lambda before: [WRITE])
    await update_acls(store, TX, lambda before: [READ])
    assert await acl_nodes.read_all_acls(store, reported) == {ORDERS: [WRITE], TX: [READ]}
    assert await update_acls(store, ORDERS, lambda before: []) == []
    assert await store.get("/kafka-acl/Topic/orders") is None
    assert await update_acls(store, ORDERS, lambda before: []) == []
    changes = await read_changes(store, acl_nodes.LITERAL_CHANGES, acl_nodes.decode_change, (), reported)
    assert list(changes.values()) == [ORDERS] * 4
    assert sorted(changes)[0] == "acl_changes_0000000000"
    await drop_changes(store, acl_nodes.LITERAL_CHANGES, [*changes, "acl_changes_0000000099"])
    assert await store.children(acl_nodes.LITERAL_CHANGES) == []
    assert await store.children(acl_nodes.PREFIXED_CHANGES) == ["acl_changes_0000000000"]


async def test_unreadable_lists_are_reported() -> None:
    store = await new_store()
    await store.commit(
        [
            Create("/kafka-acl/Topic/bad", b"x"),
            Create("/kafka-acl/Shelf"),
            Create("/kafka-acl/Topic/good", acl_nodes.encode_acls([READ])),
        ]
    )
    told: list[str] = []
    found = await acl_nodes.read_all_acls(store, lambda error: told.append(error.path))
    assert found == {AclPlace("Topic", "bad"): None, AclPlace("Topic", "good"): [READ]}
    assert sorted(told) == ["/kafka-acl/Shelf", "/kafka-acl/Topic/bad"]


class Overtaken(EmbeddedSession):
    """A session before whose commits another writer changes the list, so many times."""

    def __init__(self, other: EmbeddedSession, times: int) -> None:
        self.__dict__.update(other.__dict__)
        self.other = other
        self.times = times

    async def commit(self, ops: Sequence[Op]) -> list[Node | None]:
        if self.times:
            self.times -= 1
            path = acl_nodes.path(ORDERS)
            acls = acl_nodes.encode_acls([StoredAcl("User:other", "Allow", "Read", f"10.0.0.{self.times}")])
            node = await self.other.get(path)
            await self.other.commit([Create(path, acls) if node is None else Set(path, acls, node.version)])
        return await super().commit(ops)


async def test_another_writer_was_faster() -> None:
    store = await new_store()
    await update_acls(Overtaken(store, 10), ORDERS, lambda before: [*before, READ])
    assert await acl_nodes.read_acls(store, ORDERS) == [StoredAcl("User:other", "Allow", "Read", "10.0.0.0"), READ]
    changes = await read_changes(store, acl_nodes.LITERAL_CHANGES, acl_nodes.decode_change, (), reported)
    assert list(changes.values()) == [ORDERS]  # the other one writes no notices


async def test_another_writer_is_always_faster() -> None:
    with pytest.raises(TooManyConflicts, match="/kafka-acl/Topic/orders"):
        await update_acls(Overtaken(await new_store(), 1000), ORDERS, lambda before: [*before, READ])
