"""Answers that cannot be encoded, given late, over the wire of a whole broker: the client gets an error or a closed
connection, all others are served, and the error is logged once. And the packets that once ended a broker.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from barnabas.kproto import EncodeError, ErrorCode
from barnabas.kproto.messages import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    WriteTxnMarkersRequest,
)
from barnabas.server.broker.broker import Broker
from barnabas.server.requests.produce.pending import PendingProduce
from barnabas.server.requests.route import Route
from barnabas.server.testing import Client, connected, embedded_broker
from barnabas.server.tests.apis.records.test_fetch import fetch, flat, values
from barnabas.server.tests.apis.records.test_produce import batch, only, request

DOOMED = 666
"""The correlation id of requests whose answers cannot be encoded."""
PATIENCE_S = 60


@asynccontextmanager
async def broker() -> AsyncIterator[tuple[Broker, Client]]:
    """With coordinators, and a topic `flushed` whose answers wait for a flush; a witness."""
    settings = {"group_initial_rebalance_delay_ms": "1000", "transaction_state_log_min_isr": "1"}
    async with embedded_broker(None, **settings) as made, connected(made) as witness:  # type: ignore[arg-type]
        with trio.fail_after(1000):
            config = CreateTopicsRequest.CreatableTopicConfig(name="flush.messages", value="1")
            topics = [
                CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=configs)
                for name, configs in (("t", []), ("flushed", [config]))
            ]
            await witness.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 5)
            for kind in (0, 1):
                await witness.ask(FindCoordinatorRequest(key="x", key_type=kind), 3)
            await trio.sleep(5)  # for both topics
            assert (await witness.ask(commit("mine", "t"), 8)).topics[0].partitions[0].error_code == ErrorCode.NONE
            yield made, witness


def commit(group: str, *topics: str) -> OffsetCommitRequest:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in topics],
    )


async def is_served(witness: Client) -> None:
    """The witness produces, fetches, commits, and sees its group."""
    produced = only(await witness.ask(request(batch(b"x"), acks=-1), 9))
    assert produced.error_code == ErrorCode.NONE
    answer = await witness.ask(fetch(("t", 0, produced.base_offset)), 12)
    assert values(flat(answer)[0]) == [b"x"]
    committed = await witness.ask(commit("mine", "t"), 8)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    listed = await witness.ask(ListGroupsRequest(), 4)
    assert listed.error_code == ErrorCode.NONE
    assert "mine" in [group.group_id for group in listed.groups]


@pytest.fixture
def unencodable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer to a doomed request can be encoded, nor its error."""
    encode_frame = Route.encode_frame

    def fails(self: Route, correlation_id: int, response: Any) -> Any:
        if correlation_id == DOOMED:
            raise EncodeError("string of 40000 bytes")
        return encode_frame(self, correlation_id, response)

    monkeypatch.setattr(Route, "encode_frame", fails)


async def outcome(client: Client, asked: Any, version: int, client_id: str = "doomed") -> Any:
    """The answer, "closed", or "nothing"."""
    client._correlation_id = DOOMED - 1
    await client.send(asked, version, client_id=client_id)
    with trio.move_on_after(PATIENCE_S):
        try:
            return await client.receive(asked, version)
        except (EOFError, trio.BrokenResourceError):
            return "closed"
    return "nothing"


def join(group: str = "g") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


MARKER = WriteTxnMarkersRequest.WritableTxnMarker(
    producer_id=1,
    producer_epoch=0,
    transaction_result=True,
    topics=[WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
)
LATE = [
    (request(batch(b"x"), acks=-1), 8),
    (request(batch(b"x"), topic="flushed"), 8),
    (commit("g", "t"), 8),
    (DeleteGroupsRequest(groups_names=["mine"]), 1),
    (
        OffsetDeleteRequest(
            group_id="mine",
            topics=[
                OffsetDeleteRequest.OffsetDeleteRequestTopic(
                    name="t", partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)]
                )
            ],
        ),
        0,
    ),
    (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 4),
    (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4),
    (WriteTxnMarkersRequest(markers=[MARKER]), 1),
    (join(), 3),
    (
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=-1)]
                )
            ],
            timeout_ms=1000,
        ),
        1,
    ),
    (
        FetchRequest(
            max_wait_ms=500,
            min_bytes=1 << 20,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(
                    topic="t",
                    partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
            ],
        ),
        11,
    ),
]


@pytest.mark.parametrize(("asked", "version"), LATE, ids=lambda value: type(value).__name__)
async def test_an_answer_that_cannot_be_encoded(
    asked: Any, version: int, unencodable: None, trouble: list[logging.LogRecord], autojump_clock: MockClock
) -> None:
    async with broker() as (made, witness), connected(made) as doomed, connected(made) as other:
        assert await outcome(doomed, asked, version) == "closed"
        assert len(trouble) == 1
        assert "client 'doomed' at 127.0.0.1: closing the connection" in trouble[0].getMessage()
        await other.ask(asked, version)  # the same request of another client
        await witness.ask(commit("mine", "t"), 8)
        await is_served(witness)
        assert len(trouble) == 1


