"""Requests to the controller: topics are created, grown, deleted and configured; 2,000 of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import Commit, Controller, DirectoryFiles, Effect, EmbeddedStore, Image, TopicRequest
from barnabas.replication.store.store import Create
from barnabas.replication.tree import admin_tree
from barnabas.server.tests.cluster.controller_driver_rig import FilesInMemory, code_of, new_topic, running

E = ErrorCode


async def test_create_and_what_it_leaves_behind() -> None:
    async with running() as rig:
        assert await rig.create("t", partitions=3, replication_factor=1, configs=(("retention.ms", "5"),)) == [0]
        topic = rig.member.image.topics["t"]
        assert rig.member.image.topic_by_id(topic.topic_id) is topic
        assert [
            (p.index, p.leader, p.leader_epoch, p.partition_epoch, p.replicas, p.isr) for p in topic.partitions
        ] == [(index, 1, 0, 0, (1,), (1,)) for index in range(3)]
        assert topic.config == {"retention.ms": "5"}
        assert rig.replicas.led["t", 2] == (topic.topic_id, topic.partitions[2], {"retention.ms": "5"})
        assert await rig.session.children("/brokers/topics/t/partitions") == ["0", "1", "2"]
        state = await rig.session.get("/brokers/topics/t/partitions/1/state")
        assert state is not None
        assert state.data == b'{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
        assert (await rig.session.get("/config/topics/t")).data == b'{"version":1,"config":{"retention.ms":"5"}}'  # type: ignore[union-attr]


async def test_the_log_names_topics_that_are_made_grow_and_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.controller")
    async with running() as rig:
        await rig.create("orders", partitions=3)
        await rig.create("orders")  # exists: nothing happened
        await rig.topics.auto_create(["clicks"])
        await rig.topics.create_partitions([("orders", 6, None)], timeout_ms=60_000)
        await rig.topics.delete_topics(["orders", "never"], timeout_ms=60_000)
        await admin_tree.leave_topic(rig.session, new_topic(rig, "found"))
        await rig.member.image_until(lambda image: "found" in image.topics)
    told = [text for text in caplog.messages if text.startswith("topic ")]
    assert told == [
        "topic orders created: 3 partitions, replication factor 1",
        "topic clicks created automatically: 1 partition, replication factor 1",
        "topic orders given partitions: 6, 3 before",
        "topic orders deleted",
        "topic found found in the store: 1 partition, replication factor 1",
    ]


async def test_what_is_refused() -> None:
    async with running() as rig:
        assert await rig.create("a.b", "plain") == [0, 0]
        assert await rig.create("a.b", "a_b", "no way", "..", "") == [36, 17, 17, 17, 17]
        assert await rig.create("x", partitions=0) == [37]
        assert await rig.create("x", replication_factor=2) == [38]
        assert await rig.create("x", assignments=((0, (2,)),)) == [39]
        assert await rig.create("x", assignments=((1, (1,)),)) == [39]
        assert await rig.create("x", assignments=((0, (1,)),), partitions=1) == [42]
        assert await rig.create("x", configs=(("retention.ms", "many"),)) == [40]
        assert await rig.create("x", configs=(("retention.ms", None),)) == [40]
        assert await rig.create("x", configs=(("no.such.setting", "1"),)) == [40]
        assert await rig.create("x", partitions=10_001) == [44]
        assert await rig.create("x", assignments=((0, (1,)), (1, (1,)))) == [0]
        assert sorted(rig.member.image.topics) == ["a.b", "plain", "x"]


async def test_defaults_and_validate_only() -> None:
    async with running(values={"num.partitions": "4"}) as rig:
        outcome = await rig.topics.create_topics([TopicRequest("t")], timeout_ms=60_000, validate_only=True)
        assert outcome["t"].error is None
        assert outcome["t"].new is not None
        assert len(outcome["t"].new.assignments) == 4
        assert rig.member.image.topics == {}
        assert await rig.create("t") == [0]
        assert len(rig.member.image.topics["t"].partitions) == 4


async def test_rivals_for_a_name_and_colliding_ones() -> None:
    async with running() as rig:
        codes: list[ErrorCode] = []

        async def create(name: str) -> None:
            codes.extend(await rig.create(name))

        async with trio.open_nursery() as nursery:
            for name in ("n.1", "n_1", "n.1", "n_1"):
                nursery.start_soon(create, name)
        assert sorted(codes)[0] == 0
        assert sorted(codes)[1:] == [17, 17, 36]
        assert len(rig.member.image.topics) == 1


async def test_no_time_to_wait_answers_7_but_creates() -> None:
    async with running() as rig:
        assert await rig.create("t", timeout_ms=0) == [7]
        assert await rig.create("t", timeout_ms=0) == [36]
        await rig.member.image_until(lambda image: "t" in image.topics)
        assert code_of((await rig.topics.delete_topics(["t"], timeout_ms=-1))["t"].error) == 7
        await rig.member.image_until(lambda image: "t" not in image.topics)


async def test_a_slow_store_times_out(autojump_clock: trio.testing.MockClock) -> None:
    async def slowly(work: Callable[[], None]) -> None:
        await trio.sleep(10)
        work()

    async with running(EmbeddedStore.open(FilesInMemory(), run_io=slowly)) as rig:
        start = trio.current_time()
        assert await rig.create("t", timeout_ms=3000) == [7]
        assert trio.current_time() - start == pytest.approx(3)
        await rig.member.image_until(lambda image: "t" in image.topics)


async def test_delete_leaves_nothing_and_frees_the_name() -> None:
    async with running() as rig:
        await rig.create("t", partitions=2, configs=(("retention.ms", "5"),))
        first = rig.member.image.topics["t"].topic_id
        outcomes = await rig.topics.delete_topics(["t", "no"], timeout_ms=60_000)
        assert [code_of(outcomes[name].error) for name in ("t", "no")] == [0, 3]
        assert rig.member.image.topics == {}
        assert rig.replicas.led == {}
        assert rig.replicas.deleted == [("t", 0), ("t", 1)]
        for path in ("/brokers/topics", "/config/topics", "/admin/delete_topics"):
            assert await rig.session.children(path) == []
        assert await rig.create("t") == [0]
        assert rig.member.image.topics["t"].topic_id != first
        assert rig.member.image.topics["t"].config == {}


async def test_what_comes_together_is_done_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the loop goes round in between; and none of it makes an image of its own for each topic."""
    committed, removed, with_topics = Controller.committed, Controller.removed, Image.with_topics
    commits: list[int] = []
    states: list[int] = []
    removals: list[int] = []
    images: list[Image] = []

    def noted_commits(machine: Controller, some: Sequence[Commit]) -> list[Effect]:
        commits.append(len(some))
        states.append(sum(len(commit.states) for commit in some))
        return committed(machine, some)

    def noted_removals(machine: Controller, names: Sequence[str]) -> list[Effect]:
        removals.append(len(names))
        return removed(machine, names)

    def noted_images(image: Image, *what: Any) -> Image:
        images.append(image)
        return with_topics(image, *what)

    async with running() as rig:
        names = [f"t{number}" for number in range(600)]
        monkeypatch.setattr(Controller, "committed", noted_commits)
        monkeypatch.setattr(Controller, "removed", noted_removals)
        monkeypatch.setattr(Image, "with_topics", noted_images)
        assert set(await rig.create(*names, partitions=2)) == {ErrorCode.NONE}
        assert max(commits) <= 100
        assert set(await rig.create(*(f"large{n}" for n in range(3)), partitions=1203)) == {ErrorCode.NONE}
        assert max(states) <= 1000
        commits.clear()
        images.clear()
        outcomes = await rig.topics.delete_topics(names, timeout_ms=60_000)
        assert {code_of(outcome.error) for outcome in outcomes.values()} == {ErrorCode.NONE}
        assert max(commits) <= 100
        assert sum(removals) == 600
        assert max(removals) <= 250
        assert len(images) <= 20
        assert len(rig.member.image.topics) == 3


