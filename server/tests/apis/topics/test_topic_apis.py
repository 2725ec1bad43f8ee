"""CreateTopics, DeleteTopics, CreatePartitions, elections and reassignments, as clients of every version see them.

Codes and shapes were compared with Apache Kafka 4.3.1 on one node.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.kproto import ZERO_UUID
from barnabas.kproto.messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from barnabas.replication.store.store import Create
from barnabas.server.apis.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    list_partition_reassignments,
)
from barnabas.server.tests.apis.topics.topic_rig import TopicRig, topic_rig

_Topic = CreateTopicsRequest.CreatableTopic
_Assignment = CreateTopicsRequest.CreatableReplicaAssignment
_Config = CreateTopicsRequest.CreatableTopicConfig


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreateTopicsRequest.CreatableTopic:
    return _Topic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def manual(name: str, *replicas: tuple[int, list[int]]) -> CreateTopicsRequest.CreatableTopic:
    assignments = [_Assignment(partition_index=index, broker_ids=ids) for index, ids in replicas]
    return topic(name, -1, -1, assignments=assignments)


async def create(rig: TopicRig, *topics: Any, version: int = 7, **fields: Any) -> dict[str, Any]:
    response = await rig.ask(create_topics.API, CreateTopicsRequest(topics=list(topics), **fields), version)
    assert len({result.name for result in response.topics}) == len(response.topics)
    return {result.name: result for result in response.topics}


def codes(results: dict[str, Any]) -> dict[str, int]:
    return {name: result.error_code for name, result in results.items()}


@pytest.mark.parametrize("version", range(8))
async def test_create_at_every_version(version: int) -> None:
    async with topic_rig() as rig:
        results = await create(rig, topic("t", 2), topic("no way"), version=version)
        assert codes(results) == {"t": 0, "no way": 17}
        image = rig.rig.member.image
        assert len(image.topics["t"].partitions) == 2
        good, bad = results["t"], results["no way"]
        if version >= 1:
            assert good.error_message is None
            assert "ASCII alphanumerics" in bad.error_message
        assert good.topic_id == (image.topics["t"].topic_id if version >= 7 else ZERO_UUID)
        if version >= 5:
            assert (good.num_partitions, good.replication_factor) == (2, 1)
            assert (bad.num_partitions, bad.replication_factor, bad.configs) == (-1, -1, [])


async def test_the_answer_holds_all_settings() -> None:
    async with topic_rig(values={"log.retention.ms": "77"}) as rig:
        setting = _Config(name="segment.bytes", value="2000")
        [result] = (await create(rig, topic("t", configs=[setting]))).values()
        settings = {config.name: (config.value, config.config_source, config.read_only) for config in result.configs}
        assert settings["segment.bytes"] == ("2000", 1, False)
        assert settings["retention.ms"] == ("77", 4, False)
        assert settings["cleanup.policy"] == ("delete", 5, False)
        assert len(settings) > 20


async def test_what_is_refused() -> None:
    async with topic_rig() as rig:
        await create(rig, topic("a.b"))
        results = await create(
            rig,
            topic("a.b"),
            topic("a_b"),
            topic("p0", 0),
            topic("p-2", -2),
            topic("r0", 1, 0),
            topic("r2", 1, 2),
            manual("m7", (0, [7])),
            topic("m-both", 1, -1, assignments=[_Assignment(partition_index=0, broker_ids=[1])]),
            manual("m-gap", (1, [1])),
            manual("m-twice", (0, [1]), (0, [1])),
            manual("m-same", (0, [1, 1])),
            manual("m-none", (0, [])),
            topic("c-null", configs=[_Config(name="retention.ms", value=None)]),
            topic("c-unknown", configs=[_Config(name="nope", value="1")]),
            topic("c-bad", configs=[_Config(name="retention.ms", value="x")]),
            topic("__cluster_metadata"),
            topic("dup"),
            topic("dup", 2),
            topic(""),
            topic("x" * 250),
        )
        assert codes(results) == {
            "a.b": 36,
            "a_b": 17,
            "p0": 37,
            "p-2": 37,
            "r0": 38,
            "r2": 38,
            "m7": 39,
            "m-both": 42,
            "m-gap": 39,
            "m-twice": 39,
            "m-same": 39,
            "m-none": 39,
            "c-null": 40,
            "c-unknown": 40,
            "c-bad": 40,
            "__cluster_metadata": 42,
            "dup": 42,
            "": 17,
            "x" * 250: 17,
        }
        assert list(rig.rig.member.image.topics) == ["a.b"]


async def test_defaults_and_manual_assignments() -> None:
    async with topic_rig(values={"num.partitions": "3"}) as rig:
        results = await create(rig, topic("d", -1, -1), manual("m", (1, [1]), (0, [1])), version=4)
        assert codes(results) == {"d": 0, "m": 0}
        assert {name: len(t.partitions) for name, t in rig.rig.member.image.topics.items()} == {"d": 3, "m": 2}


async def test_validate_only_and_no_time() -> None:
    async with topic_rig() as rig:
        results = await create(rig, topic("v", 2), topic("w", 0), validate_only=True)
        assert codes(results) == {"v": 0, "w": 37}
        assert results["v"].num_partitions == 2
        assert results["v"].topic_id == ZERO_UUID
        assert not rig.rig.member.image.topics
        assert codes(await create(rig, topic("t"), timeout_ms=0)) == {"t": 7}
        await rig.rig.member.image_until(lambda image: "t" in image.topics)


async def test_hostile_sizes() -> None:
    async with topic_rig() as rig:
        assert codes(await create(rig, topic("t", 2**31 - 1))) == {"t": 44}
        assert codes(await create(rig, topic("a", 6000), topic("b", 6000))) == {"a": 44, "b": 44}
        long = "n" * 32_000
        for version in (0, 1, 4, 5, 7):
            assert codes(await create(rig, topic(long), version=version)) == {long: 17}
        setting = _Config(name="k" * 30_000, value="v")
        assert codes(await create(rig, topic("t", configs=[setting]), version=4)) == {"t": 40}


async def test_not_the_controller() -> None:
    async with topic_rig() as rig:
        await create(rig, topic("t"))
        rig.rig.member._resign("a test wants it")
        assert codes(await create(rig, topic("u"), topic("__cluster_metadata"))) == {"u": 41, "__cluster_metadata": 42}
        assert [r.error_code for r in (await delete(rig, "t", version=5)).responses] == [41]
        response = await expand(rig, ("t", 2, None))
        assert [result.error_code for result in response.results] == [41]
        election = await rig.ask(elect_leaders.API, ElectLeadersRequest(topic_partitions=None))
        assert election.error_code == 41
        for api, request in (
            (alter_partition_reassignments.API, AlterPartitionReassignmentsRequest()),
            (list_partition_reassignments.API, ListPartitionReassignmentsRequest()),
        ):
            response = await rig.ask(api, request)  # type: ignore[arg-type]
            assert response.error_code == 41


# -- DeleteTopics ----------------------------------------------------------------------------------------------------

_State = DeleteTopicsRequest.DeleteTopicState


async def delete(rig: TopicRig, *names: str, version: int, timeout_ms: int = 60_000) -> Any:
    if version >= 6:
        request = DeleteTopicsRequest(topics=[_State(name=name) for name in names], timeout_ms=timeout_ms)
    else:
        request = DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)
    return await rig.ask(delete_topics.API, request, version)


@pytest.mark.parametrize("version", range(7))
async def test_delete_at_every_version(version: int) -> None:
    async with topic_rig() as rig:
        await create(rig, topic("a", 2), topic("b"))
        topic_id = rig.rig.member.image.topics["a"].topic_id
        response = await delete(rig, "a", "none", "twice", "twice", version=version)
        assert [(r.name, r.error_code) for r in response.responses] == [("a", 0), ("none", 3), ("twice", 42)]
        if version >= 6:
            assert response.responses[0].topic_id == topic_id
        if version >= 5:
            assert response.responses[1].error_message
        assert list(rig.rig.member.image.topics) == ["b"]
        assert rig.rig.replicas.deleted == [("a", 0), ("a", 1)]
        assert codes(await create(rig, topic("a"))) == {"a": 0}, "the name is free at once"


async def test_delete_by_id() -> None:
    async with topic_rig() as rig:
        await create(rig, topic("a"), topic("b"), topic("c"))
        ids = {name: known.topic_id for name, known in rig.rig.member.image.topics.items()}
        states = [
            _State(name=None, topic_id=ids["a"]),
            _State(name=None, topic_id=b"\1" * 16),
            _State(name="q", topic_id=b"\2" * 16),
            _State(name=None),
            _State(name="b"),
            _State(name=None, topic_id=ids["b"]),
        ]
        response = await rig.ask(delete_topics.API, DeleteTopicsRequest(topics=states, timeout_ms=60_000))
        assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
            ("a", ids["a"], 0),
            (None, b"\1" * 16, 100),
            ("q", b"\2" * 16, 42),
            (None, ZERO_UUID, 42),
            ("b", ZERO_UUID, 42),
            (None, ids["b"], 42),
        ]
        assert sorted(rig.rig.member.image.topics) == ["b", "c"]


async def test_delete_when_that_is_disabled_or_there_is_no_time() -> None:
    async with topic_rig(values={"delete.topic.enable": "false"}) as rig:
        await create(rig, topic("a"))
        assert [r.error_code for r in (await delete(rig, "a", version=2)).responses] == [42]
        assert [r.error_code for r in (await delete(rig, "a", version=6)).responses] == [73]
    async with topic_rig() as rig:
        await create(rig, topic("a"))
        assert [r.error_code for r in (await delete(rig, "a", version=6, timeout_ms=0)).responses] == [7]
        await rig.rig.member.image_until(lambda image: "a" not in image.topics)


# -- CreatePartitions ------------------------------------------------------------------------------------------------

_More = CreatePartitionsRequest.CreatePartitionsTopic
_Replicas = CreatePartitionsRequest.CreatePartitionsAssignment


async def expand(rig: TopicRig, *wishes: tuple[str, int, list[list[int]] | None], version: int = 3, **kw: Any) -> Any:
    topics = [
        _More(name=name, count=count, assignments=given and [_Replicas(broker_ids=ids) for ids in given])
        for name, count, given in wishes
    ]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=kw.pop("timeout_ms", 60_000), **kw)
    return await rig.ask(create_partitions.API, request, version)


@pytest.mark.parametrize("version", range(4))
async def test_more_partitions_at_every_version(version: int) -> None:
    async with topic_rig() as rig:
        await create(rig, topic("t"), topic("u", 2))
        response = await expand(
            rig, ("t", 3, None), ("u", 2, None), ("no", 2, None), ("d", 1, None), ("d", 2, None), version=version
        )
        assert {r.name: r.error_code for r in response.results} == {"t": 0, "u": 37, "no": 3, "d": 42}
        assert len(rig.rig.member.image.topics["t"].partitions) == 3
        assert ("t", 2) in rig.rig.replicas.led


async def test_more_partitions_by_hand() -> None:
    async with topic_rig() as rig:
        await create(rig, topic("t"))
        for given, code in (([[9]], 39), ([[1], [1]], 39), ([[]], 39), ([[1, 1]], 39)):
            response = await expand(rig, ("t", 2, given))
            assert [r.error_code for r in response.results] == [code], given
        response = await expand(rig, ("t", 2, [[1]]), validate_only=True)
        assert [r.error_code for r in response.results] == [0]
        assert len(rig.rig.member.image.topics["t"].partitions) == 1
        response = await expand(rig, ("t", 2, [[1]]), timeout_ms=0)
        assert [r.error_code for r in response.results] == [7]
        await rig.rig.member.image_until(lambda image: len(image.topics["t"].partitions) == 2)
        response = await expand(rig, ("t", 2**31 - 1, None))
        assert [r.error_code for r in response.results] == [44]


# -- elections and reassignments -------------------------------------------------------------------------------------

_Elect = ElectLeadersRequest.TopicPartitions


@pytest.mark.parametrize("version", range(3))
async def test_elections_at_every_version(version: int) -> None:
    async with topic_rig() as rig:
        await create(rig, topic("t", 2))
        for election_type in (0, 1) if version >= 1 else (0,):
            asked = [_Elect(topic="t", partitions=[0, 9]), _Elect(topic="no", partitions=[0])]
            request = ElectLeadersRequest(topic_partitions=asked, election_type=election_type, timeout_ms=60_000)
            response = await rig.ask(elect_leaders.API, request, version)
            found = {
                (t.topic, p.partition_id): p.error_code
                for t in response.replica_election_results
                for p in t.partition_result
            }
            assert found == {("t", 0): 84, ("t", 9): 3, ("no", 0): 3}
        response = await rig.ask(elect_leaders.API, ElectLeadersRequest(topic_partitions=None), version)
        assert response.replica_election_results == []
        assert response.error_code == 0


async def test_an_unknown_election_type() -> None:
    async with topic_rig() as rig:
        request = ElectLeadersRequest(topic_partitions=[_Elect(topic="t", partitions=[0])], election_type=7)
        response = await rig.ask(elect_leaders.API, request, 2)
        assert response.error_code == 42
        assert response.replica_election_results[0].partition_result[0].error_code == 42


@pytest.mark.parametrize("version", [0, 1])
async def test_reassignments_on_one_broker(version: int) -> None:
    reassignment = AlterPartitionReassignmentsRequest
    wish = reassignment.ReassignablePartition
    async with topic_rig() as rig:
        await create(rig, topic("t", 7))
        wishes = [
            wish(partition_index=0, replicas=[1]),
            wish(partition_index=1, replicas=[2]),
            wish(partition_index=2, replicas=None),
            wish(partition_index=3, replicas=[]),
            wish(partition_index=4, replicas=[1, 1]),
            wish(partition_index=5, replicas=[-1]),
            wish(partition_index=99, replicas=[1]),
        ]
        request = reassignment(topics=[reassignment.ReassignableTopic(name="t", partitions=wishes)])
        response = await rig.ask(alter_partition_reassignments.API, request, version)
        assert [p.error_code for p in response.responses[0].partitions] == [0, 39, 85, 39, 39, 39, 3]


async def test_moves_that_another_controller_began_are_listed() -> None:
    asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    async with topic_rig() as rig:
        await create(rig, topic("t"))
        empty = await rig.ask(list_partition_reassignments.API, ListPartitionReassignmentsRequest(topics=None))
        assert empty.topics == []
        data = (
            b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAEA","partitions":{"0":[1],"1":[1,2]},'
            b'"adding_replicas":{"1":[2]},"removing_replicas":{"1":[1]}}'
        )
        await rig.rig.store.connect().commit([Create("/brokers/topics/moving", data)])
        await rig.rig.member.image_until(lambda image: "moving" in image.topics)
        for topics in (None, [asked(name="moving", partition_indexes=[0, 1, 5]), asked(name="no")]):
            request = ListPartitionReassignmentsRequest(topics=topics)
            response = await rig.ask(list_partition_reassignments.API, request)
            [moving] = response.topics
            [partition] = moving.partitions
            assert moving.name == "moving"
            assert (partition.partition_index, partition.replicas) == (1, [1, 2])
            assert (partition.adding_replicas, partition.removing_replicas) == ([2], [1])
