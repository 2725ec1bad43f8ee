"""A member of a cluster: registration, sessions, terms, restarts; what others write into the tree meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import (
    BrokerIdTaken,
    BrokerImage,
    DirectoryFiles,
    EmbeddedStore,
    TopicDefaults,
    TopicRequest,
    WrongCluster,
    plan_creation,
)
from barnabas.replication.store.store import Create, Delete, NodeExists, Set
from barnabas.replication.tree import admin_tree
from barnabas.server.tests.cluster.controller_driver_rig import BROKER, CLUSTER, FilesInMemory, Rig, code_of, running

E = ErrorCode


async def test_a_first_start() -> None:
    async with running() as rig:
        image = rig.member.image
        assert image.cluster_id == CLUSTER
        assert (image.controller_id, image.controller_epoch) == (1, 1)
        assert image.brokers[1].endpoints == BROKER.endpoints
        assert image.brokers[1].epoch > 0
        assert rig.member.is_active
        assert (await rig.session.get("/controller_epoch")).data == b"1"  # type: ignore[union-attr]
        assert "changes" in await rig.session.children("/config")


async def test_settings_of_brokers_and_notifications_that_age() -> None:
    store = EmbeddedStore.open()
    async with running(store) as rig:
        await rig.topics.alter_broker_config(None, lambda before: {**before, "log.retention.ms": "9"})
        await rig.topics.alter_broker_config(1, lambda before: {"log.cleaner.threads": "2"})
        expected = {"<default>": {"log.retention.ms": "9"}, "1": {"log.cleaner.threads": "2"}}
        assert {k: dict(v) for k, v in rig.member.image.broker_configs.items()} == expected
        assert rig.broker_configs[-1] == expected
        await trio.testing.wait_all_tasks_blocked()
        assert len(await rig.session.children("/config/changes")) == 2
        rig.now_ms += 16 * 60 * 1000
        await rig.topics.alter_broker_config(1, lambda before: {})
        await trio.testing.wait_all_tasks_blocked()
        assert len(await rig.session.children("/config/changes")) == 1
    await rig.session.aclose()
    async with running(store) as rig:
        assert rig.broker_configs[0]["<default>"] == {"log.retention.ms": "9"}


async def test_other_tools_write_the_tree() -> None:
    """An old kafka-topics or kafka-configs with --zookeeper: settings, then the topic; no topic id before 2.8."""
    async with running() as rig:
        tool = rig.store.connect()
        await tool.commit([Create("/config/topics/old", b'{"version":1,"config":{"retention.ms":"7"}}')])
        await tool.commit([Create("/brokers/topics/old", b'{"version":1,"partitions":{"1":[1],"0":[1]}}')])
        await rig.member.image_until(lambda image: "old" in image.topics)
        topic = rig.member.image.topics["old"]
        assert [p.leader for p in topic.partitions] == [1, 1]
        assert topic.config == {"retention.ms": "7"}
        assert topic.topic_id != bytes(16)
        node = await tool.get("/brokers/topics/old")
        assert node is not None
        assert b'"topic_id":"' in node.data
        await tool.commit([Set("/brokers/topics/old", node.data.replace(b'"1":[1]', b'"1":[1],"2":[1]'))])
        await rig.member.image_until(lambda image: len(image.topics["old"].partitions) == 3)
        await tool.commit([Create("/admin/delete_topics/old"), Create("/admin/delete_topics/never")])
        await rig.member.image_until(lambda image: not image.topics)
        await trio.testing.wait_all_tasks_blocked()
        assert await tool.children("/admin/delete_topics") == []
        assert await tool.children("/brokers/topics") == []


async def test_what_cannot_be_read_is_left_out() -> None:
    store = EmbeddedStore.open()
    async with running(store) as rig:
        await rig.create("good", "bad", "halfbad", "strange")
    tool = store.connect()
    await tool.commit(
        [
            Set("/brokers/topics/bad", b"no json"),
            Set("/brokers/topics/halfbad/partitions/0/state", b"[]"),
            Set("/config/topics/strange", b'{"config":7}'),
            Create("/brokers/ids/12", b"\xff"),
        ]
    )
    await rig.session.aclose()
    async with running(store) as rig:
        assert sorted(rig.member.image.topics) == ["good", "halfbad", "strange"]
        assert rig.member.image.topics["halfbad"].partitions[0].leader == -1, "nobody knows who is in sync"
        assert ("halfbad", 0) not in rig.replicas.led
        assert await rig.create("bad") == [36]


async def test_a_restart_after_a_clean_stop_and_after_a_crash(tmp_path: Path) -> None:
    store = EmbeddedStore.open(DirectoryFiles(tmp_path))
    async with running(store) as rig:
        await rig.create("t", partitions=2)
        await rig.topics.alter_topic_config("t", lambda before: {"retention.ms": "1"})
        before = rig.member.image
    for recovered, epoch in ((False, 0), (True, 2), (False, 2)):
        store = EmbeddedStore.open(DirectoryFiles(tmp_path))
        async with running(store, recovered=recovered) as rig:
            image = rig.member.image
            assert image.cluster_id == CLUSTER
            assert image.controller_epoch > before.controller_epoch
            assert image.brokers[1].epoch > before.brokers[1].epoch
            assert image.topics["t"].topic_id == before.topics["t"].topic_id
            assert image.topics["t"].config == {"retention.ms": "1"}
            assert [p.leader_epoch for p in image.topics["t"].partitions] == [epoch, epoch]
            assert [rig.replicas.led["t", index][1] for index in (0, 1)] == list(image.topics["t"].partitions)
            before = image


async def test_a_deletion_goes_on_after_a_crash() -> None:
    store = EmbeddedStore.open()
    async with running(store) as rig:
        await rig.create("t", "kept")
    await rig.session.aclose()
    await store.connect().commit([Create("/admin/delete_topics/t")])
    async with running(store) as rig:
        assert sorted(rig.member.image.topics) == ["kept"]
        assert rig.replicas.deleted == [("t", 0)]
        assert ("t", 0) not in rig.replicas.led
        assert await rig.session.children("/brokers/topics") == ["kept"]


async def test_a_lost_session_and_its_return() -> None:
    async with running() as rig:
        await rig.create("t")
        before = rig.member.image
        await rig.session.expire()
        await rig.member.image_until(lambda image: image.controller_epoch == 2)
        assert rig.member.image.brokers[1].epoch > before.brokers[1].epoch
        assert rig.member.image.topics["t"].topic_id == before.topics["t"].topic_id
        assert await rig.create("u") == [0]


async def test_requests_under_way_when_the_session_ends_are_refused() -> None:
    gate = trio.Event()
    gate.set()

    async def gated(work: Callable[[], None]) -> None:
        await gate.wait()
        work()

    async with running(EmbeddedStore.open(FilesInMemory(), run_io=gated)) as rig:
        gate = trio.Event()
        codes: list[ErrorCode] = []

        async def create() -> None:
            codes.extend(await rig.create("t"))

        async with trio.open_nursery() as nursery:
            rig.member._resign("a test wants it")
            with pytest.raises(KafkaError) as caught:
                await rig.create("t")
            assert caught.value.code == ErrorCode.NOT_CONTROLLER
            gate.set()
            await rig.member._elect()
            assert not rig.member.is_active, "/controller is still there"
            await rig.store.connect().commit([Delete("/controller")])
            await rig.member.image_until(lambda image: image.controller_epoch == 2)
            gate = trio.Event()
            nursery.start_soon(create)
            await trio.testing.wait_all_tasks_blocked()
            rig.member._resign("a test wants it")
            await trio.testing.wait_all_tasks_blocked()
            gate.set()
        assert codes == [41]


async def test_another_controller_deposes_this_one(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as rig:
        other = rig.store.connect()
        node = await other.get("/controller_epoch")
        assert node is not None
        await other.commit([Set("/controller_epoch", b"2"), Delete("/controller")])
        await other.commit([Create("/controller", b'{"version":1,"brokerid":9,"timestamp":"1"}', ephemeral=True)])
        await trio.testing.wait_all_tasks_blocked()
        assert not rig.member.is_active
        with pytest.raises(KafkaError) as caught:
            await rig.create("t")
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert await rig.topics.auto_create(["auto", "a/b"]) == {"auto": E.LEADER_NOT_AVAILABLE, "a/b": E(17)}
        assert (await other.get("/brokers/topics/auto")) is not None, "left for the controller, wherever it is"
        await other.aclose()
        await rig.member.image_until(lambda image: image.controller_epoch == 3)
        assert await rig.create("t") == [0]
        assert await rig.topics.auto_create(["auto"]) == {"auto": ErrorCode.NONE}


async def test_topics_left_for_the_controller(autojump_clock: trio.testing.MockClock) -> None:
    async with running() as rig:
        session = rig.store.connect()
        await session.commit([Create("/config/topics/old", b'{"version":1,"config":{"retention.ms":"1"}}')])
        new = plan_creation(
            rig.member.image, TopicRequest("old", 2), TopicDefaults(), check_config=lambda config: None, rng=Random(1)
        )
        await admin_tree.leave_topic(session, new)
        await rig.member.image_until(lambda image: "old" in image.topics)
        topic = rig.member.image.topics["old"]
        assert (len(topic.partitions), topic.config, topic.topic_id) == (2, {}, new.topic_id)
        with pytest.raises(NodeExists):
            await admin_tree.leave_topic(session, new)


async def test_a_guard_that_fails_ends_the_term() -> None:
    async with running() as rig:
        await rig.store.connect().commit([Set("/controller_epoch", b"7")])
        assert await rig.create("t") == [41]
        assert not rig.member.is_active


async def test_identities_that_do_not_fit() -> None:
    store = EmbeddedStore.open()
    async with running(store):
        with pytest.raises(BrokerIdTaken):
            await Rig(store).member.run()
        with pytest.raises(WrongCluster):
            await Rig(store, BrokerImage(2, ()), cluster_id="another").member.run()


async def test_elections_by_an_administrator() -> None:
    async with running() as rig:
        await rig.create("t", partitions=2)
        for unclean in (False, True):
            result = await rig.partitions.elect_leaders([("t", 0), ("no", 1)], unclean=unclean, timeout_ms=60_000)
            assert {key: code_of(error) for key, error in result.items()} == {("t", 0): 84, ("no", 1): 3}
            assert await rig.partitions.elect_leaders(None, unclean=unclean, timeout_ms=60_000) == {}


async def test_producer_id_blocks() -> None:
    store = EmbeddedStore.open()
    async with running(store) as rig:
        blocks = [await rig.partitions.allocate_producer_ids(1, rig.member.broker_epoch) for _ in range(3)]
        assert [(block.first, block.last) for block in blocks] == [(0, 999), (1000, 1999), (2000, 2999)]
        node = await rig.session.get("/latest_producer_id_block")
        assert node is not None
        assert node.data == b'{"version":1,"broker":1,"block_start":"2000","block_end":"2999"}'