async def test_partitions_are_added() -> None:
    async with running() as rig:
        await rig.create("t", partitions=1)
        outcomes = await rig.topics.create_partitions([("t", 3, None), ("no", 3, None)], timeout_ms=60_000)
        assert [code_of(outcomes[name].error) for name in ("t", "no")] == [0, 3]
        assert [p.leader for p in rig.member.image.topics["t"].partitions] == [1, 1, 1]
        assert set(rig.replicas.led) == {("t", 0), ("t", 1), ("t", 2)}
        for count, code in ((3, 37), (2, 37), (20_000, 44)):
            outcomes = await rig.topics.create_partitions([("t", count, None)], timeout_ms=60_000)
            assert code_of(outcomes["t"].error) == code
        outcomes = await rig.topics.create_partitions([("t", 5, [[1], [1]])], timeout_ms=60_000, validate_only=True)
        assert outcomes["t"].error is None
        assert len(rig.member.image.topics["t"].partitions) == 3
        for manual in ([[1]], [[1], [2]], [[1], []], [[1], [1, 1]]):
            outcomes = await rig.topics.create_partitions([("t", 5, manual)], timeout_ms=60_000)
            assert code_of(outcomes["t"].error) == 39


async def test_a_topic_of_more_partitions_than_a_commit_holds() -> None:
    async with running() as rig:
        assert await rig.create("big", partitions=1203) == [0]
        assert all(p.leader == 1 for p in rig.member.image.topics["big"].partitions)
        assert len(rig.replicas.led) == 1203
        outcomes = await rig.topics.create_partitions([("big", 2000, None)], timeout_ms=60_000)
        assert outcomes["big"].error is None
        outcomes = await rig.topics.delete_topics(["big"], timeout_ms=60_000)
        assert outcomes["big"].error is None
        assert await rig.session.children("/brokers/topics") == []


