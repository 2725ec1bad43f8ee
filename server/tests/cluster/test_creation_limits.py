"""What the controller refuses to create and to store: auto-creation obeys the limit of partitions per request, and does
not wait for a topic that is being deleted; settings that the store does not take get an error of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing

from barnabas.kproto import ErrorCode, KafkaError
from barnabas.replication import MAX_NEW_PARTITIONS, EmbeddedStore, TopicRequest
from barnabas.server.testing import embedded_cluster
from barnabas.server.tests.cluster.controller_driver_rig import BROKER, FilesInMemory, running

E = ErrorCode


async def test_auto_creation_obeys_the_limit_of_partitions_per_request(autojump_clock: trio.testing.MockClock) -> None:
    async with running(values={"num.partitions": "4000"}) as rig:
        codes = await rig.topics.auto_create(["a", "b", "bad name", "c", "d"])
        assert codes == {"a": E.NONE, "b": E.NONE, "bad name": E(17), "c": E.POLICY_VIOLATION, "d": E.POLICY_VIOLATION}
        assert set(rig.member.image.topics) == {"a", "b"}


async def test_topics_being_created_are_bounded_over_all_clients(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    async with running(values={"num.partitions": "1000"}) as rig:
        with caplog.at_level(logging.INFO, "barnabas.controller"):
            rig.topics.auto_create_soon(f"a{number}" for number in range(7))
            rig.topics.auto_create_soon(f"b{number}" for number in range(1_000_000_000))
            with trio.fail_after(30):
                await rig.member.image_until(lambda image: len(image.topics) == 10)
        assert sorted(rig.member.image.topics) == [*(f"a{n}" for n in range(7)), *(f"b{n}" for n in range(3))]
        while rig.topics.auto_creating:
            await trio.lowlevel.checkpoint()
        rig.topics.auto_create_soon(["later"])
        with trio.fail_after(30):
            await rig.member.image_until(lambda image: "later" in image.topics)


async def test_auto_creation_does_not_wait_for_a_topic_that_is_being_deleted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Neither the controller's nor another broker's."""

    async def slowly(work: Callable[[], None]) -> None:
        await trio.sleep(10)
        work()

    store = EmbeddedStore.open(FilesInMemory(), run_io=slowly)
    async with running(store) as rig, running(store, broker=replace(BROKER, id=2)) as other:
        assert not other.member.is_active
        async with trio.open_nursery() as nursery:
            assert await rig.create("t") == [E.NONE]
            nursery.start_soon(partial(rig.topics.delete_topics, ["t"], timeout_ms=60_000))
            await rig.member.image_until(lambda image: "t" not in image.topics)
            begun = trio.current_time()
            for each in (rig, other):
                assert await each.topics.auto_create(["t"]) == {"t": E.LEADER_NOT_AVAILABLE}
            assert trio.current_time() == begun
            assert "t" in rig.member.machine().deleting


async def test_auto_creation_stops_waiting_when_the_topic_is_deleted(autojump_clock: trio.testing.MockClock) -> None:
    """It waits for a leader, which none of the replicas can be."""
    async with running() as rig, trio.open_nursery() as nursery:
        rig.replicas.broken.add("t")
        assert await rig.create("t", timeout_ms=0) == [E.REQUEST_TIMED_OUT]
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()

        async def delete() -> None:
            await trio.sleep(0.5)
            await rig.topics.delete_topics(["t"], timeout_ms=60_000)

        nursery.start_soon(delete)
        assert await rig.topics.auto_create(["t"]) == {"t": E.LEADER_NOT_AVAILABLE}
        assert trio.current_time() == pytest.approx(begun + 0.5)


async def test_many_topics_are_planned_in_portions() -> None:
    """Between two rounds of the loop some are planned, not all."""
    async with running() as rig:
        asked = [TopicRequest(f"t{number}", 1, 1) for number in range(1000)]
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await rig.topics.create_topics(asked, timeout_ms=0, validate_only=True)
            nursery.cancel_scope.cancel()
        assert rounds >= len(asked) // 100 - 1


@pytest.mark.parametrize("kind", ["topic", "group"])
async def test_settings_that_are_too_large_for_the_store_are_invalid(kind: str) -> None:
    async with running() as rig:
        assert await rig.create("t") == [0]

        def much(stored: Mapping[str, str]) -> Mapping[str, str]:
            return {f"key{number}": "x" * 30_000 for number in range(40)}

        alter = rig.topics.alter_topic_config if kind == "topic" else rig.topics.alter_group_config
        with pytest.raises(KafkaError) as caught:
            await alter("t", much)
        assert caught.value.code == E.INVALID_CONFIG
        await rig.topics.alter_topic_config("t", lambda stored: {"retention.ms": "5"})
        assert rig.member.image.topics["t"].config == {"retention.ms": "5"}


async def test_who_is_charged_may_refuse_on_any_broker(autojump_clock: trio.testing.MockClock) -> None:
    async with embedded_cluster(2) as cluster:
        for broker_id in (1, 2):
            left = 5

            def charge(count: int) -> None:
                nonlocal left
                if left < count:
                    raise KafkaError(E.THROTTLING_QUOTA_EXCEEDED)
                left -= count

            asked = [TopicRequest(f"{name}{broker_id}", 3, 1) for name in "ab"]
            codes = await cluster[broker_id].services.topics.ensure_topics(asked, charge=charge)
            assert list(codes.values()) == [E.NONE, E.THROTTLING_QUOTA_EXCEEDED]
            assert f"b{broker_id}" not in cluster[broker_id].services.image.topics
            await cluster[broker_id].services.topics.ensure_topics(asked[:1], charge=charge)
            assert left == 2, "what is there is not charged"


async def test_a_group_whose_name_the_store_does_not_take() -> None:
    async with running() as rig:
        with pytest.raises(KafkaError) as caught:
            await rig.topics.alter_group_config("\ufffd" * 30_000, lambda stored: {"a": "b"})
        assert caught.value.code == E.INVALID_CONFIG
        assert await rig.create("t") == [0]


def test_the_limit_is_apache_kafkas() -> None:
    assert MAX_NEW_PARTITIONS == 10_000
