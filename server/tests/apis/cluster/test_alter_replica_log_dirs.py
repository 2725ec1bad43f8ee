"""AlterReplicaLogDirs: what is begun, called off and refused. The moves themselves: test_dir_moves.py."""

from __future__ import annotations

import pytest

from barnabas.kproto import ErrorCode
from barnabas.kproto.messages import AlterReplicaLogDirsRequest
from barnabas.server.apis.cluster.alter_replica_log_dirs import API
from barnabas.server.tests.apis.data_world import data_world

E = ErrorCode


@pytest.fixture
def world(tmp_path):
    with data_world(tmp_path / "a", tmp_path / "b") as made:
        yield made


def request(*wishes: tuple[object, str, list[int]]) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequest.AlterReplicaLogDir(
                path=str(path),
                topics=[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=indexes)],
            )
            for path, topic, indexes in wishes
        ]
    )


def codes(response) -> dict[tuple[str, int], int]:
    return {
        (result.topic_name, partition.partition_index): partition.error_code
        for result in response.results
        for partition in result.partitions
    }


@pytest.mark.parametrize("version", range(3))
async def test_each_gets_its_answer(world, tmp_path, version):
    first, second = world.topic("t", 2)
    (elsewhere,) = world.topic("u", 1)
    assert [world.log_dirs.home("t", index) for index in range(2)] == list(world.log_dirs.dirs)
    wishes = request(
        (tmp_path / "b", "t", [0, 1, 7]),
        (tmp_path / "gone", "u", [0]),
        (tmp_path / "b", "nowhere", [0]),
    )
    assert codes(await world.ask(API, wishes, version)) == {
        ("t", 0): E.NONE,
        ("t", 1): E.NONE,
        ("t", 7): E.REPLICA_NOT_AVAILABLE,
        ("u", 0): E.LOG_DIR_NOT_FOUND,
        ("nowhere", 0): E.REPLICA_NOT_AVAILABLE,
    }
    assert [one.future is not None for one in (first, second, elsewhere)] == [True, False, False]
    assert world.log_dirs.future_home("t", 0) is world.log_dirs.dirs[1]


async def test_the_last_word_counts(world, tmp_path):
    (partition,) = world.topic("t")
    answer = await world.ask(API, request((tmp_path / "a", "t", [0]), (tmp_path / "b", "t", [0])), 2)
    assert codes(answer) == {("t", 0): E.NONE}
    assert partition.future is not None
    await world.ask(API, request((tmp_path / "b", "t", [0]), (tmp_path / "a", "t", [0])), 2)
    assert partition.future is None


async def test_an_empty_request(world):
    assert codes(await world.ask(API, AlterReplicaLogDirsRequest(dirs=[]), 2)) == {}


async def test_a_request_that_fails_as_a_whole(world, tmp_path):
    answer = world.error_answer(API, request((tmp_path, "t", [0, 1])), E.CLUSTER_AUTHORIZATION_FAILED, 2)
    assert codes(answer) == dict.fromkeys((("t", 0), ("t", 1)), E.CLUSTER_AUTHORIZATION_FAILED)