async def test_settings_of_a_topic() -> None:
    async with running() as rig:
        await rig.create("t", configs=(("retention.ms", "5"),))
        await rig.topics.alter_topic_config("t", lambda before: {**before, "segment.bytes": "2000"})
        assert rig.member.image.topics["t"].config == {"retention.ms": "5", "segment.bytes": "2000"}
        assert rig.replicas.configs[-1] == ("t", {"retention.ms": "5", "segment.bytes": "2000"})
        await trio.testing.wait_all_tasks_blocked()
        assert rig.replicas.configs == [rig.replicas.configs[0]] * 2, "the notification says the same again"

        def refuse(before: Mapping[str, str]) -> Mapping[str, str]:
            raise KafkaError(ErrorCode.INVALID_CONFIG)

        with pytest.raises(KafkaError) as caught:
            await rig.topics.alter_topic_config("t", refuse)
        assert caught.value.code == ErrorCode.INVALID_CONFIG
        with pytest.raises(KafkaError) as caught:
            await rig.topics.alter_topic_config("no", dict)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        async def add(number: int) -> None:
            await rig.topics.alter_topic_config("t", lambda before: {**before, str(number): ""})

        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(add, number)
        assert len(rig.member.image.topics["t"].config) == 22, "no change is lost to another"


async def test_a_partition_that_cannot_be_opened_does_not_stop_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with running() as rig:
        rig.replicas.broken = {"b"}
        assert await rig.create("a", "b", "c", timeout_ms=100) == [0, ErrorCode.REQUEST_TIMED_OUT, 0]
        assert set(rig.replicas.led) == {("a", 0), ("c", 0)}
        assert rig.member.image.topics["b"].partitions[0].leader == -1, "its only replica is offline"


async def test_an_old_setting_does_not_stop_a_new_topic() -> None:
    store = EmbeddedStore.open()
    async with running(store) as rig:
        await store.connect().commit([Create("/config/topics/t", b'{"version":1,"config":{"retention.ms":"7"}}')])
        assert await rig.create("t") == [0]
        assert rig.member.image.topics["t"].config == {}
        assert (await rig.session.get("/config/topics/t")).data == b'{"version":1,"config":{}}'  # type: ignore[union-attr]


async def test_deletion_disabled_drops_requests() -> None:
    async with running(values={"delete.topic.enable": "false"}) as rig:
        await rig.create("t")
        await rig.store.connect().commit([Create("/admin/delete_topics/t")])
        await trio.testing.wait_all_tasks_blocked()
        assert "t" in rig.member.image.topics
        assert await rig.session.children("/admin/delete_topics") == []


async def test_auto_creation() -> None:
    async with running(values={"num.partitions": "2", "offsets.topic.num.partitions": "7"}) as rig:
        codes = await rig.topics.auto_create(["t", "bad name", "__consumer_offsets", "__transaction_state"])
        assert codes == {"t": 0, "bad name": 17, "__consumer_offsets": 0, "__transaction_state": 0}
        image = rig.member.image
        assert len(image.topics["t"].partitions) == 2
        offsets = image.topics["__consumer_offsets"]
        assert offsets.is_internal
        assert len(offsets.partitions) == 7
        assert offsets.config == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        }
        transactions = image.topics["__transaction_state"]
        assert transactions.is_internal
        assert len(transactions.partitions) == 50
        assert transactions.config == {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        }
        assert await rig.topics.auto_create(["t"]) == {"t": 0}, "somebody was faster"
        assert await rig.topics.auto_create([]) == {}


async def test_two_thousand_topics_in_one_request_and_one_by_one(tmp_path: Path) -> None:
    store = EmbeddedStore.open(DirectoryFiles(tmp_path))
    async with running(store) as rig:
        names = [f"topic-{number}" for number in range(2000)]
        assert set(await rig.create(*names, timeout_ms=60_000)) == {ErrorCode.NONE}
        assert len(rig.replicas.led) == 2000
        outcomes = await rig.topics.delete_topics(names[:1000], timeout_ms=60_000)
        assert {code_of(outcome.error) for outcome in outcomes.values()} == {ErrorCode.NONE}
        assert len(rig.member.image.topics) == 1000
        assert len(await rig.session.children("/brokers/topics")) == 1000
    store = EmbeddedStore.open(DirectoryFiles(tmp_path))
    async with running(store) as rig:
        assert len(rig.replicas.led) == 1000
