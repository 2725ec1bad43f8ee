"""Produce and Fetch of whom not everything is allowed: single topics, the short ways, sessions."""

from __future__ import annotations

import pytest
import trio

from barnabas.kproto.records import BATCH_OVERHEAD, TRANSACTIONAL, Record
from barnabas.kproto.records_legacy import build_message_set
from barnabas.kproto.records_peek import ATTRIBUTES_LOW_BYTE
from barnabas.server.security.acls.model import (
    PermissionType,
)
from barnabas.server.tests.apis.access_world import (
    E,
    Op,
    T,
    X,
    fetch_from,
    fetched,
    produce_to,
    produced,
    world,
)
from barnabas.server.tests.apis.records.test_produce import batch, read_all
from barnabas.server.tests.apis.test_access import cluster, on_topic


@pytest.mark.parametrize("acks", [1, -1])
async def test_produce_to_some(acks: int, autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b", "c") as (_, rights, alice, root):
        rights.put(on_topic(Op.WRITE, name="b") + on_topic(Op.READ, name="a"))
        answer = await alice.ask(produce_to("a", "nothing", "b", "c", acks=acks), 9)
        assert produced(answer) == [("a", T), ("nothing", T), ("b", 0), ("c", T)]
        assert [len(await read_all(root, name)) > 0 for name in "abc"] == [False, True, False]


async def test_produce_by_ids(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (broker, rights, alice, _):
        ids = {name: broker.services.image.topics[name].topic_id for name in "ab"} | {"?": b"\7" * 16}
        rights.put(on_topic(Op.WRITE, name="b"))
        answer = await alice.ask(produce_to("a", "?", "b", ids=ids), 13)
        found = [(each.topic_id, each.partition_responses[0].error_code) for each in answer.responses]
        assert found == [(ids["a"], T), (ids["?"], E.UNKNOWN_TOPIC_ID), (ids["b"], 0)]


@pytest.mark.parametrize("version", [0, 2, 3, 9])
async def test_without_acks_a_denial_closes_the_connection(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, rights, alice, root):
        rights.put(on_topic(Op.READ, name="a"))
        request = produce_to("a", acks=0)
        if version < 3:
            request.topic_data[0].partition_data[0].records = None
        await alice.send(request, version)
        with pytest.raises(EOFError):
            await alice.receive_frame()
        assert await read_all(root, "a") == b""


async def test_without_acks_what_is_allowed_is_appended_all_the_same(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, root):
        rights.put(on_topic(Op.WRITE, name="a"))
        await alice.send(produce_to("a", "b", acks=0), 9)
        with pytest.raises(EOFError):
            await alice.receive_frame()
        assert await read_all(root, "a") != b""


@pytest.mark.parametrize("version", [9, 12, 13])
async def test_a_busy_producer_loses_his_right_and_gets_it_back(version: int, autojump_clock: trio.abc.Clock) -> None:
    """The short way that his requests take is no way around."""
    async with world("a") as (broker, rights, alice, _):
        ids = {"a": broker.services.image.topics["a"].topic_id} if version >= 13 else None

        async def code() -> int:
            response = await alice.ask(produce_to("a", ids=ids), version)
            return int(response.responses[0].partition_responses[0].error_code)

        assert await code() == T
        for _ in range(2):
            rights.put(on_topic(Op.WRITE, name="a"))
            assert [await code() for _ in range(3)] == [0, 0, 0]
            rights.clear()
            assert [await code() for _ in range(2)] == [T, T]
        rights.put(on_topic(Op.ALL, name="a"))
        assert await code() == 0
        rights.put(on_topic(Op.WRITE, name="a"), PermissionType.DENY)
        assert await code() == T


async def test_a_run_of_requests_does_not_outlive_the_right(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, rights, alice, _):
        rights.put(on_topic(Op.WRITE, name="a"))
        request = produce_to("a")
        assert produced(await alice.ask(request, 9)) == [("a", 0)]
        assert produced(await alice.ask(request, 9)) == [("a", 0)]
        rights.clear()
        for _ in range(4):
            await alice.send(request, 9)
        assert [produced(await alice.receive(request, 9)) for _ in range(4)] == [[("a", T)]] * 4


async def test_an_id_that_gets_a_topic_later_is_no_way_around(
    autojump_clock: trio.abc.Clock,
) -> None:
    """A topic is led here a moment before the image has it."""
    async with world("a") as (broker, rights, alice, root):
        ids = {"a": broker.services.image.topics["a"].topic_id}
        rights.put(on_topic(Op.WRITE, Op.READ, name="other"))
        produce = produce_to("a", ids=ids)
        fetch = fetch_from("a", epoch=0)
        fetch.topics[0].topic, fetch.topics[0].topic_id = "", ids["a"]
        image = broker.services.image
        known = image.topics_by_id
        object.__setattr__(image, "topics_by_id", {})
        for _ in range(2):
            (topic_,) = (await alice.ask(produce, 13)).responses
            assert topic_.partition_responses[0].error_code == E.UNKNOWN_TOPIC_ID
            answer = await alice.ask(fetch, 13)
            assert answer.session_id == 0
            assert answer.responses[0].partitions[0].error_code == E.UNKNOWN_TOPIC_ID
        object.__setattr__(image, "topics_by_id", known)
        for _ in range(2):
            assert (await alice.ask(produce, 13)).responses[0].partition_responses[0].error_code == T
            assert (await alice.ask(fetch, 13)).responses[0].partitions[0].error_code == T
        assert await read_all(root, "a") == b""


async def test_transactional_batches_need_the_id(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, _):
        rights.put(on_topic(Op.WRITE, name="a"))
        request = produce_to("a", "b")
        request.transactional_id = "x"
        assert produced(await alice.ask(request, 9)) == [("a", 0), ("b", T)]  # no batch is transactional
        for each in request.topic_data:
            each.partition_data[0].records = batch(b"a", transactional=True)
        assert produced(await alice.ask(request, 9)) == [("a", X), ("b", X)]


async def test_transactional_batches_without_an_id_are_denied(autojump_clock: trio.abc.Clock) -> None:
    """Whatever topics they are for, and with them all of the request. Byte 22 of an older set is another matter."""
    async with world("a", "b") as (_, rights, alice, root):
        rights.put(on_topic(Op.WRITE, name="a"))
        request = produce_to("a", "b", "nothing")
        request.topic_data[1].partition_data[0].records = batch(b"a", transactional=True)
        for client in (alice, root):
            assert produced(await client.ask(request, 9)) == [("a", X), ("b", X), ("nothing", X)]
        request.acks = 0
        await alice.send(request, 9)
        with pytest.raises(EOFError):
            await alice.receive_frame()
        assert await read_all(root, "a") == b""


async def test_older_records_are_not_taken_for_transactional(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, rights, alice, _):
        rights.put(on_topic(Op.WRITE, name="a"))
        request = produce_to("a")
        records = build_message_set([Record(0, TRANSACTIONAL << 24, None, b"v" * BATCH_OVERHEAD)], magic=1)
        assert records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL
        request.topic_data[0].partition_data[0].records = records
        assert produced(await alice.ask(request, 2)) == [("a", 0)]


@pytest.mark.parametrize("version", [0, 3, 4, 6, 7, 11, 12])
async def test_fetch_of_some(version: int, autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b", "c") as (_, rights, alice, root):
        await root.ask(produce_to("a", "b", "c"), 9)
        rights.put(on_topic(Op.READ, name="b"))
        request = fetch_from("a", "b", "c", "nothing")
        if version < 7:
            request.session_epoch = -1
        if version < 3:
            request.max_bytes = 0x7FFFFFFF
        answer = await alice.ask(request, version)
        assert fetched(answer) == [("a", T, False), ("b", 0, True), ("c", T, False), ("nothing", T, False)]
        assert answer.error_code == 0


async def test_a_session_is_opened_for_what_may_be_read(autojump_clock: trio.abc.Clock) -> None:
    async with world("a", "b") as (_, rights, alice, root):
        await root.ask(produce_to("a", "b"), 9)
        rights.put(on_topic(Op.READ, name="a"))
        for _ in range(2):  # each of them a full one, as there is no session
            answer = await alice.ask(fetch_from("a", "b", epoch=0), 12)
            assert (answer.session_id, fetched(answer)) == (0, [("a", 0, True), ("b", T, False)])
        answer = await alice.ask(fetch_from("a", epoch=0), 12)
        session_id = answer.session_id
        assert session_id
        # What is denied does not come into it,
        answer = await alice.ask(fetch_from("b", session_id=session_id, epoch=1), 12)
        assert answer.error_code == E.FETCH_SESSION_ID_NOT_FOUND
        # and the next full request gets the denial.
        answer = await alice.ask(fetch_from("a", "b", epoch=0), 12)
        assert fetched(answer) == [("a", 0, True), ("b", T, False)]


async def test_a_right_that_ends_ends_the_session(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, rights, alice, root):
        await root.ask(produce_to("a"), 9)
        rights.put(on_topic(Op.READ, name="a"))
        session_id = (await alice.ask(fetch_from("a", epoch=0), 12)).session_id
        for epoch in (1, 2, 3):  # the short way
            answer = await alice.ask(fetch_from("a", session_id=session_id, epoch=epoch), 12)
            assert fetched(answer) == [("a", 0, True)]
        rights.put(on_topic(Op.WRITE, name="b"))  # another right changes nothing
        answer = await alice.ask(fetch_from("a", session_id=session_id, epoch=4), 12)
        assert fetched(answer) == [("a", 0, True)]
        rights.clear()
        answer = await alice.ask(fetch_from("a", session_id=session_id, epoch=5), 12)
        assert (answer.error_code, fetched(answer)) == (E.FETCH_SESSION_ID_NOT_FOUND, [])
        assert fetched(await alice.ask(fetch_from("a", epoch=0), 12)) == [("a", T, False)]


async def test_the_fetch_session_of_another_principal_gives_nothing(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, _, alice, root):
        await root.ask(produce_to("a"), 9)
        session_id = (await root.ask(fetch_from("a", epoch=0), 12)).session_id
        answer = await alice.ask(fetch_from(session_id=session_id, epoch=1), 12)
        assert (answer.error_code, fetched(answer)) == (E.FETCH_SESSION_ID_NOT_FOUND, [])


async def test_without_a_session_the_short_way_ends_with_the_right(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, rights, alice, root):
        await root.ask(produce_to("a"), 9)
        rights.put(on_topic(Op.READ, name="a"))
        for _ in range(3):
            assert fetched(await alice.ask(fetch_from("a"), 12)) == [("a", 0, True)]
        rights.clear()
        for _ in range(2):
            assert fetched(await alice.ask(fetch_from("a"), 12)) == [("a", T, False)]


async def test_followers_need_cluster_action(autojump_clock: trio.abc.Clock) -> None:
    async with world("a") as (_, rights, alice, _):
        rights.put(on_topic(Op.READ, name="a"))
        assert fetched(await alice.ask(fetch_from("a", replica_id=7), 12)) == [("a", T, False)]
        rights.put(cluster(Op.CLUSTER_ACTION))
        assert fetched(await alice.ask(fetch_from("a", replica_id=7), 12))[0][1] != T
