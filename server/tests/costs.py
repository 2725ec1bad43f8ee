"""What small requests cost: microseconds of the loop's CPU for each, of a broker in this process.

    python -m barnabas.server.tests.costs                    # all cases
    python -m barnabas.server.tests.costs --only "produce 13"   # those whose name has this in it
    python -m barnabas.server.tests.costs --sockets          # over TCP, with the kernel's part

64 connections send a request each; then the round ends, and the answers are there. Their bytes go into `Connection`
directly, or through the reactor and loopback sockets. Only what the broker does is timed, by the thread's CPU time: the
smallest of nine repetitions of ten rounds, which other work on the machine changes by 3 % at most. Logs are real files.

Nothing here is a test. What clients get out of it is measured by `python -m compat_tests.bench`.
"""

from __future__ import annotations

import argparse
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from barnabas.kproto import ApiKey, KafkaError
from barnabas.kproto.frame import request_frame
from barnabas.kproto.messages import FetchRequest, OffsetCommitRequest, ProduceRequest
from barnabas.kproto.records import Record, build_batch
from barnabas.server.broker.broker import Broker
from barnabas.server.network.connection import Connection
from barnabas.server.partitions.partition import Partition
from barnabas.server.testing import embedded_broker

CONNECTIONS = 64
ROUNDS = 10
REPETITIONS = 9
PARTITIONS = 6
PARTITIONS_MAX = 100


@dataclass
class Bench:
    """A broker with a topic, and what the cases need to make frames. `turn`: the number of the present round."""

    broker: Broker
    name: str
    topic_id: bytes
    rng: Random = field(default_factory=lambda: Random(7))
    turn: int = 0
    batches: dict[Any, bytes] = field(default_factory=dict)

    def batch(self, sizes: list[int], producer_id: int = -1) -> bytes:
        """A batch of records of these sizes, with sequence numbers if there is a producer id."""
        now_ms = self.broker.services.wall_ms()
        records = [Record(i, now_ms, None, bytes(size), []) for i, size in enumerate(sizes)]
        if producer_id < 0:
            return bytes(build_batch(records))
        sequence = self.turn * len(sizes)
        return bytes(build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))

    def produce(self, version: int, batches: list[bytes], acks: int = -1) -> bytes:
        """A frame that appends one batch to each of the first partitions."""
        by_id = version >= 13
        asked = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name="" if by_id else self.name,
                    topic_id=self.topic_id if by_id else bytes(16),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=records)
                        for index, records in enumerate(batches)
                    ],
                )
            ],
        )
        return request_frame(version, self.turn, "producer-1", asked)

    def fetch(self, version: int, *, min_bytes: int = 1, max_wait_ms: int = 0, offset: int = 0) -> bytes:
        """A frame that fetches one batch of partition 0, without a session."""
        by_id = version >= 13
        asked = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=50 << 20,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(
                    topic="" if by_id else self.name,
                    topic_id=self.topic_id if by_id else bytes(16),
                    partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)],
                )
            ],
        )
        return request_frame(version, self.turn, "consumer-1", asked)

    def commit(self, version: int, group: str, partitions: int) -> bytes:
        """A frame by which somebody who is no member commits offsets, rising from frame to frame."""
        asked = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=self.name,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=self.turn, committed_metadata=""
                        )
                        for index in range(partitions)
                    ],
                )
            ],
        )
        return request_frame(version, self.turn, "consumer-1", asked)


MakeFrame = Callable[[Bench, int], bytes]
"""(bench, number of the connection) -> the next request of that connection."""


def _one(version: int, *, idempotent: bool = False, acks: int = -1) -> MakeFrame:
    return lambda bench, number: bench.produce(version, [bench.batch([100], number if idempotent else -1)], acks)


def _large(version: int, mixed: Callable[[Bench], list[int]], partitions: int = 1) -> MakeFrame:
    def frame(bench: Bench, number: int) -> bytes:
        return bench.produce(version, [bench.batch(mixed(bench), number) for _ in range(partitions)])

    return frame


def _fetch(version: int, offset: int = 0) -> MakeFrame:
    return lambda bench, number: bench.fetch(version, offset=offset)


def _waiting(version: int) -> MakeFrame:
    """All requests but one wait at the log's end, for the record of the last."""

    def frame(bench: Bench, number: int) -> bytes:
        if number == CONNECTIONS - 1:
            return bench.produce(13, [bench.batch([100])])
        end = bench.broker.services.partitions.get(bench.name, 0).log_end_offset
        return bench.fetch(version, max_wait_ms=500, offset=end)

    return frame


def _commit(version: int, groups: int, partitions: int = 1) -> MakeFrame:
    return lambda bench, number: bench.commit(version, f"group-{number % groups}", partitions)


def _commit_anew(version: int, groups: int) -> MakeFrame:
    """No two requests of a connection have the same size in a row, nor the same group: the slow path."""
    return lambda bench, number: bench.commit(version, f"group-{'x' * (bench.turn % 40)}-{number % groups}", 1)


