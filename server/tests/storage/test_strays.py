"""Directories that do not fit the metadata: deletions that power took back, partitions that are missing, topic ids that
cannot be read.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest
from trio.testing import MockClock

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import CreateTopicsRequest, DeleteTopicsRequest
from barnabas.logdir import Disk, InconsistentMeta
from barnabas.server.broker.broker import Broker
from barnabas.server.testing import connected, embedded_broker
from barnabas.server.tests.apis.records.test_produce import batch, only, request

E = ErrorCode


async def create(broker: Broker, name: str, partitions: int = 1) -> int:
    wanted = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    async with connected(broker) as client:
        answer = await client.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
    return int(answer.topics[0].error_code)


async def produce(broker: Broker, value: bytes) -> tuple[int, int]:
    """To partition 0 of topic t: (error code, offset)"""
    async with connected(broker) as client:
        answer = only(await client.ask(request(batch(value)), 9))
    return answer.error_code, answer.base_offset


async def delete(broker: Broker, name: str) -> int:
    async with connected(broker) as client:
        answer = await client.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
    return int(answer.responses[0].error_code)


async def test_a_deleted_partition_that_comes_back_does_not_block_its_name(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a file system leaves it that had the metadata's journal on disk and not the rename."""
    data, kept = tmp_path / "data", tmp_path / "kept"
    async with embedded_broker(data) as broker:
        assert await create(broker, "t") == E.NONE
        assert await produce(broker, b"old") == (E.NONE, 0)
    shutil.copytree(data / "t-0", kept)
    async with embedded_broker(data) as broker:
        assert await delete(broker, "t") == E.NONE
    for gone in data.glob("t-0.*-delete"):
        shutil.rmtree(gone)
    shutil.copytree(kept, data / "t-0")
    async with embedded_broker(data) as broker:
        assert await create(broker, "t") == E.NONE
        assert await produce(broker, b"new") == (E.NONE, 0)
        (stray,) = data.glob("t-0.*-stray")
        assert str(stray) in caplog.text
        assert (stray / f"{0:020d}.log").read_bytes() == (kept / f"{0:020d}.log").read_bytes()
    async with embedded_broker(data) as broker:
        assert await produce(broker, b"newer") == (E.NONE, 1)


class CountedSyncs(Disk):
    """Which directories were synced. `refused`: what becomes of the next syncs, one after the other."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.refused: list[int] = []

    def sync_dir(self, path: str) -> None:  # type: ignore[override]
        self.synced.append(path)
        if self.refused:
            code = self.refused.pop(0)
            raise OSError(code, os.strerror(code), path)
        Disk.sync_dir(path)


async def test_a_deletion_is_synced_once_before_it_is_answered(autojump_clock: MockClock, tmp_path: Path) -> None:
    disk = CountedSyncs()
    async with embedded_broker(tmp_path, disk=disk) as broker:
        assert await create(broker, "t", partitions=50) == E.NONE
        disk.synced.clear()
        assert await delete(broker, "t") == E.NONE
        assert disk.synced.count(str(tmp_path)) == 1
        assert await create(broker, "t") == E.NONE
        disk.refused = [errno.EMFILE] * 3
        assert await delete(broker, "t") == E.NONE, "a descriptor was missing for a moment"
        assert not broker.services.partitions.log_dirs.offline


async def test_a_missing_partition_is_logged(
    autojump_clock: MockClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with embedded_broker(tmp_path / "data") as broker:
        assert await create(broker, "t") == E.NONE
        assert await produce(broker, b"a") == (E.NONE, 0)
    assert "starts empty" not in caplog.text
    os.rename(tmp_path / "data" / "t-0", tmp_path / "elsewhere")
    async with embedded_broker(tmp_path / "data") as broker:
        assert await produce(broker, b"b") == (E.NONE, 0)
    (told,) = [record for record in caplog.records if "starts empty" in record.getMessage()]
    assert told.levelno == logging.WARNING
    assert f"t-0 starts empty in {tmp_path / 'data'}" in told.getMessage()


async def test_a_meta_without_ids_is_written_anew(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as broker:
        cluster_id = broker.services.current_image().cluster_id
    (tmp_path / "meta.properties").write_text("junk\n")
    async with embedded_broker(tmp_path) as broker:
        assert broker.services.current_image().cluster_id == cluster_id, "the metadata know it"
    with pytest.raises(BaseExceptionGroup) as refused:
        async with embedded_broker(tmp_path, broker_id="7"):
            pass
    assert refused.group_contains(InconsistentMeta, match="belongs to broker 1")


async def test_an_unreadable_topic_id_does_not_stop_its_partition(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with embedded_broker(tmp_path) as broker:
        assert await create(broker, "t") == E.NONE
        assert await produce(broker, b"a") == (E.NONE, 0)
    place = tmp_path / "t-0" / "partition.metadata"
    known = place.read_bytes()
    place.write_bytes(b"")
    async with embedded_broker(tmp_path) as broker:
        assert await produce(broker, b"b") == (E.NONE, 1)
    assert place.read_bytes() == known
