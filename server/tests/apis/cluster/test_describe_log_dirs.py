"""DescribeLogDirs: sizes of partitions and of the disk."""

from __future__ import annotations

import errno
import os

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import DescribeLogDirsRequest
from barnabas.logdir import StorageError
from barnabas.server.apis.cluster.describe_log_dirs import API
from barnabas.server.tests.apis.data_world import NOW, data_world

VERSIONS = range(6)


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path / "logs") as made:
        yield made


def request(**topics: list[int]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=topic, partitions=indexes)
            for topic, indexes in topics.items()
        ]
        if topics
        else None
    )


def sizes(result) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_all(world, tmp_path, version):
    a = world.topic("a", 2)
    (b,) = world.topic("b", segment_bytes="300")
    world.append(a[1], NOW, NOW)
    for i in range(5):
        world.append(b, NOW + i, value=b"v" * 100)
    on_disk = {
        key: sum(file.stat().st_size for file in (tmp_path / "logs" / f"{key[0]}-{key[1]}").glob("*.log"))
        for key in (("a", 0), ("a", 1), ("b", 0))
    }
    assert on_disk["b", 0] > 5 * 100
    response = await world.ask(API, request(), version)
    (result,) = response.results
    assert (response.error_code, result.error_code) == (0, 0)
    assert result.log_dir == str(tmp_path / "logs")
    assert sizes(result) == on_disk
    assert all((p.offset_lag, p.is_future_key) == (0, False) for topic in result.topics for p in topic.partitions)
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    else:
        assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert result.is_cordoned is False


async def test_a_relative_path_is_answered_whole(world, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(world.log_dir, "path", "logs")
        (result,) = (await world.ask(API, request(), 5)).results
    assert result.log_dir == str(tmp_path / "logs")


async def test_some(world):
    world.topic("a", 3, elsewhere=1)
    world.topic("b")
    (result,) = (await world.ask(API, request(a=[1, 2, 7], nowhere=[0]), 5)).results
    assert sizes(result) == {("a", 1): 0}
    (result,) = (await world.ask(API, request(nowhere=[0]), 5)).results
    assert result.topics == []


async def test_failed_directory(world):
    world.topic("a")
    world.log_dir.failure = StorageError("writing", OSError(errno.EIO, os.strerror(errno.EIO)))
    (result,) = (await world.ask(API, request(), 5)).results
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    world.log_dir.failure = None


async def test_directory_that_cannot_be_looked_at(world, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(world.log_dir, "path", str(tmp_path / "gone"))
        (result,) = (await world.ask(API, request(), 4)).results
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