async def test_members_of_one_group(
    unencodable: None, trouble: list[logging.LogRecord], autojump_clock: MockClock
) -> None:
    """The generation is formed with a member whose answer fails: the others get theirs, whichever member leads."""
    async with broker() as (made, witness), trio.open_nursery() as nursery:
        joined: list[Any] = []

        async def member(client_id: str, doomed: bool) -> None:
            async with connected(made) as client:
                if doomed:
                    joined.append(await outcome(client, join(), 3))
                else:
                    joined.append(await client.ask(join(), 3, client_id=client_id))

        for number in range(6):
            nursery.start_soon(member, f"c{number}", number % 3 == 0)
        await trio.sleep(10)
        assert sorted(str(getattr(each, "error_code", each)) for each in joined) == ["0"] * 4 + ["closed"] * 2
        assert len(trouble) == 2
        await is_served(witness)


@pytest.mark.parametrize("acks", [0, 1])
async def test_a_produce_that_fails_as_a_whole(
    acks: int, monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord], autojump_clock: MockClock
) -> None:
    """Who asked for no answer gets none, but a closed connection."""
    async with broker() as (made, witness), connected(made) as client:
        begin = PendingProduce.begin

        def fails(self: PendingProduce, req: Any) -> None:
            if self.ctx.client_id == "doomed":
                raise ValueError("by the test")
            begin(self, req)

        monkeypatch.setattr(PendingProduce, "begin", fails)
        answer = await outcome(client, request(batch(b"x"), acks=acks), 9)
        if acks:
            assert only(answer).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            assert answer == "closed"
        assert len(trouble) == 1
        await is_served(witness)


# -- packets that ended a broker, or its groups ------------------------------------------------------------------------

BAD = b"\xff" * 12_000
"""No UTF-8: read as so many U+FFFD, three times as long when it is written."""
LONG = b"x" * 32_767


def string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def frame(key: int, version: int, body: bytes, client_id: bytes = b"x") -> bytes:
    content = struct.pack(">hhi", key, version, 1) + string(client_id) + body
    return struct.pack(">i", len(content)) + content


def offset_commit(group: bytes, *topics: bytes) -> bytes:
    body = string(group) + struct.pack(">i", -1) + string(b"") + struct.pack(">qi", -1, len(topics))
    return body + b"".join(string(topic) + struct.pack(">iiq", 1, 0, 1) + string(b"") for topic in topics)


def produce(*topics: bytes) -> bytes:
    records = batch(b"x")
    body = struct.pack(">hhii", -1, 1, 5000, len(topics))
    return body + b"".join(string(t) + struct.pack(">iii", 1, 0, len(records)) + records for t in topics)


def join_body(group: bytes, member: bytes = b"") -> bytes:
    body = string(group) + struct.pack(">ii", 30_000, 30_000) + string(member) + string(b"consumer")
    return body + struct.pack(">i", 1) + string(b"range") + struct.pack(">i", 0)


PACKETS = {
    "OffsetCommit": frame(8, 2, offset_commit(b"g", b"t", BAD)),
    "OffsetCommit of a long group": frame(8, 2, offset_commit(LONG, b"t")),
    "InitProducerId": frame(22, 1, string(BAD) + struct.pack(">i", 10_000)),
    "InitProducerId, long": frame(22, 1, string(LONG) + struct.pack(">i", 10_000)),
    "Produce": frame(0, 8, produce(b"flushed", BAD)),
    "Produce, long": frame(0, 8, produce(b"flushed", LONG)),
    "DeleteGroups": frame(42, 0, struct.pack(">i", 2) + string(b"mine") + string(BAD)),
    "JoinGroup of a group": frame(11, 3, join_body(BAD)),
    "JoinGroup of a long group": frame(11, 3, join_body(LONG)),
    "JoinGroup with a client id": frame(11, 3, join_body(b"g"), BAD),
    "JoinGroup with a long client id": frame(11, 3, join_body(b"g"), LONG),
    "JoinGroup 4 with a long client id": frame(11, 4, join_body(b"g"), LONG),
}


@pytest.mark.parametrize("packet", PACKETS.values(), ids=PACKETS)
async def test_packets(packet: bytes, trouble: list[logging.LogRecord], autojump_clock: MockClock) -> None:
    """Whatever becomes of them, the others of the same group, and all lists, are as they were; also when the
    coordinator's topic goes away under them.
    """
    async with broker() as (made, witness), connected(made) as hostile, connected(made) as other:
        with trio.move_on_after(PATIENCE_S):
            try:
                await hostile.stream.send_all(packet)
                await trio.sleep(0.5)
                assert (await other.ask(join(), 3)).error_code == ErrorCode.NONE
                await hostile.receive_frame()
            except (EOFError, trio.BrokenResourceError):
                pass
        await is_served(witness)
        described = await witness.ask(DescribeGroupsRequest(groups=["g", "mine"]), 5)
        assert [group.error_code for group in described.groups] == [ErrorCode.NONE] * 2
        await hostile.stream.aclose()
        async with connected(made) as again:
            await again.stream.send_all(packet)
            await trio.sleep(0.1)
            deleted = await witness.ask(DeleteTopicsRequest(topic_names=["__consumer_offsets"], timeout_ms=1000), 3)
            assert deleted.responses[0].error_code == ErrorCode.NONE
            await trio.sleep(5)
        assert only(await witness.ask(request(batch(b"x"), acks=-1), 9)).error_code == ErrorCode.NONE
        assert not trouble
