"""Topics found on disk are entered into a new store, also when an earlier try got half way."""

from __future__ import annotations

import pytest

from barnabas.replication.store.memory import EmbeddedStore
from barnabas.replication.store.store import Create, Delete
from barnabas.replication.tree import paths
from barnabas.replication.tree.found_topics import FoundTopic, enter_topics, is_new, reserve_producer_ids
from barnabas.replication.tree.paths import Assignment, ProducerIdBlock, StateNode, TopicNode

MANY = FoundTopic("many", bytes([1]) * 16, tuple(range(400)), {"retention.ms": "-1"})
ONE = FoundTopic("one", bytes([2]) * 16, (7,))


async def test_nodes_are_those_of_a_topic_that_is_led() -> None:
    store = EmbeddedStore.open().connect()
    assert await is_new(store)
    await enter_topics(store, 3, [MANY, ONE])
    node = await store.get(paths.topic("one"))
    assert node is not None
    assert paths.decode_topic(node.path, node.data) == TopicNode(ONE.topic_id, {0: Assignment((3,))})
    for topic in (MANY, ONE):
        for index, epoch in enumerate(topic.leader_epochs):
            state = await store.get(paths.state(topic.name, index))
            assert state is not None
            assert paths.decode_state(state.path, state.data) == StateNode(3, epoch, 0, (3,))
    config = await store.get(paths.config_entity(paths.TOPIC_CONFIG, "many"))
    assert config is not None
    assert paths.decode_config(config.path, config.data) == {"retention.ms": "-1"}
    assert await is_new(store)  # that ends with the cluster's id


async def test_half_of_it_is_made_whole() -> None:
    store = EmbeddedStore.open().connect()
    await enter_topics(store, 3, [MANY, ONE])
    lost = [paths.state("many", 399), paths.partition("many", 399), paths.state("many", 5), paths.state("one", 0)]
    for path in lost:
        await store.commit([Delete(path)])
    # What is there stays: a topic without an id of its own was given one the first time.
    await enter_topics(store, 3, [MANY, FoundTopic("one", bytes([9]) * 16, (7,))])
    assert all(node is not None for node in await store.get_many(lost))
    node = await store.get(paths.topic("one"))
    assert node is not None
    assert paths.decode_topic(node.path, node.data).topic_id == ONE.topic_id


@pytest.mark.parametrize(
    ("known", "first_free", "last"), [(None, 0, None), (None, 1, 0), (999, 5, 999), (999, 1001, 1000)]
)
async def test_producer_ids_go_on_above(known: int | None, first_free: int, last: int | None) -> None:
    store = EmbeddedStore.open().connect()
    if known is not None:
        block = paths.encode_producer_ids(ProducerIdBlock(1, 0, known))
        await store.commit([Create(paths.PRODUCER_ID_BLOCK, block)])
    await reserve_producer_ids(store, 1, first_free)
    node = await store.get(paths.PRODUCER_ID_BLOCK)
    found = paths.decode_producer_ids(node.data) if node is not None else None
    assert (None if found is None else found.last) == last
