"""Who a broker is: its number, its cluster, its registration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio
import trio.testing

from barnabas.logdir import InconsistentMeta, LogDir, MetaProperties
from barnabas.replication import (
    BrokerIdTaken,
    BrokerImage,
    EmbeddedStore,
    Store,
    WrongCluster,
    make_roots,
    register_broker,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.cluster.identity import REGISTRATION_GRACE_S, settle_broker_id, wait_for_old_registration
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.testing import embedded_broker, embedded_cluster


def config(**settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.from_values({"zookeeper.connect": "z", **given})


# -- the number ----------------------------------------------------------------------------------------------------


async def test_a_number_that_is_given_is_kept() -> None:
    store = EmbeddedStore.open().connect()
    assert (await settle_broker_id(config(broker_id="7"), None, store)).broker_id == 7


async def test_numbers_are_generated_above_the_reserved_ones_and_never_twice() -> None:
    tree = EmbeddedStore.open()
    found = [(await settle_broker_id(config(), None, tree.connect())).broker_id for _ in range(3)]
    assert found == [1001, 1002, 1003]
    assert (await settle_broker_id(config(reserved_broker_max_id="5"), None, tree.connect())).broker_id == 9


async def test_the_data_directory_remembers_a_generated_number() -> None:
    store = EmbeddedStore.open().connect()
    meta = MetaProperties(0, "cluster", 1005)
    assert (await settle_broker_id(config(), meta, store)).broker_id == 1005


META_OF_KAFKA = "#\n#Sat Nov 21 10:00:00 UTC 2026\ncluster.id=Wn1mPZ5XTd2e4bTLkpdiFA\nversion=0\nbroker.id={id}\n"


def kafka_directory(path: Path, broker_id: int) -> str:
    """As Apache Kafka 3.9.1 in ZooKeeper mode leaves it."""
    path.mkdir()
    (path / "meta.properties").write_text(META_OF_KAFKA.format(id=broker_id))
    return str(path)


async def test_the_directory_of_an_apache_kafka_broker_is_taken_over(tmp_path: Path) -> None:
    path = kafka_directory(tmp_path / "data", 1)
    async with embedded_cluster(1, tmp_path, log_dirs=path) as cluster:
        assert cluster[1].services.image.cluster_id == "Wn1mPZ5XTd2e4bTLkpdiFA"
    assert (Path(path) / "meta.properties").read_text() == META_OF_KAFKA.format(id=1)


async def test_the_directory_of_another_broker_is_refused(tmp_path: Path) -> None:
    path = kafka_directory(tmp_path / "data", 2)
    with pytest.raises(BaseExceptionGroup) as caught:
        async with embedded_cluster(1, tmp_path, log_dirs=path):
            pass
    assert caught.group_contains(InconsistentMeta, match="belongs to broker 2", depth=None)


async def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with embedded_cluster(1, tmp_path) as cluster:
        await cluster.stop(1)
        meta = tmp_path / "1" / "meta.properties"
        meta.write_text(meta.read_text().replace("cluster.id=", "cluster.id=x"))
        with pytest.raises(WrongCluster, match="the log directory belongs to cluster x"):
            await cluster.start(1)


async def test_generated_numbers_are_written_down(tmp_path: Path) -> None:
    async with embedded_cluster(0, tmp_path) as cluster:
        first = await cluster.start(1, broker_id="-1")
        assert first.config.broker_id == 1001
        await cluster.stop(1)
        again = await cluster.start(1, broker_id="-1")
        assert again.config.broker_id == 1001
    log_dir = LogDir(str(tmp_path / "1"), wall_ms=lambda: 0, random=Random(1).random, unique_hex=lambda: "0")
    log_dir.open()
    assert log_dir.meta is not None
    assert log_dir.meta.node_id == 1001
    log_dir.unlock()


async def test_a_broker_alone_is_number_one() -> None:
    async with embedded_broker() as broker:
        assert broker.config.broker_id == 1
        assert list(broker.services.image.brokers) == [1]


# -- the registration ----------------------------------------------------------------------------------------------


async def test_without_an_old_registration_there_is_no_wait(autojump_clock: trio.testing.MockClock) -> None:
    await wait_for_old_registration(EmbeddedStore.open().connect(), 1, 18)
    assert trio.current_time() == 0


async def test_an_old_registration_is_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    tree = EmbeddedStore.open()
    before = tree.connect()
    await make_roots(before)
    await register_broker(before, BrokerImage(1, ()), 0)
    async with trio.open_nursery() as nursery:

        async def end() -> None:
            await trio.sleep(9)
            await before.aclose()

        nursery.start_soon(end)
        await wait_for_old_registration(tree.connect(), 1, 18)
        assert trio.current_time() == 9


async def test_a_duplicate_broker_id_is_reported_in_one_sentence(autojump_clock: trio.testing.MockClock) -> None:
    tree = EmbeddedStore.open()
    other = tree.connect()
    await make_roots(other)
    await register_broker(other, BrokerImage(1, ()), 0)
    with pytest.raises(BrokerIdTaken, match=r"another broker is alive with broker.id 1: .*; stop that one, or give"):
        await wait_for_old_registration(tree.connect(), 1, 18)
    assert trio.current_time() == 18 + REGISTRATION_GRACE_S


async def test_a_stop_does_not_wait_for_the_start(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_cluster(1) as cluster, trio.open_nursery() as nursery:
        await cluster.kill(1, session_lasts_s=9)
        began = trio.current_time()
        nursery.start_soon(cluster.start, 1)
        await trio.sleep(1)
        await cluster.stop(1)
        assert trio.current_time() - began < 2
        assert not cluster.running
        await cluster.start(1)
        assert 8 < trio.current_time() - began < 12
        await cluster.all_alive()


async def test_a_stop_while_the_store_does_not_answer(tmp_path: Path) -> None:
    @asynccontextmanager
    async def never() -> AsyncIterator[Store]:
        await trio.sleep_forever()
        yield EmbeddedStore.open().connect()

    broker = Broker(
        BrokerConfig.from_values({"zookeeper.connect": "z", "log.dirs": str(tmp_path), "broker.id": "1"}), store=never
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(nursery.start, broker.run)
        await trio.testing.wait_all_tasks_blocked()
        await broker.stop()
    assert not broker.is_open
