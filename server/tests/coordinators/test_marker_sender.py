"""Markers for other brokers: versions, brokers that are away, leaders that move, topics that go."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock, memory_stream_pair

from barnabas.kproto import ApiKey, ErrorCode, decode, encode, request_class
from barnabas.kproto.frame import FrameSplitter, parse_request_header, response_frame
from barnabas.kproto.messages import ApiVersionsResponse
from barnabas.replication import Endpoint, PartitionImage, StoreError
from barnabas.server.tests.coordinators.txn_rig import TxnRig, txn_rig, written

E = ErrorCode
T0, T1 = ("t", 0), ("t", 1)


class Others:
    """Stands for the other brokers, by host. newest: the version of WriteTxnMarkers they serve up to."""

    def __init__(self, rig: TxnRig) -> None:
        self.rig = rig
        self.newest = 2
        self.away: set[str] = set()
        self.silent = False
        self.code = E.NONE
        self.received: list[tuple[str, int, Any]] = []
        rig.connections = self.connect

    async def connect(self, endpoint: Endpoint) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if endpoint.host in self.away:
            raise ConnectionRefusedError("refused")
        ours, theirs = memory_stream_pair()
        assert self.rig.nursery is not None
        self.rig.nursery.start_soon(self._serve, endpoint.host, theirs)
        return ours

    async def _serve(self, host: str, stream: trio.abc.Stream) -> None:
        splitter = FrameSplitter(1 << 20)
        while data := await stream.receive_some(1 << 16):
            for frame in splitter.feed(data):
                header = parse_request_header(frame)
                key, version = ApiKey(header.api_key), header.api_version
                request: Any = decode(request_class(key), version, frame, header.body_offset)
                if key is ApiKey.API_VERSIONS:
                    row = ApiVersionsResponse.ApiVersion(api_key=27, min_version=0, max_version=self.newest)
                    answer: Any = ApiVersionsResponse(api_keys=[row])
                else:
                    self.received.append((host, version, request))
                    if self.silent:
                        await trio.sleep_forever()
                    answer = written(request, self.code)
                parts = response_frame(key, version, header.correlation_id, [encode(answer, version)])
                await stream.send_all(b"".join(bytes(part) for part in parts))

    @property
    def marked(self) -> list[tuple[str, tuple[str, int]]]:
        """(host, partition), in order."""
        return [
            (host, (topic.name, index))
            for host, _, request in self.received
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


def lead_elsewhere(rig: TxnRig, index: int, leader: int) -> None:
    """Partition `index` of topic t is led by another broker, or by none (-1)."""
    topic = rig.world.image.topics["t"]
    rig.world.image = rig.world.image.with_topics(
        [topic.with_partitions([PartitionImage(index, leader, 3, 3, (0, 1, 2), (0, 1, 2))])]
    )


async def decide(rig: TxnRig) -> tuple[int, int]:
    """A committed transaction over partitions 0 and 1, whose client has its answer."""
    rig.topic()
    who = await rig.ongoing(T0, T1)
    ended = rig.end(who)
    rig.round()
    assert ended.answer.error_code == E.NONE
    return who


@pytest.mark.parametrize("newest", [0, 1, 2])
async def test_each_leader_gets_its_markers(newest: int, tmp_path: Path, autojump_clock: MockClock) -> None:
    async with txn_rig(tmp_path) as r:
        others = Others(r)
        others.newest = newest
        r.brokers(0, 1, 2)
        lead_elsewhere(r, 1, 1)
        await decide(r)
        assert r.state() == "PrepareCommit"
        assert [marker[4] for marker in r.markers] == [T0]
        await trio.testing.wait_all_tasks_blocked()
        assert others.marked == [("broker1", T1)]
        assert others.received[0][1] == newest
        assert r.state() == "CompleteCommit"


async def test_a_broker_that_is_away_gets_them_later(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with txn_rig(tmp_path) as r:
        others = Others(r)
        others.away.add("broker1")
        r.brokers(0, 1)
        lead_elsewhere(r, 1, 1)
        with caplog.at_level(logging.INFO, "barnabas"):
            await decide(r)
            await trio.sleep(5)
            assert r.state() == "PrepareCommit"
            assert [topic.partitions for topic in r.transactions.describe("x").topics] == [[1]]
            others.away.clear()
            await trio.sleep(0.2)
        assert r.state() == "CompleteCommit"
        assert len([record for record in caplog.records if "cannot send transaction markers" in record.message]) == 1
        assert "again" in caplog.records[-1].message


async def test_markers_follow_the_leader(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with txn_rig(tmp_path) as r:
        others = Others(r)
        others.code = E.NOT_LEADER_OR_FOLLOWER
        r.brokers(0, 1, 2)
        lead_elsewhere(r, 1, 1)
        await decide(r)
        await trio.sleep(1)
        assert {host for host, _ in others.marked} == {"broker1"}
        lead_elsewhere(r, 1, -1)
        await trio.sleep(0.2)
        asked = len(others.received)
        await trio.sleep(1)
        assert len(others.received) == asked
        others.code = E.NONE
        lead_elsewhere(r, 1, 2)
        await trio.sleep(0.2)
        assert others.marked[-1] == ("broker2", T1)
        assert r.state() == "CompleteCommit"


async def test_a_broker_that_does_not_answer_gets_the_markers_again(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with txn_rig(tmp_path, request_timeout_ms="30000") as r:
        others = Others(r)
        others.silent = True
        r.brokers(0, 1)
        lead_elsewhere(r, 1, 1)
        await decide(r)
        await trio.sleep(29)
        assert len(others.received) == 1
        others.silent = False
        await trio.sleep(2)
        assert others.marked == [("broker1", T1)] * 2
        assert r.state() == "CompleteCommit"


async def test_a_broker_that_lost_its_leadership_is_not_waited_for(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with txn_rig(tmp_path, request_timeout_ms="30000") as r:
        others = Others(r)
        others.silent = True
        r.brokers(0, 1, 2)
        lead_elsewhere(r, 1, 1)
        await decide(r)
        await trio.sleep(5)
        assert others.marked == [("broker1", T1)]
        r.brokers(0, 1, 2)  # another picture in which nothing is new
        await trio.sleep(2)
        assert len(others.received) == 1
        others.silent = False
        lead_elsewhere(r, 1, 2)
        await trio.sleep(1.2)
        assert others.marked == [("broker1", T1), ("broker2", T1)]
        assert r.state() == "CompleteCommit"


async def test_a_partition_is_gone_when_the_store_says_so(
    tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The picture alone does not count: a broker that has just been started may not have all of it."""
    async with txn_rig(tmp_path) as r:
        Others(r)
        r.hold = True
        await decide(r)
        r.hold = False
        whole, r.markers = r.world.image, []
        r.stored["t"] = StoreError("away")
        topics = {name: topic for name, topic in whole.topics.items() if name != "t"}
        r.world.image = dataclasses.replace(whole, topics=topics)
        await r.restart()
        await trio.sleep(3)
        assert r.state() == "PrepareCommit"
        assert 3 <= len([record for record in caplog.records if "are delayed: away" in record.message]) <= 4
        r.stored["t"] = None  # its node is no topic's
        await trio.sleep(3)
        assert r.state() == "PrepareCommit"
        r.stored["t"] = 1
        await trio.sleep(3)
        assert [topic.partitions for topic in r.transactions.describe("x").topics] == [[0]]
        r.world.image = whole
        await trio.sleep(0.2)
        assert [marker[4] for marker in r.markers] == [T0]
        assert r.state() == "CompleteCommit"


async def test_what_a_coordinator_in_office_sent_does_not_answer_for_the_next(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The partition goes and comes back while a marker is on its way."""
    async with txn_rig(tmp_path) as r:
        others = Others(r)
        others.silent = True
        r.brokers(0, 1)
        lead_elsewhere(r, 1, 1)
        await decide(r)
        await trio.testing.wait_all_tasks_blocked()
        r.transactions.resign(0)
        r.world.new_epoch(r.partition, 9)
        r.transactions.lead(r.partition)
        await trio.testing.wait_all_tasks_blocked()
        assert r.markers[-1][3:] == (9, T0)
        assert r.state() == "PrepareCommit"
        others.silent = False
        await trio.sleep(31)
        assert r.state() == "CompleteCommit"
        assert others.received[-1][2].markers[0].coordinator_epoch == 9