CASES: dict[str, MakeFrame] = {
    "produce 5, one record": _one(5),
    "produce 7, one record": _one(7),
    "produce 9, one record": _one(9),
    "produce 13, one record": _one(13),
    "produce 13, one record, acks=1": _one(13, acks=1),
    "produce 13, one record, idempotent": _one(13, idempotent=True),
    "produce 13, 16 KB of one size": _large(13, lambda bench: [1000] * 16),
    "produce 13, 16 KB of 500-1500 B": _large(13, lambda bench: [bench.rng.randrange(500, 1500) for _ in range(16)]),
    "produce 13, 16 KB of 60-140 B": _large(13, lambda bench: [bench.rng.randrange(60, 140) for _ in range(150)]),
    "produce 13, 16 KB for six partitions": _large(13, lambda bench: [1000] * 16, PARTITIONS),
    "produce 7, 16 KB for six partitions": _large(7, lambda bench: [1000] * 16, PARTITIONS),
    "produce 13, one record for six partitions": _large(13, lambda bench: [100], PARTITIONS),
    "fetch 12, 1 KB": _fetch(12),
    "fetch 18, 1 KB": _fetch(18),
    "fetch 18, 16 KB": _fetch(18, 1),
    "fetch 18, 64 KB": _fetch(18, 2),
    "commit 9, one group": _commit(9, 1),
    "commit 9, 64 groups": _commit(9, CONNECTIONS),
    "commit 9, 64 groups, never the same twice": _commit_anew(9, CONNECTIONS),
    "commit 9, 64 groups, 100 partitions": _commit(9, CONNECTIONS, PARTITIONS_MAX),
    "fetch 12, waits for 100 B": _waiting(12),
    "fetch 18, waits for 100 B": _waiting(18),
}


class _Direct:
    """Bytes go into connections, and answers are taken out of them. A `Transport`."""

    def __init__(self, bench: Bench) -> None:
        parts = bench.broker.parts
        self._end_of_round = parts.services.partitions.write_staged
        listener = bench.broker.endpoints[0].listener
        self._connections = [parts.admission.connection(listener, "127.0.0.1", self) for _ in range(CONNECTIONS)]

    def wake(self, connection: Connection) -> None:
        """Part of `Transport`."""

    def abort(self, connection: Connection) -> None:
        """Part of `Transport`."""
        raise AssertionError("a connection was closed")

    def round(self, frames: list[bytes]) -> float:
        views = [memoryview(bytearray(frame)) for frame in frames]
        began = time.thread_time()
        for connection, view in zip(self._connections, views, strict=True):
            connection.receive(view)
        self._end_of_round()
        took = time.thread_time() - began
        for connection in self._connections:
            assert connection.out, "a request was not answered"
            connection.sent(connection.out_bytes)
            connection.out.clear()
        return took

    def close(self) -> None:
        for connection in self._connections:
            connection.lost()


class _Sockets:
    """Through the reactor, over loopback TCP; this thread is the clients, too."""

    def __init__(self, bench: Bench) -> None:
        self._reactor: Any = bench.broker.parts.reactor
        endpoint = bench.broker.endpoints[0]
        self._sockets = []
        for _ in range(CONNECTIONS):
            self._sockets.append(socket.create_connection((endpoint.host, endpoint.port)))
            self._serve()

    def _serve(self) -> float:
        began = time.thread_time()
        while events := self._reactor._epoll.poll(0, 256):
            self._reactor._round(events, 0.0)
        return time.thread_time() - began

    def round(self, frames: list[bytes]) -> float:
        for sock, frame in zip(self._sockets, frames, strict=True):
            sock.sendall(frame)
        took = self._serve()
        for sock in self._sockets:
            (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
            assert len(sock.recv(left, socket.MSG_WAITALL)) == left
        return took

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()
        self._serve()


async def _coordinated(broker: Broker) -> Partition:
    """Where the offsets of the first group are written, once all groups have a coordinator."""
    groups = broker.services.groups
    groups.want_topic()
    while True:
        try:
            first, *_ = [groups.partition_of(f"group-{number}") for number in range(CONNECTIONS)]
            return first
        except KafkaError:
            await trio.sleep(0.01)


async def measure(make: MakeFrame, sockets: bool) -> float:
    """Microseconds for each request."""
    settings = {
        "num_partitions": str(PARTITIONS_MAX),
        "offsets_topic_num_partitions": "50",
        "log_retention_ms": "-1",
    }
    async with embedded_broker(**settings) as broker:
        await broker.services.topics.auto_create(["costs"])
        await broker.services.cluster.image_until(lambda image: "costs" in image.topics)
        bench = Bench(broker, "costs", broker.services.image.topics["costs"].topic_id)
        partition = broker.services.partitions.get("costs", 0)
        carrier = _Sockets(bench) if sockets else _Direct(bench)
        key = ApiKey(make(bench, 0)[5])
        if key is ApiKey.OFFSET_COMMIT:
            partition = await _coordinated(broker)
        if key is ApiKey.FETCH:
            for kib in (1, 16, 64):
                carrier.round([bench.produce(13, [bench.batch([1000 * kib])])] + [bench.fetch(18)] * (CONNECTIONS - 1))
        best = float("inf")
        for _ in range(REPETITIONS):
            took = 0.0
            for _ in range(ROUNDS):
                bench.turn += 1
                took += carrier.round([make(bench, number) for number in range(CONNECTIONS)])
            best = min(best, took)
        assert partition.log_end_offset
        carrier.close()
        return best / ROUNDS / CONNECTIONS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m barnabas.server.tests.costs", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--sockets", action="store_true", help="over TCP, with the kernel's part")
    options = parser.parse_args()
    for name, make in CASES.items():
        if options.only in name:
            took = trio.run(measure, make, options.sockets)
            print(f"{took:8.2f} us  {name}", flush=True)


if __name__ == "__main__":
    main()
