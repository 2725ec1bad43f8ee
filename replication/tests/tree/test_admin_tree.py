"""What brokers and old tools leave for the controller: the nodes' JSON in both directions, and what cannot be read."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.replication.planning.topics import NewTopic, new_uuid
from barnabas.replication.store.memory import EmbeddedSession, EmbeddedStore
from barnabas.replication.store.store import Check, Create, NodeExists, Op, Set
from barnabas.replication.tree import admin_tree, paths
from barnabas.replication.tree.cluster_tree import concerns, make_roots
from barnabas.replication.tree.paths import BadNode

GUARD = Check("/controller_epoch", 0)
LEVELS = {"share.version": 1}


@pytest.fixture
async def session() -> EmbeddedSession:
    session = EmbeddedStore.open().connect()
    await make_roots(session)
    await session.commit([Create("/controller_epoch", b"1"), Create("/admin/unrelated")])
    return session


def refuse(error: BadNode) -> None:
    raise AssertionError(str(error))


def test_json_of_requests_and_notifications() -> None:
    moves = {("t", 0): (1, 2), ("u", 7): (3,)}
    assert paths.encode_reassignments({("t", 0): (1, 2)}) == (
        b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    )
    assert paths.decode_reassignments(paths.encode_reassignments(moves)) == moves
    assert paths.encode_partitions([("t", 3)]) == b'{"version":1,"partitions":[{"topic":"t","partition":3}]}'
    assert paths.decode_partitions("/p", b'{"partitions":[{"partition":"3","topic":"t"}],"version":1}') == [("t", 3)]
    assert paths.decode_log_dir_event("/p", paths.encode_log_dir_event(5)) == 5


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"partitions":5}', b'{"partitions":[5]}', b'{"partitions":[{"topic":1}]}']
)
def test_what_cannot_be_read(data: bytes) -> None:
    with pytest.raises(BadNode):
        paths.decode_partitions("/p", data)
    with pytest.raises(BadNode):
        paths.decode_reassignments(data)
    with pytest.raises(BadNode):
        paths.decode_log_dir_event("/p", data)


async def test_a_term_begins(session: EmbeddedSession) -> None:
    notifications: list[Op] = [
        Create("/isr_change_notification/isr_change_", b"?", sequential=True),
        Create("/log_dir_event_notification/log_dir_event_", b"?", sequential=True),
    ]
    await session.commit(notifications)
    requests = await admin_tree.begin_admin_nodes(session, GUARD, refuse, LEVELS)
    assert requests == admin_tree.AdminRequests(None, None)
    assert await session.children("/isr_change_notification") == []
    assert await session.children("/log_dir_event_notification") == []
    node = await session.get("/feature")
    assert node is not None
    assert node.data == b'{"version":2,"status":1,"features":{"share.version":1}}'
    await session.commit([Set("/feature", b"somebody's"), Create(paths.REASSIGNMENTS, paths.encode_reassignments({}))])
    await session.commit([Create(paths.PREFERRED_ELECTION, paths.encode_partitions([("t", 1)]))])
    requests = await admin_tree.begin_admin_nodes(session, GUARD, refuse, LEVELS)
    assert requests == admin_tree.AdminRequests({}, [("t", 1)])
    node = await session.get("/feature")
    assert node is not None
    assert node.data == b"somebody's"


async def test_a_deposed_controller_removes_nothing(session: EmbeddedSession) -> None:
    await session.commit([Create("/isr_change_notification/isr_change_", b"?", sequential=True)])
    await admin_tree.drop_isr_changes(session, Check("/controller_epoch", 9), ["isr_change_0000000000"])
    assert await session.children("/isr_change_notification") == ["isr_change_0000000000"]


async def test_notifications_are_put_together(session: EmbeddedSession) -> None:
    unreadable: list[str] = []
    both, one = paths.encode_partitions([("t", 0), ("u", 1)]), paths.encode_partitions([("t", 0)])
    for data in (both, b"{", one):
        await session.commit([Create("/isr_change_notification/isr_change_", data, sequential=True)])
    for data in (paths.encode_log_dir_event(2), b"{", paths.encode_log_dir_event(1)):
        await session.commit([Create("/log_dir_event_notification/log_dir_event_", data, sequential=True)])
    names, partitions = await admin_tree.read_isr_changes(session, lambda error: unreadable.append(error.path))
    assert (len(names), partitions) == (3, [("t", 0), ("u", 1)])
    await admin_tree.drop_isr_changes(session, GUARD, [*names, "gone"])
    events, brokers = await admin_tree.read_log_dir_events(session, lambda error: unreadable.append(error.path))
    assert (len(events), brokers) == (3, [1, 2])
    await admin_tree.drop_log_dir_events(session, GUARD, events)
    assert len(unreadable) == 2
    assert (
        await session.children("/isr_change_notification")
        == await session.children("/log_dir_event_notification")
        == []
    )


async def test_requests_that_cannot_be_read_stay(session: EmbeddedSession) -> None:
    await session.commit([Create(paths.REASSIGNMENTS, b"{"), Create(paths.PREFERRED_ELECTION, b"[]")])
    unreadable: list[BadNode] = []
    assert await admin_tree.read_reassignments(session, unreadable.append) is None
    assert await admin_tree.read_elections(session, unreadable.append) is None
    assert [error.path for error in unreadable] == [paths.REASSIGNMENTS, paths.PREFERRED_ELECTION]


async def test_a_topic_is_left_once(session: EmbeddedSession) -> None:
    new = NewTopic("t", new_uuid(Random(1)), {0: (1, 2), 1: (2, 1)}, {"retention.ms": "5"})
    await session.commit([Create("/config/topics/t", b'{"version":1,"config":{"old":"1"}}')])
    await admin_tree.leave_topic(session, new)
    node, config = await session.get("/brokers/topics/t"), await session.get("/config/topics/t")
    assert node is not None
    assert config is not None
    topic = paths.decode_topic(node.path, node.data)
    assert topic.topic_id == new.topic_id
    assert {index: assigned.replicas for index, assigned in topic.partitions.items()} == new.assignments
    assert paths.decode_config(config.path, config.data) == {"retention.ms": "5"}
    assert await session.children("/brokers/topics/t") == [], "states are the controller's"
    with pytest.raises(NodeExists):
        await admin_tree.leave_topic(session, new)


def test_what_a_change_is_about() -> None:
    about = concerns({"/admin/reassign_partitions", "/isr_change_notification/isr_change_1"})
    assert (about.reassignments, about.isr_changes, about.elections, about.log_dir_events) == (True, True, False, False)
    about = concerns({"/admin/preferred_replica_election", "/log_dir_event_notification"})
    assert (about.reassignments, about.isr_changes, about.elections, about.log_dir_events) == (False, False, True, True)
