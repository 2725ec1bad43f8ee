"""Procedures on the tree beside other brokers: every step may be overtaken."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio

from barnabas.replication.store.memory import EmbeddedSession, EmbeddedStore
from barnabas.replication.store.store import Check, Create, NoSuchNode, Set, VersionMoved
from barnabas.replication.tree import paths
from barnabas.replication.tree.cluster_tree import (
    BrokerIdTaken,
    WrongCluster,
    concerns,
    ensure_nodes,
    make_paths,
    make_roots,
    partition_count,
    read_brokers,
    read_cluster,
    register_broker,
    remove_topic,
    settle_cluster_id,
    stand_for_controller,
    write_config,
)
from barnabas.replication.values.image import BrokerImage, Endpoint, Image

BROKER = BrokerImage(1, (Endpoint("PLAINTEXT", "h", 1),))


@pytest.fixture
async def store() -> EmbeddedStore:
    store = EmbeddedStore.open()
    await make_roots(store.connect())
    return store


async def test_roots_are_created_once_by_any_broker() -> None:
    store = EmbeddedStore.open()
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(make_roots, store.connect())
    session = store.connect()
    for path in paths.PERSISTENT:
        assert (await session.get(path)) is not None
    many = [f"/many/{number}/leaf" for number in range(3000)]
    await make_paths(session, many)
    assert len(await session.children("/many")) == 3000


async def test_the_cluster_id_is_agreed_upon(store: EmbeddedStore) -> None:
    found: list[str] = []

    async def settle(mine: str) -> None:
        found.append(await settle_cluster_id(store.connect(), None, lambda: mine))

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(settle, f"cluster-{number}")
    assert len(set(found)) == 1
    assert await settle_cluster_id(store.connect(), found[0], lambda: "unused") == found[0]
    with pytest.raises(WrongCluster):
        await settle_cluster_id(store.connect(), "other", lambda: "unused")


async def test_what_the_log_directory_says_becomes_the_cluster_id(store: EmbeddedStore) -> None:
    assert await settle_cluster_id(store.connect(), "mine", lambda: "unused") == "mine"


async def test_registration(store: EmbeddedStore) -> None:
    session = store.connect()
    registered = await register_broker(session, BROKER, 5)
    assert registered.epoch > 0
    assert await read_brokers(store.connect(), pytest.fail) == {1: registered}  # type: ignore[arg-type]
    with pytest.raises(BrokerIdTaken):
        await register_broker(store.connect(), BROKER, 5)
    await session.aclose()
    again = await register_broker(store.connect(), BROKER, 5)
    assert again.epoch > registered.epoch


async def test_brokers_that_registered_after_a_state_was_written_are_known(store: EmbeddedStore) -> None:
    one, two = store.connect(), store.connect()
    other = BrokerImage(2, BROKER.endpoints)
    await register_broker(one, BROKER, 5)
    await register_broker(two, other, 5)
    topic = paths.TopicNode(b"i" * 16, {0: paths.Assignment((1, 2)), 1: paths.Assignment((2,))})
    path = paths.topic("t")
    await two.commit([Create(path, paths.encode_topic(topic)), Create(paths.partitions("t"))])
    for index, isr in ((0, (2, 1)), (1, (2,))):
        state = paths.encode_state(paths.StateNode(2, 0, 1, isr))
        await two.commit([Create(paths.partition("t", index)), Create(paths.state("t", index), state)])
    assert (await read_cluster(two, Image(), pytest.fail))[1] == {}  # type: ignore[arg-type]
    await one.aclose()
    await register_broker(store.connect(), BROKER, 5)
    image, returned = await read_cluster(two, Image(), pytest.fail)  # type: ignore[arg-type]
    assert returned == {("t", 0): {1}}
    assert image.topics["t"].partitions[0].isr == (2, 1)


async def test_one_controller_at_a_time_and_epochs_rise(store: EmbeddedStore) -> None:
    epochs = []
    for _ in range(4):
        terms: list[tuple[int, EmbeddedSession]] = []

        async def stand(broker: int, terms: list[tuple[int, EmbeddedSession]] = terms) -> None:
            session = store.connect()
            term = await stand_for_controller(session, broker, 1)
            if term is not None:
                await session.commit([Check(paths.CONTROLLER_EPOCH, term.version)])
                terms.append((term.epoch, session))

        async with trio.open_nursery() as nursery:
            for broker in range(5):
                nursery.start_soon(stand, broker)
        [(epoch, session)] = terms
        epochs.append(epoch)
        assert await stand_for_controller(store.connect(), 9, 1) is None
        await session.aclose()
    assert epochs == [1, 2, 3, 4]


async def test_settings_of_a_topic_that_is_gone_are_not_written(store: EmbeddedStore) -> None:
    session = store.connect()
    with pytest.raises(NoSuchNode):
        await write_config(session, "topics", "ghost", lambda before: {"a": "b"})
    assert await session.children("/config/topics") == []
    assert await session.children("/config/changes") == []


async def test_settings_are_edited_from_what_is_there(store: EmbeddedStore) -> None:
    session = store.connect()
    await session.commit([Create("/config/brokers/1", b'{"version":1,"config":{"a":"1"}}')])
    other = store.connect()
    calls: list[dict[str, str]] = []
    overtaken = trio.Event()

    class Overtaking(EmbeddedSession):
        """Another broker writes between the first read and the write."""

        async def commit(self, ops):  # type: ignore[no-untyped-def]
            if not overtaken.is_set():
                overtaken.set()
                await other.commit([Set("/config/brokers/1", b'{"version":1,"config":{"a":"2"}}')])
            return await super().commit(ops)

    def edit(before: Mapping[str, str]) -> Mapping[str, str]:
        calls.append(dict(before))
        return {**before, "b": "3"}

    after = await write_config(Overtaking(store, 77), "brokers", "1", edit)
    assert calls == [{"a": "1"}, {"a": "2"}]
    assert after == {"a": "2", "b": "3"}
    assert await session.children("/config/changes") == ["config_change_0000000000"]


async def test_a_topic_is_removed_with_all_that_is_under_it(store: EmbeddedStore) -> None:
    session = store.connect()
    await make_paths(session, [f"/brokers/topics/t/partitions/{index}/state" for index in range(1500)])
    await make_paths(session, ["/brokers/topics/t/strange/thing", "/config/topics/t", "/admin/delete_topics/t"])
    await make_paths(session, ["/brokers/topics/kept"])
    with pytest.raises(VersionMoved):
        await remove_topic(session, Check("/brokers/topics", 7), "t")
    assert await session.get("/brokers/topics/t/partitions/3/state") is not None
    await remove_topic(session, Check("/brokers/topics", 0), "t")
    await remove_topic(session, None, "t")
    assert await session.children("/brokers/topics") == ["kept"]
    assert await session.children("/config/topics") == await session.children("/admin/delete_topics") == []


async def test_how_many_partitions_a_topic_has(store: EmbeddedStore) -> None:
    session = store.connect()
    await make_paths(session, ["/brokers/topics", "/admin/delete_topics"])
    node = b'{"version":1,"partitions":{"0":[1],"1":[2,1]}}'
    await session.commit([Create("/brokers/topics/t", node), Create("/brokers/topics/odd", b"odd")])
    assert [await partition_count(session, name) for name in ("t", "none", "odd")] == [2, 0, None]
    await session.commit([Create("/admin/delete_topics/t")])
    assert await partition_count(session, "t") == 0


async def test_nodes_are_not_made_under_what_is_gone(store: EmbeddedStore) -> None:
    session = store.connect()
    guard = Check("/brokers", 0)
    with pytest.raises(NoSuchNode):
        await ensure_nodes(session, guard, ["/brokers/topics/gone/partitions"])
    assert await session.children("/brokers/topics") == []
    await session.commit([Create("/brokers/topics/t"), Create("/brokers/topics/t/partitions")])
    wanted = ["/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"]
    await ensure_nodes(session, guard, wanted)
    await ensure_nodes(session, guard, wanted)
    assert await session.children("/brokers/topics/t/partitions") == ["0"]


def test_what_a_change_is_about() -> None:
    about = concerns({"/brokers/topics/t", "/brokers/topics", "/config/changes/config_change_1"})
    assert (about.topics_changed, about.topics, about.configs) == (True, {"t"}, True)
    assert (about.brokers, about.controller, about.deletions) == (False, False, False)
    assert concerns({"/controller"}).controller
    assert concerns({"/brokers/ids/4"}).brokers
    assert concerns({"/admin/delete_topics/t"}).deletions
