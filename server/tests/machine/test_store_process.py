"""The store's process in this one: its directory, its socket, its end; and how a broker finds it."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path

import pytest
import trio

from barnabas.replication import StoreError
from barnabas.replication.store.store import Create
from barnabas.server.cluster.identity import open_store
from barnabas.server.config.broker import BrokerConfig
from barnabas.server.config.problems import SettingsRefused
from barnabas.server.machine import store_process
from barnabas.server.machine.store_process import DirectoryTaken, StoreOptions
from barnabas.server.runtime.offload import inline


def config(socket: str, **settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    patient = {"zookeeper.session.timeout.ms": "60000"}
    return BrokerConfig.from_values({"metadata.store.socket": socket, "broker.id": "1", **patient, **given})


async def test_a_broker_reaches_it_by_its_setting(tmp_path: Path) -> None:
    options = StoreOptions(str(tmp_path / "store"))
    ready = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store_process._run, options, ready.set)
        await ready.wait()
        assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
        assert stat.S_IMODE((tmp_path / "store" / "socket").stat().st_mode) == 0o600
        async with open_store(config(options.socket_path), inline, "", pytest.fail) as store:
            await store.commit([Create("/a", b"kept"), Create("/mine", ephemeral=True)])
        with pytest.raises(DirectoryTaken, match="is used by another metadata store"):
            await store_process._run(options, pytest.fail)
        os.kill(os.getpid(), signal.SIGTERM)
    ready = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store_process._run, options, ready.set)
        await ready.wait()
        async with open_store(config(options.socket_path), inline, "", pytest.fail) as store:
            node = await store.get("/a")
            assert node is not None
            assert node.data == b"kept"
            assert await store.children("/") == ["a"]
        os.kill(os.getpid(), signal.SIGINT)


async def test_without_a_store_a_broker_says_so(tmp_path: Path) -> None:
    nowhere = config(str(tmp_path / "socket"), zookeeper_connection_timeout_ms="50")
    with pytest.raises(StoreError, match="no connection to the metadata store within 50 ms: No such file or directory"):
        async with open_store(nowhere, inline, "", pytest.fail):
            pytest.fail("there is none")


def test_a_failure_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert store_process.run(StoreOptions(str(tmp_path / "file")), pytest.fail) == 1
    (record,) = caplog.records
    assert record.levelname == "CRITICAL"
    assert record.getMessage() == f"{tmp_path / 'file'}: file exists"


def test_the_setting_makes_a_cluster() -> None:
    made = config("/s")
    assert made.is_clustered
    assert not made.uses_zookeeper
    assert made.get_int("offsets.topic.replication.factor") == 3
    alone = BrokerConfig.from_values({"metadata.store.socket": ""})
    assert not alone.is_clustered
    with pytest.raises(SettingsRefused) as refused:
        config("/s", zookeeper_connect="z")
    assert refused.value.problems == (
        "metadata.store.socket=/s is refused: it cannot be combined with zookeeper.connect.",
    )
